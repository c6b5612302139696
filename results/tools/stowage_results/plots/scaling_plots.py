"""Panels of plot.py for curves of stowage_bench_scaling, over several sets."""

import numpy as np

from stowage_results.tables.cells import label_of, metric
from stowage_results.medians import median_interval
from stowage_results.tables.scaling import PARTS, points

MARKERS = {"off": "o", "scopes": "s", "step": "^"}
MEMORY = ("parameter", "gradient", "optimizer", "transient")


def curves(results):
    """{(label, mode): [(result, point), ...]} of every scale of every set, by ranks."""
    found = {}
    for result in results:
        for point in points(result):
            many = f"{label_of(result)}, " if len(results) > 1 else ""
            key = (f"{many}{point['scale']}, graphs {point['mode']}", point["mode"])
            found.setdefault(key, []).append((result, point))
    return found


def draw_efficiency(axes, results):
    """Efficiency against ranks with its interval; the best layout of each number of ranks is on the
    line, the others beside it."""
    for index, ((label, mode), of) in enumerate(curves(results).items()):
        best = {}
        for result, point in of:
            value, bounds = metric(result, f"scaling/{point['path']}/efficiency")
            if not np.isfinite(value):
                value, bounds = 1.0, (1.0, 1.0)  # what the others stand beside
            low, high = (value if np.isnan(bound) else bound for bound in bounds)
            axes.errorbar(point["ranks"], 100 * value,
                          yerr=[[100 * max(0, value - low)], [100 * max(0, high - value)]],
                          fmt=MARKERS[mode], markersize=5, alpha=0.8, color=f"C{index}")
            axes.annotate(point["layout"], (point["ranks"], 100 * value), fontsize="x-small",
                          xytext=(4, 3), textcoords="offset points")
            best[point["ranks"]] = max(best.get(point["ranks"], 0), 100 * value)
        axes.plot(sorted(best), [best[ranks] for ranks in sorted(best)], color=f"C{index}",
                  linewidth=1, label=label)
    every = sorted({point["ranks"] for of in curves(results).values() for _, point in of})
    axes.set_xscale("log", base=2)
    axes.set_xticks(every, [str(ranks) for ranks in every])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("ranks")
    axes.set_ylabel("efficiency (%)")


def draw_rates(axes, results):
    """Tokens per second over ranks, the best layout of each number, beside as many times the rate
    of the fewest ranks."""
    for index, ((label, mode), of) in enumerate(curves(results).items()):
        best = {}
        for result, point in of:
            rate = 1e-3 * metric(result, f"scaling/{point['path']}/tokens_per_s")[0]
            best[point["ranks"]] = max(best.get(point["ranks"], 0), rate)
        ranks = sorted(best)
        axes.plot(ranks, [best[one] for one in ranks], MARKERS[mode] + "-", color=f"C{index}",
                  markersize=5, linewidth=1, label=label)
        axes.plot(ranks, [best[ranks[0]] * one / ranks[0] for one in ranks], ":", linewidth=1,
                  color=f"C{index}", label="" if index else "all of the fewest ranks' rate")
    every = sorted({point["ranks"] for of in curves(results).values() for _, point in of})
    axes.set_xticks(every, [str(ranks) for ranks in every])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("ranks")
    axes.set_ylabel("thousand tokens/s")


def bars(axes, results, parts, scale):
    """One stacked bar for each point of all sets, and their names below."""
    every = [(f"{label_of(result)} " if len(results) > 1 else "") + point["path"]
             for result in results for point in points(result)]
    bottom = np.zeros(len(every))
    for part in parts:
        values = np.array([scale(point, part) for result in results for point in points(result)])
        axes.bar(range(len(every)), values, bottom=bottom, width=0.7, label=part.replace("_", " "))
        bottom += values
    axes.set_xticks(range(len(every)), every, rotation=75, fontsize="x-small")


def draw_parts(axes, results):
    """Where the time of a step that is timed op by op goes; the tick is the whole step's median."""
    bars(axes, results, PARTS, lambda point, part: 1e3 * point[f"{part}_s"])
    every = [point for result in results for point in points(result)]
    whole = [1e3 * median_interval(point["time_s"])[0] for point in every]
    axes.plot(range(len(every)), whole, "_", color="black", markersize=10, label="measured step")
    predicted = [(i, 1e3 * point["predicted_time_s"]) for i, point in enumerate(every)
                 if "predicted_time_s" in point]
    if predicted:
        axes.plot(*zip(*predicted), "x", color="black", markersize=5, label="predicted step")
    axes.set_ylabel("time of a step (ms)")


def draw_bytes(axes, results):
    bars(axes, results, MEMORY, lambda point, part: point[f"{part}_bytes"] / 2**30)
    axes.set_ylabel("planned device memory (GiB)")


PANELS = (draw_rates, draw_efficiency, draw_parts, draw_bytes)
