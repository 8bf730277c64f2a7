"""What do fewer bits a weight cost a translator?"""

from functools import lru_cache

import torch

from experiments.harness import Study
from experiments.studies.museum import with_interval
from experiments.tasks import SMOKE, multi30k
from transformer_lib.data.everyday import load_everyday
from transformer_lib.translation.translator import Translator

MODELS = {
    "everyday, English to German": "everyday-en-de",
    "Multi30k, German to English": "multi30k-de-en",
    "Multi30k, English to German": "multi30k-en-de",
    "Multi30k, English to French": "multi30k-en-fr",
    "museum's Transformer": "multi30k-de-en-transformer",
    "museum's Luong": "multi30k-de-en-luong",
    "museum's Bahdanau": "multi30k-de-en-bahdanau",
    "museum's one vector": "multi30k-de-en-one-vector",
}

if SMOKE:
    MODELS = {name: MODELS[name] for name in ("everyday, English to German", "museum's Luong")}
LIMIT = {"max_length": 6} if SMOKE else {}
SMALLER = ("everyday-en-de", "multi30k-de-en")  # these with fewer bits, too


def rounded(weight, bits, group=None):
    """A matrix in whole numbers of so many bits, each row or each so many weights with their own scale, as numbers again."""
    parts = weight.view(-1, group) if group else weight
    largest = 2 ** (bits - 1) - 1
    scale = parts.abs().amax(-1, keepdim=True).clamp(min=1e-30) / largest
    return ((parts / scale).round() * scale).view_as(weight)


@lru_cache(1)
def whole(name, budget):
    """The test sentences of a model, their references, and its translations with the weights that it has."""
    if name.startswith("everyday") and not SMOKE:
        pairs = load_everyday("test")[:budget]
    else:
        pairs = multi30k("test_2016_flickr", *name.split("-")[1:3])[:budget]
    sources, references = zip(*[(pair.source, pair.target) for pair in pairs], strict=True)
    return sources, references, Translator.from_pretrained(name, device="cpu").translate(sources, **LIMIT)


@torch.no_grad()
def measure(seed, budget, name, bits, group=None):
    """BLEU with its bootstrap interval over sentences, and how many translations change."""
    sources, references, texts = whole(name, budget)
    before, size = texts, 0
    if bits:
        translator = Translator.from_pretrained(name, device="cpu")
        for weight in translator.model.parameters():  # a tied matrix is one of them
            if weight.dim() > 1:
                weight.copy_(rounded(weight, bits, group))
            scales = weight.numel() / group if group else len(weight)
            size += weight.numel() * bits / 8 + 4 * scales if weight.dim() > 1 else 2 * weight.numel()
        texts = translator.translate(sources, **LIMIT)
    changed = sum(one != other for one, other in zip(before, texts, strict=True))
    numbers = {"changed": 100 * changed / len(texts), "million bytes": size / 1e6}
    return with_interval(texts, references) | numbers


STUDY = Study(
    chapter="translation/when_can_you_trust",
    equal="the shipped translators, each with its own search; 1,000 sentences of its test set (of 2016, or everyday sentences); matrices in whole numbers with a scale for each row or for 32 weights, vectors as they are; measured on weights in half precision, which the translators had until 29 November 2026, when that of everyday sentences was an earlier one (with a scale for 32 weights: on those in eight bits)",
    arms={
        f"{label}, {bits or 16} bits": {"name": name, "bits": bits}
        for label, name in MODELS.items()
        for bits in ((None, 8, 6, 5, 4, 3) if name in SMALLER else (None, 8))
    }
    | {
        f"{label}, {bits} bits, a scale for 32": {"name": name, "bits": bits, "group": 32}
        for label, name in MODELS.items()
        if name in SMALLER
        for bits in (4, 3)
    },
    measure=measure,
    metric="BLEU",
    unit="sentences",
    budget=1000,
    smoke=4,
    seeds=range(1),
    findings={},
)
