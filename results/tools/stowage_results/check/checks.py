"""The validation section against the rest of the file: verdict, results, thresholds, values."""

import math
import re

from stowage_results import needs  # noqa: F401
import numpy as np

from stowage_results.check.bounds import OF_KEYS, check_bounds
from stowage_results.check.recompute import same
from stowage_results.result_files import text
from stowage_results.stored import Group
from stowage_results.tables.scaling import check_points, scaling_values
from stowage_results.states import DIGEST, STATES_SINCE, digests


RESUMED_SINCE = 5  # minor version of the schema
SEAL = re.compile(r"[0-9a-f]{16}")


def stored_checks(result):
    """The checks of a set by name: all groups, whatever else lies beside them."""
    return {name: node.attrs for name, node in result.file["validation"].items()
            if isinstance(node, Group)}


def passed(check):
    return bool(check["low"] <= check["value"] <= check["high"])


def expected_verdict(result):
    """The verdict that the stored numbers give: nobody edits one by hand."""
    checks = stored_checks(result).values()
    if any(not passed(check) for check in checks):
        return "INVALID"
    if result.verdict == "STOPPED":
        return "STOPPED"
    return "VALID" if checks else "INVALID"


def bounds_of(threshold):
    """(low, high) of "== 0", "<= 2.2", ">= 1" or "3.9..4.1", or None."""
    try:
        if threshold.startswith("== "):
            return float(threshold[3:]), float(threshold[3:])
        if threshold.startswith("<= "):
            return -math.inf, float(threshold[3:])
        if threshold.startswith(">= "):
            return float(threshold[3:]), math.inf
        low, high = threshold.split("..")
        return float(low), float(high)
    except ValueError:
        return None


def kernel_errors(result):
    """The value of each check of operators by its name, from the samples' own attributes."""
    values = {}
    for path in result.datasets("samples/kernels"):
        case, _, implementation = path.rpartition("/")
        operator, _, shape = case.partition("/")
        label = f"{operator}.{shape}.{implementation}"
        for name, value in result.file[f"samples/kernels/{path}"].attrs.items():
            part = name.removeprefix("error.")
            if name.startswith("error.") or re.fullmatch(r"\w+\.(ratio|error_of_ours)", name):
                values[f"{label}.{part}"] = float(value)
    return values


def without_skipped(result, found):
    """A series without the steps that changed nothing; None of none."""
    if found is None:
        return None
    kept = ~np.isin(found[0], result.skipped_steps())
    return found[0][kept], found[1][kept]


def training_values(result):
    """Values of a training run's checks by name, from its series."""
    values = {}

    # A run that only evaluates has no steps.
    loss, ok, norm, val = (found if found is not None and len(found[1]) else None
                           for found in (result.series(f"train/{name}") for name in
                                         ("loss", "ok", "grad_norm", "val_loss")))
    good = {"loss": without_skipped(result, loss), "grad_norm": without_skipped(result, norm)}
    if ok is not None:
        values["skipped_steps"] = float(len(result.skipped_steps()))
    if good["loss"] is not None:
        last = good["loss"][1][-1] if len(good["loss"][1]) else math.nan
        values["finite_loss"] = abs(last)
        values["loss"] = last
    if good["grad_norm"] is not None:
        steps, norms = good["grad_norm"]
        late = norms[steps > int(result.config().get("optim.warmup_steps", 0))]
        values["grad_norm"] = late.max() if len(late) else 0.0 if len(norms) else math.nan
    if val is not None:
        values["finite_val_loss"] = abs(val[1][-1])
        values["val_loss"] = val[1][-1]
        if len(val[1]) > 1:
            values["val_loss_falling"] = val[1][-2] - val[1][-1]
    for name in result.file["validation"]:
        last = {**good, "val_loss": val}
        values.update(value_in_band(name, {"loss": loss, "val_loss": val, "grad_norm": norm}, last))
    return values


def value_in_band(name, series, good):
    """{name: value} of a check such as loss_at_100 or final_loss; {} of any other. The final values
    are of the last step that was not skipped: `good` has the series without skipped steps."""
    band = re.fullmatch(r"(loss|val_loss|grad_norm)_at_(\d+)|final_(loss|val_loss|grad_norm)", name)
    found = band and (series[band[1]] if band[1] else good[band[3]])
    if not found:
        return {}
    steps, numbers = found
    at = np.flatnonzero(steps == int(band[2])) if band[1] else np.arange(len(steps))[-1:]
    return {name: float(numbers[at[0]]) if len(at) else math.nan}


def sweep_values(result):
    """Values of a sweep's checks by name, from what each plan left."""
    if result.minor_version < STATES_SINCE:
        return {}
    plans = result.datasets("samples/offload")
    states = [text(result.attribute(f"samples/offload/{plan}", "state_digest")) for plan in plans]
    first = next(iter(digests(result).values()), "")
    return {"other_states": float(sum(state != first for state in states)),
            "plans": float(len(plans))}


# Checks that a deck asks for; those of the end of a run are not made of a stopped one.
DECK_CHECKS = ("grad_norm", "loss", "val_loss")
# Checks of which no run has a value that lacks the series.
ABSENT_WITHOUT = frozenset(("skipped_steps", "finite_loss", "finite_val_loss", "grad_norm",
                            "loss"))


def bands_due(result, steps):
    """Names of the deck's bands that a whole run of these steps must have been held to."""
    asked = int(result.config().get("run.steps", steps[-1]))
    due = set()
    for name in result.expectations():
        at = name.rpartition("_at_")[2]
        if not at.isdigit() or steps[0] <= int(at) <= asked:
            due.add(name)
    return due


def training_checks(result):
    """Names of the checks that a training run must have, as far as its series and deck can say."""
    deck = result.config()
    asked = {name for name in DECK_CHECKS
             if math.isfinite(float(deck.get(OF_KEYS[name], math.inf)))
             and (name == "grad_norm" or result.verdict == "VALID")}
    loss = result.series("train/loss")
    if loss is not None and len(loss[0]):
        if result.verdict == "VALID":
            asked |= bands_due(result, loss[0])
        if text(deck.get("validate.finite_differences", "off")) == "on":
            asked.add("gradients")
        if deck.get("validate.replayed_step", False) and loss[0][0] == 1:
            asked.add("replayed_step")
    return asked | {"skipped_steps", "finite_loss", "finite_val_loss"}


def wrong_elements(result):
    """The value of each check of collectives by its name, from the samples' own attributes; None
    for sets of before, whose checks were made apart."""
    values = {}
    for path in result.datasets("samples/comm"):
        attributes = result.file[f"samples/comm/{path}"].attrs
        if "wrong" not in attributes:
            return None
        name = ".".join(path.split("/")[:3]) + ".wrong"
        values[name] = values.get(name, 0.0) + float(attributes["wrong"])
    return values


# Drivers whose checks are all of samples, and what these say.
OF_SAMPLES = {"bench_kernels": kernel_errors, "bench_comm": wrong_elements,
              "bench_scaling": scaling_values}


def check_values(result):
    """Each check's value is what the samples and series say, and no check is missing."""
    driver = text(result.file.attrs["driver"])
    if driver in OF_SAMPLES:
        expected = OF_SAMPLES[driver](result)
        if expected is None:
            return []
    elif driver == "train":
        expected = training_values(result)
    elif driver == "bench_offload":
        expected = sweep_values(result)
    else:
        return []
    problems = []
    stored = stored_checks(result)
    for name, check in stored.items():
        value = float(check["value"])
        if name in expected and not same(value, float(expected[name])):
            problems.append(f"/validation/{name}: value is {value:.9g}, the samples and series say "
                            f"{expected[name]:.9g}")
        elif name not in expected and driver in OF_SAMPLES:
            problems.append(f"/validation/{name}: belongs to no samples")
    wanted = training_checks(result) - ABSENT_WITHOUT.difference(expected) \
        if driver == "train" else expected
    problems += [f"/validation/{name}: is missing" for name in wanted if name not in stored]
    return problems


def check_states(result):
    """A training run says what state it ended with, at steps that it did."""
    if text(result.file.attrs["driver"]) != "train" or result.minor_version < STATES_SINCE:
        return []
    where, loss = "/validation/state_digest", result.series("train/loss")
    states = digests(result)
    if not states:
        return [f"{where}: is missing"]
    problems = [f"{where}: {digest} of step {step} is no digest"
                for step, digest in states.items() if not DIGEST.fullmatch(digest)]
    if loss is not None and max(states) != loss[0][-1]:
        problems.append(f"{where}: ends at step {max(states)}, the losses at {loss[0][-1]}")
    return problems


def check_resumed(result):
    """A training run that has not begun at its first step names the checkpoint that it goes on
    from, and begins where that one ends."""
    if text(result.file.attrs["driver"]) != "train" or result.minor_version < RESUMED_SINCE:
        return []
    where, loss = "/provenance/resumed", result.series("train/loss")
    first = int(loss[0][0]) if loss is not None and len(loss[0]) else None
    if where not in result.file:
        late = first is not None and first > 1
        return [f"{where}: is missing, the losses begin at step {first}"] if late else []
    named = result.file[where].attrs
    problems = []
    if first is not None and first != named["step"] + 1:
        problems.append(f"{where}: ends at step {named['step']}, the losses begin at {first}")
    if not SEAL.fullmatch(text(named["seal"])):
        problems.append(f"{where}: seal is no digest")
    if text(named["run"]) == text(result.file.attrs["uuid"]):
        problems.append(f"{where}: run is this result set itself")
    return problems


def check_modules(result):
    """The rows of modules add up to what each plan of a sweep says of itself."""
    rows = result.array("offload/modules")
    problems = []
    for plan in result.datasets("samples/offload") if rows is not None else []:
        attributes = result.file[f"samples/offload/{plan}"].attrs
        mine = rows[np.array([text(name) == plan for name in rows["plan"]], dtype=bool)]
        sums = {"bytes_out": float(mine["offloaded_bytes"].sum()),
                "copies_out": float(mine["copies"].sum())}
        if np.all(np.isfinite(mine["exposed_s"])):
            sums["exposed_s"] = float(mine["exposed_s"].sum())
        problems += [f"/offload/modules: {name} of {plan} add up to {value:.9g}, not "
                     f"{float(attributes[name]):.9g}"
                     for name, value in sums.items() if not same(value, float(attributes[name]))]
    return problems


def check_stages(result):
    """Every plan of a pipeline has a row for each stage, the first of them that of rank 0."""
    rows = result.array("offload/stages")
    if rows is None:
        return []
    stages = int(rows["stage"].max(initial=0)) + 1
    problems = []
    for plan in result.datasets("samples/offload"):
        attributes = result.file[f"samples/offload/{plan}"].attrs
        mine = rows[np.array([text(name) == plan for name in rows["plan"]], dtype=bool)]
        if list(mine["stage"]) != list(range(stages)):
            problems.append(f"/offload/stages: {plan} has stages {list(mine['stage'])}, "
                            f"not 0 to {stages - 1}")
            continue
        first = {"transient_bytes": "transient_bytes", "host_bytes": "host_bytes",
                 "copies_out": "copies", "bytes_out": "offloaded_bytes", "reruns": "reruns"}
        problems += [f"/offload/stages: {column} of {plan} on stage 0 is {mine[column][0]}, "
                     f"rank 0 says {attributes[name]}"
                     for name, column in first.items() if mine[column][0] != attributes[name]]
    return problems


def check_validation(result):
    problems = []
    for name, check in stored_checks(result).items():
        if text(check["result"]) != ("PASSED" if passed(check) else "FAILED"):
            problems.append(f"/validation/{name}: result contradicts its value")
        if bounds_of(text(check["threshold"])) != (check["low"], check["high"]):
            problems.append(f"/validation/{name}: threshold {text(check['threshold'])} is not "
                            f"{check['low']} .. {check['high']}")
    expected = expected_verdict(result)
    if result.verdict != expected:
        problems.append(f"/: verdict is {result.verdict}, the checks say {expected}")
    driver = text(result.file.attrs["driver"])
    return (problems + check_bounds(result, stored_checks(result), driver)
            + check_values(result) + check_states(result) + check_modules(result)
            + check_stages(result) + check_resumed(result)
            + check_points(result, stored_checks(result).get("first_loss")))
