"""The pictures of the book: plots, diagrams, and viewers to play with."""

from .diagrams import Box, canvas, draw_arrow, draw_boxes, draw_tokens
from .plots import CURVES, HEAT, MARKERS, PALETTE, attention_colours, bars, heatmap, length_curve, use_style
from .explore import heads_viewer, position_viewer, query_viewer, rotary_viewer
from .steps import beam_viewer, decoding_viewer, translation_viewer
from .viewer import Viewer, attention_viewer

__all__ = [
    "CURVES",
    "HEAT",
    "MARKERS",
    "PALETTE",
    "Box",
    "Viewer",
    "attention_colours",
    "attention_viewer",
    "bars",
    "beam_viewer",
    "canvas",
    "decoding_viewer",
    "draw_arrow",
    "draw_boxes",
    "draw_tokens",
    "heads_viewer",
    "heatmap",
    "length_curve",
    "position_viewer",
    "query_viewer",
    "rotary_viewer",
    "translation_viewer",
    "use_style",
]
