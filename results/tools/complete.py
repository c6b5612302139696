"""What a set must hold: the metrics that follow from what it measured, all of them, and numbers
that a measurement can give. A figure that is taken out is as wrong as one that is edited."""

import re

import h5py
import numpy as np

from recompute import link_fit, same
from result_files import text

COMPLETE_SINCE = 7  # minor version of the schema: the drivers of sets of before wrote less
# What each of the samples that match is reported as, whatever else the set holds: in sets of every
# version, and beside that since COMPLETE_SINCE.
METRICS_OF = [(re.compile(path), always, since) for path, always, since in (
    (r"kernels/.+", ("/time",), ("/bytes_per_s",)),
    (r"offload/.+", ("/step_time",), ("/added",)),
    (r"scaling/.+", ("/step_time",), ("/tokens_per_s", "/communication", "/exposed_communication",
                                      "/exposed_copy", "/idle", "/device_bytes")),
    (r"train/step_time", ("",), ()),
    (r"comm/.+", ("/busbw",), ("/time", "/algbw")),
    (r"communication/.+", ("",), ()),
    (r"ceilings/gemm_bf16/.+", ("/flops_per_s",), ()),
    (r"ceilings/interference/.+", ("/slowdown",), ()))]
STEP_RATES = ("step_time", "tokens_per_s", "model_flops_per_s", "model_flops_per_s_gpu",
              "hw_flops_per_s", "megatron_compat_flops_per_s")
TRAINING = ("train/wall_time", "train/setup_time", "train/parameters", "train/peak_device_bytes",
            "train/pinned_bytes", "train/persistent_bytes", "train/transient_bytes",
            "data/packing_efficiency", "data/split_documents", "data/dropped_tokens")
STEP_SERIES = ("loss", "grad_norm", "lr", "step_time", "ok", "mem_device")


def due_of_kernels(result, path, facts):
    """Of one row: its shares of the ceilings and of a plain copy of as many bytes."""
    case, _, implementation = path.rpartition("/")
    if facts["flops"] > 0:
        yield f"{path}/flops_per_s"
    if "provenance/ceilings" in result.file:
        yield f"{path}/pct_ceiling"
    copy = result.file.get(f"samples/{case}/copy")
    if implementation != "copy" and copy is not None and copy.attrs["bytes"] == facts["bytes"]:
        yield f"{path}/pct_copy"


def due_of_plans(result, path, facts):
    plan, _, mode = path.rpartition("/")
    yield "offload/worst_prediction"
    if mode != "off" and f"samples/{plan}/off" in result.file:
        yield f"{path}/graph_cost"
    if facts["copying_s"] > 0:
        yield from (f"{path}/exposed_copy", f"{path}/overlap")


def due_of_points(result, path, facts):
    _, scale, layout, mode = path.split("/")
    base = text(facts["base"])
    if base != layout and f"samples/scaling/{scale}/{base}/{mode}" in result.file:
        yield f"{path}/efficiency"
    if facts.get("energy_j", 0) > 0:
        yield f"{path}/j_per_token"
    if "predicted_time_s" in facts:
        yield from (f"{path}/prediction", "scaling/worst_prediction")
    plain = result.file.get(f"samples/scaling/{scale}/{layout}/off")
    if mode != "off" and plain is not None and plain.attrs["order"] < facts["order"]:
        yield f"{path}/graph_gain"


DUE_OF = {"kernels": due_of_kernels, "offload": due_of_plans, "scaling": due_of_points}


def due_of_training(result):
    """Of a training run as a whole; one that only evaluates has no steps."""
    yield from TRAINING
    series = {name: result.series(name) for name in
              ("train/loss", "train/val_loss", "train/ok", "gpu/power", "again/transient",
               "experts/reruns", "packing/op_by_op")}
    if series["train/val_loss"] is not None:
        yield from ("train/val_loss", "train/best_val_loss", "train/val_perplexity",
                    "train/val_accuracy")
    if result.series("checkpoint/time") is not None:
        yield from ("ckpt/bytes", "ckpt/stall", "ckpt/bytes_per_s")
        beside = result.series("checkpoint/beside")
        if beside is not None and np.any(beside[1] != 0):
            yield "ckpt/stalled_part"
    if series["train/loss"] is None:
        return
    yield "train/skipped_steps"
    yield from (f"train/{name}" for name in STEP_RATES)
    if series["train/ok"] is not None and np.any(series["train/ok"][1] != 0):
        yield "train/loss"
    if series["gpu/power"] is not None and np.all(np.isfinite(series["gpu/power"][1])):
        yield "energy/j_per_token"
    for name, tag in (("again/transient", "train/transient_errors"),
                      ("experts/reruns", "experts/reruns"),
                      ("packing/op_by_op", "packing/op_by_op_steps"),
                      ("packing/op_by_op", "packing/passed_batches")):
        if series[name] is not None:
            yield tag


def ceilings_due(result):
    """Kinds of limits that were measured."""
    return set(result.file.get("samples/ceilings", ())) - {"interference"}


def metrics_due(result):
    """Tags that the set must have, sorted."""
    due, complete = set(), result.minor_version >= COMPLETE_SINCE
    for path in result.datasets("samples"):
        for pattern, always, since in METRICS_OF:
            if pattern.fullmatch(path):
                due.update(path + suffix for suffix in always + (since if complete else ()))
    return sorted(due | more_metrics_due(result) if complete else due)


def more_metrics_due(result):
    """Those that depend on what else the set holds."""
    due = set()
    for path in result.datasets("samples"):
        rule = DUE_OF.get(path.partition("/")[0])
        if rule is not None:
            due.update(rule(result, path, result.file[f"samples/{path}"].attrs))
        if path.startswith("communication/") and path.endswith("/busy"):
            due.add(path.removesuffix("busy") + "overlap")
        if path.startswith("packing/"):
            due.update((path, path.replace("step_time", "steps"),
                        path.replace("step_time", "tokens_per_s")))
    due.update(f"ceilings/{kind}/bandwidth" for kind in ceilings_due(result) - {"gemm_bf16"})
    for group, kind, library in links_measured(result):
        if link_fit(result, group, kind, library or "stowage") is not None:
            at = f"comm/{group}/" + (f"{kind}/{library}" if library else "link")
            due.update((f"{at}/latency", f"{at}/bandwidth"))
    if text(result.file.attrs["driver"]) == "train":
        due.update(due_of_training(result))
    return due


def links_measured(result):
    """(group, kind, library) of exchanges of several sizes; (group, None, None): of all kinds."""
    found = {tuple(path.split("/")[:3]) for path in result.datasets("samples/comm")}
    return sorted(found) + [(group, None, None) for group in sorted({one[0] for one in found})]


def check_metrics(result):
    return [f"/metrics/{tag}: is missing" for tag in metrics_due(result)
            if f"metrics/{tag}" not in result.file]


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
MAY_BE_UNFINITE = re.compile(r"train/(loss|grad_norm|val_loss)|router/.+")
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
        if MAY_BE_UNFINITE.fullmatch(name):
            finite |= (result.verdict != "VALID") | (np.isin(where, result.skipped_steps())
                                                     & (quantity != "val_loss"))
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
        rows = node[()] if isinstance(node, h5py.Dataset) else np.empty(0)
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
    return (check_metrics(result) + measured + check_series_numbers(result)
            + check_facts_of_samples(result) + check_tables(result))
