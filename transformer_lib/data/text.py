"""Text as every door of the library reads and writes it: composed letters, on one line."""

import unicodedata

__all__ = ["composed", "one_line"]

_MARKS = {0: " ", 0xFEFF: None}  # NUL, and the byte-order mark


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
    return " ".join(composed(text).split())
