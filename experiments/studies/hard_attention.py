"""Is hard attention worse than soft, or did only one of them get a bonus for entropy?"""

from itertools import repeat

from experiments.harness import Check, Finding, Study, plain
from experiments.statistics import difference, share
from experiments.tasks import captions, fit, mean_loss, right, stream
from transformer_lib.data.batching import Batch
from transformer_lib.data.tokenizer import PAD
from transformer_lib.models.hard_attention import HardConfig, HardSeq2Seq
from transformer_lib.models.luong import LuongConfig, LuongSeq2Seq
from transformer_lib.models.seq2seq import token_losses


def hard_loss(model, batch, bonus):
    """The model's own loss."""
    object.__setattr__(model.config, "entropy_weight", bonus)
    return model.loss(Batch(batch.source, batch.target)).mean


def soft_loss(model, batch, bonus):
    """Cross-entropy, less the weights' entropy times the bonus."""
    hidden, state = model.read(batch.target[:, :-1], model.start(batch.source))
    target, weights = batch.target[:, 1:], state.attention[0]
    entropy = -(weights * weights.clamp(min=1e-9).log()).sum(-1)
    return (token_losses(model.output(hidden), target) - bonus * entropy)[target != PAD].mean()


def measure(seed, budget, kind, bonus, rate, times=1, dropout=0.0, falling=False, width=32):
    """Exact matches on new captions of 4 to 7 words; hard attention takes the best position when it is tested."""
    data, sizes = captions(seed), {"d_model": width, "d_hidden": 2 * width, "dropout": dropout, "input_feeding": False}
    if kind == "soft":
        model, loss = LuongSeq2Seq(LuongConfig(*data.sizes, **sizes)), soft_loss
    else:
        model, loss = HardSeq2Seq(HardConfig(*data.sizes, estimator=kind, **sizes)), hard_loss
    updates, batches = times * budget, stream(data.rows["train"], 64, seed)
    falls = (2 * bonus * (1 - done / updates) for done in range(updates))  # from twice the bonus to zero
    bonuses = falls if falling else repeat(bonus)

    def with_bonus(model, batch):
        return loss(model, batch, next(bonuses))

    fit(model, with_bonus, batches, rate, updates, betas=(0.9, 0.999))
    numbers = {"valid": mean_loss(model, data.rows["valid"]), "loss": mean_loss(model, data.rows["test"])}
    return numbers | {"exact": right(model, data.rows["test"])}


ARMS = {
    f"{kind}{', bonus' if bonus else ''}": {"kind": kind, "bonus": bonus}
    for kind in ("soft", "gumbel")
    for bonus in (0.0, 0.1)
}
REINFORCE = {"kind": "reinforce", "bonus": 0.1}
STUDY = Study(
    chapter="history/hard_attention",
    equal="captions and order of batches (by seed), sizes, Adam, clipping, linear decay, updates, bonus of 0.1 for a nat of entropy",
    arms=ARMS | {"reinforce, bonus": REINFORCE, "reinforce, bonus, three times the updates": REINFORCE | {"times": 3}},
    rates=(0.005, 0.01, 0.02, 0.04),
    measure=measure,
    metric="% of new captions translated exactly",
    seeds=range(8),
    budget=400,
    smoke=2,
    findings={
        "early-bonus": Finding(
            "Within 400 updates, a bonus for entropy helps soft attention.",
            difference("exact", "soft, bonus", "soft"),
            ("low", ">", 5),
            withdrawn="All six seeds of one check gain, but so unequally that the interval touches zero.",
        ),
        "gumbel-bonus": Finding(
            "Within 400 updates, a constant bonus helps hard attention that is trained with Gumbel-softmax.",
            difference("exact", "gumbel, bonus", "gumbel"),
            ("low", ">", 0),
        ),
        "reinforce": Finding(
            "400 updates are too few for REINFORCE: with three times as many, it gains at least twenty points.",
            difference("exact", "reinforce, bonus, three times the updates", "reinforce, bonus"),
            ("low", ">", 20),
            withdrawn="In models of twice the width, it gains 22 points, and the interval begins at 19.",
        ),
        "equal": Finding(
            "With the bonus for both, soft attention is ahead of hard attention trained with Gumbel-softmax.",
            difference("exact", "soft, bonus", "gumbel, bonus"),
            ("low", ">", 0),
            withdrawn="True after 400 updates. After 800, four seeds show no difference.",
        ),
        "bonus-hard": Finding(
            "A bonus for entropy also helps hard attention trained with Gumbel-softmax.",
            difference("exact", "gumbel, bonus", "gumbel"),
            ("low", ">", 0),
            withdrawn="With a bonus that falls to zero, six seeds cannot tell.",
        ),
        "bonus": Finding(
            "A bonus for entropy helps soft attention.",
            difference("exact", "soft, bonus", "soft"),
            ("low", ">", 5),
            withdrawn="After 800 updates, four seeds cannot tell.",
        ),
        "steady": Finding(
            "With the bonus and 400 updates, soft attention translates at least 70 % of the captions with every seed.",
            share("exact", "soft, bonus", 70),
            ("value", "==", 1),
        ),
    },
)

REINFORCED, LONG = "reinforce, bonus", "reinforce, bonus, three times the updates"
HARD = plain(STUDY)
CHECKS = {
    "longer": Check(
        "seeds 100 to 103, 800 updates, three rates for each variant around the old ones (REINFORCE with three times the updates: its old rate)",
        ("equal", "bonus-hard", "bonus"),
        range(100, 104),
        HARD | {LONG: {"rate": 0.01}},
        budget=800,
        rates=(0.007, 0.014, 0.028),
    ),
    "falling": Check(
        "the bonus for entropy falls in a straight line from 0.2 to zero, so that its mean is the same, for soft and hard attention alike; three rates for each variant, chosen on one seed; seeds 200 to 205",
        ("early-bonus", "bonus-hard"),
        range(200, 206),
        HARD,
        settings={"falling": True},
        outside={"gumbel-bonus": "The sentence is about a constant bonus."},
        rates=dict.fromkeys(HARD, (0.01, 0.02, 0.04)) | {LONG: (0.005, 0.01, 0.02)},
    ),
    "again": Check(
        "seeds 300 to 305, 400 updates, three rates for each variant, chosen on one seed (REINFORCE with three times the updates: its old rate)",
        ("early-bonus",),
        range(300, 306),
        HARD | {LONG: {"rate": 0.01}},
        rates=(0.01, 0.02, 0.04),
    ),
    "many": Check(
        "seeds 500 to 529, 400 updates, the old rate",
        ("steady",),
        range(500, 530),
        {"soft, bonus": {"rate": 0.02}},
    ),
    "fresh": Check(
        "seeds 400 to 407, the same updates; closer rates for REINFORCE, and the old ones for the others",
        ("gumbel-bonus", "reinforce"),
        range(400, 408),
        {"gumbel": {"rate": 0.02}, "gumbel, bonus": {"rate": 0.02}, REINFORCED: {}, LONG: {"rate": 0.01}},
        rates={REINFORCED: (0.01, 0.014, 0.02, 0.028)},
    ),
    "wider": Check(
        "models of twice the width (64, and 128 in the states), 400 updates, three rates for each variant; seeds 600 to 606",
        ("gumbel-bonus", "reinforce", "steady"),
        range(600, 607),
        plain(STUDY, "soft"),
        settings={"width": 64},
        rates=dict.fromkeys(HARD, (0.005, 0.01, 0.02)) | {LONG: (0.003, 0.006, 0.012)},
    ),
}
