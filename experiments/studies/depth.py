"""Does a deep, narrow translator profit if a sublayer reads more than the sum of those before it?"""

import torch

from experiments.harness import TUNING, Check, Finding, Study
from experiments.statistics import difference
from experiments.tasks import SMOKE, Rows, captions, learn, right, rise
from transformer_lib.data.tokenizer import PAD
from transformer_lib.plain.deep_translator import DeepTranslator
from transformer_lib.plain.depth import AttentionResiduals, HyperConnections, ManifoldHyperConnections, Residuals

N_LAYERS, D_MODEL = (2, 16) if SMOKE else (12, 48)
MANIFOLD = "hyper-connections on a manifold"
WIRINGS = {
    "plain residuals": lambda n: Residuals(),
    "value residuals": lambda n: Residuals(),
    "attention residuals": lambda n: AttentionResiduals(n, D_MODEL),
    "hyper-connections": HyperConnections,
    MANIFOLD: ManifoldHyperConnections,
}


SLOW, FROZEN = "plain residuals, slower", "value residuals, first ones frozen"


class Slower(Residuals):
    """Plain residuals of smaller outputs: if output matrices are as much larger, it is the same model, but Adam, whose
    steps don't grow with a matrix, changes what is written more slowly.
    """

    def forward(self, x, sublayer, n):
        """What comes after all sublayers."""
        return super().forward(x, lambda i, x: sublayer(i, x) / n**0.5, n)


def as_control(model, arm):
    """Turn a model into one of the two controls."""
    if arm == SLOW:
        model.wiring = Slower()
        with torch.no_grad():
            for sublayer in model.sublayers:
                for one in sublayer.output.parameters():
                    one *= len(model.sublayers) ** 0.5
    else:  # the first layer's values stay a random projection of the embedding

        def without_values(gradient):
            return torch.cat([gradient[:-D_MODEL], torch.zeros_like(gradient[-D_MODEL:])])

        model.sublayers[0].project.weight.register_hook(without_values)


@torch.no_grad()
def what_each_reads(model, rows):
    """How much each sublayer, and the end, reads of the embedding and of every output before it."""
    n, wiring, reads = len(model.sublayers), model.wiring, []
    if isinstance(wiring, AttentionResiduals):
        total, weigh = torch.zeros(n + 1, n + 1), wiring.weights
        words = (rows.target[:, 1:] != PAD).sum()

        def weights(i, values):
            found = weigh(i, values)
            total[i, : i + 1] += found[..., -target.shape[1] + 1 :][:, target[:, 1:] != PAD].sum(1)
            return found

        wiring.weights = weights
        for group in torch.arange(len(rows)).split(100):
            source, target = rows.take(group)
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


def measure(seed, budget, wiring, rate, control=None):
    """Nats a word on new captions, and how many of them are translated word for word."""
    updates = max(1, budget // 3) if seed in TUNING else budget  # rates are chosen after a third of the updates
    data = captions(seed)
    n_words = data.sizes[1]  # the source has numbers of its own, behind those of the target

    def shifted(rows):
        return Rows(torch.where(rows.source == PAD, PAD, rows.source + n_words), rows.target)

    rows = {part: shifted(found) for part, found in data.rows.items()}
    torch.manual_seed(seed)
    size = {"d_model": D_MODEL, "n_layers": N_LAYERS, "value_residual": wiring == "value residuals"}
    model = DeepTranslator(sum(data.sizes), WIRINGS[wiring](2 * N_LAYERS), **size)
    if control:
        as_control(model, control)
    numbers = learn(model, rows, seed, rate, updates, rise(updates // 10 or 1))
    if seed in TUNING:
        return numbers
    numbers |= {"right": right(model, rows["test"]), "parameters": sum(one.numel() for one in model.parameters())}
    return numbers if control else numbers | {"reads": what_each_reads(model, rows["valid"])}


BEST = {name: 0.008 if name in ("plain residuals", MANIFOLD) else 0.016 for name in WIRINGS}
BEST |= {SLOW: 0.016, FROZEN: 0.016}
CONTROLS = {
    SLOW: {"wiring": "plain residuals", "control": SLOW},
    FROZEN: {"wiring": "value residuals", "control": FROZEN},
}
STUDY = Study(
    chapter="descendants/attention_over_depth",
    equal="captions and batches of 64 (by seed), one stack of 12 layers of width 48 with 4 heads (what a wiring adds is about 0.3 % of its parameters at most), initial weights, dropout 0.1, Adam (0.9, 0.98), warm-up over a tenth of the updates and a straight line to zero, the last weights; rates were chosen after a third of the updates on a seed of its own",
    arms={name: {"wiring": name} for name in WIRINGS} | CONTROLS,
    rates={name: (rate / 2, rate, 2 * rate) for name, rate in BEST.items()},
    measure=measure,
    metric="nats a word",
    budget=1500,
    smoke=3,
    seeds=range(1, 4),
    tuning=TUNING[:1],
    findings={
        "value": Finding(
            "On new captions, a translator with value residuals has a lower loss than one with plain residuals.",
            difference("loss", "plain residuals", "value residuals"),
            ("value", ">", 0),
            line="In our deep, narrow translator, value residuals learn more from the same captions than plain residuals.",
        )
    },
)

CHECKS = {
    "twice": Check(
        "twice the updates; seeds 100 and 101",
        ("value",),
        range(100, 102),
        {name: {"rate": BEST[name]} for name in WIRINGS if name != MANIFOLD},
        budget=3000,
    ),
    "early": Check(
        "a third of the updates, for which the rates had been chosen; seeds 100 and 101",
        (),
        range(100, 102),
        {name: {"rate": rate} for name, rate in BEST.items()},
        budget=500,
    ),
    "more": Check(
        "plain and value residuals again, with the seeds 102 and 103",
        ("value",),
        range(102, 104),
        {name: {"rate": BEST[name]} for name in ("plain residuals", "value residuals")},
    ),
}
