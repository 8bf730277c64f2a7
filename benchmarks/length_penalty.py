"""Which length penalty: BLEU of a shipped model on the validation part of Multi30k.

    python benchmarks/length_penalty.py [--model multi30k-en-de-moses] [--record results/length-penalty.json]

The test part is not looked at: a setting that is chosen there is chosen for the sentences that are to judge it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from transformer_lib.data.files import write_json
from transformer_lib.translation.evaluation import evaluate_run, run_metadata
from transformer_lib.translation.translator import find_pretrained

ALPHAS = (0.0, 0.6, 1.0, 1.2, 1.5, 2.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="multi30k-en-de-moses", help="a name, or the folder of a training")
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for alpha in ALPHAS:
        scores = evaluate_run(given.model, "validation", device="cpu", length_penalty=alpha)
        rows.append({"alpha": alpha, "validation_bleu": scores["bleu"]})
        print(rows[-1], flush=True)
    if given.record is not None:
        content = {
            **run_metadata(f"python benchmarks/length_penalty.py --model {given.model} --record {given.record}", [0]),
            "title": "BLEU for several length penalties",
            "data": f"the {scores['sentences']:,} sentences of the validation part of Multi30k",
            "notes": f"{find_pretrained(given.model).name}; a beam of {scores['beam_size']}; {scores['signature']}",
            "rows": rows,
        }
        write_json(given.record, content)


if __name__ == "__main__":
    main()
