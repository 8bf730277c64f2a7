"""The group of processes that train one model: what they add up, and who goes first.

Chapter: Scaling out.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["first", "process", "process_group", "total"]


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


@contextmanager
def process_group(
    device: str = "cpu", lock: AbstractContextManager[Any] | None = None
) -> Iterator[torch.device]:
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
    dist.init_process_group("cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo")
    try:
        with first(lock or nullcontext()):
            yield place
    finally:
        dist.destroy_process_group()


@contextmanager
def first(task: AbstractContextManager[Any]) -> Iterator[None]:
    """A context that rank 0 enters before the other processes, for example to prepare files."""
    rank, _ = process()
    error = None
    try:
        if rank == 0:
            task.__enter__()
    except Exception as caught:
        error = caught
    if total(float(error is not None))[0]:
        raise error or ValueError("rank 0 could not begin: its message says why")
    try:
        yield
    finally:
        if rank == 0:
            task.__exit__(None, None, None)
