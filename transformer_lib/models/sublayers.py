"""Old place of the sublayers."""  # bridge

from .layers import ACTIVATIONS as ACTIVATIONS, FeedForward as FeedForward, LayerNorm as LayerNorm
