"""Old names of attention, until their users have moved."""  # bridge

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from .attention import attention, attention_weights


class KeysValues(NamedTuple):
    """Keys and values of the old interface."""

    keys: Tensor
    values: Tensor


@dataclass(eq=False)
class KeyValueCache:
    """The cache of the old interface."""

    keys: Tensor
    values: Tensor
    length: int = 0

    def append(self, new: KeysValues) -> KeysValues:
        """Write new positions behind the present ones."""
        start, end = self.length, self.length + new.keys.shape[2]
        for name in ("keys", "values"):
            room = getattr(self, name)
            if end > room.shape[2]:
                room = F.pad(room, (0, 0, 0, max(end - room.shape[2], room.shape[2])))
                setattr(self, name, room)
            room[:, :, start:end] = getattr(new, name)
        self.length = end
        return KeysValues(self.keys[:, :, :end], self.values[:, :, :end])


def explicit_attention(queries, keys, values, mask=None, *, dropout=0.0, scale=None):
    """Old name for the formula."""
    if scale is not None:
        queries = queries * scale * queries.shape[-1] ** 0.5
    weights = attention_weights(queries, keys, mask)
    return F.dropout(weights, dropout) @ values, weights


def scaled_dot_product_attention(queries, keys, values, mask=None, *, dropout=0.0, scale=None, causal=False):
    """Old name for the kernel."""
    if scale is not None:
        queries = queries * scale * queries.shape[-1] ** 0.5
    return attention(queries, keys, values, mask, causal=causal, dropout=dropout)


def combine_masks(*masks):
    """Old name for &."""
    combined = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else combined & mask
    return combined
