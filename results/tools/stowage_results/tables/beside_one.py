"""The short table of curves: several ranks beside one, each layout of a set in one row."""

import numpy as np

from stowage_results.tables.cells import (GPU, digits, gpu_of, interval, name_of, percent, set_cell,
                                          table)
from stowage_results.medians import quotient_interval
from stowage_results.result_files import text
from stowage_results.tables.scaling import AXES, overlap, points
from stowage_results.tables.train_tables import of_one_run

MODES = ("off", "step")  # op by op, and in one graph of the step
# Keys by which a run of several ranks may differ from the one that it stands beside.
OWN_KEYS = ("run.output", "run.log", "parallel.", "graphs.")

ATTENTION = {"all_gather": ["keys gathered"], "all_to_all": ["heads exchanged"]}  # else as planned
SCHEDULES = {"1f1b": "1F1B", "zero_bubble": "zero bubble"}


class Pair:
    """A point of several ranks and the one of a single rank that it stands beside."""

    def __init__(self, result, point, base_result, base):
        self.result, self.point, self.base_result, self.base = result, point, base_result, base
        times = np.median(base["time_s"]), np.median(point["time_s"])
        work = float(point["tokens"]) / float(base["tokens"])
        self.speed_up = work * times[0] / times[1]
        self.bounds = [work * bound for bound in quotient_interval(base["time_s"],
                                                                   point["time_s"])]
        self.efficiency = self.speed_up / point["ranks"]

    def words(self):
        """Efficiency of a weak curve in %, speed-up of a strong one, with the interval."""
        if self.point["scale"] == "weak":
            ranks = self.point["ranks"]
            value, shown = f"{100 * self.efficiency:.1f}", [bound / ranks for bound in self.bounds]
            shown = interval(shown, 100)
        else:
            value, shown = f"{self.speed_up:.2f}", interval(self.bounds)
        return f"{value} ({shown})" if shown else value


def same_work(one, other):
    """Whether two sets have the same keys but for those that say how ranks share the work."""
    first, second = ({key: str(value) for key, value in result.config().items()
                      if not key.startswith(OWN_KEYS)} for result in (one, other))
    return first == second


def base_of(results, result, point):
    """(set, point) of one rank: of the same set, or else of one of the same run, deck and keys."""
    for other in [result, *results]:
        if other is not result and not (of_one_run(other, result) and same_work(other, result)):
            continue
        for base in points(other):
            if base["ranks"] == 1 and base["scale"] == point["scale"] \
                    and base["mode"] == point["mode"]:
                return other, base
    return None


def layout_words(result, point):
    """How ranks share the work: "context 2, keys gathered"."""
    words = [f"{axis} {point[axis]}" for axis in AXES if point[axis] > 1]
    if point["context"] > 1:
        words += ATTENTION.get(text(result.key("parallel.context_attention")), [])
    if "schedule" in point:
        words += [SCHEDULES.get(point["schedule"], point["schedule"]),
                  f"{point['microbatches']} microbatches"]
    if point["zero"]:
        words.append("sharded states")
    if text(result.config().get("parallel.gradient_dtype", "fp32")) != "fp32":
        words.append("sums in bf16")
    if result.config().get("parallel.overlap_microbatches", False):
        words.append("microbatches side by side")
    load = text(result.config().get("model.moe_router_force_load", "none"))
    if load != "none":
        words.append(f"{load.replace('_', ' ')} load")
    return ", ".join(words)


def pairs(results):
    """[{mode: Pair}] of every layout of several ranks that stands beside one, in the order of decks
    and sets."""
    found = {}
    for result in sorted(results, key=lambda one: (text(one.key("run.name")), name_of(one))):
        for point in points(result):
            base = base_of(results, result, point) if point["ranks"] > 1 else None
            if base is not None and point["mode"] in MODES:
                key = result.path, point["scale"], point["layout"]
                found.setdefault(key, {})[point["mode"]] = Pair(result, point, *base)
    return list(found.values())


def row(modes):
    first = next(iter(modes.values()))
    result, point = first.result, first.point
    cells = [modes[mode].words() if mode in modes else "" for mode in MODES]
    beside = "" if first.base_result is result else f" beside {set_cell(first.base_result)}"
    return (gpu_of(result), text(result.key("run.name")), layout_words(result, point),
            result.key("train.seq_length"),
            f"{first.base['global_batch']}, {point['global_batch']}", *cells,
            percent(overlap(point)), digits(1e3 * point["exposed_communication_s"]),
            f"{set_cell(result)}{beside}")


SCALES = {  # what a table says, and in which unit
    "weak": ("A batch that grows with the ranks: tokens/s of a rank / those of one GPU.", "%"),
    "strong": ("The same batch: the time of one GPU / theirs.", "x")}


def beside_one(results):
    """A table for curves whose batch grows with the ranks, and one for those of one batch."""
    lines = []
    for scale, (words, unit) in SCALES.items():
        rows = [row(modes) for modes in pairs(results)
                if next(iter(modes.values())).point["scale"] == scale]
        if rows:
            lines += [words, ""] + table(
                (GPU, "deck", "ranks share", "tokens of a sequence", "sequences on one, on all",
                 f"op by op, {unit}", f"in a graph, {unit}", "overlap", "exposed ms", "set"), rows)
    return lines and ["Several GPUs beside one, with intervals that hold with at least 95 %.", "",
                      "- overlap: the part of all communication, waiting included, that has "
                      "compute beside it;",
                      "- exposed: the rest, in ms of a step;",
                      "- the one GPU is a point of the same set, or of the named one of the same "
                      "run.", "", *lines]
