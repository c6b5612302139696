"""The run rules of results/README.md: what keeps a conforming result from being official."""

import datetime
import hashlib

import numpy as np

from stowage_results.medians import LEAST_FOR_INTERVAL, halfwidth
from stowage_results.check.recompute import measured_rates
from stowage_results.result_files import largest_of_ranks, printable, text

STEPS, STEP_SECONDS, STEP_SPREAD = 50, 120, 0.02
ROW_SAMPLES, ROW_SECONDS, ROW_SPREAD = 30, 1e-3, 0.05
REPEATS, REPEAT_SPREAD = 20, 0.05  # of a ceiling, an exchange or a plan
SEEDS = 3  # of runs behind a published loss
# A share above this is no longer explained by clocks: products of one board differ by 8 % with
# the shape and the moment, copies by 1 %.
ABOVE_PRODUCTS, ABOVE_COPY = 1.1, 1.05
CEILINGS_AGE = datetime.timedelta(days=1)


def ceilings_digest(result):
    """SHA-256 of what /ceilings holds: names with their values as little-endian doubles. It does
    not change when a set is published."""
    state = hashlib.sha256()
    for name in result.datasets("ceilings"):
        state.update(name.encode() + b"\0")
        state.update(np.asarray(result.array(f"ceilings/{name}"), dtype="<f8").tobytes())
    return state.hexdigest()


def state_of_source(result):
    described = text(result.file.attrs["git_describe"])
    if described.endswith("-dirty") or described == "unknown":
        return [f"the source is not a committed state ({described})"]
    return []


def forced_load(result):
    """Experts that are drawn say nothing of a training. Older sets lack the key."""
    load = text(result.config().get("model.moe_router_force_load", "none"))
    return [] if load == "none" else [f"model.moe_router_force_load is {load}"]


def too_wide(name, samples, limit):
    spread = halfwidth(samples)
    if not np.isfinite(spread):
        return [f"{name} has no interval: {len(samples)} samples < {LEAST_FOR_INTERVAL}"]
    return [f"{name} is known to {100 * spread:.2g} %, wanted {100 * limit:g} %"] \
        if spread > limit else []


def training(result):
    times = result.array("samples/train/step_time")
    if times is None or len(times) == 0:
        return ["no step was timed"]
    times = largest_of_ranks(times)
    reasons = []
    if len(times) < STEPS:
        reasons.append(f"{len(times)} timed steps < {STEPS}")
    if times.sum() < STEP_SECONDS:
        reasons.append(f"timed for {times.sum():.3g} s < {STEP_SECONDS} s")
    return reasons + too_wide("the step time", times, STEP_SPREAD) + untried(result)


def untried(result):
    """What a training can leave out of its checks, so that a wrong backward would not be seen."""
    resumed = "provenance/resumed" in result.file
    ranks = int(result.file["provenance/run"].attrs["ranks"])
    wanted = {"gradients": "no gradients were compared with finite differences",
              "replayed_step": None if resumed else "its first step was not done twice",
              "copies_that_differ": "what ranks share was not compared" if ranks > 1 else None}
    return [why for name, why in wanted.items() if why and name not in result.file["validation"]]


def first_and_count(problems):
    """The first of many problems of rows, and how many there are."""
    more = f" (and {len(problems) - 1} more rows)" if len(problems) > 1 else ""
    return [problems[0] + more] if problems else []


def ceilings_of(result, others):
    """Why the ceilings that a set refers to cannot be relied on; `others` are sets by uuid."""
    if "provenance/ceilings" not in result.file:
        return ["it refers to no ceilings"]
    stored = result.file["provenance/ceilings"].attrs
    reasons = []
    if not stored["same_board"]:
        reasons.append("its ceilings are another board's")
    if text(stored["git_describe"]) != text(result.file.attrs["git_describe"]):
        reasons.append("its ceilings are another commit's")
    age = abs(time_of(text(result.file.attrs["created"])) - time_of(text(stored["created"])))
    if age > CEILINGS_AGE:
        reasons.append(f"its ceilings are {age.days} days apart")
    other = others.get(text(stored["uuid"]))
    if other is None:
        reasons.append(f"its ceilings ({text(stored['uuid'])}) are not among the files")
    elif ceilings_digest(other) != text(stored["digest"]):
        reasons.append("its ceilings have changed since: another digest")
    else:
        reasons += [reason for unit, kind in (("flops", "gemm_bf16"), ("bytes", "device_copy"))
                    for reason in limit_of(other, kind, float(stored[f"{unit}_per_s"]))]
    return reasons


def limit_of(ceilings, kind, used):
    """Why a rate is not the largest of its kind, or not known well enough: a share is no better
    than its ceiling."""
    limits = ceilings.array(f"ceilings/{kind}")
    if limits is None or float(np.max(limits)) != used:
        return [f"the {kind} rate that its shares are of is not that of its ceilings"]
    _, _, best = max(measured_rates(ceilings, kind), key=lambda one: one[1])
    return too_wide(f"its ceiling {kind}/{best}",
                    ceilings.array(f"samples/ceilings/{kind}/{best}"), REPEAT_SPREAD)


def above_ceilings(result):
    """Rows at a rate that their ceilings exclude: these are not the row's, or its cost counts too
    much."""
    found = []
    for tag in result.datasets("metrics/kernels"):
        row, _, quantity = tag.rpartition("/")
        most = {"pct_ceiling": ABOVE_PRODUCTS, "pct_copy": ABOVE_COPY}.get(quantity)
        share = float(result.array(f"metrics/kernels/{tag}"))
        if most is not None and share > most:
            found.append(f"{row} is at {100 * share:.0f} % of its "
                         + ("ceiling" if quantity == "pct_ceiling" else "copy"))
    return found


def time_of(stamp):
    return datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%fZ")


def is_checked(attributes):
    return any(name.startswith("error.") for name in attributes)


def kernels(result, others):
    rows, unchecked = [], []
    for path in result.datasets("samples/kernels"):
        samples = result.array(f"samples/kernels/{path}")
        if len(samples) < ROW_SAMPLES:
            rows.append(f"{path}: {len(samples)} samples < {ROW_SAMPLES}")
        elif samples.sum() < ROW_SECONDS:
            rows.append(f"{path}: timed for {samples.sum():.2g} s < {ROW_SECONDS:g} s")
        else:
            rows += too_wide(path, samples, ROW_SPREAD)
        implementation = path.rpartition("/")[2]
        attributes = result.file[f"samples/kernels/{path}"].attrs
        if implementation.startswith("ours") and not is_checked(attributes):
            unchecked.append(f"{path} is not checked")
    return (first_and_count(rows) + first_and_count(unchecked)
            + first_and_count(above_ceilings(result)) + ceilings_of(result, others))


def repeats(result):
    """Ceilings, exchanges and plans: enough repetitions of each, and their spread."""
    rows = []
    for path in result.datasets("samples"):
        samples = largest_of_ranks(result.array(f"samples/{path}"))
        if len(samples) < REPEATS:
            rows.append(f"{path}: {len(samples)} samples < {REPEATS}")
        else:
            rows += too_wide(path, samples, REPEAT_SPREAD)
    return first_and_count(rows)


def not_official(result, others=None):
    """Reasons, none for an official result. `others`: sets by uuid, where ceilings are looked for.
    """
    reasons = []
    if result.verdict != "VALID":
        reasons.append(f"the verdict is {result.verdict}")
    reasons += state_of_source(result) + forced_load(result)
    if text(result.file["provenance/software"].attrs["build_type"]) != "Release":
        reasons.append("the build is not Release")
    differences = result.file["provenance/system/differences"][()]
    if len(differences):
        more = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
        said = printable(text(differences[0])).replace("\n", " ")
        reasons.append(f"the ranks differ: {said}{more}")
    driver = text(result.file.attrs["driver"])
    if driver == "train":
        return reasons + training(result)
    if driver == "bench_kernels":
        return reasons + kernels(result, others or {})
    return reasons + repeats(result)


def mark_unofficial(results):
    """From here on, tables mark the sets that are not official."""
    others = by_uuid(results)
    for result in results:
        result.unofficial = not_official(result, others)


def by_uuid(results):
    return {text(result.file.attrs["uuid"]): result for result in results}


def same_but_seed(result):
    """What runs of one experiment have in common: the commit and every key but these."""
    keys = sorted((key, str(value)) for key, value in result.config().items()
                  if key not in ("run.seed", "data.seed", "run.output", "run.log"))
    return text(result.file.attrs["git_describe"]), tuple(keys)


def losses_by_seed(results):
    """(sets, number of seeds) of each experiment among training sets: a loss is published as
    that of SEEDS seeds or more. Seeds with the same losses to the bit are one run, copied."""
    groups = {}
    for result in results:
        if text(result.file.attrs["driver"]) == "train":
            groups.setdefault(same_but_seed(result), []).append(result)
    return [(sets, min(len({int(one.file["provenance/run"].attrs["seed"]) for one in sets}),
                       len({result_losses(one) for one in sets}))) for sets in groups.values()]


def result_losses(result):
    """The bytes of a run's losses, of training and of validation."""
    found = (result.array(f"series/train/{name}") for name in ("loss", "val_loss"))
    return b"".join(b"" if losses is None else losses.tobytes() for losses in found)
