"""Effects with 95 % intervals. Each function here returns another one, from rows to an effect.

Rows are those of the measured seeds, at each arm's own learning rate.
"""

import numpy as np
from scipy import stats


class Unmeasured(LookupError):
    """There is no row of an arm."""


def by_seed(rows, metric, arm):
    """The metric of an arm for each seed."""
    values = {row["seed"]: row[metric] for row in rows if row["arm"] == arm}
    if not values:
        raise Unmeasured(f"no row of the arm {arm!r} has been measured")
    return values


def effect(kind, metric, value, low, high, how, *arms):
    """What is kept of a finding."""
    numbers = {"value": float(value), "low": float(low), "high": float(high)}
    return numbers | {"kind": kind, "how": how, "metric": metric, "arms": list(arms)}


def student(values):
    """Mean and interval of a sample; equal values have an interval of no width, and a single one has none."""
    if len(values) == 1:
        return values[0], np.nan, np.nan
    if np.allclose(values, values[0], rtol=1e-5, atol=0):
        return (values[0],) * 3
    return np.mean(values), *stats.ttest_1samp(values, 0).confidence_interval()


def pairs(rows, metric, a, b):
    """The values of two arms, seed by seed."""
    first, second = by_seed(rows, metric, a), by_seed(rows, metric, b)
    return [(first[seed], second[seed]) for seed in first if seed in second]


def level(metric, arm):
    """The mean of an arm."""

    def of(rows):
        values = list(by_seed(rows, metric, arm).values())
        return effect("level", metric, *student(values), f"mean of {arm}, {len(values)} seeds", arm)

    return of


def difference(metric, a, b):
    """The mean of a minus b, paired by seed."""

    def of(rows):
        values = [x - y for x, y in pairs(rows, metric, a, b)]
        how = f"{a} minus {b}, {len(values)} seeds, paired"
        return effect("difference", metric, *student(values), how, a, b)

    return of


def ratio(metric, a, b):
    """How many times as large as b a is: the geometric mean of the ratios, paired by seed or by repetition."""

    def of(rows):
        logs = np.log([x / y for x, y in pairs(rows, metric, a, b)])
        how = f"{a} divided by {b}, {len(logs)} pairs"
        return effect("ratio", metric, *np.exp(student(logs)), how, a, b)

    return of


def share(metric, arm, least):
    """The share of seeds that reach a value, with the exact (Clopper-Pearson) interval: for outcomes in two groups."""

    def of(rows):
        values = list(by_seed(rows, metric, arm).values())
        hits = sum(value >= least for value in values)
        interval = stats.binomtest(hits, len(values)).proportion_ci()
        how = f"{hits} of {len(values)} seeds of {arm} reach {least}, exact interval"
        return effect("share", metric, hits / len(values), *interval, how, arm)

    return of
