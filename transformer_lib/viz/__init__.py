"""The pictures of the book: plots, diagrams, and viewers to play with."""

from .diagrams import Box as Box, canvas as canvas, draw_arrow as draw_arrow
from .diagrams import draw_boxes as draw_boxes, draw_tokens as draw_tokens
from .explore import heads_viewer as heads_viewer, position_viewer as position_viewer
from .explore import query_viewer as query_viewer, rotary_viewer as rotary_viewer
from .plots import PALETTE as PALETTE, attention_colours as attention_colours
from .plots import bars as bars, heatmap as heatmap, use_style as use_style
from .steps import beam_viewer as beam_viewer, decoding_viewer as decoding_viewer
from .steps import translation_viewer as translation_viewer
from .viewer import Viewer as Viewer, attention_viewer as attention_viewer
