"""How sure the BLEU of the shipped Multi30k translators is: 95 % intervals, by length, and beam against greedy.

    TRANSFORMER_LIB_DATA=... python benchmarks/intervals.py --record results/multi30k-intervals.json

The test set of 2016 is translated greedily and with a beam of 5, and scored as each model's record is. Intervals are
those of 1,000 test sets drawn from this one with replacement (Koehn 2004); for the difference of two searches, both are
scored on the same draws.
"""

from __future__ import annotations

import argparse
import random
from bisect import bisect_left
from pathlib import Path

import torch
from sacrebleu.metrics.bleu import BLEU

from transformer_lib.data.files import write_json
from transformer_lib.metrics import bleu
from transformer_lib.translation.evaluation import bleu_interval, run_metadata
from transformer_lib.translation.options import TrainOptions, load_corpus
from transformer_lib.translation.translator import Translator, find_pretrained, read_config

EDGES, NAMES = (9, 12, 15), ("1 to 9", "10 to 12", "13 to 15", "16 or more")


def difference(one: list[str], other: list[str], right: list[str], metric: BLEU, samples: int = 1000) -> list[float]:
    """Between which values the difference of two BLEU scores lies for 95 % of the draws: a paired bootstrap."""
    counts = [metric._extract_corpus_statistics(texts, [right]) for texts in (one, other)]
    draw, found = random.Random(0), []
    for _ in range(samples):
        rows = draw.choices(range(len(right)), k=len(right))
        scores = [metric._aggregate_and_compute([stats[row] for row in rows]).score for stats in counts]
        found.append(scores[0] - scores[1])
    found.sort()
    return [round(found[int(share * samples)], 2) for share in (0.025, 0.975)]


def by_length(sources: list[str], written: list[str], right: list[str], tokenize: str) -> list[dict[str, object]]:
    """BLEU and its interval for short and for long sentences apart, by the words of the sources."""
    groups: list[list[int]] = [[] for _ in NAMES]
    for index, source in enumerate(sources):
        groups[bisect_left(EDGES, len(source.split()))].append(index)
    found: list[dict[str, object]] = []
    for label, group in zip(NAMES, groups, strict=True):
        texts, references = ([texts[index] for index in group] for texts in (written, right))
        score = bleu(texts, references, tokenize=tokenize).score
        interval = bleu_interval(texts, references, tokenize=tokenize)
        found.append({"words": label, "sentences": len(group), "bleu": round(score, 2), "interval": interval})
    return found


def measure(name: str) -> dict[str, object]:
    """One shipped translator on the test set."""
    translator = Translator.from_pretrained(name, device="cpu")
    text = translator.text
    chosen = read_config(find_pretrained(name)).get("decoding", {})
    penalty = chosen.get("length_penalty", {"multi30k-en-de-moses": 1.0}.get(name, 0.6))
    options = TrainOptions(data="multi30k", source=text.source, target=text.target)
    pairs = load_corpus(options, text).test
    sources, right = [pair.source for pair in pairs], [pair.target for pair in pairs]
    tokenize = "13a" if text.kind == "raw" else "none"
    row: dict[str, object] = {"model": name, "sentences": len(pairs), "length_penalty": penalty}
    written = {}
    for label, beam in (("greedy", 1), ("beam 5", 5)):
        found = translator.search(sources, beam_size=beam, length_penalty=penalty, prepared=True)
        written[label] = [best[0].text for best in found]
        row[label] = {
            "bleu": round(bleu(written[label], right, tokenize=tokenize).score, 2),
            "interval": bleu_interval(written[label], right, tokenize=tokenize),
        }
    metric = BLEU(tokenize=tokenize, force=True)
    row["beam_minus_greedy"] = difference(written["beam 5"], written["greedy"], right, metric)
    row["by_length"] = by_length(sources, written["beam 5"], right, tokenize)
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["multi30k-de-en-moses", "multi30k-en-de-moses"])
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(name) for name in given.models]
    if given.record is not None:
        content = {
            **run_metadata(f"python benchmarks/intervals.py --record {given.record}", [0]),
            "title": "How sure the BLEU of the shipped Multi30k translators is",
            "data": "multi30k, test set of 2016",
            "notes": "95 % intervals of 1,000 draws with replacement; text and tokenisation as in each model's record",
            "rows": rows,
        }
        write_json(given.record, content)


if __name__ == "__main__":
    main()
