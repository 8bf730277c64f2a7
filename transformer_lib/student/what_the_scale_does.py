"""Tests for chapter "Lab: what does the scale really do?"."""

import math

import torch
from torch import randn, tensor
from torch.nn import functional as F

from transformer_lib.plain.scale import PhoneBook, learn, page_loss, softmax_jacobian
from transformer_lib.student.checks import check, equal, holds


@check(softmax_jacobian, "The Jacobian of the softmax")
def as_autograd_finds_it() -> None:
    """Row i holds the derivatives of weight i with respect to every score, for any axes in front."""
    scores = randn(5)
    weights, want = scores.softmax(-1), torch.autograd.functional.jacobian(lambda a: a.softmax(-1), scores)
    slips = {
        "the diagonal is missing": -weights[:, None] * weights,
        "the products are missing": weights.diag(),
        "the sign is wrong": -want,
        "one minus the weight in each row, not only on the diagonal": weights[:, None] * (1 - weights),
    }
    equal(softmax_jacobian(weights), want, slips)
    rows = randn(2, 3, 4).softmax(-1)
    want = torch.stack([torch.stack([softmax_jacobian(one) for one in row]) for row in rows])
    equal(softmax_jacobian(rows), want, names="row by row / at once")


NAMES, COLOURS = tensor([[2, 0, 1], [1, 3, 0]]), tensor([[7, 3, 9], [0, 4, 4]])
ASKED = tensor([0, 3])


@check(PhoneBook.forward, "A phone book")
def the_colours_of_names_that_match() -> None:
    """The query of the asked name meets the keys of the names on the page, and the weights average their colours."""
    model = PhoneBook(0.3, width=6, names=4)
    rows = []
    for names, colours, asked in zip(NAMES, COLOURS, ASKED, strict=True):
        weights = (0.3 * model.keys[names] @ model.queries[asked]).softmax(-1)
        rows.append(weights @ model.values[colours])
    with torch.no_grad():
        exchanged = (0.3 * model.keys @ model.queries.T)[ASKED[:, None], NAMES].softmax(-1)
        slips = {"queries and keys are exchanged": (exchanged[:, None] @ model.values[COLOURS])[:, 0]}
        free = (model.queries @ model.keys.T)[ASKED[:, None], NAMES].softmax(-1)
        slips["the scale is not used"] = (free[:, None] @ model.values[COLOURS])[:, 0]
    equal(model(NAMES, COLOURS, ASKED), torch.stack(rows), slips)


@check(page_loss, "A phone book")
def a_page_of_sixteen_names() -> None:
    """Sixteen different names on each page, by ``rng``, the asked one among them, and the loss of its colour."""
    seen = []

    class Spy(PhoneBook):
        def forward(self, names: torch.Tensor, colours: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
            seen.append((names, colours, asked))
            return super().forward(names, colours, asked)

    model = Spy(1.0, width=4)
    loss = page_loss(model, torch.Generator().manual_seed(0), pages=8)
    names, colours, asked = seen[0]
    equal((tuple(names.shape), tuple(colours.shape), tuple(asked.shape)), ((8, 16), (8, 16), (8,)))
    holds(all(len(set(row.tolist())) == 16 for row in names), "a name stands on a page twice")
    holds(bool((names == asked[:, None]).any(1).all()), "a name is asked for that is not on the page")
    holds(len({*names.flatten().tolist()}) > 16, "all pages have the same sixteen names")
    answer = colours[names == asked[:, None]]
    equal(loss, F.cross_entropy(model(names, colours, asked), answer), names="loss of the asked colour / got")
    page_loss(model, torch.Generator().manual_seed(0), pages=8)
    equal([*seen[-1]], [*seen[0]], {"`rng` is not used": True}, "drawn with a generator / with the same one again")


@check(learn, "The start or the steps?")
def start_and_steps() -> None:
    """The first queries are multiplied by ``start``, and their rate by ``query_rate``; the keys keep theirs."""
    made, before = [], PhoneBook.__init__

    def spy(self: PhoneBook, *arguments: object, **options: object) -> None:
        before(self, *arguments, **options)
        made.append((self, self.queries.detach().clone(), self.keys.detach().clone()))

    PhoneBook.__init__ = spy
    try:
        options = {"rate": 0.01, "width": 8, "updates": 1}
        learn(1.0, 0.1, query_rate=0.1, **options)
        learn(1.0, 1.0, **options)
    finally:
        PhoneBook.__init__ = before
    (one, q, k), (two, large, keys) = made
    equal((q, k), (0.1 * large, keys), names="a tenth of a start of 1 / with a start of 0.1")
    steps = [(model.queries - first).detach().abs().max().item() for model, first in ((one, q), (two, large))]
    equal(tensor(steps), tensor([0.001, 0.01]), {"query_rate is not used": abs(steps[0] - 0.01) < 1e-4})
    equal((one.keys - k).detach().abs().max(), tensor(0.01), names="steps of the keys, expected / got")


@check(learn, "The start or the steps?")
def the_last_losses() -> None:
    """The result is the mean loss of the last twenty updates, a number."""
    calls = []

    class Even(PhoneBook):
        def forward(self, names: torch.Tensor, colours: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
            calls.append(asked)
            surer = 50.0 * F.one_hot(tensor(0), 10) if len(calls) <= 5 else 0.0
            return 0 * super().forward(names, colours, asked) + surer

    got = learn(1.0, rate=0.01, width=8, updates=25, kind=Even)
    equal(got, math.log(10), {"earlier updates count, too": isinstance(got, float) and got > 3})
