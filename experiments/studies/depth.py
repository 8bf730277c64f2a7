"""Does a deep, narrow translator profit if a sublayer reads more than the sum of those before it?"""

import tempfile
from contextlib import nullcontext
from functools import lru_cache, partial
from pathlib import Path

import torch
from torch.nn import functional as F

from experiments.harness import TUNING, Study
from experiments.studies.museum import with_interval
from experiments.tasks import SMOKE, fit_for_hours, multi30k, pad, translator
from transformer_lib.data.text import one_line
from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.plain.deep_translator import LONGEST, DeepTranslator
from transformer_lib.plain.depth import AttentionResiduals, HyperConnections, Residuals

RUNS = Path("runs/depth")  # a run that is there already, finished or not, is gone on with
WORDS = "multi30k-de-en-transformer"  # whose vocabulary is used
N_LAYERS, D_MODEL = (2, 16) if SMOKE else (12, 64)
WIRINGS = {
    "plain residuals": Residuals,
    "value residuals": Residuals,
    "attention residuals": lambda: AttentionResiduals(2 * N_LAYERS, D_MODEL),
    "hyper-connections": lambda: HyperConnections(2 * N_LAYERS),
    "hyper-connections on a manifold": lambda: HyperConnections(2 * N_LAYERS, constrained=True),
}


@lru_cache(4)
def examples(split):
    """Sources in subwords, and targets between a beginning and an end; nothing longer than the model's positions."""
    words = translator(WORDS)
    pairs = multi30k(split, "de", "en")
    sources = words.source_tokenizer.encode_batch([words.text.prepare(one_line(pair.source)) for pair in pairs])
    targets = words.target_tokenizer.encode_batch([one_line(pair.target) for pair in pairs])
    rows = [(x[:LONGEST], [BOS, *y, EOS]) for x, y in zip(sources, targets, strict=True)]
    return [row for row in rows if split != "train" or len(row[1]) <= LONGEST], [pair.target for pair in pairs]


def loss(model, source, target, smoothing=0.1, reduction="mean"):
    """Cross-entropy of each next word."""
    logits, words = model(source, target[:, :-1]), target[:, 1:]
    options = {"ignore_index": PAD, "label_smoothing": smoothing, "reduction": reduction}
    return F.cross_entropy(logits.flatten(0, 1), words.flatten(), **options)


def in_batches(rows, size=50):
    """Sentences of similar length: their places, sources and targets."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i][0]))
    for start in range(0, len(order), size):
        places = order[start : start + size]
        yield places, *(pad([rows[i][side] for i in places]) for side in (0, 1))


@torch.no_grad()
def nats_a_word(model, rows):
    """On sentences that nobody learned from."""
    place = model.embedding.weight.device
    nats = sum(loss(model, x.to(place), y.to(place), 0.0, "sum").item() for _, x, y in in_batches(rows))
    return nats / sum(len(target) - 1 for _, target in rows)


@torch.no_grad()
def translate(model, rows):
    """Word by word, always the best one; everything is read again for each."""
    found, longest = {}, 4 if SMOKE else LONGEST
    for places, source, _ in in_batches(rows):
        target = torch.full((len(source), 1), BOS)
        while target.shape[1] < longest and not (target == EOS).any(1).all():
            words = model(source, target)[:, -1, EOS:].argmax(-1) + EOS  # neither padding nor a beginning
            ended = (target == EOS).any(1)
            target = torch.cat([target, words.masked_fill(ended, PAD)[:, None]], 1)
        for i, row in zip(places, target.tolist(), strict=True):
            found[i] = translator(WORDS).target_tokenizer.decode([word for word in row if word > EOS])
    return [found[i] for i in range(len(rows))]


@torch.no_grad()
def what_each_reads(model, rows):
    """How much each sublayer, and the end, reads of the embedding and of every output before it."""
    n, wiring, reads = len(model.sublayers), model.wiring, []
    if isinstance(wiring, AttentionResiduals):
        total, weigh = torch.zeros(n + 1, n + 1), wiring.weights
        words = sum(len(target) - 1 for _, target in rows)

        def weights(i, values):
            found = weigh(i, values)
            total[i, : i + 1] += found[..., -len(target[0]) + 1 :][:, target[:, 1:] != PAD].sum(1)
            return found

        wiring.weights = weights
        for _, source, target in in_batches(rows):
            model(source, target[:, :-1])
        del wiring.weights
        reads = [total[i, : i + 1] / words for i in range(n + 1)]
    else:  # these are sums with weights that depend on no word: unit vectors show them
        outputs = torch.eye(n + 1)[:, None, None]

        def sublayer(i, x):
            reads.append(x[0, 0, : i + 1])
            return outputs[i + 1]

        reads.append(wiring(outputs[0], sublayer, n)[0, 0])
    return [row.tolist() for row in reads]


def measure(seed, budget, wiring, rate):
    """Nats a word on validation and test sentences, and BLEU of greedy translations."""
    epochs = max(1, budget // 5) if seed in TUNING else budget  # rates are chosen after a fifth of the epochs
    torch.manual_seed(seed)
    size = {"d_model": D_MODEL, "n_layers": N_LAYERS, "dropout": 0.1, "value_residual": wiring == "value residuals"}
    model = DeepTranslator(translator(WORDS).target_tokenizer.vocab_size, WIRINGS[wiring](), **size)
    (train, _), (validation, _), (test, references) = map(examples, ("train", "val", "test_2016_flickr"))
    with tempfile.TemporaryDirectory() if SMOKE else nullcontext(RUNS) as runs:
        folder = Path(runs, f"{wiring.replace(' ', '-')}-{seed}-{rate}-{epochs}")
        judge = partial(nats_a_word, rows=validation)
        curve = fit_for_hours(model, loss, train, folder, seed, epochs, rate, judge)
    numbers = {"valid": nats_a_word(model, validation)}
    if seed in TUNING:
        return numbers
    found = translate(model, test)
    numbers |= {"loss": nats_a_word(model, test)} | with_interval(found, references)
    numbers["reads"] = what_each_reads(model, validation)
    return numbers | curve | {"parameters": sum(one.numel() for one in model.parameters())}


STUDY = Study(
    chapter="transformer/residuals_norms_feed_forward",
    equal="pairs (all 29,000 of Multi30k, German to English), subwords (the 6,000 of the museum), one stack of 12 layers of width 64 with 4 heads (987,456 parameters; what a wiring adds is 0.2 % at most), initial weights, order of batches of 2,000 tokens, dropout 0.1, smoothing 0.1, Adam (0.9, 0.98), warm-up over a tenth of the updates and a straight line to zero, clipping at 1, 15 epochs, the last weights; rates were chosen after a fifth of the epochs on a seed of its own",
    arms={name: {"wiring": name} for name in WIRINGS},
    rates=(0.002, 0.004, 0.008),
    measure=measure,
    metric="nats a word",
    unit="epochs",
    budget=15,
    smoke=1,
    seeds=range(1, 2),
    tuning=TUNING[:1],
    findings={},
)
