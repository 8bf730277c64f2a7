"""Text as every door of the library reads and writes it: composed letters, on one line."""

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

__all__ = ["check_texts", "one_line", "visible"]

_ORDINARY = re.compile("[\t-\r\x1c-~\x85\xa0-\xac\xae-\u034e\u0350-\u05ff\u2010-\u2029]*")  # of most texts
_BLANK = re.compile("[\0\u200b\u2800\u3164\uffa0]")  # NUL, the zero-width space, blanks of Braille and of Hangul
_NOTHING = (  # default ignorable, such as soft hyphens, marks of direction, variation selectors and tags
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200e\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff0-\ufffb\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\x01-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"  # control characters
)
_UNSEEN = re.compile(  # and signs that are drawn around digits or letters, without any
    f"[{_NOTHING}]+|[\u0600-\u0605\u06dd\u0890\u0891\u08e2\U000110bd\U000110cd]"
    f"(?![{_NOTHING}]*[0-9\u0660-\u0669\u06f0-\u06f9\u0966-\u096f])|\u070f(?![{_NOTHING}]*[\u0710-\u074f])"
)
_LETTER, _PICTURE = "[\u0600-\u109f\u1780-\u18af]", "[\u2190-\u21ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
_JOINERS = re.compile(  # both zero-width joiners stay where they are seen: in Arabic to Burmese, and in emoji
    f"(?<={_LETTER})(?:(\u200d)[\u200c\u200d]*|(\u200c)[\u200c\u200d]*(?={_LETTER}))"
    f"|(?<={_PICTURE})(\u200d)[\u200c\u200d]*(?={_PICTURE})|[\u200c\u200d]+"
)


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


def visible(text: str) -> str:
    """The text in composed letters, without the characters that nobody sees; what looks like a space becomes one."""
    if not _ORDINARY.fullmatch(text):
        text = _JOINERS.sub(r"\1\2\3", _UNSEEN.sub("", _BLANK.sub(" ", text)))
    return unicodedata.normalize("NFC", text)


def one_line(text: str) -> str:
    """A segment on one line: composed letters (NFC), single spaces, and no characters that nobody sees.

    Example:
        >>> one_line("\\ufeffU\\u0308ber  die\\u2028Stra\\u00adße\\u202c")
        'Über die Straße'

    Source: Unicode Standard Annexes 15 and 44 (Default_Ignorable_Code_Point).
    """
    return " ".join(visible(text).split())
