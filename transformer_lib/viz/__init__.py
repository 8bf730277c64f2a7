"""The pictures of the book: plots, diagrams, and viewers to play with."""

from .diagrams import Box as Box
from .diagrams import canvas as canvas
from .diagrams import draw_arrow as draw_arrow
from .diagrams import draw_boxes as draw_boxes
from .diagrams import draw_tokens as draw_tokens
from .explore import heads_viewer as heads_viewer
from .explore import position_viewer as position_viewer
from .explore import query_viewer as query_viewer
from .explore import rotary_viewer as rotary_viewer
from .plots import PALETTE as PALETTE
from .plots import attention_colours as attention_colours
from .plots import bars as bars
from .plots import heatmap as heatmap
from .plots import use_style as use_style
from .steps import beam_viewer as beam_viewer
from .steps import decoding_viewer as decoding_viewer
from .steps import translation_viewer as translation_viewer
from .viewer import Viewer as Viewer
from .viewer import attention_viewer as attention_viewer
