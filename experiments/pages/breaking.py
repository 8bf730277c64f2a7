"""The record of the first page's opening: one sentence, translated while the attention may look at fewer and fewer words.

    python -m experiments.pages.breaking

Greedy, with the museum's Bahdanau. The BLEU beside each setting stands in the record of ``how_many_words``.
"""

from __future__ import annotations

import difflib
import json
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.harness import provenance
from experiments.pages import ROOT
from experiments.pages.museum import SHIPPED
from experiments.studies.how_many_words import MODELS, WORDS, look
from transformer_lib import Translator
from transformer_lib.data.files import write_json

RECORD = ROOT / "transformer_lib" / "results" / "page-breaking.json"
SOURCE = (  # the sentence that the first chapters follow
    "Ein Mann in einem roten Hemd und eine Frau mit einem blauen Rucksack stehen neben einem alten Fahrrad "
    "vor einem kleinen Geschäft."
)
LEAST = 0.02  # smaller weights are not drawn


def by_word(pieces: list[str], weights: Tensor) -> tuple[list[str], Tensor]:
    """The words that pieces make, and the rows of weights added up in the same way; the end keeps its own."""
    starts = torch.tensor([piece.startswith("▁") for piece in pieces[:-1]] + [True])
    word = starts.cumsum(0) - 1
    sums = weights.new_zeros(int(word[-1]) + 1, weights.shape[1]).index_add(0, word, weights)
    return "".join(pieces[:-1]).replace("▁", " ").split(), sums


def state(translator: Translator, words: int | str | None) -> dict[str, Any]:
    """What the translator writes when each step may look at so many words, and where it looks, in thousandths."""
    translator.model.attention.forward = partial(look, words, translator.model.attention.score)
    (text,) = translator.translate([SOURCE], beam_size=1, max_length=50)
    found = translator.attention(SOURCE, text)
    target, rows = by_word(found.target, found.cross[0, 0])
    counts = torch.tensor([piece.startswith("▁") for piece in found.target]).cumsum(0)[:-1].bincount()[1:]
    _, columns = by_word(found.source, rows.mT)
    weights = columns.mT[: len(target)] / counts[:, None]  # the mean over a word's pieces
    drawn = [[[i, round(1000 * w)] for i, w in enumerate(row) if w >= LEAST] for row in weights.tolist()]
    return {"target": target, "weights": drawn}


def kept(whole: list[str], words: list[str]) -> list[int]:
    """The places of the words that stand in both translations, in the same order."""
    blocks = difflib.SequenceMatcher(a=whole, b=words, autojunk=False).get_matching_blocks()
    return [block.b + i for block in blocks for i in range(block.size)]


def record() -> dict[str, Any]:
    """All settings of the slider."""
    translator = Translator.from_pretrained(SHIPPED / MODELS["Bahdanau"], device="cpu")
    states = {name: state(translator, words) for name, words in WORDS.items()}
    for one in states.values():
        one["kept"] = kept(states["all words"]["target"], one["target"])
    metrics = {f"words_kept_{name.replace(' ', '_')}": len(one["kept"]) for name, one in states.items()}
    about = {"title": "The opening of the first page", "data": "one sentence", "metrics": metrics}
    return about | {"model": MODELS["Bahdanau"], "source": SOURCE.split(), "states": states}


if __name__ == "__main__":
    origin = provenance("python -m experiments.pages.breaking")
    write_json(RECORD, json.loads(json.dumps(origin | record())))
