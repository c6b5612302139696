"""Every stored figure again, from the samples and series of the same file.

The rows of metrics.toml say how a metric follows from what was measured; one that no row knows, or
that differs from what its row gives, is a problem. Single readings (a size, an energy) have no
samples: they must be finite and not negative.
"""

import math

import numpy as np

from stowage_results.check.metrics import call, filled, row_of
from stowage_results.result_files import Refused, largest_of_ranks, text
from stowage_results.medians import LEAST_FOR_INTERVAL, median_interval, quotient_interval

CLOSE = 1e-9  # relative: the writer's sums may be in another order
LEAST_FOR_LINK = 3  # sizes


class Figure:
    """What a metric must be; NaN bounds where it has no interval."""

    def __init__(self, value, low=math.nan, high=math.nan, count=1):
        self.value, self.low, self.high, self.count = value, low, high, count


def of_times(samples, work=None):
    """The median of times, or work over it with the interval inverted."""
    median, low, high = median_interval(samples)
    if work is None:
        return Figure(median, low, high, len(samples))
    return Figure(work / median, work / high, work / low, len(samples))


def times_of(result, path):
    samples = result.array(f"samples/{path}")
    if samples is None:
        raise Refused(f"/samples/{path} is missing")
    return largest_of_ranks(samples)


def fact(result, path, name):
    return result.attribute(f"samples/{path}", name)


def least_times(result):
    """(bytes, flops, time that the ceiling allows) of each row of a set that has a share of it."""
    rows = {}
    for tag in result.datasets("metrics/kernels"):
        if tag.endswith("/pct_ceiling"):
            path = "kernels/" + tag[:-len("/pct_ceiling")]
            share = float(result.array(f"metrics/kernels/{tag}"))
            rows[path] = (fact(result, path, "bytes"), fact(result, path, "flops"),
                          share * float(np.median(times_of(result, path))))
    return rows


def limits(result):
    """(FLOP/s, B/s) of a set: as it refers to its ceilings, or else the rates that its rows agree
    on: no row can imply more than them, and each has one of the two as its own limit."""
    stored = result.file.get("provenance/ceilings")
    if stored is not None:
        return float(stored.attrs["flops_per_s"]), float(stored.attrs["bytes_per_s"])
    rows = [row for row in least_times(result).values() if row[2] > 0]
    flops = max((row[1] / row[2] for row in rows), default=0.0)
    return flops or math.inf, max((row[0] / row[2] for row in rows), default=math.inf)


def share_of_ceiling(result, case, one):
    path = f"kernels/{case}/{one}"
    flops_per_s, bytes_per_s = result.once("limits", limits)
    least = max(fact(result, path, "bytes") / bytes_per_s,
                fact(result, path, "flops") / flops_per_s)
    return Figure(least / np.median(times_of(result, path)))


def copy_ceiling(result, kind):
    """The rate at the largest size."""
    sizes = [path for path in result.datasets(f"samples/ceilings/{kind}")]
    if not sizes:
        raise Refused(f"/samples/ceilings/{kind} is missing")
    largest = max(sizes, key=lambda name: int(name.split("_")[0]))
    path = f"ceilings/{kind}/{largest}"
    return of_times(times_of(result, path), fact(result, path, "bytes"))


def slowdown(result, victim, neighbour):
    base = np.median(times_of(result, f"ceilings/interference/{victim}/alone"))
    return of_times(times_of(result, f"ceilings/interference/{victim}/{neighbour}") / base)


def bus_factor(kind, ranks):
    """As nccl-tests counts: what a rank must send at least, for each byte of its part."""
    others = (ranks - 1) / ranks
    factor = {"all_reduce": 2 * others, "reduce_scatter": others, "all_gather": others,
              "all_to_all": others, "broadcast": 1.0, "exchange": 1.0, "neighbour": 1.0}.get(kind)
    if factor is None:
        raise Refused(f"the bus factor of {kind} is not known")
    return factor


def bus_bandwidth(result, *path):
    """Of a collective of a group; in sets before groups were measured, of one among all ranks."""
    path = "/".join(("comm", *path))
    times, attributes = times_of(result, path), result.file[f"samples/{path}"].attrs
    factor = bus_factor(text(attributes.get("kind", path.split("/")[1].removesuffix("_nccl"))),
                        attributes.get("ranks", len(result.file["provenance/system/ranks"])))
    return of_times(times, factor * attributes["bytes"])


def link_fit(result, group, kinds=None, library="stowage"):
    """(latency, bandwidth, factor) of time = latency + bytes sent / bandwidth by the least squares
    of relative errors, in place where a kind can be; None where the times do not say (fit_link).
    The factor is the largest between such a time and the measured one, in either direction."""
    paths = result.datasets(f"samples/comm/{group}")
    in_place = {path.split("/")[0] for path in paths if path.split("/")[2] == "in_place"}
    bytes_sent, medians = [], []
    for path in paths:
        kind, of, place, _ = path.split("/")
        usual = (place == "in_place") == (kind in in_place)
        if of == library and kinds in (None, kind) and usual:
            at = f"comm/{group}/{path}"
            bytes_sent.append(bus_factor(kind, fact(result, at, "ranks"))
                              * fact(result, at, "bytes"))
            medians.append(float(np.median(times_of(result, at))))
    if len(bytes_sent) < LEAST_FOR_LINK:
        return None
    u, v = 1 / np.array(medians), np.array(bytes_sent) / np.array(medians)
    try:
        latency, slope = np.linalg.solve([[u @ u, u @ v], [u @ v, v @ v]], [u.sum(), v.sum()])
    except np.linalg.LinAlgError:
        return None
    if not (latency > 0 and slope > 0):
        return None
    quotients = latency * u + slope * v
    return latency, 1 / slope, float(max(quotients.max(), 1 / quotients.min()))


def link(result, quantity, group, kind=None, library="stowage"):
    fit = link_fit(result, group, kind, library)
    if fit is None:
        raise Refused(f"the times of /samples/comm/{group} of {library} say no latency")
    return Figure(fit[0] if quantity == "latency" else fit[1])


def differences(result, plan, base):
    """Step by step of the same rounds, over the base's median."""
    times, other = times_of(result, f"offload/{plan}"), times_of(result, f"offload/{base}")
    if len(times) != len(other):
        raise Refused(f"/samples/offload/{plan} and {base} have {len(times)} and {len(other)} "
                      "rounds")
    return of_times((times - other) / np.median(other))


def added(result, plan):
    """Beside the first plan of the sweep, which keeps everything: keep/off, where it was measured.
    """
    bases = [name for name in result.datasets("samples/offload") if name.startswith("keep/")]
    return differences(result, plan, "keep/off" if "keep/off" in bases else bases[0])


def graph_cost(result, plan):
    return differences(result, plan, plan.rpartition("/")[0] + "/off")


def worst_prediction(result):
    return Figure(max((abs(fact(result, f"offload/{plan}", "predicted_time_s")
                           / np.median(times_of(result, f"offload/{plan}")) - 1)
                       for plan in result.datasets("samples/offload")), default=0.0))


def quotient(factor, over, under):
    """A quotient of medians, as often as `under` was measured."""
    low, high = quotient_interval(over, under)
    return Figure(factor * float(np.median(over)) / float(np.median(under)), factor * low,
                  factor * high, len(under))


def efficiency(result, scale, layout, mode):
    """Tokens per second of a rank beside those of the layout that the point names as its base."""
    point = f"scaling/{scale}/{layout}/{mode}"
    base = f"scaling/{scale}/{text(fact(result, point, 'base'))}/{mode}"
    tokens, others = (fact(result, path, "tokens") / ranks_of_point(result, path)
                      for path in (point, base))
    return quotient(tokens / others, times_of(result, base), times_of(result, point))


def ranks_of_point(result, path):
    return int(np.prod([fact(result, path, axis) for axis in
                        ("tensor", "context", "expert", "pipeline", "data")]))


def graph_gain(result, scale, layout, mode):
    return quotient(1.0, times_of(result, f"scaling/{scale}/{layout}/off"),
                    times_of(result, f"scaling/{scale}/{layout}/{mode}"))


def energy_of_tokens(result, *point):
    path = "/".join(("scaling", *point))
    return Figure(fact(result, path, "energy_j")
                  / (fact(result, path, "tokens") * len(times_of(result, path))))


def prediction(result, *point):
    path = "/".join(("scaling", *point))
    return Figure(fact(result, path, "predicted_time_s") / np.median(times_of(result, path)) - 1)


def worst_scaling_prediction(result):
    return Figure(max(abs(prediction(result, point).value)
                      for point in result.datasets("samples/scaling")))


def series(result, name):
    found = result.series(name)
    if found is None:
        raise Refused(f"/series/{name} is missing")
    return found[1]


def stalls(result):
    """Of the checkpoints that were written beside training, if any were; older sets do not say."""
    times, beside = series(result, "checkpoint/stall"), result.series("checkpoint/beside")
    return times if beside is None or not beside[1].any() else times[beside[1] != 0]


def stall(result):
    return of_times(stalls(result))


def checkpoint_rate(result):
    return of_times(series(result, "checkpoint/time"), series(result, "checkpoint/bytes")[-1])


def stalled_part(result):
    stalled = float(np.sum(stalls(result)))
    return Figure(stalled / (stalled + float(np.sum(series(result, "train/step_time")))))


def tail_mean(result, name):
    """Of the last tenth of the steps that changed anything."""
    losses = series(result, name)[series(result, "train/ok") != 0]
    return Figure(float(np.mean(losses[-max(1, len(losses) // 10):])))


def tokens_per_s(result):
    """Of the deck's batch without padding: what the samples say of it must be the same."""
    times = times_of(result, "train/step_time")
    tokens = int(result.key("train.global_batch_size")) * int(result.key("train.seq_length"))
    if "metrics/data/packing_efficiency" in result.file:
        tokens *= float(result.array("metrics/data/packing_efficiency"))
    stored = result.file["samples/train/step_time"].attrs.get("tokens", tokens)
    if abs(stored / tokens - 1) > 1e-12:
        raise Refused(f"the samples are of {stored:g} tokens, the deck's steps of {tokens:g}")
    return of_times(times, tokens)


def tokens_of_steps(result, capacity, times):
    """Tokens of a step on average, of the steps of a capacity whose times these are, in order."""
    steps = zip(series(result, "packing/capacity"), series(result, "train/step_time"),
                series(result, "packing/tokens"))
    found = []
    for step_capacity, step_time, tokens in steps:
        if len(found) < len(times) and (step_capacity, step_time) == (capacity, times[len(found)]):
            found.append(tokens)
    if len(found) != len(times):
        raise Refused(f"/samples/packing/{capacity}/step_time has {len(times)} times, the steps of "
                      f"that capacity took {len(found)} of them")
    return float(np.mean(found))


def steps_of_capacity(result, capacity):
    return Figure(np.sum(series(result, "packing/capacity") == int(capacity)))


def capacity_rate(result, capacity):
    """Before 1.8 sets had the tokens of a step on average over a pass."""
    path = f"packing/{capacity}/step_time"
    times, tokens = times_of(result, path), fact(result, path, "tokens")
    if result.minor_version >= 8:
        expected = tokens_of_steps(result, int(capacity), times)
        if not same(tokens, expected):
            raise Refused(f"the samples are of {tokens:g} tokens, their steps of {expected:g}")
    return of_times(times, tokens)


def model_rate(result, what):
    """FLOP of a step over its time: as the samples say, or else as the metric itself implies, whose
    interval must then be of the same work."""
    times = times_of(result, "train/step_time")
    node = result.file["samples/train/step_time"].attrs
    if what in node:
        return of_times(times, float(node[what]))
    stored = float(result.array(f"metrics/train/{what}_per_s"))
    return of_times(times, stored * float(np.median(times)))


def rate_of_a_rank(result):
    whole = model_rate(result, "model_flops")
    ranks = len(result.file["provenance/system/ranks"])
    return Figure(whole.value / ranks, whole.low / ranks, whole.high / ranks, whole.count)


SERIES = {"last": lambda values: values[-1], "sum": np.sum,
          "least": lambda values: np.min(values[np.isfinite(values)], initial=np.inf),
          "zeros": lambda values: np.sum(values == 0),
          "exp of last": lambda values: math.exp(values[-1])}


def term(result, row, parts, words):
    """An attribute of a row's samples, or times."""
    kind, _, name = words.partition(" ")
    if kind == "its":
        return fact(result, filled(row.samples, parts), name)
    return times_of(result, filled(name.removeprefix("of ") or row.samples, parts))


def figure_of(result, row, parts):
    """What a row gives for a metric whose stars stand for these parts."""
    form, words = row.rule
    if form == "function":
        return call(globals(), words, result, parts)
    if form == "series":
        return Figure(SERIES[words[0]](series(result, filled(words[1], parts))))
    if form == "term":
        found = term(result, row, parts, words[0])
        return of_times(found) if words[0].startswith("median") else Figure(found)
    rest, *terms = words
    under, over = (term(result, row, parts, one) for one in reversed(terms))
    if not rest and terms[0].startswith("its") and terms[1].startswith("median"):
        return of_times(under, over)
    part = np.median(over) / np.median(under)
    return Figure(1 - part if rest else part)


def same(one, other):
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other or abs(one - other) <= CLOSE * max(abs(one), abs(other))


def differs(figure, value, bounds, count, result):
    """What of a stored metric is not what its rule gives, in words; empty if nothing."""
    if count != figure.count:
        return f"is the median of {count}, there are {figure.count} samples"
    if not same(value, figure.value):
        return f"is {value:.9g}, its samples say {figure.value:.9g}"
    if figure.count < LEAST_FOR_INTERVAL and result.minor_version < 2:
        return ""  # schema 1.1 stored the range of few samples there
    if not (same(bounds[0], figure.low) and same(bounds[1], figure.high)):
        return (f"has the interval {bounds[0]:.9g} .. {bounds[1]:.9g}, its samples say "
                f"{figure.low:.9g} .. {figure.high:.9g}")
    return ""


def check_metric(result, tag):
    """Problems of a metric that has a row, as check_units makes sure."""
    node = result.file[f"metrics/{tag}"]
    value = float(node[()])
    if not math.isfinite(value):
        return f"is {value}"
    row, parts = row_of(tag)
    if value < 0 and not row.signed:
        return f"is negative: {value:.9g}"
    if row.derived == "reading":
        return ""
    try:
        figure = figure_of(result, row, parts)
    except Refused as problem:
        return f"cannot be recomputed: {problem}"
    bounds = (float(node.attrs["ci95_low"]), float(node.attrs["ci95_high"]))
    return differs(figure, value, bounds, int(node.attrs["median_of"]), result)


def check_samples(result):
    problems = []
    for path in result.datasets("samples"):
        values = result.array(f"samples/{path}")
        if len(values) == 0:
            problems.append(f"/samples/{path}: is empty")
        if not np.all(np.isfinite(values)):
            problems.append(f"/samples/{path}: holds a time that is not finite")
        elif np.any(values < 0) or (np.any(values == 0) and not path.startswith("ops/")):
            problems.append(f"/samples/{path}: holds a time that is not positive")
    wanted = result.config().get("bench.samples")
    for path in result.datasets("samples/kernels") if wanted is not None else []:
        count = len(result.array(f"samples/kernels/{path}"))
        if count != int(wanted):
            problems.append(f"/samples/kernels/{path}: has {count} samples, {wanted} were made")
    return problems


def check_step_times(result):
    """The timed steps are steps of the series, in its order."""
    samples, found = result.array("samples/train/step_time"), result.series("train/step_time")
    if samples is None or found is None:
        return []
    problems = []
    steps = iter(found[1])
    if not all(any(one == step for step in steps) for one in samples):
        problems.append("/samples/train/step_time: are not steps of /series/train/step_time")
    return problems


def limit_sizes(result, name):
    scales = result.file[f"ceilings/{name}"].dims[0]
    return [float(size) for size in scales[0][()]] if len(scales) else []


def measured_rates(result, name):
    """(size, rate, name of its samples) of all that was measured of a kind of limit: FLOP of
    products, bytes of copies, as `64_mib` names them."""
    found = []
    for one in result.datasets(f"samples/ceilings/{name}"):
        path, products = f"ceilings/{name}/{one}", name == "gemm_bf16"
        size = fact(result, path, "flops") if products else float(one.split("_")[0]) * 2**20
        rate = fact(result, path, "flops" if products else "bytes") / np.median(
            times_of(result, path))
        found.append((float(size), float(rate), one))
    return found


def check_ceilings(result):
    """/ceilings of the copies and of exchanges, against the samples of each size."""
    problems = []
    for name in result.datasets("ceilings"):
        values = result.array(f"ceilings/{name}")
        if np.any(~np.isfinite(values)) or np.any(values <= 0):
            problems.append(f"/ceilings/{name}: holds a limit that is not positive")
            continue
        measured = measured_rates(result, name)
        sizes = limit_sizes(result, name)
        if measured and {size for size, _, _ in measured} != set(sizes):
            problems.append(f"/ceilings/{name}: its sizes are not those that were measured")
        elif measured and not all(any(at == size and same(value, rate) for at, rate, _ in measured)
                                  for size, value in zip(sizes, values)):
            problems.append(f"/ceilings/{name}: holds a limit that no samples of its size give")
    return problems


def check_figures(result):
    problems = check_samples(result) + check_step_times(result)
    if not problems:
        problems = check_ceilings(result)
        for tag in result.datasets("metrics"):
            what = check_metric(result, tag)
            if what:
                problems.append(f"/metrics/{tag}: {what}")
    return problems
