"""The group of processes that train one model: what they add up, and who goes first.

Chapter: One model, many processes.
"""

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from transformer_lib.models.seq2seq import plain_names

__all__ = ["process", "process_group", "shard", "share", "total", "whole", "whole_weights"]


def process() -> tuple[int, int]:
    """The rank of this process, and how many there are."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def total(*values: float | int) -> list[float]:
    """Sums over all processes, computed on the CPU so that a GPU doesn't have to wait."""
    if process()[1] == 1:
        return [float(value) for value in values]
    sums = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(sums)
    return sums.tolist()


def join_group(backend: str, patience: float = 300) -> None:
    """Enter the group of processes: tell what it waits for, give up in the end, and heed signals.

    Raises:
        TimeoutError: if the others don't come within ``patience`` seconds.
    """
    joined: Future[None] = Future()

    def enter() -> None:
        try:
            dist.init_process_group(backend)
            joined.set_result(None)
        except Exception as error:
            joined.set_exception(error)

    threading.Thread(target=enter, daemon=True).start()  # in the main thread no signal would end it
    names = ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")
    told = " ".join(f"{name}={os.environ.get(name)}" for name in names)
    others = f"the other processes of {told} (unset WORLD_SIZE to train alone)"
    if wait([joined], min(5, patience)).not_done:
        print(f"waiting for {others}, {patience:.0f} seconds at most", file=sys.stderr, flush=True)
    if wait([joined], patience).not_done:
        raise TimeoutError(f"waited in vain for {others}")
    joined.result()


@contextmanager
def process_group(device: str = "cpu", lock: AbstractContextManager[Any] | None = None) -> Iterator[torch.device]:
    """A block in the group of processes that ``torchrun`` started; yields the device of this one.

    Args:
        lock: entered by rank 0 alone, such as a lock on the folder of a run. If it fails, all processes stop.

    Raises:
        ValueError: outside of ``torchrun``.
    """
    if "WORLD_SIZE" not in os.environ:
        raise ValueError("there are no other processes: start with torchrun --nproc-per-node N")
    rank = os.environ.get("LOCAL_RANK", 0)
    place = torch.device(f"cuda:{rank}" if device == "cuda" else device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    join_group("cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo")
    error = None
    with ExitStack() as stack:
        stack.callback(dist.destroy_process_group)
        try:
            if dist.get_rank() == 0:
                stack.enter_context(lock or nullcontext())
        except Exception as caught:
            error = caught
        if total(float(error is not None))[0]:
            raise error or ValueError("rank 0 could not begin: its message says why")
        yield place


def shard(module: nn.Module) -> nn.Module:
    """The module with its weights sharded: each process keeps a share of rank 0's. A layer's are gathered when it runs.

    Source: Zhao et al. (2023).
    """
    from torch.distributed.device_mesh import init_device_mesh  # slow to import
    from torch.distributed.fsdp import fully_shard

    for parameter in module.parameters():
        dist.broadcast(parameter.data, 0)
    mesh = init_device_mesh(next(module.parameters()).device.type, (process()[1],))
    layers = [layer for part in module.modules() if isinstance(part, nn.ModuleList) for layer in part]
    for part in (*reversed(layers), module):  # from the inside out
        fully_shard(part, mesh=mesh)
    return module


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor gathered on the CPU (every process must call this); any other tensor as it is."""
    return tensor.full_tensor().cpu() if hasattr(tensor, "full_tensor") else tensor


def share(tensor: Tensor, like: Any) -> Tensor:
    """This process's share of a whole tensor, split in the same way as ``like``; the tensor itself if that is whole."""
    if not hasattr(like, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's state dict with whole tensors. Tied weights stay tied. Every process must call this."""
    state, first = model.state_dict(), {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) not in first:
            first[id(parameter)] = whole(state[name])
        state[name] = first[id(parameter)]
    return plain_names(state)
