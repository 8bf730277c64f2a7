"""How much does a Transformer owe to its initial weights?"""

from torch import nn

from experiments.harness import Finding, Study
from experiments.statistics import difference
from experiments.studies.warm_up import SIZES
from experiments.tasks import captions, decay, fit, mean_loss, right, stream, translation_loss
from transformer_lib.models.transformer import Transformer, TransformerConfig


def start(model, how):
    """Give all matrices but the embeddings PyTorch's default, or Xavier's weights, one matrix at a time."""
    if how != "library":
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed" not in name and "output" not in name:
                nn.init.kaiming_uniform_(parameter, a=5**0.5) if how == "default" else nn.init.xavier_uniform_(
                    parameter
                )
    return model


def measure(seed, budget, how, rate, times=1):
    """The loss on new captions, and how many are translated exactly."""
    data, budget = captions(seed), times * budget
    config = TransformerConfig(*data.sizes, tie_embeddings="target", norm_first=False, **SIZES)
    model = start(Transformer(config), how)
    fit(
        model,
        translation_loss,
        stream(data.rows["train"], 64, seed),
        rate,
        budget,
        lambda u, n: min(u / 60, decay(u, n)),
    )
    numbers = {"valid": mean_loss(model, data.rows["valid"]), "loss": mean_loss(model, data.rows["test"])}
    return numbers | {"exact": right(model, data.rows["test"])}


STARTS = {"PyTorch's default": "default", "Xavier, matrix by matrix": "xavier", "the library's": "library"}
ARMS = {name: {"how": how} for name, how in STARTS.items()}
STUDY = Study(
    chapter="transformer/the_transformer",
    equal="captions and order of batches (by seed), embeddings, biases, Adam, 60 updates of warm-up, linear decay, updates",
    arms=ARMS
    | {
        f"{name}, twice the updates": arm | {"times": 2}
        for name, arm in ARMS.items()
        if name != "Xavier, matrix by matrix"
    },
    rates=(0.0025, 0.005, 0.01, 0.02),
    measure=measure,
    metric="nats a word, lower is better",
    budget=300,
    smoke=2,
    findings={
        "start": Finding(
            "At its own learning rate, the library's start reaches a lower loss within 300 updates than PyTorch's default.",
            difference("loss", "PyTorch's default", "the library's"),
            "low > 0",
            withdrawn="With five seeds and tuned rates, PyTorch's default does at least as well.",
        ),
        "later": Finding(
            "With twice the updates the two differ by less than 0.1 nats.",
            difference("loss", "PyTorch's default, twice the updates", "the library's, twice the updates", margin=0.1),
            "low > -0.1 and high < 0.1",
        ),
    },
)
