"""One stack as a translator: a language model that reads the source and continues it with the target.

Chapter: GPT.
"""

from copy import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.models.multi_head import KVCache
from transformer_lib.models.seq2seq import Memory, Seq2Seq, State, check_tokens, reorder

__all__ = ["OneStack", "PromptMemory", "PromptState"]


@dataclass(frozen=True, eq=False)
class PromptMemory(Memory):
    """A source as a language model has read it: each layer's keys and values."""

    caches: list[KVCache]


@dataclass(frozen=True, eq=False)
class PromptState(State):
    """Source and target so far, as keys and values of every layer."""

    caches: list[KVCache]


class OneStack(Seq2Seq):
    """Language model as a translator: reads the source, continues with the target.

    The first half of the positions belongs to the source, the second to the target.
    Source: Liu et al. (2018), section 4.2.3.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.config, self.model = model.config, model
        special = self.config.special
        if special.bos is None or special.padding < 0:  # such as GPT-2's
            raise ValueError(f"a translator needs BOS and PAD, not {special}")
        self.max_source_length = model.config.max_length // 2
        self.max_target_length = model.config.max_length - self.max_source_length

    @property
    def output(self) -> nn.Linear:
        """The projection to logits."""
        return self.model.output

    def encode(self, source: Int[Tensor, "B S"]) -> PromptMemory:
        """Read the source."""
        padding = self.config.special.padding
        check_tokens(source, self.config.vocab_size, "source", padding)
        if source.shape[1] > (most := self.max_source_length):
            raise ValueError(f"{source.shape[1]} source tokens, at most {most}")
        caches = [KVCache() for _ in self.model.layers]
        outputs = self.model.hidden(source, caches)
        return PromptMemory(outputs, source != padding, caches=caches)

    def read(self, target: Tensor, caches: list[KVCache], memory: Memory) -> Tensor:
        """Hidden states of more target tokens; their mask hides source padding."""
        B, S = memory.mask.shape
        written = len(caches[0]) - S
        mask = F.pad(memory.mask, (0, written + target.shape[1]), value=True)
        mask = mask.repeat_interleave(len(target) // B, 0)[:, None, None]
        first = self.max_source_length + written
        return self.model.hidden(target, caches, first=first, mask=mask)

    def hidden(self, target: Int[Tensor, "N T"], memory: PromptMemory) -> Float[Tensor, "N T D"]:
        """Hidden states of the target."""
        rows = torch.arange(len(memory.mask), device=target.device)
        rows = rows.repeat_interleave(len(target) // len(rows))
        return self.read(target, reorder(memory.caches, rows), memory)

    def start(self, source: Int[Tensor, "B S"]) -> PromptState:
        """Read the source."""
        memory = self.encode(source)
        return PromptState(Memory(memory.outputs, memory.mask), memory.caches)

    def step(self, token: Int[Tensor, " N"], state: PromptState) -> tuple[Float[Tensor, "N V"], PromptState]:
        """Read one token for each row: logits of the next, and the new state."""
        caches = [copy(cache) for cache in state.caches]
        x = self.read(token[:, None], caches, state.memory)
        return self.output(x[:, 0]), PromptState(state.memory, caches)
