"""The record of the museum: what the translators of 2014 to 2017 write, and what they attend to.

    python -m experiments.pages.museum

Needs Multi30k. Of the Transformer, the page shows the mean over the heads of one layer: of all layers, the one
whose largest weight is most often on the word that IBM Model 1 aligns, on the validation set. The first sentence shows
what the averages show: of a hundred captions of the test set, those that come first among all with 17 words or more,
it is the one whose translations have the scores that are nearest to the averages of their translators, and are in the
same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from sacrebleu import sentence_chrf
from torch import Tensor

from experiments.harness import provenance
from experiments.pages import ROOT, ask_node
from transformer_lib import Translator
from transformer_lib.data.files import write_json
from transformer_lib.data.multi30k import load_multi30k
from transformer_lib.data.tokenizer import EOS
from transformer_lib.translation.known import doubt

RECORD = ROOT / "transformer_lib" / "results" / "page-museum.json"
SHIPPED = ROOT / "transformer_lib" / "pretrained"
MUSEUM = json.loads((ROOT / "book" / "_ext" / "museum.json").read_text(encoding="utf-8"))


def model_1(examples: list[tuple[list[int], list[int]]], rounds: int = 5) -> list[list[int]]:
    """For each pair and target token, the place of the source token that IBM Model 1 aligns.

    The EOS of the source stands for no word.
    Source: Brown et al. (1993), section 4.
    """
    size = 1 + max(token for source, _ in examples for token in source)
    rows = [torch.tensor(source) + size * torch.tensor(target)[:, None] for source, target in examples]
    codes, index = torch.cat([row.flatten() for row in rows]).unique(return_inverse=True)
    links = index.split([row.numel() for row in rows])
    table = torch.ones(len(codes))
    for _ in range(rounds):
        counts = torch.zeros(len(codes))
        for link, row in zip(links, rows, strict=True):
            shares = table[link].view(row.shape)
            counts.index_add_(0, link, (shares / shares.sum(1, keepdim=True)).flatten())
        table = counts / torch.zeros(size).index_add_(0, codes % size, counts)[codes % size]
    return [table[link].view(row.shape).argmax(1).tolist() for link, row in zip(links, rows, strict=True)]


def agreement(translator: Translator, pairs: list[Any], more: Iterable[Any] = ()) -> list[float]:
    """For each layer, the share of target tokens whose largest weight is where IBM Model 1 puts the word.

    Model 1 learns from the pairs and from ``more``.
    """
    source, target = translator.source_tokenizer, translator.target_tokenizer
    examples = [([*source.encode(p.source), EOS], target.encode(p.target)) for p in [*pairs, *more]]
    hits, total = torch.tensor(0), 0
    for pair, links in zip(pairs, model_1(examples), strict=False):
        weights: Tensor = translator.attention(pair.source, pair.target).cross.mean(1)[:, :-1]  # (L, T, S)
        aligned = torch.tensor(links)
        real = aligned != weights.shape[-1] - 1
        hits, total = hits + (weights.argmax(-1) == aligned)[:, real].sum(1), total + int(real.sum())
    return [round(share, 3) for share in (hits / total).tolist()]


def typical(
    translators: list[Translator], pairs: list[Any], least: int = 17, most: int = 100
) -> tuple[Any, list[list[float]]]:
    """The pair at which every translator is nearest to its average chrF, and what each has there and on average.

    Only pairs where no translator is ahead of one that is better on average.
    """
    pairs = [pair for pair in pairs if len(pair.source.split()) >= least][:most]
    scores = [
        [sentence_chrf(text, [pair.target]).score for pair, text in zip(pairs, one.translate(sources), strict=True)]
        for one in translators
        for sources in [[pair.source for pair in pairs]]
    ]
    table = torch.tensor(scores)  # (models, pairs)
    mean = table.mean(1, keepdim=True)
    order = (table[mean.flatten().argsort()].diff(dim=0) >= 0).all(0)
    if not order.any():
        raise ValueError("no pair where the translators rank as they do on average")
    best = int((table - mean).square().sum(0).masked_fill(~order, torch.inf).argmin())
    return pairs[best], [[round(x, 1) for x in row] for row in torch.cat([table[:, best : best + 1], mean], 1).tolist()]


def examples(folder: Path, names: list[str], layer: int) -> dict[str, dict[str, Any]]:
    """For each sentence its words and, for each model, what it writes, its attention in thousandths, and any doubt."""
    jobs = [one["source"] for one in MUSEUM["sentences"]]
    answers: dict[str, dict[str, Any]] = {text: {} for text in jobs}
    for name in names:
        chosen = layer if name == MUSEUM["models"]["transformer"]["name"] else 0
        translator = Translator.from_pretrained(folder / name, device="cpu")
        width, known = translator.decoding.beam_size, translator.known
        for text, one in zip(
            jobs, ask_node(folder=str(folder / name), jobs=jobs, options={"beamSize": width}, layer=chosen), strict=True
        ):
            rows = [[[i, round(1000 * w)] for i, w in enumerate(row) if w >= 0.01] for row in one["weights"]]
            sure = one["logProbability"] / len(one["tokens"])
            why = known and doubt(known, text, one["text"], sure)
            told = why and {"certain": why.certain}
            answers[text] |= {"words": one["source"], name: {"target": one["target"], "weights": rows, "doubt": told}}
    return answers


def record(folder: Path, pairs: list[Any], more: Iterable[Any] = (), test: list[Any] | None = None) -> dict[str, Any]:
    """What the wall shows, of those models that are there; with the test set, also which sentence is typical."""
    names = [one["name"] for one in MUSEUM["models"].values() if (folder / one["name"] / "config.json").exists()]
    name, shares = MUSEUM["models"]["transformer"]["name"], []
    if name in names:
        shares = agreement(Translator.from_pretrained(folder / name, device="cpu"), pairs, more)
    layer = max(range(len(shares)), key=shares.__getitem__, default=0)
    metrics = {f"layer_{i + 1}_attends_where_ibm_model_1_aligns": share for i, share in enumerate(shares)}
    about = {"title": "The museum of the first page", "data": "multi30k", "metrics": metrics}
    if test:
        found, scores = typical([Translator.from_pretrained(folder / name, device="cpu") for name in names], test)
        about["first"] = {"source": found.source, "chrf": scores}
    return about | {"models": names, "layer": layer, "examples": examples(folder, names, layer)}


if __name__ == "__main__":
    origin = provenance("python -m experiments.pages.museum")
    pairs, more, test = (list(load_multi30k(split, "de", "en")) for split in ("val", "train", "test_2016_flickr"))
    write_json(RECORD, origin | record(SHIPPED, pairs, more, test))
