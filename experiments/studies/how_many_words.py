"""At how many words has a trained translator to look at a time?"""

import math
from functools import partial

import torch

from experiments.harness import Study
from experiments.studies.museum import with_interval
from experiments.tasks import multi30k
from transformer_lib.models.attention import masked_softmax
from transformer_lib.translation.translator import Translator

WORDS = {"all words": None, **{f"{n} words": n for n in (5, 3, 2)}, "1 word": 1, "all equally": "equally", "no word": 0}
MIXED = {f"{percent} % equal": percent / 100 for percent in range(10, 100, 10)}
MODELS = {"Bahdanau": "multi30k-de-en-bahdanau", "Transformer": "multi30k-de-en-transformer"}
RATED = {  # by what words are chosen; the others only for the page about sparse attention
    "best": lambda scores: scores,
    "shared": lambda scores: scores.softmax(-1).mean(1, keepdim=True).expand_as(scores),
    "random": torch.rand_like,
    "last": lambda scores: torch.arange(scores.shape[-1], dtype=scores.dtype).expand_as(scores),
}
SPARSE = {"all words": None, "2 words": 2, "1 word": 1}
SPARSE |= {"2 shared": ("shared", 2), "4 shared": ("shared", 4), "4 random": ("random", 4), "the last 4": ("last", 4)}


def weigh(words, scores, mask):
    """The softmax of so many scores in each row, the best or by a rule; equal weights; a share of them; or None: of all."""
    mask = mask.expand_as(scores)
    if isinstance(words, float):
        return words * weigh("equally", scores, mask) + (1 - words) * masked_softmax(scores, mask)
    if words == "equally":
        scores = 0 * scores
    elif words is not None:
        rule, words = words if isinstance(words, tuple) else ("best", words)
        rated = RATED[rule](scores.masked_fill(~mask, -math.inf)).masked_fill(~mask, -math.inf)
        best = rated.topk(min(words, scores.shape[-1])).indices
        mask = mask & (0 * scores).bool().scatter(-1, best, True)
    return masked_softmax(scores, mask)


def look(words, score, queries, memory, positions=None):
    """What Bahdanau's attention returns."""
    weights = weigh(words, score.compare(queries, memory.keys), memory.mask[:, None])
    return weights @ memory.outputs, weights


def read(words, q, k, v, beams=1, mask=None, causal=False):
    """What each head of a Transformer's cross-attention returns."""
    return weigh(words, q / math.sqrt(q.shape[-1]) @ k.mT, mask) @ v


def measure(seed, budget, name, words):
    """BLEU of the test set, greedy, with its bootstrap interval over sentences."""
    translator = Translator.from_pretrained(name, device="cpu")
    model = translator.model
    if name.endswith("bahdanau"):
        model.attention.forward = partial(look, words, model.attention.score)
    else:
        for layer in model.decoder.layers:
            layer.cross_attn.attend = partial(read, words)
    pairs = multi30k("test_2016_flickr", "de", "en")[:budget]
    texts = translator.translate([pair.source for pair in pairs], beam_size=1, max_length=50)
    references = [pair.target for pair in pairs]
    return with_interval(texts, references)


STUDY = Study(
    chapter="history/learning_to_align",
    equal="the museum's translators and the library's own (5+3 layers), which were trained to look at all words; the 1,000 sentences of the test set of 2016; greedy search",
    arms={
        f"{model}, {words}": {"name": name, "words": n}
        for model, name in MODELS.items()
        for words, n in (WORDS | (MIXED if model == "Bahdanau" else {})).items()
    }
    | {f"Transformer 5+3, {words}": {"name": "multi30k-de-en", "words": n} for words, n in SPARSE.items()},
    measure=measure,
    metric="BLEU",
    unit="sentences",
    budget=1000,
    smoke=4,
    seeds=range(1),
    findings={},
)
