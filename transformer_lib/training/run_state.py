"""The parts of a training run: its progress, a way to stop it, its loss as a module, what its checkpoints belong to.

Chapter: Training.
"""

import hashlib
import json
import math
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer_lib.data.batching import Batch, Example
from transformer_lib.models.loss import Loss
from transformer_lib.training.distributed import process, shard

__all__ = ["Interrupt", "LossFunction", "Objective", "Progress"]

LossFunction = Callable[[nn.Module, Batch], Loss]


@dataclass
class Progress:
    """The progress of a run; loss, tokens and seconds are sums over the current epoch."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    best: float = math.inf
    bad_epochs: int = 0
    lr_scale: float = 1.0
    log: list[dict[str, Any]] = field(default_factory=list)


class Interrupt:
    """Turns Ctrl-C or SIGTERM into a request to stop after the current update; a later one stops at once."""

    def __init__(self) -> None:
        self.requested, self._since = False, 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupt":
        # only there can signals be caught
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as in the background of a script
                    self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _request(self, *_: object) -> None:
        # torchrun repeats a signal at once
        if self.requested and time.monotonic() - self._since > 1:
            raise KeyboardInterrupt
        if not self.requested:
            self.requested, self._since = True, time.monotonic()


class Objective(nn.Module):
    """A loss as a module, which is what DistributedDataParallel and torch.compile wrap."""

    def __init__(self, model: nn.Module, loss: LossFunction) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch) -> Loss:
        """The loss of a batch.

        Raises:
            TypeError: if the function returns a single number, such as a mean.
        """
        loss = self.loss(self.model, batch)
        if isinstance(loss, Tensor):
            raise TypeError("the loss is a single number: return Loss(sum, n_tokens), because the trainer divides")
        nats, n_tokens = loss
        return Loss(nats, torch.as_tensor(n_tokens, device=nats.device))


def own_loss(smoothing: float) -> LossFunction:
    """The loss that a model brings itself; one without label smoothing must be trained with ``smoothing=0``."""
    options = {"smoothing": smoothing} if smoothing else {}

    def loss(model: Any, batch: Any) -> Any:
        return model.loss(batch, **options)

    return loss


def parallel(objective: nn.Module, config: Any) -> nn.Module:
    """The objective, compiled or sharded if asked for; several processes average its gradients."""
    if config.compile:
        objective.compile(dynamic=True)
    if process()[1] == 1:
        return objective
    if config.shard:
        return shard(objective)
    # buffers are the same everywhere
    ignored = [name for name, _ in objective.named_buffers()]
    objective._ddp_params_and_buffers_to_ignore = ignored  # type: ignore[assignment]
    return DistributedDataParallel(objective)


@contextmanager
def skipping(optimizer: torch.optim.Optimizer, bad: Tensor) -> Iterator[None]:
    """A block in which a fused optimizer makes no step if ``bad``: it reads ``found_inf``, as from ``GradScaler``."""
    if not optimizer.defaults.get("fused"):  # asked already, and others refuse the attribute
        yield
        return
    optimizer.found_inf = bad.float()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]


def own_random_state(device: torch.device) -> AbstractContextManager[None]:
    """A block after which the random numbers of the CPU and of this device go on as if nothing had been drawn."""
    # MPS keeps a single state, which PyTorch cannot fork
    devices = [] if device.type in ("cpu", "mps") else [device]
    return torch.random.fork_rng(devices, device_type=device.type)


def settings_of(config: Any) -> dict[str, Any]:
    """The fields of a dataclass and of those in it; none of anything else."""
    return asdict(config) if is_dataclass(config) and not isinstance(config, type) else {}


def steady(thing: Any) -> str:
    """A repr without addresses, which are others in every process."""
    return re.sub(" at 0x[0-9A-Fa-f]+", "", repr(thing))


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as JSON keeps them."""
    return json.loads(json.dumps(settings, default=steady))


def completed(stored: Any, own: dict[str, Any], config: Any) -> Any:
    """Stored settings, with the defaults of those that have been added to the configuration since."""
    if isinstance(stored, str):  # version 0.2: a checksum, which every new setting would change
        return own
    known = fields(config) if is_dataclass(config) else ()
    defaults = {one.name: one.default for one in known if one.name in own}
    parts = {name: settings_of(part) for name, part in defaults.items()}
    nested = {name: part | stored.get(name, {}) for name, part in parts.items() if part}
    return plain(defaults | stored | nested)


def fingerprint(data: Sequence[Example]) -> str:
    """A checksum of all examples."""
    own = getattr(data, "fingerprint", None)  # of a corpus on disk
    rows = None if own else [[list(map(int, side)) for side in example] for example in data]
    return own or hashlib.sha256(json.dumps(rows).encode()).hexdigest()
