"""Tests for chapter "What do attention weights mean?"."""

from torch import tensor

from transformer_lib.metrics import alignment_error_rate, best_links
from transformer_lib.student.checks import check, equal, refuses


@check(best_links, "Do they align?")
def links() -> None:
    """Each target word but the last is linked with its heaviest source word, unless that is EOS or has no weight.

    Weights that are NaN raise a ValueError.
    """
    weights, want = tensor([[7, 2, 1], [3, 4, 3], [1, 2, 7], [0, 0, 0], [6, 2, 2]]) / 10, {(0, 0), (1, 1)}
    slips = {"a row of zeros is linked": want | {(0, 3)}, "the last row is linked": want | {(0, 4)}}
    equal(best_links(weights), want, slips)
    slips = {"(target, source) instead of (source, target)": {(0, 1)}}
    equal(best_links(weights[[1, 4]]), {(1, 0)}, slips)
    refuses(ValueError, best_links, weights / 0 * 0)


@check(alignment_error_rate, "Do they align?")
def error_rate() -> None:
    """One right link of two is an error rate of one half, over all sentences together.

    No links at all raise a ValueError.
    """
    gold = [[(0, 0), (1, 1)], [(0, 0)]]
    equal(alignment_error_rate([[(0, 0), (1, 2)]], gold[:1]), 0.5)
    got = alignment_error_rate([[(0, 0), (1, 2)], [(0, 0)]], gold)
    equal(got, 1 / 3, {"a mean of the sentences' rates": 0.25, "the share of right links, not of errors": 2 / 3})
    refuses(ValueError, alignment_error_rate, [[]], [[]])


@check(alignment_error_rate, "Do they align?")
def possible_links() -> None:
    """With possible links P, which include the sure ones S, it is 1 - (|A and S| + |A and P|) / (|A| + |S|)."""
    gold, possible = [[(0, 0), (1, 1)]], [[(1, 2)]]
    equal(alignment_error_rate([[(0, 0), (1, 1), (1, 2)]], gold, possible), 0.0)
    equal(alignment_error_rate([[(0, 0), (1, 2), (3, 3)]], gold, possible), 1 - 3 / 5)
