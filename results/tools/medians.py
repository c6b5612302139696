"""Medians with intervals, by the same formulas as results/statistics.cpp."""

import math

import numpy as np

LEAST_FOR_INTERVAL = 6


def binomial_half(n, k):
    """P(Binomial(n, 1/2) = k)."""
    return math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
                    - n * math.log(2.0))


def median_interval(samples):
    """(median, low, high): the interval by order statistics, NaN where samples are too few."""
    ordered = np.sort(np.asarray(samples, dtype=float))
    n = len(ordered)
    median = float(np.median(ordered)) if n else math.nan
    if n < LEAST_FOR_INTERVAL or not np.all(np.isfinite(ordered)):
        return median, math.nan, math.nan
    k, missed = 1, 2 * binomial_half(n, 0)
    while 2 * k < n:
        wider = missed + 2 * binomial_half(n, k)
        if wider > 0.05:
            break
        missed, k = wider, k + 1
    return median, float(ordered[k - 1]), float(ordered[n - k])


def halfwidth(samples):
    """Half of the interval over the median; infinite where there is no interval."""
    median, low, high = median_interval(samples)
    return (high - low) / 2 / median if math.isfinite(low) and median > 0 else math.inf
