"""The work of one process of a group in the tests of the trainer: ``python distributed_worker.py JOB FOLDER``."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from transformer_lib.data.batching import Batch, Example, encode_pairs
from transformer_lib.data.captions import make_captions
from transformer_lib.data.tokenizer import PAD, Tokenizer
from transformer_lib.models.experts import Experts
from transformer_lib.models.loss import Loss
from transformer_lib.models.registry import build_model
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.checkpoints import save_tensors
from transformer_lib.training.distributed import process, process_group, whole_weights
from transformer_lib.training.loss import minimum_risk_loss
from transformer_lib.training.trainer import Trainer, TrainingConfig

SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 1, "n_decoder_layers": 2, "dropout": 0.0}
STEADY = {"schedule": "constant", "warmup": 0, "average": 0, "learning_rate": 3e-3}
PAIRS = make_captions(70, seed=0)
WORDS = Tokenizer.train([text for pair in PAIRS for text in (pair.source, pair.target)], level="word")
EXAMPLES = encode_pairs(PAIRS, WORDS, WORDS)
CASES = {  # a type, settings of the model, settings of the run
    "accumulated": (torch.float64, {"norm_first": True}, {"max_tokens": 100, "accumulate": 3, "ema": 0.9}),
    "few": (torch.float64, {}, {"max_tokens": 25}),  # most batches hold one pair: some shares are empty
    "divided": (
        torch.float64,
        {"norm_first": True},
        {"max_tokens": 100, "accumulate": 3, "epochs": 2, "ema": 0.9, "shard": True},
    ),
    "nested": (torch.float64, {}, {"max_tokens": 100, "shard": True}),
    "dropout": (torch.float32, {"dropout": 0.3}, {"max_tokens": 200, "epochs": 3, "average": 2, "ema": 0.9}),
}


def prepare(case: str, seed: int = 0) -> tuple[Transformer, list[Example], list[Example], TrainingConfig]:
    """Model, training and validation examples, and settings."""
    dtype, changes, options = CASES[case]
    torch.manual_seed(seed)
    model = Transformer(TransformerConfig(len(WORDS), len(WORDS), **{**SIZES, **changes}))
    if case == "nested":  # a list of layers in a layer
        model.encoder.layers[0].feed_forward = Experts(16, 24, 4, 2)
    return model.to(dtype), EXAMPLES[:50], EXAMPLES[50:], TrainingConfig(**{"epochs": 1, **STEADY, **options})


def note(trainer: Trainer, folder: Path, name: str) -> None:
    """Write down where this process has arrived."""
    progress = trainer.progress
    notes = {"step": progress.step, "best": progress.best, "losses": [line["loss"] for line in progress.log]}
    save_tensors(folder / f"{name}-{process()[0]}.safetensors", whole_weights(trainer.model), notes)


def equal(folder: Path) -> None:
    """Every case; rank 1 starts from other weights, which must not matter."""
    for case in CASES:
        trainer = Trainer(*prepare(case, seed=process()[0]))
        assert trainer.fit(save_every=3)
        note(trainer, folder, case)


TWO = {"source_vocab_size": len(WORDS), "target_vocab_size": len(WORDS)}
RECURRENT = {**TWO, "d_model": 8, "d_hidden": 8, "dropout": 0.0}
ONE_STACK = {"vocab_size": len(WORDS), "d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 16, "dropout": 0.0}
SMALL = {
    "transformer": TWO | SIZES,
    **dict.fromkeys(("gru", "bahdanau", "luong", "hard"), RECURRENT),
    "gpt": ONE_STACK | {"max_length": 64},
    "llama": ONE_STACK | {"max_length": 64, "n_kv_heads": 1},
}


def risk(model: nn.Module, batch: Batch) -> Loss:
    """Minimum risk with two samples for each sentence: the reference, and the reference without its first word."""
    shorter = torch.cat([batch.target[:, :1], batch.target[:, 2:], torch.full_like(batch.target[:, :1], PAD)], 1)
    samples, costs = torch.stack([batch.target, shorter], 1), torch.tensor([0.0, 1.0]).expand(len(batch), 2)
    return minimum_risk_loss(model, batch, lambda *_: samples, lambda *_: costs)


def few(kind: str, model: str = "transformer", seed: int = 0) -> Trainer:
    """A run whose batches have fewer sentences than there are processes, in training and in validation."""
    torch.manual_seed(seed)
    network = build_model(model, SMALL[model]).double()
    options = {"plain": {}, "r-drop": {"consistency": 1.0}, "risk": {}}[kind]
    config = TrainingConfig(1, max_tokens=25, smoothing=0.1, **STEADY, **options)
    return Trainer(network, EXAMPLES[:12], EXAMPLES[60:66], config, loss=risk if kind == "risk" else None)


FEW = [*(("plain", name) for name in SMALL), ("r-drop", "luong"), ("risk", "transformer")]


def shares(folder: Path) -> None:
    """Every translator and every loss, where some processes have no sentences."""
    for kind, model in FEW:
        trainer = few(kind, model, seed=process()[0])
        assert trainer.fit()
        note(trainer, folder, f"{kind}-{model}")


def straight(folder: Path) -> None:
    """With dropout, without a stop."""
    trainer = Trainer(*prepare("dropout"), folder / "run")
    trainer.fit(save_every=2)
    note(trainer, folder, "end")


def die(folder: Path) -> None:
    """The same, but the power fails at update 7."""
    trainer = Trainer(*prepare("dropout"), folder / "run")
    trainer.fit(save_every=2, watch=lambda loss: trainer.progress.step == 7 and os._exit(0))


def go_on(folder: Path) -> None:
    """Go on from the folder of the run that died."""
    trainer = Trainer(*prepare("dropout", seed=5), folder / "run")
    trainer.resume()
    note(trainer, folder, "resumed")
    assert trainer.fit(save_every=2)
    note(trainer, folder, "end")


def stop(folder: Path, shard: bool = False) -> None:
    """The last process alone asks to stop after update 3; then the same processes go on."""
    rank, world = process()
    *data, config = prepare("dropout")
    config = replace(config, shard=shard)
    trainer = Trainer(*data, config, folder / "run")
    assert hasattr(trainer.parameters[0], "full_tensor") == shard
    assert not trainer.fit(watch=lambda loss: rank == world - 1 and trainer.progress.step == 3)
    note(trainer, folder, "stopped")
    trainer = Trainer(*prepare("dropout", seed=5)[:3], config, folder / "run")
    trainer.resume()
    trainer.fit()
    note(trainer, folder, "end")


def divided(folder: Path) -> None:
    """The same, with each process keeping a share of the weights; and without a stop."""
    stop(folder, shard=True)
    *data, config = prepare("dropout")
    trainer = Trainer(*data, replace(config, shard=True), folder / "whole")
    trainer.fit()
    note(trainer, folder, "straight")


@contextmanager
def taken():
    """A lock that somebody else has."""
    raise ValueError("the folder is in use")
    yield


if __name__ == "__main__":
    torch.set_num_threads(1)
    job, place = sys.argv[1], Path(sys.argv[2])
    if job == "locked":
        with process_group("cpu", taken()):
            sys.exit("the lock was ignored")
    with process_group("cpu"):
        for name in job.split(","):
            (place / name).mkdir(parents=True, exist_ok=True)
            globals()[name](place / name)
            dist.barrier()
