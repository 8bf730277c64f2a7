"""The pictures of the book: plots, diagrams, and a viewer of attention."""

from .diagrams import Box, canvas, draw_arrow, draw_boxes, draw_tokens
from .plots import CURVES, HEAT, MARKERS, PALETTE, attention_colours, bars, heatmap, length_curve, use_style
from .steps import StepViewer, beam_viewer, decoding_viewer
from .viewer import AttentionViewer, attention_viewer

__all__ = [
    "CURVES",
    "HEAT",
    "MARKERS",
    "PALETTE",
    "AttentionViewer",
    "Box",
    "StepViewer",
    "attention_colours",
    "attention_viewer",
    "bars",
    "beam_viewer",
    "canvas",
    "decoding_viewer",
    "draw_arrow",
    "draw_boxes",
    "draw_tokens",
    "heatmap",
    "length_curve",
    "use_style",
]
