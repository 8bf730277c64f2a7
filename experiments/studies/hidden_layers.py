"""Which layers of a translator's decoder need the adjective to choose between er, sie and es, and which the noun?"""

import torch

from experiments.harness import Check, Finding, Study
from experiments.statistics import level
from experiments.studies.pronoun_circuit import LAYERS, PARTS, captions, encoded, loaded, margins

EARLY, LAST = tuple(range(LAYERS - 1)), (LAYERS - 1,)


@torch.no_grad()
def lead(model, source, target, at, chosen, hidden, layers):
    """How far the right pronoun is ahead if the cross-attention of these layers can't see one word of each source."""
    padding, row = (source != 0)[:, None, None], torch.arange(len(source))
    memory = model.encoder(model.embed(source, model.source_embedding), padding)
    blind = padding.clone()
    blind[row, 0, 0, hidden] = False
    x = model.embed(target[:, :-1], model.target_embedding)
    causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    for n, layer in enumerate(model.decoder.layers):
        x = layer(x, causal, memory, blind if n in layers else padding)
    logits = model.output(model.decoder.norm(x))[row, at]
    return margins(logits, target[row, at + 1], chosen)


def measure(seed, budget, word="adjective", layers=EARLY, fresh=None, lengths=()):
    """One tenth of the captions: how many pronouns are wrong, of those that were right."""
    model, *tokenizers = loaded(0)
    pairs = captions(0, fresh, lengths)[1][seed % PARTS :: PARTS]
    inputs = encoded(pairs, *tokenizers)
    places = {
        "adjective": [len(pair.source.split()) - 1 for pair in pairs],
        "it": [pair.referents[0][0] for pair in pairs],
        "noun": [pair.referents[0][1] for pair in pairs],
    }
    hidden = torch.tensor(places[word])
    right = lead(model, *inputs, hidden, ()) > 0
    wrong = lead(model, *inputs, hidden, layers)[right] < 0
    return {"wrong": 100 * wrong.double().mean().item(), "captions": len(pairs), "right before": int(right.sum())}


STUDY = Study(
    chapter="transformer/the_transformer",
    equal="one trained translator of captions, captions-en-de; the right German words before the pronoun; the encoder sees every word; one English word is hidden from the cross-attention of some layers, at all German positions; all 188 test captions with a pronoun, in tenths",
    arms={
        "adjective, hidden from layers 1 to 3": {},
        "adjective, hidden from layer 4": {"layers": LAST},
        "noun, hidden from layers 1 to 3": {"word": "noun"},
        "noun, hidden from layer 4": {"word": "noun", "layers": LAST},
        "the word it, hidden from all": {"word": "it", "layers": (*EARLY, *LAST)},
    },
    measure=measure,
    metric="% of the pronouns that become wrong",
    budget=1,
    unit="tenth of the captions",
    smoke=1,
    seeds=range(PARTS),
    findings={
        "adjective": Finding(
            "If the adjective is hidden from the cross-attention of the first three layers, more than 40 % of the pronouns become wrong. (This and all others were written after a look at the test captions, before the checks.)",
            level("wrong", "adjective, hidden from layers 1 to 3"),
            ("low", ">", 40),
            line="In one translator, the decoder's first three layers need the adjective to choose between er, sie and es, and the last one needs the noun.",
        ),
        "adjective-late": Finding(
            "If it is hidden from the last layer, fewer than 3 % do.",
            level("wrong", "adjective, hidden from layer 4"),
            ("high", "<", 3),
        ),
        "noun": Finding(
            "If the noun that the pronoun stands for is hidden from the first three layers, fewer than 5 % become wrong.",
            level("wrong", "noun, hidden from layers 1 to 3"),
            ("high", "<", 5),
        ),
        "noun-late": Finding(
            "If it is hidden from the last layer, more than 20 % do.",
            level("wrong", "noun, hidden from layer 4"),
            ("low", ">", 20),
        ),
        "it": Finding(
            "If the word it is hidden from all layers, fewer than 10 % become wrong.",
            level("wrong", "the word it, hidden from all"),
            ("high", "<", 10),
        ),
    },
)

ASKED = tuple(STUDY.findings)
CHECKS = {
    "new-clauses": Check(
        "captions of another seed whose main clause was in no training caption",
        ASKED,
        range(100, 110),
        settings={"fresh": 785},
    ),
    "longer": Check(
        "captions of 14 to 20 words, of a third seed, whose main clause was in no training caption",
        ASKED,
        range(300, 310),
        settings={"fresh": 786, "lengths": (14, 20)},
    ),
}
