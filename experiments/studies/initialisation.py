"""How much does a Transformer owe to its initial weights?"""

from functools import partial

from torch import nn

from experiments.harness import Check, Finding, Study
from experiments.statistics import difference
from experiments.studies.warm_up import SIZES
from experiments.tasks import captions, decay, fit, mean_loss, right, stream, translation_loss
from transformer_lib.models.transformer import Transformer, TransformerConfig


def start(model, how, biases=False):
    """Give all matrices but the embeddings nn.Linear's default (its biases, too), or Xavier's weights, one at a time."""
    draw = partial(nn.init.kaiming_uniform_, a=5**0.5) if how == "default" else nn.init.xavier_uniform_
    if how != "library":
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed" not in name and "output" not in name:
                draw(parameter)
            elif biases and name.endswith("bias") and "norm" not in name:
                bound = model.get_parameter(name.removesuffix("bias") + "weight").shape[1] ** -0.5
                nn.init.uniform_(parameter, -bound, bound)
    return model


def measure(seed, budget, how, rate, times=1, biases=False, layers=2, norm_first=False):
    """The loss on new captions, and how many are translated exactly."""
    data, budget = captions(seed), times * budget
    sizes = SIZES | {"n_encoder_layers": layers, "n_decoder_layers": layers}
    config = TransformerConfig(*data.sizes, tie_embeddings="target", norm_first=norm_first, **sizes)
    model = start(Transformer(config), how, biases)
    batches = stream(data.rows["train"], 64, seed)
    fit(model, translation_loss, batches, rate, budget, lambda u, n: min(u / 60, decay(u, n)))
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
            ("low", ">", 0),
            withdrawn="With five seeds and tuned rates, PyTorch's default does at least as well.",
        ),
        "ahead": Finding(
            "After 600 updates on captions, a small Transformer with the library's start is less than 0.05 nats ahead of one whose linear layers start as PyTorch's do.",
            difference("loss", "PyTorch's default, twice the updates", "the library's, twice the updates"),
            ("high", "<", 0.05),
        ),
    },
)

DEFAULT, LIBRARY = "PyTorch's default, twice the updates", "the library's, twice the updates"
CHECKS = {
    "biases": Check(
        "600 updates; biases start with PyTorch's default as well, rather than with zeros; three closer rates for each start; seeds 100 to 109",
        (),
        range(100, 110),
        {DEFAULT: {"biases": True}, LIBRARY: {}},
        rates=(0.0035, 0.005, 0.007),
    ),
    "deep": Check(
        "600 updates; four layers in the encoder and four in the decoder, rather than two in each; three rates for each start; seeds 200 to 206",
        (),
        range(200, 207),
        {DEFAULT: {}, LIBRARY: {}},
        settings={"layers": 4},
        rates=(0.0025, 0.005, 0.008),
    ),
    "shallow": Check(
        "600 updates; one layer in the encoder and one in the decoder, rather than two in each; biases start with PyTorch's default as well, rather than with zeros; the best of four rates for each start (0.004 to 0.02); seeds 300 to 309",
        ("ahead",),
        range(300, 310),
        {DEFAULT: {"biases": True}, LIBRARY: {}},
        settings={"layers": 1},
        rates=(0.004, 0.007, 0.012, 0.02),
    ),
    "pre-norm": Check(
        "600 updates; layer norm before each sublayer rather than after it; biases start with PyTorch's default as well, rather than with zeros; the best of three rates for each start (0.004 to 0.016); seeds 400 to 409",
        ("ahead",),
        range(400, 410),
        {DEFAULT: {"biases": True}, LIBRARY: {}},
        settings={"norm_first": True},
        rates=(0.004, 0.008, 0.016),
    ),
}
