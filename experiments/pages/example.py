"""The record of the first page's example: what the shipped translator of captions writes, and where one head looks.

    python -m experiments.pages.example

The head is the one that most often points to the noun that *it* stands for in the test captions.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch

from experiments.harness import provenance
from experiments.pages import ROOT, ask_node
from transformer_lib import Translator
from transformer_lib.data.files import write_json
from transformer_lib.translation.run import load_corpus, read_options

RECORD = ROOT / "transformer_lib" / "results" / "page-translator.json"
MODEL = ROOT / "transformer_lib" / "pretrained" / "captions-en-de"
PATTERN = "The {0} does not cross the {1} because it is too {2}."
SLOTS = [["dog", "cat", "horse"], ["street", "river"], ["tired", "wide"]]


def pointing(translator: Translator) -> tuple[list[int], dict[str, Any]]:
    """The head that attends most often to the noun while the pronoun for *it* is written, and the best two shares."""
    stored, options = read_options(MODEL)
    hits, total = torch.tensor(0), 0
    for pair in load_corpus(options, stored.text).test:
        for it, noun in pair.referents:
            pronouns = [t for s, t in pair.alignment if s == it and pair.target.split()[t] in ("er", "sie", "es")]
            if pronouns:
                cross = translator.attention(pair.source, pair.target).cross
                hits, total = hits + (cross[:, :, pronouns[0]].argmax(-1) == noun), total + 1
    (first, second), best = (hits / total).flatten().topk(2)
    shares = {"head_points_to_the_noun": round(first.item(), 3), "no_other_head_more_than": round(second.item(), 3)}
    return [*divmod(int(best[0]), hits.shape[1])], shares | {"captions_with_it": total}


def examples(head: list[int]) -> dict[str, dict[str, Any]]:
    """Source and target words of each sentence; for each target word, pairs (index of a source word, thousandths)."""
    keys = list(product(*SLOTS))
    found, answers = ask_node(folder=str(MODEL), jobs=[PATTERN.format(*key) for key in keys], head=head), {}
    for key, one in zip(keys, found, strict=True):
        rows = [[[i, round(1000 * w)] for i, w in enumerate(row) if w >= 0.01] for row in one["weights"]]
        answers[" ".join(key)] = {"source": one["source"], "target": one["target"], "weights": rows}
    return answers


def record() -> dict[str, Any]:
    """What the first page quotes and shows."""
    head, metrics = pointing(Translator.from_pretrained(MODEL, device="cpu"))
    start = [words[0] for words in SLOTS]
    content = {"head": head, "pattern": PATTERN, "slots": SLOTS, "start": start, "examples": examples(head)}
    return {"title": "The example of the first page", "data": "captions", "metrics": metrics} | content


if __name__ == "__main__":
    origin = provenance("python -m experiments.pages.example")
    write_json(RECORD, origin | record())
