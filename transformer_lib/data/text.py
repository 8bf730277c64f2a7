"""Text as every door of the library reads and writes it: composed letters, on one line."""

import unicodedata
from collections.abc import Iterable

__all__ = ["check_texts", "composed", "one_line"]

_MARKS = {0: " ", 0xFEFF: None}  # NUL, and the byte-order mark


def check_texts(texts: Iterable[str]) -> list[str]:
    """A list of the texts, if all of them can be written in UTF-8."""
    lines = [texts] if isinstance(texts, bytes | str) else list(texts)
    for i, text in enumerate(lines):
        if isinstance(texts, bytes | str) or not isinstance(text, str):
            raise TypeError(f"texts[{i}] is {text!r:.60}, expected a list of strings")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            where = f"{text[error.start]!r} at position {error.start}"
            raise ValueError(f"texts[{i}] holds half a surrogate pair, {where}") from None
    return lines


def composed(text: str) -> str:
    """A text with composed letters (NFC), and without a byte-order mark.

    Source: Unicode Standard Annex 15.
    """
    return unicodedata.normalize("NFC", text.translate(_MARKS))


def one_line(text: str) -> str:
    """A segment on one line: ``composed``, and all white space as single spaces.

    Example:
        >>> one_line("\\ufeffU\\u0308ber  die\\u2028Straße")
        'Über die Straße'
    """
    return " ".join(unicodedata.normalize("NFC", text.translate(_MARKS)).split())
