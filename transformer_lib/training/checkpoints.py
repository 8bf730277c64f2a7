"""Checkpoints: tensors and notes in one safetensors file, written completely or not at all.

Chapter: Training.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from transformer_lib.data.files import write_atomically
from transformer_lib.models.seq2seq import plain_names
from transformer_lib.training.distributed import share

__all__ = ["average_checkpoints", "average_run", "load_tensors", "load_weights", "save_tensors"]


def save_tensors(path: Path | str, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
    """Write tensors and notes to one file with a checksum over both; tied weights are stored once."""
    stored: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[tuple[Any, ...], str] = {}
    for name, tensor in tensors.items():
        key = tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device
        owner = first.setdefault(key, name) if tensor.numel() else name
        if owner == name:
            stored[name] = tensor.detach().cpu().contiguous().clone()
        else:
            aliases[name] = owner
    text = json.dumps({"notes": notes, "aliases": aliases, "eight_bits": isinstance(tensors, _EightBits)})
    write_atomically(path, to_bytes(stored, metadata={"text": text, "sha256": _checksum(stored, text)}))


def load_tensors(path: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors on the CPU, and notes, from a file that ``save_tensors`` wrote.

    Raises:
        ValueError: if the file is missing, cut short, altered by a single bit, or not ours.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}: is this the folder of a training run?")
    try:
        content = path.read_bytes()  # at once: a running trainer may replace the file
        tensors = from_bytes(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        text = header["__metadata__"]["text"]
        if _checksum(tensors, text) != header["__metadata__"]["sha256"]:
            raise KeyError("its checksum does not fit its content")
        parsed = json.loads(text)
        if parsed.get("eight_bits", True):  # older files do not say
            tensors = from_eight_bits(tensors)
        aliases = {name: owner for name, owner in parsed["aliases"].items() if owner in tensors}
        return tensors | {name: tensors[owner] for name, owner in aliases.items()}, parsed["notes"]
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a readable checkpoint ({error}): copy it again, or train again") from error


class _EightBits(dict[str, Tensor]):
    """Weights in eight bits, which ``load_tensors`` turns into numbers again."""


def to_eight_bits(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as whole numbers from -127 to 127, each row with a scale (``NAME_scale``); vectors in half precision."""
    stored = _EightBits()
    made: dict[Any, tuple[Tensor, Tensor]] = {}  # tied weights stay tied
    for name, weight in weights.items():
        if not weight.is_floating_point() or weight.dim() < 2:
            stored[name] = weight.half() if weight.is_floating_point() else weight
            continue
        if (key := (weight.data_ptr(), weight.shape, weight.stride())) not in made:
            rows = weight.detach().float().flatten(1)
            scale = rows.abs().amax(1, keepdim=True).clamp(min=1e-30) / 127
            made[key] = (rows / scale).round().to(torch.int8).view(weight.shape), scale[:, 0]
        stored[name], stored[f"{name}_scale"] = made[key]
    return stored


def from_eight_bits(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """What ``to_eight_bits`` made, as numbers again: matrices in single precision, vectors as they were stored."""
    weights = {}
    for name, tensor in stored.items():
        if name.endswith("_scale") and getattr(stored.get(name.removesuffix("_scale")), "dtype", None) == torch.int8:
            continue
        scale = stored.get(f"{name}_scale") if tensor.dtype == torch.int8 else None
        if scale is not None:
            tensor = tensor * scale.view(-1, *[1] * (tensor.dim() - 1))
        weights[name] = tensor
    return weights


def _checksum(tensors: dict[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def check_shapes(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], where: Path | str) -> None:
    """Refuse weights with other names or shapes than a model's own; the message begins with their place."""
    for name in sorted(ours.keys() | theirs.keys()):
        expected, shape = (tuple(part[name].shape) if name in part else None for part in (ours, theirs))
        if shape != expected:
            raise ValueError(f"{where}: {name} has shape {shape}, but the model has {expected}")


def load_weights(model: nn.Module, weights: dict[str, Tensor], path: Path | str) -> None:
    """Load weights into a model with the same names and shapes.

    Raises:
        ValueError: if a name, a shape or a kind of number differs, or a number is NaN or infinite; nothing is changed.
    """
    state = model.state_dict()
    own = plain_names(state)
    check_shapes(own, weights, path)
    for name, tensor in sorted(weights.items()):
        if tensor.is_floating_point() != own[name].is_floating_point():
            raise ValueError(f"{path}: {name} is {tensor.dtype}, but the model has {own[name].dtype}")
        if not tensor.isfinite().all():
            raise ValueError(f"{path}: {name} holds NaN or an infinite number")
    shared = (share(weights[name], tensor) for name, tensor in own.items())
    model.load_state_dict(dict(zip(state, shared, strict=True)))


def average_checkpoints(paths: Sequence[Path | str]) -> dict[str, Tensor]:
    """The mean of several checkpoints of one model, computed in double precision; tied weights stay tied.

    Source: Vaswani et al. (2017), section 6.1.

    Raises:
        ValueError: for no file, or files of different models.
    """
    if isinstance(paths, str | Path) or not paths:
        raise ValueError(f"paths={paths!r} must be a list of at least one file")
    first, _ = load_tensors(paths[0])
    layout = _layout(first)
    total = {owner: first[owner].double() for owner, _ in layout.values()}
    for path in paths[1:]:
        weights, _ = load_tensors(path)
        if _layout(weights) != layout:
            raise ValueError(f"{path} and {paths[0]} are not of the same model")
        for name, tensor in total.items():
            tensor += weights[name]
    mean = {name: (tensor / len(paths)).to(first[name].dtype) for name, tensor in total.items()}
    return {name: mean[owner] for name, (owner, _) in layout.items()}


def average_run(folder: Path, epochs: Sequence[int]) -> None:
    """Average the weights that a run kept of some epochs into ``averaged.safetensors``."""
    paths = [folder / f"epoch-{epoch}.safetensors" for epoch in epochs]
    mean, (_, notes) = average_checkpoints(paths), load_tensors(paths[-1])
    about = {"epochs": [*epochs], "translator": notes.get("translator")}
    save_tensors(folder / "averaged.safetensors", mean, about)


def _layout(weights: dict[str, Tensor]) -> dict[str, tuple[str, torch.Size]]:
    """For each name, the first name of the same tensor, and its shape."""
    first: dict[int, str] = {}
    return {name: (first.setdefault(id(x), name), x.shape) for name, x in weights.items()}
