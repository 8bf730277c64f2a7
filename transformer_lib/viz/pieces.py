"""Words to cut into pieces: the reader types, and drags the number of merges."""

import html
import re
from pathlib import Path

from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.viz.viewer import Viewer, page_script

__all__ = ["subword_viewer"]

STYLE, TEXT = (Path(__file__).with_suffix(f".{kind}").read_text("utf-8") for kind in ("css", "html"))
SCRIPT = page_script(__file__, "cut", "readable", "swaps", "unpack")
HTML: dict[str, str] = dict(re.findall(r"<!-- (.+?) -->\n(.*?)\n(?=<!-- |\Z)", TEXT, re.DOTALL))
ALPHABET = "".join(chr(code) for code in (*range(35, 127), *range(192, 207)) if chr(code) not in "&'<>\\`{}")


def packed(tokenizer: Tokenizer) -> str:
    """The merges, each half of which is the number of a piece, in two letters."""
    number = {piece: i for i, piece in enumerate(tokenizer.pieces)}
    halves = (divmod(number[half], len(ALPHABET)) for pair in tokenizer.merges for half in pair)
    return "".join(ALPHABET[one] + ALPHABET[other] for one, other in halves)


def subword_viewer(tokenizer: Tokenizer, text: str = "The grandmother laughs.") -> Viewer:
    """A text to type, and the pieces into which a tokenizer cuts it, with as many of its merges as the reader wants.

    It needs no library and no network. Where no script runs, the pieces of ``text`` stand there.

    Raises:
        ValueError: if the tokenizer is one of words, or has more than 9,801 pieces.
    """
    if tokenizer.level != "bpe" or len(tokenizer.pieces) > len(ALPHABET) ** 2:
        raise ValueError(f"{tokenizer}: expected subwords, at most {len(ALPHABET) ** 2:,} of them")
    pieces, count = tokenizer.tokens(text), f"{len(tokenizer.merges):,}"
    says = f"{len(text.encode()) + 1} bytes, {len(pieces)} pieces."
    boxes = "".join(HTML["piece"].format(piece=html.escape(piece)) for piece in pieces)
    contents = {"style": STYLE, "script": SCRIPT, "alphabet": html.escape(ALPHABET), "packed": packed(tokenizer)}
    title = "Cut your own words"
    figure = HTML["figure"].format(
        title=title, text=html.escape(text), count=count, pieces=boxes, says=says, **contents
    )
    return Viewer(f"{title}. {text} {says}", figure)
