"""Tests for chapter "Attention over depth"."""

import torch
from torch import Tensor, nn, randn, tensor
from torch.nn import functional as F

from transformer_lib.plain.depth import (
    AttentionResiduals,
    HyperConnections,
    ManifoldHyperConnections,
    Residuals,
    sinkhorn,
)
from transformer_lib.student.checks import check, equal


def sublayer(i: int, x: Tensor) -> Tensor:
    """Something that depends on its input and on its number."""
    return (x - i).sin()


@check(Residuals.forward, "One sum for everybody")
def the_sum_of_all() -> None:
    """Each sublayer reads the sum of the embedding and of all outputs before it, and so does the end."""
    x = randn(2, 3, 4)
    want = x
    for i in range(3):
        want = want + sublayer(i, want)
    chain = sublayer(2, sublayer(1, sublayer(0, x)))
    slips = {"the input is not added": chain, "only the last output is added": x + chain}
    equal(Residuals()(x, sublayer, 3), want, slips)


@check(AttentionResiduals.weights, "Attention residuals")
def a_softmax_over_depth() -> None:
    """The query's products with the values, scaled to a mean square of 1, through a softmax over the values."""
    wiring, values = AttentionResiduals(3, 4), 3 * randn(3, 2, 5, 4)
    nn.init.normal_(wiring.query)
    scores = F.rms_norm(values, (4,)) @ wiring.query[2]
    slips = {
        "the keys are not scaled to equal length": (values @ wiring.query[2]).softmax(0),
        "the softmax is over the words, not over the values": scores.softmax(-1),
        "the query of another reader": (F.rms_norm(values, (4,)) @ wiring.query[1]).softmax(0),
        "divided by the root of D, though each query learns its own length": (scores / 2).softmax(0),
        "no softmax": scores,
    }
    equal(wiring.weights(2, values), scores.softmax(0), slips)


@check(AttentionResiduals.look, "Attention residuals")
def a_mean_of_what_was_seen() -> None:
    """The values as they are, each times its weight, added up: (B, T, D)."""
    wiring, seen = AttentionResiduals(3, 4), [3 * randn(2, 5, 4) for _ in range(3)]
    nn.init.normal_(wiring.query)
    values = torch.stack(seen)
    weights = wiring.weights(2, values)[..., None]
    keys = F.rms_norm(values, (4,))
    slips = {
        "the scaled keys are averaged, not the values": (weights * keys).sum(0),
        "the sum without the weights": values.sum(0),
        "divided by their number as well": (weights * values).mean(0),
        "the query of another reader": (wiring.weights(1, values)[..., None] * values).sum(0),
    }
    equal(wiring.look(2, seen), (weights * values).sum(0), slips)


@check(AttentionResiduals.forward, "Attention residuals")
def everybody_looks_back() -> None:
    """Sublayer i reads with query i what was kept, its output alone is kept, and query n reads at the end."""
    wiring, x = AttentionResiduals(3, 4), randn(2, 5, 4)
    nn.init.normal_(wiring.query)

    def run(keep_sum: bool = False, embedding: bool = True, last: int = 3) -> Tensor:
        seen = [x]
        for i in range(3):
            read = wiring.look(i, seen if embedding or i == 0 else seen[1:])
            seen.append(sublayer(i, read) + (read if keep_sum else 0))
        return wiring.look(last, seen)

    seen = [x]
    for i in range(3):
        seen.append(sublayer(i, wiring.look(i, seen)))
    slips = {
        "what is read is added to what is kept": run(keep_sum=True),
        "the embedding is only read by the first": run(embedding=False),
        "the end is read with another query": run(last=2),
        "the last output, not a look at all": seen[-1],
    }
    equal(wiring(x, sublayer, 3), run(), slips)


@check(HyperConnections.forward, "Hyper-connections")
def streams_are_read_written_and_mixed() -> None:
    """A sublayer reads a mixture of the streams; these mix, and its output is added to each; the end is their sum."""
    wiring, x = HyperConnections(3, 2), randn(2, 5, 4)
    for parameter in wiring.parameters():
        nn.init.normal_(parameter)

    def run(transposed: bool = False, mixed: bool = True, late: bool = False) -> list[Tensor]:
        streams = [x, x]
        for i in range(3):
            read, write, mix = wiring.weights(i)
            mix = mix.T if transposed else mix if mixed else torch.eye(2)
            y = sublayer(i, read[0] * streams[0] + read[1] * streams[1])
            if late:
                streams = [streams[j] + write[j] * y for j in range(2)]
            streams = [mix[j, 0] * streams[0] + mix[j, 1] * streams[1] for j in range(2)]
            if not late:
                streams = [streams[j] + write[j] * y for j in range(2)]
        return streams

    want = run()
    slips = {
        "the mixing matrix is transposed": sum(run(transposed=True)),
        "the streams are not mixed": sum(run(mixed=False)),
        "the output is mixed, too": sum(run(late=True)),
        "the mean of the streams at the end": sum(want) / 2,
        "only the first stream at the end": want[0],
    }
    equal(wiring(x, sublayer, 3), sum(want), slips)


@check(sinkhorn, "mHC: manifold-constrained hyper-connections")
def rows_and_columns_add_up_to_one() -> None:
    """Rows are divided by their sums, then columns by theirs, ten times."""
    x = randn(4, 4).exp()
    want = x
    for _ in range(10):
        want = want / want.sum(1, keepdim=True)
        want = want / want.sum(0, keepdim=True)
    rows, both = x / x.sum(1, keepdim=True), x / x.sum(1, keepdim=True) / x.sum(0, keepdim=True)
    slips = {"only the rows": rows, "only one round": rows / rows.sum(0, keepdim=True), "both at once": both}
    equal(sinkhorn(x), want, slips)


@check(ManifoldHyperConnections.weights, "mHC: manifold-constrained hyper-connections")
def nothing_negative_nothing_growing() -> None:
    """Reads lie between 0 and 1, writes between 0 and 2, and the mixture comes from Sinkhorn's rounds."""
    wiring = ManifoldHyperConnections(3, 2)
    for parameter in wiring.parameters():
        nn.init.normal_(parameter)
    read, write, mix = wiring.read[1], wiring.write[1], wiring.mix[1]
    want = read.sigmoid(), 2 * write.sigmoid(), sinkhorn(mix.exp())
    slips = {
        "writes are not doubled, so nothing is written in full": (want[0], write.sigmoid(), want[2]),
        "a softmax of the rows in place of Sinkhorn's rounds": (*want[:2], mix.softmax(1)),
        "the weights of another sublayer": (
            wiring.read[0].sigmoid(),
            2 * wiring.write[0].sigmoid(),
            sinkhorn(wiring.mix[0].exp()),
        ),
        "no sigmoid": (read, write, want[2]),
    }
    equal(wiring.weights(1), want, slips)


@check(HyperConnections.forward, "Hyper-connections")
def all_begin_as_plain_residuals() -> None:
    """Before training, sublayers that normalise their input compute the same as with plain residuals."""
    x = randn(2, 5, 4)

    def normed(i: int, x: Tensor) -> Tensor:
        return sublayer(i, F.rms_norm(x, (4,)))

    want = F.rms_norm(Residuals()(x, normed, 3), (4,))
    got = F.rms_norm(HyperConnections(3, 2)(x, normed, 3), (4,))
    equal(got, want)
    turns = tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    equal(HyperConnections(3, 2).read.detach(), turns, names="each sublayer in turn should read one stream / got")
