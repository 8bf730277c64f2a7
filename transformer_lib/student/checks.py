"""What a learner's test is, and how it says what is wrong."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

Slips = Mapping[str, Any] | None  # what well-known slips would give, by their names
PAIR = (list, tuple)


class Check(NamedTuple):
    """One test: of which function, where the page explains it, and the code, whose docstring says what is expected."""

    module: str
    target: str
    section: str
    run: Callable[[], None]

    @property
    def expects(self) -> str:
        """The sentence that says what is expected."""
        return " ".join((self.run.__doc__ or "").split())


CHECKS: dict[str, list[Check]] = {}  # of each chapter, by the name of its file


class Wrong(AssertionError):
    """A result that is not the expected one; the text shows both."""


def check(target: Any, section: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Make a function the test of ``target``, which a section of the page explains."""
    function = inspect.unwrap(getattr(target, "__func__", target))

    def add(run: Callable[[], None]) -> Callable[[], None]:
        found = Check(function.__module__, function.__qualname__, section, run)
        CHECKS.setdefault(run.__module__.rpartition(".")[2], []).append(found)
        return run

    return add


def kind(x: Tensor) -> tuple[Any, ...]:
    """What has to be the same even of equal numbers."""
    return x.shape, x.dtype.is_complex, x.dtype == torch.bool


def same(got: Any, want: Any) -> bool:
    """Whether two results are equal, up to rounding."""
    if isinstance(want, Tensor):
        if not isinstance(got, Tensor) or kind(got) != kind(want):
            return False
        return torch.allclose(got.double(), want.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
    if isinstance(want, PAIR):
        return isinstance(got, PAIR) and len(got) == len(want) and all(map(same, got, want))
    if isinstance(want, float):
        got = got.item() if isinstance(got, Tensor) and got.dim() == 0 else got
        return isinstance(got, (int, float)) and math.isclose(got, want, rel_tol=1e-4, abs_tol=1e-6)
    return bool(got == want)


def show(value: Any, beside: Any = None) -> str:
    """A result in a line: of a tensor, its shape and the row that first differs from the other's."""
    if isinstance(value, PAIR) and any(isinstance(one, Tensor) for one in value):
        parts = [show(one).split(", row")[0].split(": ")[0] for one in value]
        return f"{len(value)} result{'s' * (len(value) > 1)}: {'; '.join(parts)}"
    if not isinstance(value, Tensor):
        return repr(value)[:200]
    where, row = "", value.detach()
    if row.dim() > 1 and row.numel():
        index: tuple[int, ...] = (0,) * (row.dim() - 1)
        if isinstance(beside, Tensor) and beside.shape == row.shape:
            close = torch.isclose(row.double(), beside.detach().double(), rtol=1e-4, atol=1e-5, equal_nan=True)
            far = ~close.all(-1).flatten()
            first = int(far.nonzero()[0]) if far.any() else 0
            index = tuple(int(i) for i in torch.unravel_index(torch.tensor(first), row.shape[:-1]))
        where, row = f", row {list(index)}", row[index]
    cells = [f"{x:.4g}" if isinstance(x, float) else str(x) for x in row.flatten()[:8].tolist()]
    return f"shape {tuple(value.shape)}{where}: {' '.join(cells)}{' ...' * (row.numel() > 8)}"


def equal(got: Any, want: Any, slips: Slips = None, names: str = "expected / got") -> None:
    """Fail unless both are equal; ``slips`` says which famous slip gives which result, or whether it explains this one.

    ``names`` says what both are, if the expected one was computed by the learner's function, too.
    """
    if same(got, want):
        return
    if got is None:
        raise Wrong(f"expected  {show(want)}\ngot       None: is a return missing?")
    whole, part = got, ""
    while isinstance(want, PAIR) and isinstance(got, PAIR) and len(got) == len(want):
        if not isinstance(want[0], (Tensor, *PAIR)):
            break
        number = next(i for i, (g, w) in enumerate(zip(got, want, strict=True)) if not same(g, w))
        got, want, part = got[number], want[number], f" in result {number}"
    first, second = names.split(" / ")
    width = max(len(first + part), len(second))
    numbers = f"{first + part:{width}}  {show(want, got)}\n{second:{width}}  {show(got, want)}"
    found = {k: r if isinstance(r, bool) else same(whole, r) for k, r in (slips or {}).items()}
    raise Wrong(numbers + slipped(found))


def holds(condition: Any, numbers: str, slips: Slips = None) -> None:
    """Fail with these numbers unless the condition holds; ``slips`` says which well-known slips could explain it."""
    if not bool(condition):
        raise Wrong(numbers + slipped(slips or {}))


def learns(got: Tensor, want: Tensor, *parts: Tensor) -> None:
    """Fail unless equal results have equal gradients, too, of these parts."""
    options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
    right = torch.autograd.grad(want.square().sum(), parts, **options)
    mine = torch.autograd.grad(got.square().sum(), parts, **options) if got.requires_grad else [None] * len(parts)
    equal([*mine], [*right], {"a detach or no_grad stops a gradient": True}, "the gradient / yours")


def refuses(error: type[Exception], run: Callable[..., Any], *arguments: Any) -> None:
    """Fail unless a call raises this error."""
    got = "a result"
    try:
        run(*arguments)
    except error:
        return
    except NotImplementedError:
        raise
    except Exception as other:
        got = f"{type(other).__name__}: {other}"
    raise Wrong(f"expected  {error.__name__}\ngot       {got}")


def slipped(slips: Mapping[str, Any]) -> str:
    """What explains a result: a famous slip has its name from the page of slips, others begin in lower case."""
    for name, explains in slips.items():
        if bool(explains):
            if not name[0].isupper() and name[0] != '"':
                return f"\nThis looks like: {name}."
            page = 'The page "Slips worth a test" has the wrong line and the right one.'
            return f'\nThis is a famous slip: "{name}". {page}'
    return ""
