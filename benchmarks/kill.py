"""Kill a training with SIGKILL at random moments, resume it, and compare the end with that of one never stopped.

    python benchmarks/kill.py [--kills 20] [--seed 0] [--record results/kill.json]

A small Transformer learns captions in a process of its own, which saves every few updates. A process is killed at a
random moment: while it loads, computes or writes a checkpoint. Each run is killed twice, resumed by a new process that
starts from other random numbers, and compared with the run that was left alone: every tensor of every file. Processes
are forked from this one, which has loaded PyTorch once and trains nothing itself. It needs a system that can fork.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
import traceback
from pathlib import Path

import torch

from transformer_lib.data.batching import encode_pairs
from transformer_lib.data.captions import make_captions
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.checkpoints import load_tensors
from transformer_lib.training.schedule import TrainingConfig
from transformer_lib.training.trainer import Trainer


def small_training(folder: Path, seed: int) -> Trainer:
    """What is trained. Only the start of the weights depends on the seed, and a resumed training does not need it."""
    pairs = make_captions(240, seed=0, min_length=4, max_length=8)
    english = Tokenizer.train([pair.source for pair in pairs], level="word")
    german = Tokenizer.train([pair.target for pair in pairs], level="word")
    examples = encode_pairs(pairs, english, german)
    torch.manual_seed(seed)
    sizes = {"d_model": 32, "n_heads": 4, "n_encoder_layers": 1, "n_decoder_layers": 1, "d_ff": 64, "dropout": 0.2}
    model = Transformer(TransformerConfig(english.vocab_size, german.vocab_size, **sizes, tie_embeddings="target"))
    config = TrainingConfig(epochs=6, max_tokens=200, accumulate=2, learning_rate=5e-3, warmup=20, average=3)
    return Trainer(model, examples[:200], examples[200:], config, folder)


def train(folder: Path) -> None:
    """What a process does: begin, or go on where the last one was killed."""
    resuming = (folder / "last.safetensors").is_file()
    trainer = small_training(folder, seed=1 if resuming else 0)
    if resuming:
        trainer.resume()
    trainer.fit(save_every=3)


def start(folder: Path) -> int:
    """A process that trains; its id."""
    child = os.fork()
    if child:
        return child
    try:
        train(folder)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def end(child: int) -> int:
    """Wait for a process; what it returned, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_killed(folder: Path, kills: int, seconds: float, chance: random.Random) -> int:
    """Train to the end with some kills on the way; how many processes were really killed at work."""
    killed = 0
    while killed < kills:
        child = start(folder)
        time.sleep(chance.uniform(0, 0.9 * seconds / kills))
        os.kill(child, signal.SIGKILL)
        code = end(child)
        if code == 0:
            return killed
        if code != -signal.SIGKILL:
            raise SystemExit("a training could not be started or resumed")
        killed += 1
    if end(start(folder)) != 0:
        raise SystemExit("a resumed training did not end well")
    return killed


def contents(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Every tensor that a training left behind: weights, their averages, the optimiser's moments, random numbers."""
    return {path.name: load_tensors(path)[0] for path in sorted(folder.glob("*.safetensors"))}


def identical(one: dict[str, dict[str, torch.Tensor]], other: dict[str, dict[str, torch.Tensor]]) -> bool:
    """Whether two trainings left the same files with the same bits in them."""
    return one.keys() == other.keys() and all(
        one[name].keys() == other[name].keys()
        and all(torch.equal(tensor, other[name][key]) for key, tensor in one[name].items())
        for name in one
    )


def record(path: Path, rows: list[dict], given: argparse.Namespace) -> None:
    """Write the figures in the form of all records."""
    from transformer_lib.data.files import write_json
    from transformer_lib.translation.evaluation import run_metadata

    command = f"python benchmarks/kill.py --record {path}"
    command += "".join(
        f" --{name} {getattr(given, name)}" for name in DEFAULTS if getattr(given, name) != DEFAULTS[name]
    )
    content = {
        **run_metadata(command, [given.seed]),
        "title": "Trainings killed with SIGKILL at random moments and resumed, against one that was never stopped",
        "data": "200 captions of 4 to 8 words, 6 passes, a save every 3 updates and after each pass",
        "notes": "identical: every tensor of every file, bit for bit: weights, averages, moments and random numbers",
        "rows": rows,
    }
    write_json(path, content)


DEFAULTS = {"kills": 20, "each": 2, "seed": 0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=DEFAULTS["kills"], help="processes to kill, over all runs")
    parser.add_argument("--each", type=int, default=DEFAULTS["each"], help="kills of one run before it may end")
    parser.add_argument("--seed", type=int, default=DEFAULTS["seed"], help="of the moments")
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)  # a process with several threads cannot be forked safely
    chance, rows = random.Random(given.seed), []
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        if end(start(Path(folder) / "whole")) != 0:
            raise SystemExit("the training that was left alone did not end well")
        seconds = time.perf_counter() - started
        whole, left = contents(Path(folder) / "whole"), given.kills
        while left > 0:
            place = Path(folder) / f"run-{len(rows)}"
            killed = run_killed(place, min(given.each, left), seconds, chance)
            left -= killed
            if killed:
                same = identical(whole, contents(place))
                rows.append({"run": len(rows) + 1, "killed": killed, "identical": same})
                print(json.dumps(rows[-1]), flush=True)
    kept = sum(row["killed"] for row in rows if row["identical"])
    print(f"{kept} of {given.kills} kills left no trace: the resumed runs ended bit-identical")
    if given.record is not None:
        record(given.record, rows, given)
    return 0 if kept == given.kills else 1


if __name__ == "__main__":
    raise SystemExit(main())
