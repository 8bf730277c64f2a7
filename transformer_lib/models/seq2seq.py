"""The protocol that all translation models share: a memory, a state, and a model that works step by step.

Chapter: An encoder-decoder: the sentence in one vector.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass, replace
from functools import partial, wraps
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.data.batching import SPECIAL as SPECIAL  # these four are found here, too
from transformer_lib.data.batching import Batch
from transformer_lib.data.batching import SpecialIds as SpecialIds
from transformer_lib.data.batching import special_ids as special_ids
from transformer_lib.data.batching import unwrapped as unwrapped
from transformer_lib.models.loss import Loss, translation_loss

T = TypeVar("T")


def plain_names(tensors: Mapping[str, T]) -> dict[str, T]:
    """Parameters under the names that they have where nothing is compiled."""
    return {name.replace("_orig_mod.", ""): tensor for name, tensor in tensors.items()}


def vocab_size(model: nn.Module, side: str) -> int | None:
    """The size of a model's vocabulary of ``source`` or ``target``, if its configuration has one."""
    config = getattr(unwrapped(model), "config", None)
    return getattr(config, f"{side}_vocab_size", getattr(config, "vocab_size", None))


@dataclass(frozen=True, eq=False)
class Memory:
    """The output of an encoder, one row for each sentence; all rows of a state share it."""

    outputs: Float[Tensor, "B S D"]
    mask: Bool[Tensor, "B S"]  # True where there is a token
    final: Float[Tensor, "B L H"] | None = field(default=None, kw_only=True)  # of each layer


@dataclass(frozen=True, eq=False)
class State:
    """A decoder between two steps; row n belongs to sentence n // (N / B) of the memory."""

    memory: Memory | None


def reorder(state: T, rows: Int[Tensor, " N"], sentences: Int[Tensor, " M"] | None = None) -> T:
    """A state whose row n is row ``rows[n]`` of the given one; the memory is shared, not copied.

    Args:
        state: any structure of dataclasses, lists, tuples, dictionaries and tensors.
        sentences: if some sentences are finished, those that the memory keeps.

    Raises:
        TypeError: for a part that is none of these: its rows would stay where they are.
    """
    result: Any = state
    if isinstance(state, Memory):
        if sentences is None:
            return result
        rows = sentences

    again: Any = partial(reorder, rows=rows, sentences=sentences)
    if isinstance(state, Tensor):
        result = state.index_select(0, rows) if state.dim() else state
    elif isinstance(state, (list, tuple)):
        kind: Any = type(state)
        result = getattr(kind, "_make", kind)(map(again, state))  # of a NamedTuple, or else as it is
    elif isinstance(state, dict):
        result = dict(zip(state, map(again, state.values()), strict=True))
    elif is_dataclass(state):
        result = replace(result, **dict(zip(vars(state), map(again, vars(state).values()), strict=True)))
    elif not (state is None or isinstance(state, (bool, int, float, str))):
        raise TypeError(f"a state with a {type(state).__name__} cannot be reordered")
    return result


def shares_memory(forward: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
    """Let an attention take the queries of several rows for each sentence, as if they were more positions of one."""

    @wraps(forward)
    def shared(attention: nn.Module, queries: Tensor, memory: Memory, positions: Tensor | None = None) -> Any:
        (N, T), B = queries.shape[:2], len(memory.mask)
        if N == B:
            return forward(attention, queries, memory, positions)
        together = queries.unflatten(0, (B, -1)).flatten(1, 2)  # (B, N / B * T, H)
        positions = None if positions is None else positions.repeat(N // B)
        parts = forward(attention, together, memory, positions)
        return tuple(part.reshape(N, T, *part.shape[2:]) for part in parts)

    return shared


class Seq2Seq(nn.Module, ABC):
    """A translation model: trained on whole sentences, used one token at a time.

    Training calls ``model(source, target)``. Decoding calls ``start`` once, then ``step`` with each token. For both,
    ``encode``, ``first_state`` and ``read`` are enough; a model without them has its own ``hidden`` and so on.
    """

    output: nn.Linear  # turns hidden states into logits
    max_source_length: int | None = None  # None: no limit
    max_target_length: int | None = None

    @property
    def special(self) -> SpecialIds:
        """The ids of padding, beginning and end: those of the configuration, or else the library's own."""
        return special_ids(self)

    @abstractmethod
    def encode(self, source: Int[Tensor, "B S"]) -> Memory:
        """Encode the source tokens; padding is masked."""

    def first_state(self, memory: Any) -> Any:
        """The decoder's state before the first token, one row for each sentence."""
        raise NotImplementedError

    def read(self, target: Int[Tensor, "N T"], state: Any) -> tuple[Tensor, Any]:
        """Hidden states (N, T, D) after each target token, and the state after the last."""
        raise NotImplementedError

    def hidden(self, target: Int[Tensor, "N T"], memory: Memory) -> Float[Tensor, "N T D"]:
        """The decoder's hidden states after each target token, given the right ones before it."""
        check_tokens(target, self.output.out_features, "target", self.special.padding)
        return self.read(target, self.first_state(memory))[0]

    def start(self, source: Int[Tensor, "B S"]) -> Any:
        """Encode the source; the decoder's state before the first token."""
        return self.first_state(self.encode(source))

    def step(self, token: Int[Tensor, " N"], state: Any) -> tuple[Float[Tensor, "N V"], State]:
        """Read one token in each row; logits of the next token, and the new state."""
        hidden, state = self.read(token[:, None], state)
        return self.output(hidden[:, 0]), state

    def decode(self, target: Int[Tensor, "N T"], memory: Memory) -> Float[Tensor, "N T V"]:
        """Logits of the token after each target token (teacher forcing)."""
        return self.output(self.hidden(target, memory))

    def forward(self, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Logits of the token after each target token.

        Raises:
            ValueError: if sources and targets do not pair up: the targets would pass as beams.
        """
        check_pairs(source, target)
        return self.decode(target, self.encode(source))

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        """The cross-entropy of the target tokens, and their number; a model may have a loss of its own."""
        return translation_loss(self, batch, smoothing)


def embedding(vocab_size: int, d_model: int, padding: int = SPECIAL.padding) -> nn.Embedding:
    """An embedding table with standard deviation ``d_model ** -0.5``; the row of padding, if any, is zero.

    With PyTorch's own start, standard deviation 1, a tied output layer begins with huge logits.
    Source: Vaswani et al. (2017), section 3.4, for tying.
    """
    table = nn.Embedding(vocab_size, d_model, padding_idx=None if padding < 0 else padding)
    nn.init.normal_(table.weight, std=d_model**-0.5)
    if padding >= 0:
        nn.init.zeros_(table.weight.data[padding])
    return table


def check_tokens(tokens: Int[Tensor, "B S"], vocab_size: int | None, name: str, padding: int = SPECIAL.padding) -> None:
    """Refuse ids outside the vocabulary, empty rows and padding on the left, on the CPU.

    Raises:
        ValueError: for these three; the message names them.
    """
    if tokens.device.type != "cpu" or torch.compiler.is_compiling() or not len(tokens):
        return
    if not tokens.shape[1]:
        raise ValueError(f"{name} has rows without tokens")
    check_ids(tokens, vocab_size, name)
    pad = tokens == padding
    if pad[:, 0].any():
        raise ValueError(f"{name} begins with padding: pad on the right, and end with EOS")
    if (pad[:, :-1] & ~pad[:, 1:]).any():
        raise ValueError(f"{name} has padding before a token: pad on the right")


def check_ids(tokens: Int[Tensor, "B S"], vocab_size: int | None, name: str) -> None:
    """Refuse ids outside the vocabulary; waits for the device.

    Raises:
        ValueError: with the first of them.
    """
    if not tokens.numel() or vocab_size is None:
        return
    low, high = torch.stack(tokens.aminmax()).tolist()
    if low < 0 or high >= vocab_size:
        raise ValueError(
            f"{name} holds token id {low if low < 0 else high}, but the vocabulary has ids 0 to {vocab_size - 1}"
        )


def check_pairs(source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]) -> None:
    """Refuse targets that don't match the number of sources, because they would be taken for beams."""
    if source.shape[0] != target.shape[0]:
        raise ValueError(f"{len(source)} sources and {len(target)} targets do not pair up")


SWITCHING = threading.RLock()


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """A block in evaluation mode without gradients; afterwards, every module is back in its own mode.

    Threads that share a model in training mode wait for each other.
    """
    with SWITCHING:
        training = [part for part in model.modules() if part.training]
        if training:
            model.eval()
            try:
                with torch.no_grad():
                    yield
            finally:
                for part in training:
                    part.training = True
            return
    with torch.no_grad():
        yield


def without_autograd(model: nn.Module) -> torch.inference_mode | torch.no_grad:
    """A context for `start` and `step`: inference mode, or no_grad if weights are sharded or quantized.

    Inference mode is faster, but cannot slice such tensors.
    """
    plain = {*map(type, model.parameters())} <= {Tensor, nn.Parameter}
    return torch.inference_mode() if plain else torch.no_grad()


def wide(x: Tensor) -> Tensor:
    """The same numbers, in single precision at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def token_losses(
    logits: Float[Tensor, "B T V"],
    target: Int[Tensor, "B T"],
    smoothing: float = 0.0,
    padding: int = SPECIAL.padding,
) -> Float[Tensor, "B T"]:
    """The cross-entropy of each of the target's tokens, in nats; zero at padding (-1: there is none).

    Source: Sutskever et al. (2014), section 3.2.
    """
    logits = wide(logits).masked_fill((target == padding)[..., None], 0)  # whose gradient may not be a number
    options: dict[str, Any] = {"ignore_index": padding, "label_smoothing": smoothing, "reduction": "none"}
    return F.cross_entropy(logits.mT, target.long(), **options)
