"""What is pre-training worth to a classifier that may train as long as it needs?"""

import random
from functools import lru_cache

import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch.nn import functional as F

from experiments.harness import Check, Finding, Study
from experiments.statistics import difference
from experiments.tasks import captions, fit, rise
from transformer_lib.data.tokenizer import PAD
from transformer_lib.models.bert import Bert, BertClassifier, BertConfig, mask_tokens

ARTICLES = {"der": ("die", "das"), "die": ("der", "das"), "das": ("der", "die"), "ein": ("eine",), "eine": ("ein",)}
SIZES = {"d_model": 64, "n_heads": 4, "n_layers": 2, "d_ff": 128, "dropout": 0.0, "attention_dropout": 0.0}
LABELS = 400


def with_errors(rows, de, seed):
    """German captions that have an article, every second one with a wrong one, and whether they are correct."""
    draw, tokens = random.Random(seed), rows.target.clone()
    words = {de.encode(word)[0]: de.encode(" ".join(others)) for word, others in ARTICLES.items()}
    tokens = tokens[torch.isin(tokens, torch.tensor(list(words))).any(1)]
    for row in tokens[1::2]:
        place = next(i for i, token in enumerate(row.tolist()) if token in words)
        row[place] = draw.choice(words[row[place].item()])
    return tokens, 1 - torch.arange(len(tokens)) % 2


def word_pairs(x, y, new):
    """Accuracy of a logistic regression that sees which pairs of neighbouring words occur."""
    texts = [[" ".join(map(str, row)) for row in part.tolist()] for part in (x, new[0])]
    model = make_pipeline(
        CountVectorizer(token_pattern=r"\d+", ngram_range=(1, 2), binary=True), LogisticRegression(max_iter=1000)
    )
    return 100 * model.fit(texts[0], y).score(texts[1], new[1])


class Averaged(BertClassifier):
    """Classifies by the average of all positions, not by the first."""

    def forward(self, tokens):
        words = (tokens != PAD)[..., None]
        mean = (self.bert.encode(tokens) * words).sum(1) / words.sum(1)
        return self.classifier(self.dropout(self.pooler(mean).tanh()))


def masked_loss(model, batch):
    """Guess the hidden words."""
    tokens, hidden, chosen = batch
    return F.cross_entropy(model.logits(model.encode(hidden)[chosen]), tokens[chosen])


def classifier_loss(model, batch):
    """Is the caption correct?"""
    return F.cross_entropy(model(batch[0]), batch[1])


def accuracy(model, data):
    """Percent judged right."""
    with torch.no_grad():
        return 100 * (model(data[0]).argmax(-1) == data[1]).float().mean().item()


@lru_cache(2)
def pretrained(seed, updates, **sizes):
    """A model that has guessed hidden words of 6,000 captions; its weights."""
    data = captions(seed, n=6000, shortest=5, longest=9)
    rows, draw, mask = data.rows["train"].target, torch.Generator().manual_seed(seed), data.sizes[1]

    def batches():
        for _ in range(updates):
            tokens = rows[torch.randint(len(rows), (64,), generator=draw)]
            yield tokens, *mask_tokens(tokens, mask, rng=draw)

    torch.manual_seed(seed)
    model = Bert(BertConfig(mask + 1, max_length=40, **SIZES | sizes))
    return fit(model, masked_loss, batches(), 0.004, updates, rise(80)).state_dict()


def measure(seed, budget, start, rate, times=1, dropout=0.0, average=False, **sizes):
    """Fine-tune on 400 labels; accuracy on new captions."""
    # tiny averages of Adam's would make updates several times slower
    torch.set_flush_denormal(True)
    data = captions(seed, n=6000, shortest=5, longest=9)
    sets = [with_errors(data.rows[part], data.de, seed) for part in ("train", "valid", "test")]
    x, y = (part[:LABELS] for part in sets[0])
    if start == "word pairs":
        return {"valid": word_pairs(x, y, sets[1]), "accuracy": word_pairs(x, y, sets[2])}
    options = SIZES | sizes | {"dropout": dropout, "attention_dropout": dropout}
    bert = Bert(BertConfig(data.sizes[1] + 1, max_length=40, **options))
    if start == "pre-trained":
        bert.load_state_dict(pretrained(seed, 800 if budget > 10 else 3, **sizes))
    torch.manual_seed(seed)
    draw, updates = torch.Generator().manual_seed(seed), times * budget
    picks = (torch.randint(len(x), (20,), generator=draw) for _ in range(updates))
    model = (Averaged if average else BertClassifier)(bert, 2)
    fit(model, classifier_loss, ((x[rows], y[rows]) for rows in picks), rate, updates, rise(50))
    return {"valid": accuracy(model, sets[1]), "accuracy": accuracy(model, sets[2])}


SCRATCH, TRAINED, LONG = "from scratch", "pre-trained", ", four times the updates"
STUDY = Study(
    chapter="descendants/bert",
    equal="captions, labels and their order (by seed), sizes, Adam, warm-up of 50, linear decay, updates of fine-tuning",
    arms={
        SCRATCH: {"start": "scratch"},
        TRAINED: {"start": "pre-trained"},
        SCRATCH + LONG: {"start": "scratch", "times": 4},
        TRAINED + LONG: {"start": "pre-trained", "times": 4},
        "word pairs": {"start": "word pairs", "rate": None},
    },
    rates=(0.0005, 0.001, 0.002, 0.004),
    measure=measure,
    metric="% of captions judged right",
    higher=True,
    budget=400,
    findings={
        "long": Finding(
            "With 400 labels and four times the updates, a classifier trained from scratch stays at least ten points behind a pre-trained one.",
            difference("accuracy", TRAINED + LONG, SCRATCH + LONG),
            ("low", ">", 10),
            line="With 400 labels, pre-training is worth at least ten points, even to a classifier that trains four times as long.",
            earlier="The first comparison was with a classifier that hadn't trained long enough.",
        ),
    },
)

SHORT, LONGER = (SCRATCH, TRAINED), (SCRATCH + LONG, TRAINED + LONG)
CHECKS = {
    "average": Check(
        "the classifier sees the average of all positions rather than the first one, dropout of 0.2 as it learns from labels; seeds 100 to 107",
        ("long",),
        range(100, 108),
        {name: {} for name in (*SHORT, *LONGER)},
        settings={"dropout": 0.2, "average": True},
    ),
    "longer": Check(
        "for the short training, a model of width 96, and two rates (0.001 and 0.002); for the long one, 3,200 updates, and three rates (0.001 to 0.004); seeds 200 to 205",
        ("long",),
        range(200, 206),
        {name: {"d_model": 96, "d_ff": 192} for name in SHORT} | {name: {"times": 8} for name in LONGER},
        rates=dict.fromkeys(SHORT, (0.001, 0.002)) | dict.fromkeys(LONGER, (0.001, 0.002, 0.004)),
    ),
}
