"""What one process of a group does in the tests of chapter 18: ``python distributed_worker.py JOB FOLDER``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import transformer_lib.training.trainer as module
from transformer_lib.data.batching import Example, encode_pairs
from transformer_lib.data.captions import make_captions
from transformer_lib.data.tokenizer import BOS, EOS, Tokenizer
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from transformer_lib.models.seq2seq import Seq2Seq
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.checkpoints import save_tensors
from transformer_lib.training.distributed import DistributedTrainer, process_group
from transformer_lib.training.schedule import TrainingConfig

SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 1, "n_decoder_layers": 2, "dropout": 0.0}
STEADY = {"schedule": "constant", "warmup": 0, "average": 0, "learning_rate": 3e-3}
PAIRS = make_captions(70, seed=0)
WORDS = Tokenizer.train([text for pair in PAIRS for text in (pair.source, pair.target)], level="word")
EXAMPLES = encode_pairs(PAIRS, WORDS, WORDS)
CASES = {  # a kind of model, its type, its settings, the configuration
    "plain": ("transformer", torch.float64, {}, {"max_tokens": 150}),
    "accumulated": ("transformer", torch.float64, {"norm_first": True}, {"max_tokens": 100, "accumulate": 3}),
    "untied": ("transformer", torch.float64, {"tie_embeddings": "none"}, {"max_tokens": 300, "smoothing": 0.0}),
    "few": ("transformer", torch.float64, {}, {"max_tokens": 25}),  # most batches hold one pair: some shares are empty
    "single": ("transformer", torch.float32, {"bias": False}, {"max_tokens": 300, "eps": 1e-6}),
    "gru": ("gru", torch.float64, {}, {"max_tokens": 300, "smoothing": 0.0}),
    "dropout": ("transformer", torch.float32, {"dropout": 0.3}, {"max_tokens": 200, "epochs": 3, "average": 2}),
}


def prepare(case: str, seed: int = 0) -> tuple[Seq2Seq, list[Example], list[Example], TrainingConfig]:
    """Model, examples to learn from and to measure on, and configuration."""
    kind, dtype, changes, settings = CASES[case]
    torch.manual_seed(seed)
    sizes = {"source_vocab_size": len(WORDS), "target_vocab_size": len(WORDS)}
    if kind == "gru":
        model: Seq2Seq = RecurrentSeq2Seq(RecurrentConfig(**sizes, d_model=8, d_hidden=8, dropout=0.0, **changes))
    else:
        model = Transformer(TransformerConfig(**{**SIZES, **sizes, **changes}))
    config = TrainingConfig(**{"epochs": 1, **STEADY, **settings})
    return model.to(dtype), EXAMPLES[:50], EXAMPLES[50:], config


def keep(trainer: DistributedTrainer, folder: Path, name: str) -> None:
    """Every process writes down where it has arrived."""
    progress = trainer.progress
    notes = {"step": progress.step, "best": progress.best, "losses": [line["loss"] for line in progress.log]}
    save_tensors(folder / f"{name}-{trainer.rank}.safetensors", trainer.model.state_dict(), notes)


def equal(folder: Path) -> None:
    """Train every case; rank 1 starts from other weights, which must not matter."""
    for case in CASES:
        trainer = DistributedTrainer(*prepare(case, seed=dist.get_rank()))
        before = torch.get_rng_state()
        assert trainer.fit(save_every=3)
        assert torch.equal(torch.get_rng_state(), before)  # the world's random numbers are left alone
        keep(trainer, folder, case)


def straight(folder: Path) -> None:
    """Train with dropout, without a stop."""
    trainer = DistributedTrainer(*prepare("dropout"), folder / "run")
    trainer.fit(save_every=2)
    keep(trainer, folder, "end")


def die(folder: Path) -> None:
    """The same, but the power fails at update 7."""
    trainer = DistributedTrainer(*prepare("dropout"), folder / "run")
    trainer.fit(save_every=2, stop=lambda: trainer.progress.step == 7 and os._exit(0))


def go_on(folder: Path) -> None:
    """Go on from what is in the folder."""
    trainer = DistributedTrainer(*prepare("dropout", seed=5), folder / "run")
    trainer.resume()
    keep(trainer, folder, "resumed")
    assert trainer.fit(save_every=2)
    keep(trainer, folder, "end")


def wish(folder: Path) -> None:
    """The last process alone wishes to stop after update 3; then the same processes go on."""
    trainer = DistributedTrainer(*prepare("dropout"), folder / "run")
    assert not trainer.fit(stop=lambda: trainer.rank == trainer.world - 1 and trainer.progress.step == 3)
    keep(trainer, folder, "stopped")
    trainer = DistributedTrainer(*prepare("dropout"), folder / "run")
    trainer.resume()
    trainer.fit()
    keep(trainer, folder, "end")


def alike(folder: Path) -> None:
    """The same sentence for all processes: do they drop the same elements?"""
    model, _, _, config = prepare("dropout")
    sentence = ([5, 6, 7, 8, 9, EOS], [BOS, 9, 8, 7, 6, 5, EOS])
    trainer = DistributedTrainer(model, [sentence] * dist.get_world_size(), [sentence], config)
    losses, plain = [], trainer._parallel.module.loss

    def listen(batch):
        loss = plain(batch)
        losses.append(loss.item())
        return loss

    trainer._parallel.module.loss = listen
    trainer.fit()
    (folder / f"losses-{trainer.rank}.json").write_text(json.dumps(losses))


def disagree(folder: Path) -> None:
    """Processes whose measurements differ believe rank 0."""
    trainer = DistributedTrainer(*prepare("plain"))
    assert trainer.agree(float(trainer.rank), first=True) == 0 and trainer.agree(1.0) == trainer.world
    module.evaluate_loss = lambda *_: 2.0 + trainer.rank
    trainer.fit()
    keep(trainer, folder, "agreed")
    assert trainer.progress.best == 2.0


if __name__ == "__main__":
    torch.set_num_threads(1)
    with process_group("cpu"):
        for job in sys.argv[1].split(","):
            place = Path(sys.argv[2]) / job
            place.mkdir(parents=True, exist_ok=True)
            globals()[job](place)
