"""Curves of stowage_bench_scaling: their points, what must hold between them, and their tables."""

import math

import numpy as np

from stowage_results.tables.cells import (GPU, digits, gpu_of, interval, metric, percent, set_cell,
                                          table)
from stowage_results.check.recompute import same
from stowage_results.result_files import largest_of_ranks, text

AXES = ("tensor", "context", "expert", "pipeline", "data")
PARTS = ("compute", "exposed_communication", "exposed_copy", "idle")  # of a step: they add up


def points(result):
    """What each point says of itself, with its `path`, its `ranks` and its step times of the
    slowest rank as `time_s`; in the order in which they were measured, those of few ranks first."""
    return result.once("points", read_points)


def read_points(result):
    found = []
    for path in result.datasets("samples/scaling"):
        node = result.file[f"samples/scaling/{path}"]
        point = {name: text(value) if isinstance(value, bytes) else value
                 for name, value in node.attrs.items()}
        point.update(path=path, ranks=math.prod(int(point[axis]) for axis in AXES),
                     columns=node.shape[1] if len(node.shape) > 1 else 1,
                     time_s=largest_of_ranks(result.array(f"samples/scaling/{path}")))
        found.append(point)
    return sorted(found, key=lambda point: point["order"])


def loss_band(result):
    """As drivers/bench_scaling/report.cpp: roundings of a loss by another order of sums."""
    dtype, layers = text(result.key("train.dtype")), len(text(result.key("model.pattern")))
    stored, summed = {"fp64": (2.0**-53, 2.0**-53), "fp32": (2.0**-24, 2.0**-24),
                      "bf16": (2.0**-9, 2.0**-24)}[dtype]
    return 4 * (stored * math.sqrt(layers) + summed)


def scaling_values(result):
    """Values of a curve's checks by name, from what each point left."""
    losses, states, distance, others = {}, {}, 0.0, 0
    for point in points(result):
        first = losses.setdefault(point["global_batch"], point["loss"])
        distance = max(distance, abs(point["loss"] / first - 1))
        key = (point["global_batch"], *(point[axis] for axis in AXES))
        others += states.setdefault(key, point["state_digest"]) != point["state_digest"]
    return {"points": float(len(points(result))), "first_loss": float(distance),
            "other_states": float(others),
            "copies_that_differ": float(sum(point["differing"] for point in points(result)))}


def check_points(result, band):
    """Each point stands beside the first of the fewest ranks of its scale and mode, its parts of a
    step add up, and losses are held to the band of the deck's type.

    @param band the check first_loss of the set, or None"""
    problems, bases = [], {}
    for point in points(result):
        where = f"/samples/scaling/{point['path']}"
        base, least = bases.setdefault((point["scale"], point["mode"]),
                                       (point["layout"], point["ranks"]))
        if point["path"] != f"{point['scale']}/{point['layout']}/{point['mode']}":
            problems.append(f"{where}: is not what its attributes say")
        if point["columns"] != point["ranks"]:
            problems.append(f"{where}: has times of {point['columns']} ranks, its layout has "
                            f"{point['ranks']}")
        if point["ranks"] < least or point["base"] != base:
            problems.append(f"{where}: stands beside {point['base']}, not the first of the fewest "
                            "ranks")
        parts = sum(point[f"{part}_s"] for part in PARTS)
        if not math.isclose(parts, point["timed_step_s"], rel_tol=1e-6):
            problems.append(f"{where}: its parts of a step add up to {parts:.9g} s, not "
                            f"{point['timed_step_s']:.9g} s")
    if band is not None and not same(float(band["high"]), loss_band(result)):
        problems.append(f"/validation/first_loss: the band is {float(band['high']):.9g}, that of "
                        f"the deck's type is {loss_band(result):.9g}")
    return problems


def stages(point):
    """Of each rank of a point's pipeline: the times [forward, backward, weights] of a microbatch
    through all of its stages, and of the step beside them; none of sets from before 1.7."""
    if "schedule" not in point:
        return []
    ranks, chunks = int(point["pipeline"]), int(point["virtual_stages"])
    passes = ("forward", "backward", "weights")
    return [([sum(point[f"stage_{chunk * ranks + rank}_{which}_s"] for chunk in range(chunks))
              for which in passes], point[f"rank_{rank}_rest_s"]) for rank in range(ranks)]


def busy_s(point, rank):
    """What a pipeline rank's step takes without waiting."""
    times, rest = stages(point)[rank]
    return point["microbatches"] * sum(times) + rest


def formula_bubble_s(point, times):
    """What ranks of equal stages wait in the schedule: docs/guides/pipeline.md."""
    forward, backward, weights = times
    others = int(point["pipeline"]) - 1
    if point["schedule"] == "zero_bubble":
        return others * max(0.0, forward + backward - weights)
    return others * (forward + backward + weights) / int(point["virtual_stages"])


def slowest_rank(point):
    return max(range(int(point["pipeline"])), key=lambda rank: busy_s(point, rank))


def allowed_s(point):
    """A step of a pipeline all of whose ranks are as the slowest: its work and the bubble."""
    rank = slowest_rank(point)
    return busy_s(point, rank) + formula_bubble_s(point, stages(point)[rank][0])


def pipeline_table(results):
    """What schedules leave of the time of their slowest stage, beside what was measured."""
    rows = []
    for result in results:
        for point in points(result):
            if not stages(point):
                continue
            busy, allowed = busy_s(point, slowest_rank(point)), allowed_s(point)
            measured, line = point["timed_step_s"], point["schedule_time_s"]
            rows.append((gpu_of(result), set_cell(result), point["layout"], point["mode"],
                         point["schedule"], point["microbatches"], digits(1e3 * busy),
                         slowest_rank(point), f"{100 * (1 - busy / allowed):.1f} %",
                         digits(1e3 * allowed), digits(1e3 * line), digits(1e3 * measured),
                         f"{measured / allowed:.3f}", f"{measured / line:.3f}"))
    if not rows:
        return []
    return ["### Pipelines", "",
            "Of the steps that were timed op by op. Busy: what the slowest rank computes, its "
            "passes with the copies that they wait for. Bubble: what ranks wait by the formula of "
            "the schedule, if all are as slow as that one; with it a step takes what is allowed. "
            "By stages: what the schedule makes of the measured passes of each stage, if messages "
            "take no time.", ""] + table(
                (GPU, "set", "layout", "graphs", "schedule", "microbatches", "busy ms",
                 "of rank", "bubble", "allowed ms", "by stages ms", "measured ms",
                 "measured / allowed", "measured / by stages"), rows)


def overlap(point):
    """The part of its communication that has compute beside it; NaN where nothing is exchanged."""
    whole = point.get("communication_s", 0.0)
    return 1 - point["exposed_communication_s"] / whole if whole > 0 else np.nan


def scaling_tables(results):
    """One table for each scale, with the points of all sets: curves of several jobs side by side.
    """
    lines = ["## Scaling", "",
             "Medians of the step on the slowest rank. Efficiency: tokens per second of a rank "
             "beside those of the point with the fewest ranks of the same set, scale and mode; its "
             "interval holds with at least 95 %. Parts of a step that was timed op by op, means "
             "over ranks: communication with nothing computing beside, which includes waiting for "
             "other ranks; copies alone; nothing at all. Overlap: the part of the time of all "
             "communication, waiting included, that has compute beside it. Memory: planned, of the "
             "fullest rank. Off by: the prediction beside the measured step; with a minus the step "
             "took longer.", ""]
    for scale in ("strong", "weak"):
        rows = [row(result, point) for result in results for point in points(result)
                if point["scale"] == scale]
        if rows:
            lines += [f"### {scale.capitalize()} scaling", ""] + table(
                (GPU, "set", "layout", "graphs", "ranks", "batch", "steps", "ms a step",
                 "95 % interval ms", "tokens/s", "efficiency", "95 %", "exposed communication ms",
                 "overlap", "copies ms", "idle ms", "device GiB", "J/token", "predicted ms",
                 "off by"), rows)
    return lines + pipeline_table(results)


def row(result, point):
    tag = f"scaling/{point['path']}"
    time_s, bounds = metric(result, f"{tag}/step_time")
    efficiency, part = metric(result, f"{tag}/efficiency")
    prediction = metric(result, f"{tag}/prediction")[0]
    return (gpu_of(result), set_cell(result), point["layout"], point["mode"],
            point["ranks"], point["global_batch"], len(point["time_s"]), digits(1e3 * time_s),
            interval(bounds, 1e3), digits(metric(result, f"{tag}/tokens_per_s")[0]),
            f"{100 * efficiency:.1f} %" if np.isfinite(efficiency) else "", interval(part, 100),
            digits(1e3 * point["exposed_communication_s"]), percent(overlap(point)),
            digits(1e3 * point["exposed_copy_s"]), digits(1e3 * point["idle_s"]),
            f"{point['device_bytes'] / 2**30:.3f}",
            digits(metric(result, f"{tag}/j_per_token")[0]),
            digits(1e3 * point.get("predicted_time_s", np.nan)),
            f"{100 * prediction:+.1f} %" if np.isfinite(prediction) else "")
