"""What the first page warns by: the words that each shipped model knows, and how sure it is of its own captions.

    python -m experiments.pages.words

Needs Multi30k. A model knows the words that it has seen at least three times in training. It is sure of a
translation if the mean log-probability of its tokens is no lower than in all but 1 % of its validation sentences.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from experiments.harness import provenance
from experiments.pages import ROOT
from transformer_lib import Translator
from transformer_lib.data.captions import Pair
from transformer_lib.data.files import write_json
from transformer_lib.data.text import one_line
from transformer_lib.data.tokenizer import EOS, PAD
from transformer_lib.decoding.beam_search import beam_search
from transformer_lib.translation.run import load_corpus, read_options
from transformer_lib.translation.translator import SHIPPED, pretrained_names

RECORD = ROOT / "transformer_lib" / "results" / "page-words.json"
LISTS = ROOT / "book" / "_ext" / "words"
LEAST, SENTENCES = 3, 400


def words(text: str) -> list[str]:
    """The words of a text, as the page counts them: letters, in lower case."""
    return "".join(letter if letter.isalpha() else " " for letter in one_line(text).lower()).split()


def source_of(pair: Pair | tuple[str, str]) -> str:
    """The sentence to translate; a corpus from a file has plain pairs."""
    return pair.source if isinstance(pair, Pair) else pair[0]


def certainty(translator: Translator, texts: list[str]) -> list[float]:
    """The mean log-probability of a token in the best translation of each text."""
    rows = [torch.tensor([*translator.source_tokenizer.encode(translator.prepare(text)), EOS]) for text in texts]
    sure: list[float] = []
    for start in range(0, len(rows), 50):
        batch = pad_sequence(rows[start : start + 50], batch_first=True)
        found = beam_search(translator.model, batch, translator.decoding)
        sure += (found.log_probs[:, 0] / (found.tokens[:, 0] != PAD).sum(-1)).tolist()
    return sure


def measure(folder: Path) -> tuple[str, list[str], float]:
    """The name of a model's list of words, the list, and the log-probability below which it isn't sure."""
    stored, options = read_options(folder)
    corpus = load_corpus(replace(options, extra=None), stored.text)  # its words are in the corpus, too
    seen = Counter(word for pair in corpus.train for word in words(source_of(pair)))
    translator = Translator.from_pretrained(folder, device="cpu")
    texts = [source_of(pair) for pair in list(corpus.validation)[:SENTENCES]]
    sure = certainty(translator, texts)
    known = sorted(word for word, count in seen.items() if count >= LEAST)
    return f"{Path(options.data).stem}.{stored.text.source}", known, round(sorted(sure)[len(sure) // 100], 2)


def main() -> None:
    """Write the lists and the record."""
    models: dict[str, dict[str, Any]] = {}
    for name in pretrained_names():
        file, known, sure = measure(SHIPPED / name)
        (LISTS / f"{file}.txt").write_text("\n".join(known) + "\n", encoding="utf-8")
        models[name] = {"list": file, "sure": sure}
    about = {"title": "When the first page warns", "data": "captions, multi30k"}
    metrics = {f"{name}, log-probability of a token": one["sure"] for name, one in models.items()}
    origin = provenance("python -m experiments.pages.words")
    write_json(RECORD, origin | about | {"metrics": metrics, "models": models})


if __name__ == "__main__":
    main()
