"""A translation to edit: the reader types, and sees its BLEU move, n-gram by n-gram."""

import html
import re
from collections.abc import Mapping
from pathlib import Path

from transformer_lib.metrics import bleu
from transformer_lib.viz.viewer import Viewer, page_script

__all__ = ["bleu_viewer"]

STYLE, TEXT = (Path(__file__).with_suffix(f".{kind}").read_text("utf-8") for kind in ("css", "html"))
SCRIPT = page_script(__file__, "score", "tokens")
HTML: dict[str, str] = dict(re.findall(r"<!-- (.+?) -->\n(.*?)\n(?=<!-- |\Z)", TEXT, re.DOTALL))
NAMES = ("single words", "pairs", "triples", "fours", "brevity penalty")


def bleu_viewer(reference: str, hypotheses: Mapping[str, str]) -> Viewer:
    """A translation to edit beside its reference, and which of its n-grams match.

    It needs no library and no network. Where no script runs, the score of the first hypothesis stands there.

    Args:
        hypotheses: translations to begin from, with a name for each; tokens are what stands between spaces.
    """
    first, title = next(iter(hypotheses.values())), "Edit the translation"
    found = bleu([first], [reference], tokenize="none")
    values = [f"{p:.0f} %" for p in found.precisions] + [f"{found.brevity_penalty:.3f}"]
    parts = "".join(HTML["part"].format(name=one, value=value) for one, value in zip(NAMES, values, strict=True))
    samples = [(html.escape(name), html.escape(text)) for name, text in hypotheses.items()]
    figure = HTML["figure"].format(
        title=title,
        style=STYLE,
        script=SCRIPT,
        parts=parts,
        reference=html.escape(reference),
        hypothesis=html.escape(first),
        score=f"{found.score:.1f}, smoothed",
        samples="".join(HTML["sample"].format(name=name, text=text) for name, text in samples),
    )
    return Viewer(f"{title}. {reference} / {first}: BLEU {found.score:.1f}", figure)
