"""On real sentences, what did each step from one vector to the Transformer buy, with every model trained for thirty epochs?"""

import json
import os
import tempfile
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from sacrebleu.metrics.chrf import CHRF

from experiments.harness import Study
from experiments.tasks import SMOKE
from transformer_lib.metrics import bleu
from transformer_lib.translation.evaluation import bleu_interval
from transformer_lib.translation.run import TrainOptions, create_run, load_corpus, open_run, read_options
from transformer_lib.translation.translator import Translator

RUNS = Path("runs/museum")  # a run that is there already, finished or not, is gone on with
DATA = {"data": "multi30k", "source": "de", "target": "en", "vocab_size": 6000}
if SMOKE:
    DATA |= {"data": "captions", "n_captions": 60, "vocab_size": 300}
RECURRENT = {"d_model": 128, "d_hidden": 256, "dropout": 0.3}
EVEN = "attention held even"
MODELS = {
    "one vector": ("gru", RECURRENT),
    "one vector, read both ways": ("gru", RECURRENT | {"bidirectional": True}),
    EVEN: ("bahdanau", RECURRENT),  # always the plain average of all states
    "Bahdanau": ("bahdanau", RECURRENT),
    "Luong": ("luong", RECURRENT | {"d_hidden": 288, "score": "dot"}),
    "Transformer": (
        "transformer",
        {"d_model": 128, "d_ff": 384, "tie_embeddings": "all", "norm_first": True, "dropout": 0.3},
    ),
}
LENGTHS = {"to 8": (0, 8), "9 to 12": (9, 12), "13 to 16": (13, 16), "17 and more": (17, 999)}
PRONOUNS = {"he", "she", "it", "his", "her", "hers", "him", "its", "they", "them", "their"}


def options(kind, rate, epochs, seed):
    """What ``transformer-lib train`` is told."""
    model, sizes = MODELS[kind]
    if SMOKE:
        sizes = sizes | {"d_model": 16, "d_hidden" if "d_hidden" in sizes else "d_ff": 32}
    recipe = {
        "epochs": epochs, "learning_rate": rate, "schedule": "linear",
        "smoothing": 0.1, "average": 0, "betas": (0.9, 0.98), "eps": 1e-9, "precision": "bfloat16",
    }  # fmt: skip
    recipe |= {"max_tokens": 4000} if SMOKE else {}  # of the thousand captions to validate on
    return TrainOptions(**DATA, model=model, seed=seed, model_options=sizes, training=recipe)


def hold_even(model):
    """All scores of additive attention are zero and stay zero, so that each context is a plain average."""
    model.attention.score.combine.weight.requires_grad_(False).zero_()


def words(text):
    """Lower-cased, without the full stop."""
    return text.lower().strip(".").split()


def recall(texts, references, wanted):
    """The share of the wanted words of the references that the translations hold."""
    hits = total = Counter()
    for text, reference in zip(texts, references, strict=True):
        there, asked = Counter(words(text)), Counter(filter(wanted, words(reference)))
        hits, total = hits + (there & asked), total + asked
    return 100 * hits.total() / max(1, total.total())


def lowercase(texts, references):
    """BLEU without regard to case."""
    return bleu(texts, references, tokenize="13a", lowercase=True).score if texts else 0.0


def with_interval(texts, references):
    """The same, and its bootstrap interval over sentences."""
    low, high = bleu_interval([text.lower() for text in texts], [text.lower() for text in references])
    return {"bleu": lowercase(texts, references), "low": low, "high": high}


def scores(translator, corpus):
    """Greedy search and a beam of five on the test set; the beam's length penalty is chosen on the validation set."""
    train, validation, test = corpus.train, corpus.validation, corpus.test
    if SMOKE:
        validation, test = validation[:8], test[:12]

    def translate(pairs, **search):
        search |= {"max_length": 6} if SMOKE else {}
        found = translator.search([pair.source for pair in pairs], replace(translator.decoding, **search))
        return [one.text for (one,) in found]

    chosen = {}
    for penalty in (0.6, 1.0, 1.4):
        texts = translate(validation, length_penalty=penalty)
        chosen[penalty] = lowercase(texts, [pair.target for pair in validation])
    penalty = max(chosen, key=chosen.get)
    greedy, beam = translate(test, beam_size=1), translate(test, length_penalty=penalty)
    references = [pair.target for pair in test]
    low, high = bleu_interval([text.lower() for text in beam], [text.lower() for text in references])
    seen = Counter(word for pair in train for word in words(pair.target))
    numbers = {
        "penalty": penalty,
        "bleu": lowercase(beam, references),
        "low": low,
        "high": high,
        "greedy": lowercase(greedy, references),
        "chrf": CHRF().corpus_score(beam, [references]).score,
        "rare": recall(beam, references, lambda word: seen[word] <= 5),
        "pronouns": recall(beam, references, PRONOUNS.__contains__),
    }
    lengths = [len(pair.source.split()) for pair in test]
    groups = {name: [a <= n <= b for n in lengths] for name, (a, b) in LENGTHS.items()}
    for name, inside in groups.items():
        part = [(text, reference) for text, reference, own in zip(beam, references, inside, strict=True) if own]
        numbers[name] = lowercase([text for text, _ in part], [reference for _, reference in part])
    return numbers


def measure(seed, budget, kind, rate):
    """One model, trained by the command's own steps for ``budget`` epochs, and its scores; or the run that is there."""
    with tempfile.TemporaryDirectory() if SMOKE else nullcontext(RUNS) as runs:
        folder = Path(runs, f"{kind.replace(', ', '-').replace(' ', '-')}-{seed}")
        if not (folder / "config.json").exists():
            create_run(options(kind, rate, budget, seed), folder)
        trainer = open_run(folder, torch.device(os.environ.get("DEVICE", "cpu"))).trainer
        if kind == EVEN:
            hold_even(trainer.model)
        trainer.fit(print)
        log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        translator = Translator.from_pretrained(folder, device=os.environ.get("DEVICE", "cpu"), weights="best")
        stored, told = read_options(folder)
        numbers = scores(translator, load_corpus(told, stored.text))
    size = sum(one.numel() for one in translator.model.parameters())
    curve = {f"epoch {line['epoch']}": line["validation_loss"] for line in log}
    return {"valid": trainer.progress.best, "parameters": size} | numbers | curve


RATES = {kind: 0.004 if kind == "Transformer" else 0.008 for kind in MODELS}
STUDY = Study(
    chapter="translation/translating_real_sentences",
    equal="pairs (all 29,000 of Multi30k, German to English), subwords (6,000, shared), batches of 2,000 tokens, dropout 0.3, smoothing 0.1, Adam (0.9, 0.98), warm-up over a tenth of the updates and a straight line to zero, clipping at 1, bfloat16, 30 epochs of which the best counts, and between 2.3 and 2.5 million parameters; learning rates were chosen after 5 epochs on a seed of their own (experiments/LEDGER.md)",
    arms={kind: {"kind": kind, "rate": rate} for kind, rate in RATES.items()},
    measure=measure,
    metric="BLEU",
    unit="epochs",
    budget=30,
    smoke=1,
    seeds=range(1, 2),
    findings={},
)
