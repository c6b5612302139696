"""Medians with intervals, by the same formulas as results/statistics.cpp."""

import math

import numpy as np

LEAST_FOR_INTERVAL = 6


def binomial_half(n, k):
    """P(Binomial(n, 1/2) = k)."""
    return math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
                    - n * math.log(2.0))


def ranked_interval(samples, miss):
    """(low, high) by order statistics, which misses the median with at most the probability
    `miss`; NaN where samples are too few."""
    ordered = np.sort(np.asarray(samples, dtype=float))
    n = len(ordered)
    k, missed = 1, 2 * binomial_half(n, 0)
    if n == 0 or missed > miss or not np.all(np.isfinite(ordered)):
        return math.nan, math.nan
    while 2 * k < n:
        wider = missed + 2 * binomial_half(n, k)
        if wider > miss:
            break
        missed, k = wider, k + 1
    return float(ordered[k - 1]), float(ordered[n - k])


def median_interval(samples):
    """(median, low, high) with the 95 % interval."""
    median = float(np.median(samples)) if len(samples) else math.nan
    return median, *ranked_interval(samples, 0.05)


def quotient_interval(over, under):
    """(low, high) of the quotient of two medians, by the 97.5 % interval of each."""
    (low, high), (least, most) = (ranked_interval(one, 1 - 0.975) for one in (over, under))
    return low / most, high / least


def halfwidth(samples):
    """Half of the interval over the median; infinite where there is no interval."""
    median, low, high = median_interval(samples)
    return (high - low) / 2 / median if math.isfinite(low) and median > 0 else math.inf
