"""Old place of masks."""  # bridge

from .attention import causal_mask as causal_mask, padding_mask as padding_mask
from .bridges import combine_masks as combine_masks
