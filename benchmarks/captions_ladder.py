"""Every kind of model on the captions, each trained for the same time on one core.

    python benchmarks/captions_ladder.py [--models NAME ...] [--seconds 720] [--record results/captions-ladder.json]

The clock is the processor time of the training. Waiting for other work does not count. But where two cores share their
arithmetic units, as those of most virtual machines do, work on the other core makes every step longer: run this on a
machine that does nothing else. A model that is through with its passes earlier stops then; the others are stopped when
the time is over, and go with the pass after which their validation loss was lowest. What
``TRANSFORMER`` and ``RECURRENT`` do not say is the default of the kind; see ``TRAINING_DEFAULTS``.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from transformer_lib.data.files import write_json
from transformer_lib.translation.evaluation import evaluate_run, run_metadata
from transformer_lib.translation.options import TrainOptions
from transformer_lib.translation.runs import create_run

PAIRS = 50_000
TRANSFORMER = {
    "model_options": {"norm_first": True, "dropout": 0.0},
    "smoothing": 0.0,
    "max_tokens": 700,
    "epochs": 4,
    "learning_rate": 3e-3,
    "warmup": 300,
    "average": 2,
}
RECURRENT = {"epochs": 1000, "patience": 1000}  # the clock stops them
MODELS = ("transformer", "bahdanau", "luong-global-dot", "gru", "hard-gumbel", "luong-global-general", "luong-local-p")


def climb(model: str, seconds: float, seed: int = 0) -> dict[str, Any]:
    """Train one model until its passes or its time are used up, and score it on the test part."""
    chosen = TRANSFORMER if model == "transformer" else RECURRENT
    options = TrainOptions(model=model, n_captions=PAIRS, seed=seed, **chosen)
    with tempfile.TemporaryDirectory() as folder:
        run = create_run(options, Path(folder) / "run", torch.device("cpu"))
        started = time.process_time()
        finished = run.trainer.fit(print, save_every=10**9, stop=lambda: time.process_time() - started > seconds)
        used = time.process_time() - started
        weights = "averaged" if finished and run.trainer.config.average else "best"
        scores = evaluate_run(run.folder, device="cpu", weights=weights)
    return {
        "model": model,
        "million_parameters": round(scores["parameters"] / 1e6, 2),
        "passes": run.trainer.progress.epoch,
        "minutes": round(used / 60, 1),
        "exact_match": scores["exact_match"],
        "bleu": scores["bleu"],
        "perplexity": scores["perplexity"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS[:5]), choices=MODELS)
    parser.add_argument("--seconds", type=float, default=720.0)
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    about = run_metadata(f"python benchmarks/captions_ladder.py {shlex.join(sys.argv[1:])}", [0])
    rows = []
    for model in given.models:
        rows.append(climb(model, given.seconds))
        print(rows[-1])
        if given.record:  # after each model, so that little is lost if the machine stops
            data = f"{PAIRS} captions; beam 5; {given.seconds:g} seconds of one core at most"
            write_json(given.record, {**about, "title": "The ladder on captions", "data": data, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
