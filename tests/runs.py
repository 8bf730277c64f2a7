"""Small trained folders for the tests of the translators, each made once a process."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import torch

from transformer_lib.data.captions import make_captions
from transformer_lib.training.checkpoints import load_tensors
from transformer_lib.translation.run import TrainOptions, create_run, open_run

CPU = torch.device("cpu")
TINY = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 1, "n_decoder_layers": 1}
SMALL = {"d_model": 16, "d_hidden": 32, "dropout": 0.2}
SHORT = {"epochs": 2, "max_tokens": 300}


@functools.cache
def workplace() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="runs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def write_pairs(path: Path, count: int = 120) -> list:
    pairs = make_captions(count, seed=3, max_length=8)
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs), encoding="utf-8")
    return pairs


@functools.cache
def pairs_file() -> Path:
    path = workplace() / "pairs.tsv"
    write_pairs(path)
    return path


def options(model: str = "gru", training: dict | None = None, **changes) -> TrainOptions:
    """A training of a second."""
    sizes = TINY if model == "transformer" else SMALL
    own = {"average": 2, "warmup": 3, "epochs": 3} if model == "transformer" else {}
    given = {"data": str(pairs_file()), "model": model, "model_options": sizes, "vocab_size": 300}
    return TrainOptions(**{**given, "training": {**SHORT, **own, **(training or {})}, **changes})


def begin(plan: TrainOptions, folder):
    """A run before its first update."""
    create_run(plan, folder)
    return open_run(folder, CPU)


def run_folder(model: str = "gru") -> Path:
    """A run that came to its end: never write into it."""
    return _finished(model)


@functools.cache
def _finished(model: str) -> Path:
    run = begin(options(model), workplace() / model)
    assert run.trainer.fit()
    return run.folder


def everything(folder) -> tuple[dict, dict]:
    """All that a run saved, without the clock."""
    tensors, notes = load_tensors(folder / "last.safetensors")
    for line in notes["progress"]["log"]:
        line.pop("seconds"), line.pop("target_tokens_per_second")
    notes["progress"].pop("seconds")
    return tensors, notes


def assert_same_run(one, other) -> None:
    tensors, notes = everything(one)
    others, other_notes = everything(other)
    assert tensors.keys() == others.keys() and notes == other_notes
    for name in tensors:
        assert torch.equal(tensors[name], others[name]), name
