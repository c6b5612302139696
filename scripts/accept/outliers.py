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


def sigma(values):
    middle = statistics.median(values)
    return MAD_TO_SIGMA * statistics.median(abs(value - middle) for value in values)


def outliers(samples):
    """@param samples seconds by name, several of each
    @return by name how much slower than the middle it is, as a part of that, for those out of band
    """
    if len(samples) < FEWEST:
        return {}
    medians = {name: statistics.median(times) for name, times in samples.items()}
    middle = statistics.median(medians.values())
    between = sigma(list(medians.values()))
    out = {}
    for name, times in samples.items():
        own = MEDIAN_TO_MEAN * sigma(times) / math.sqrt(len(times))
        if medians[name] - middle > max(SIGMAS * math.hypot(between, own), LEAST * middle):
            out[name] = medians[name] / middle - 1
    return out
