"""How close does a translator that writes all words at once come to one that writes them one by one?"""

import json
import tempfile
from contextlib import nullcontext
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path

import torch

from experiments.harness import TUNING, Study
from experiments.studies.museum import lowercase, with_interval
from experiments.tasks import SMOKE, fit_for_hours, multi30k, pad, translator
from transformer_lib.data.files import write_atomically
from transformer_lib.data.text import one_line
from transformer_lib.plain.mask_predict import LONGEST, PAD, MaskPredict, hide, mask_predict, mask_predict_loss

RUNS = Path("runs/mask-predict")  # a run that is there already, finished or not, is gone on with
STEPS = (1, 2, 4, 8, 16)
TEACHER = "multi30k-de-en-transformer"
SIZES = {"d_model": 16, "d_ff": 32, "n_layers": 1} if SMOKE else {}


def texts(split):
    """Sources and the translations of people."""
    pairs = multi30k(split, "de", "en")
    return [one_line(pair.source) for pair in pairs], [one_line(pair.target) for pair in pairs]


def taught(sources, folder, size=500):
    """The Transformer's own translations of the sources, with its beam of five; kept in files, a few hundred each."""
    teacher, found = translator(TEACHER), []
    for start in range(0, len(sources), size):
        path = Path(folder, "translations", f"{start}.json")
        if not path.exists():
            rows = teacher.search(sources[start : start + size])
            write_atomically(path, json.dumps([one.text for (one,) in rows]).encode())
        found += json.loads(path.read_text(encoding="utf-8"))
    return found


@lru_cache(2)
def examples(kind, folder):
    """Training pairs in the teacher's subwords, without a beginning and an end."""
    sources, targets = texts("train")
    if kind == "transformer":
        targets = taught(sources, folder)
    encoded = read(sources), translator(TEACHER).target_tokenizer.encode_batch(targets)
    return [(x, y) for x, y in zip(*encoded, strict=True) if 0 < len(y) < LONGEST and len(x) <= LONGEST]


def read(sources):
    """Sources in subwords."""
    teacher = translator(TEACHER)
    return teacher.source_tokenizer.encode_batch([teacher.text.prepare(source) for source in sources])


@torch.no_grad()
def translate(model, sources, steps, size=50):
    """Texts; sentences of similar length go together."""
    encoded, found = [row[:LONGEST] for row in read(sources)], {}
    order = sorted(range(len(encoded)), key=lambda i: len(encoded[i]))
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        words = mask_predict(model, pad([encoded[i] for i in rows]).to(model.embedding.weight.device), steps)
        for i, row in zip(rows, words.tolist(), strict=True):
            found[i] = translator(TEACHER).target_tokenizer.decode([token for token in row if token != PAD])
    return [found[i] for i in range(len(sources))]


def repeated(found):
    """Percent of the words that repeat the word before them."""
    pairs = [pair for text in found for pair in pairwise(text.lower().split())]
    return 100 * sum(a == b for a, b in pairs) / max(1, len(pairs))


def loss(model, source, target):
    """Of words hidden at random."""
    return mask_predict_loss(model, source, target, hide(target))


def score(model, sources, references, steps=4):
    """BLEU without regard to case."""
    return lowercase(translate(model, sources, steps), references)


def measure(seed, budget, targets, rate):
    """BLEU on the test set after 1 to 16 steps, and how often a word repeats the one before it."""
    epochs = max(1, budget // 10) if seed in TUNING else budget  # rates are chosen after a tenth of the epochs
    torch.manual_seed(seed)
    model = MaskPredict(translator(TEACHER).target_tokenizer.vocab_size, **SIZES)
    with tempfile.TemporaryDirectory() if SMOKE else nullcontext(RUNS) as runs:
        folder = Path(runs, f"{targets}-{seed}-{rate}-{epochs}")
        sources, references = texts("val")
        judge = partial(score, sources=sources[:300], references=references[:300])
        pairs, options = examples(targets, runs), {"bfloat16": not SMOKE}
        curve = fit_for_hours(model, loss, pairs, folder, seed, epochs, rate, judge, **options)
    numbers = {"valid": score(model, sources, references)}
    if seed in TUNING:
        return numbers
    sources, references = texts("test_2016_flickr")
    for steps in STEPS[:2] if SMOKE else STEPS:
        found = translate(model, sources, steps)
        own = with_interval(found, references) | {"repeated": repeated(found)}
        numbers |= {f"{name}, {steps} steps": value for name, value in own.items()}
    return numbers | curve | {"parameters": sum(one.numel() for one in model.parameters())}


STUDY = Study(
    chapter="descendants/all_words_at_once",
    equal="sources (all 29,000 of Multi30k, German), subwords (the 6,000 of the museum), batches of 2,000 tokens, a model as large as the museum's Transformer (128 wide, 4 + 4 layers), dropout 0.2, smoothing 0.1, Adam (0.9, 0.98), warm-up over a tenth of the updates and a straight line to zero, clipping at 1, bfloat16, 30 epochs, the last weights; rates were chosen after a tenth of the epochs on a seed of its own; five lengths a sentence",
    arms={
        "people's translations": {"targets": "people"},
        "the Transformer's translations": {"targets": "transformer"},
    },
    rates=(0.001, 0.002, 0.004),
    measure=measure,
    metric="BLEU",
    unit="epochs",
    budget=30,
    smoke=1,
    seeds=range(1, 2),
    tuning=TUNING[:1],
    higher=True,
    findings={},
)
