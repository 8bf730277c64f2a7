"""The pictures of the book: plots, diagrams, and viewers to play with."""

from .costs import cost_calculator
from .diagrams import Box, canvas, draw_arrow, draw_boxes, draw_tokens
from .learning import learning_viewer
from .masks import mask_viewer
from .ngrams import bleu_viewer
from .pieces import subword_viewer
from .plots import PALETTE, attention_colours, bars, heatmap, shades
from .steps import beam_viewer, decoding_viewer, translation_viewer
from .style import use_style
from .touchable import touch
from .viewer import Viewer, attention_viewer

__all__ = ["PALETTE", "attention_colours", "bars", "heatmap", "shades", "use_style"]
__all__ += ["Box", "canvas", "draw_arrow", "draw_boxes", "draw_tokens"]
__all__ += ["Viewer", "attention_viewer", "beam_viewer", "decoding_viewer", "translation_viewer"]
__all__ += ["cost_calculator", "learning_viewer", "mask_viewer", "subword_viewer", "bleu_viewer", "touch"]


def __getattr__(name: str) -> object:
    if name in ("query_viewer", "heads_viewer", "position_viewer", "rotary_viewer"):
        raise AttributeError(
            f"{name} is gone: viz.touch makes any matplotlib figure touchable; see the chapters' cells"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
