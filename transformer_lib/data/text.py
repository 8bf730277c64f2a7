"""Text as every door of the library reads and writes it: composed letters, on one line."""

import unicodedata
from collections.abc import Iterable
from typing import Any

__all__ = ["check_texts", "one_line"]

# NUL, the zero-width space; the soft hyphen, marks of direction, the word joiner, the byte-order mark
_UNSEEN = {0: " ", 0x200B: " "} | dict.fromkeys((0xAD, 0x200E, 0x200F, 0x2060, 0xFEFF))


def check_texts(texts: Iterable[str]) -> list[str]:
    """A list of the texts, if all of them can be written in UTF-8."""
    single = isinstance(texts, bytes | str) or not isinstance(texts, Iterable)
    lines: list[Any] = [texts] if single else list(texts)
    for i, text in enumerate(lines):
        if single or not isinstance(text, str):
            raise TypeError(f"texts[{i}] is {text!r:.60}, expected a list of strings")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            where = f"{text[error.start]!r} at position {error.start}"
            raise ValueError(f"texts[{i}] holds half a surrogate pair, {where}") from None
    return lines


def one_line(text: str) -> str:
    """A segment on one line: composed letters (NFC), single spaces, and no characters that nobody sees.

    Example:
        >>> one_line("\\ufeffU\\u0308ber  die\\u2028Stra\\u00adße")
        'Über die Straße'

    Source: Unicode Standard Annex 15.
    """
    return " ".join(unicodedata.normalize("NFC", text.translate(_UNSEEN)).split())
