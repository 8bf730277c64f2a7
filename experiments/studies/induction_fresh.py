"""What does the wait for the jump of induction heads consist of: do only the two heads wait for each other?"""

from copy import deepcopy

import torch
from torch.nn import functional as F

from experiments.harness import Finding, Study
from experiments.statistics import level
from experiments.studies.induction_heads import AttentionOnly, accuracy, make_prompts

PARTS = {"layer 2": "layers.1", "layer 1": "layers.0", "both layers": "layers", "everything": ""}
PARTS |= {"embedding": "embedding", "output": "output"}


def updates(model, seed, budget, rate, goal):
    """Train a model to play the game until it gets so many percent right: how many updates it took, a multiple of 25."""
    test, rng = make_prompts(200, torch.Generator().manual_seed(99_000 + seed)), torch.Generator().manual_seed(seed)
    adam = torch.optim.Adam(model.parameters(), rate)
    for update in range(1, budget + 1):
        adam.param_groups[0]["lr"] = rate * min(1, update / 50)
        tokens, _ = make_prompts(32, rng)
        loss = F.cross_entropy(model(tokens[:, :-1])[:, ::2].mT, tokens[:, 1::2])
        adam.zero_grad()
        loss.backward()
        adam.step()
        if update % 25 == 0 and accuracy(model, test) > goal:
            return update
    return budget


def measure(seed, budget, rate):
    """Updates until 90 % are right, after parts of a trained model got fresh weights; and two of them divided."""
    model = AttentionOnly(2)
    row = {"first": updates(model, 1000 + seed, 2 * budget, rate, 99)}
    fresh = AttentionOnly(2).state_dict()
    for name, begins in PARTS.items():
        changed = deepcopy(model)
        changed.load_state_dict({key: fresh[key] for key in fresh if key.startswith(begins)}, strict=False)
        row[name] = updates(changed, 5000 + seed, budget, rate, 90)
    return row | {"share": row["both layers"] / row["everything"]}


ARM = "two layers"
STUDY = Study(
    chapter="descendants/induction_heads",
    equal="the trained model, the fresh weights, prompts (by seed), Adam, 50 updates of warm-up, batches of 32 prompts, the rate",
    arms={ARM: {"rate": 0.003}},
    measure=measure,
    metric="share",
    findings={
        "heads": Finding(
            "If only the two layers are fresh, the game is learned again in less than 60 % of the updates that a wholly fresh model needs.",
            level("share", ARM),
            ("high", "<", 0.6),
        ),
    },
    budget=1200,
    seeds=range(110, 118),
    unit="updates at most",
)
