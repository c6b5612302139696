"""Who is out of band among equals: the rule by which stowage_accept names a device.

Its middle is the median of the devices' medians. The spread is what the median absolute deviation
(MAD) says of a normal distribution: of devices beside each other, and of a device's own samples.
Both keep their value whatever one bad device shows, so that it cannot hide itself.
"""
import math
import statistics

MAD_TO_SIGMA = 1.4826  # sigma of a normal distribution is that times its MAD
MEDIAN_TO_MEAN = 1.2533  # deviation of a median beside that of a mean: sqrt(pi / 2)
SIGMAS = 5
LEAST = 0.03  # of the middle: what no machine room is even to
FEWEST = 3  # equals: of two that differ nobody knows which is right
INTERVAL = 1.96  # deviations from the middle of a 95 % interval to its ends


def sigma(values):
    middle = statistics.median(values)
    return MAD_TO_SIGMA * statistics.median(abs(value - middle) for value in values)


def of_samples(times):
    """Their median and its deviation."""
    return statistics.median(times), MEDIAN_TO_MEAN * sigma(times) / math.sqrt(len(times))


def of_interval(median, low, high):
    """The same of a median with its 95 % interval; without one its deviation is not known: 0."""
    return median, (high - low) / (2 * INTERVAL) if low is not None else 0.0


def outliers(measured, higher_is_worse=True):
    """@param measured (median, deviation of it) by name
    @return by name how much worse than the middle it is, as a part of that, for those out of band
    """
    if len(measured) < FEWEST:
        return {}
    medians = [median for median, _ in measured.values()]
    middle, between = statistics.median(medians), sigma(medians)
    out = {}
    for name, (median, own) in measured.items():
        worse = median - middle if higher_is_worse else middle - median
        if worse > max(SIGMAS * math.hypot(between, own), LEAST * middle):
            out[name] = worse / middle
    return out
