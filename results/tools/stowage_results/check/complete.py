"""What a set must hold: the metrics that follow from what it measured, all of them, and numbers
that a measurement can give. A figure that is taken out is as wrong as one that is edited."""

import re

import numpy as np

from stowage_results.check.metrics import call, filled, metrics
from stowage_results.check.recompute import fact, link_fit, same
from stowage_results.result_files import text
from stowage_results.stored import Dataset

MOST_OFF = 3  # times: kMostOff of forecast/rates/link_fit.hpp
COMPLETE_SINCE = 7  # minor version of the schema: the drivers of sets of before wrote less
STEP_SERIES = ("loss", "grad_norm", "lr", "step_time", "ok", "mem_device")


def has_copy(result, case, one):
    """Whether a plain copy of as many bytes was timed beside it."""
    copy = result.file.get(f"samples/kernels/{case}/copy")
    return (one != "copy" and copy is not None
            and copy.attrs["bytes"] == fact(result, f"kernels/{case}/{one}", "bytes"))


def has_plain_plan(result, plan):
    """Whether the same plan was issued op by op."""
    name, _, mode = plan.rpartition("/")
    return mode != "off" and f"samples/offload/{name}/off" in result.file


def has_base(result, scale, layout, mode):
    """Whether the set holds the point that this one stands beside."""
    base = text(fact(result, f"scaling/{scale}/{layout}/{mode}", "base"))
    return base != layout and f"samples/scaling/{scale}/{base}/{mode}" in result.file


def has_plain_point(result, scale, layout, mode):
    """Whether the same steps were issued op by op before."""
    plain = result.file.get(f"samples/scaling/{scale}/{layout}/off")
    order = fact(result, f"scaling/{scale}/{layout}/{mode}", "order")
    return mode != "off" and plain is not None and plain.attrs["order"] < order


def has_link(result, *of):
    """A fit that is further off is no link, and is not stored."""
    fit = link_fit(result, *of)
    return fit is not None and fit[2] <= MOST_OFF


def is_copy(_, kind):
    return kind != "gemm_bf16"


def ceilings_due(result):
    """Kinds of limits that were measured."""
    return set(result.file.get("samples/ceilings", ())) - {"interference"}


def due_of_samples(result, row):
    """Tags of a row that samples ask for."""
    found = [(path, times.groups()) for path in result.datasets("samples")
             if (times := row.times.fullmatch(path))]
    form, words = row.when
    if form == "function":
        return {filled(row.tag, parts) for parts in {of[:row.stars] for _, of in found}
                if call(globals(), words, result, parts)}
    kind, _, name = words[0].partition(" ")
    asks = {"always": lambda _: True, "samples": lambda _: True,
            "its": lambda path: fact(result, path, name.removesuffix(" > 0")) > 0,
            "has": lambda path: name in result.file[f"samples/{path}"].attrs,
            "with": lambda _: name in result.file}[kind]
    return {filled(row.tag, of) for path, of in found if asks(path)}


def holds(result, condition):
    """Whether a training run is of this kind, or has such a series."""
    kind, _, name = condition.partition(" ")
    if kind == "run":
        return True
    found = result.series(name or "train/loss")
    if found is None or kind in ("steps", "series"):
        return found is not None
    finite = np.isfinite(found[1])
    return bool({"some": np.any(found[1] != 0), "finite": np.all(finite),
                 "partly_finite": np.any(finite)}[kind])


def metrics_due(result):
    """Tags that the set must have, sorted."""
    due, complete = set(), result.minor_version >= COMPLETE_SINCE
    training = text(result.file.attrs["driver"]) == "train"
    for row in metrics():
        if row.due == "never" or not (complete or row.due == "always"):
            continue
        if row.when[0] != "run":
            due |= due_of_samples(result, row)
        elif training and all(holds(result, one) for one in row.due.split(" and ")):
            due.add(row.tag)
    return sorted(due)


def check_metrics(result):
    return [f"/metrics/{tag}: is missing" for tag in metrics_due(result)
            if f"metrics/{tag}" not in result.file]


def check_samples_are_used(result):
    """A group of samples that metrics follow from holds no others."""
    patterns = {row.samples: row.times for row in metrics() if "*" in row.samples}
    groups = {path.partition("/")[0] for path in patterns}
    return [f"/samples/{path}: no metric follows from it" for path in result.datasets("samples")
            if path.partition("/")[0] in groups
            and not any(times.fullmatch(path) for times in patterns.values())]


def check_measured(result):
    """What figures follow from, and what is measured with them."""
    problems = [f"/ceilings/{kind}: is missing" for kind in sorted(ceilings_due(result))
                 if f"ceilings/{kind}" not in result.file]
    if result.series("train/loss") is not None:
        problems += [f"/series/train/{name}: is missing" for name in STEP_SERIES
                     if f"series/train/{name}" not in result.file]
        if "samples/train/step_time" not in result.file:
            problems.append("/samples/train/step_time: is missing")
        if "metrics/energy/j_per_token" in result.file and result.series("gpu/power") is None:
            problems.append("/series/gpu/power: is missing, an energy is reported")
    if result.datasets("samples/offload") and "offload/modules" not in result.file:
        problems.append("/offload/modules: is missing")
    return problems


# What a run that is not VALID may say of itself; of a VALID one only steps that it skipped, which
# are never those of a validation.
MAY_BE_UNFINITE = re.compile(r"train/(loss|grad_norm|val_loss)|"
                             r"(mtp|router|head|source_loss|(gradient|activation|weight)_norms)/.+")
# NaN where a board does not say, as without NVML and on a part of a board.
OF_BOARD = re.compile(r"(clock|power|temperature)(_|$)")


def check_series_numbers(result):
    """Quantities over steps are finite and not negative, but for what steps gave that were done
    again, in /series/again."""
    problems = []
    for name in result.datasets("series"):
        found = result.series(name)
        if found is None or found[1].dtype.kind != "f":
            continue
        where, values = found
        finite = np.isfinite(values)
        group, _, quantity = name.partition("/")
        if group == "again":
            continue
        if OF_BOARD.match(quantity) and np.all(np.isnan(values)):
            continue
        if group in ("mtp", "source_loss"):  # what no target is of has no loss
            finite |= np.isnan(values)
        if MAY_BE_UNFINITE.fullmatch(name):
            may = (result.verdict != "VALID") | (np.isin(where, result.skipped_steps())
                                                 & (quantity != "val_loss"))
            finite |= may.reshape(-1, *[1] * (values.ndim - 1))
        if not np.all(finite):
            what = "loss" if name.endswith("loss") else "value"
            problems.append(f"/series/{name}: holds a {what} that is not finite")
        if np.any(values < 0):
            problems.append(f"/series/{name}: holds a value that is negative")
    return problems


def check_facts_of_samples(result):
    """What samples say of themselves, as bytes, clocks and errors: finite and not negative. The
    error of a row is the largest of those of its results."""
    problems, invalid = [], result.verdict == "INVALID"
    for path in result.datasets("samples"):
        facts = result.file[f"samples/{path}"].attrs
        for name, value in facts.items():
            if not isinstance(value, (int, float, np.number)):
                continue
            may_be = invalid or (OF_BOARD.match(name) and np.isnan(value))
            if value < 0 or not (np.isfinite(value) or may_be):
                problems.append(f"/samples/{path}: {name} is {value}")
        errors = [float(value) for name, value in facts.items() if name.startswith("error.")]
        if ("error" in facts) != bool(errors):
            problems.append(f"/samples/{path}: has an error without the results it is of, or these "
                            "without it")
        elif errors and np.all(np.isfinite(errors)) and not same(float(facts["error"]),
                                                                 max(errors)):
            problems.append(f"/samples/{path}: error is {float(facts['error']):.9g}, the largest "
                            f"of its results' is {max(errors):.9g}")
    return problems


def check_tables(result):
    """The tables of what plans do: no number in them is negative or infinite, and copies at the
    rates of a plan's modules take the time that the plan says."""
    problems = []
    for name, node in result.file.get("offload", {}).items():
        rows = node[()] if isinstance(node, Dataset) else np.empty(0)
        for column in rows.dtype.names or ():
            if rows.dtype[column].kind in "if" and (np.any(rows[column] < 0)
                                                    or np.any(np.isinf(rows[column]))):
                problems.append(f"/offload/{name}: {column} holds a number that cannot be")
    rows = result.array("offload/modules")
    for plan in result.datasets("samples/offload") if rows is not None else ():
        copying_s = float(result.attribute(f"samples/offload/{plan}", "copying_s"))
        mine = rows[(rows["plan"] == plan.encode()) & (rows["offloaded_bytes"] > 0)]
        rates = np.array([mine["d2h_bytes_per_s"], mine["h2d_bytes_per_s"]])
        if copying_s == 0 or np.any(np.isnan(rates)) or np.any(rates <= 0):
            continue
        time_s = float((mine["offloaded_bytes"] / rates).sum())
        if not np.isclose(time_s, copying_s, rtol=1e-6, atol=0):
            problems.append(f"/offload/modules: copies of {plan} at their rates take {time_s:.9g} "
                            f"s, the plan says {copying_s:.9g} s")
    return problems


def check_complete(result):
    measured = check_measured(result) if result.minor_version >= COMPLETE_SINCE else []
    return (check_metrics(result) + check_samples_are_used(result) + measured
            + check_series_numbers(result) + check_facts_of_samples(result) + check_tables(result))
