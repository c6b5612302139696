"""Draws result sets: losses, learning rate, balance of experts, step time and memory of runs;
memory against time of offload sweeps; rates, efficiency, parts of a step and memory of scaling
curves; rates of copies, products and exchanges against their size; kernels beside their limits and
peers.

--by tokens draws against the tokens seen instead of steps. Several files are drawn over each
other. The image goes beside the first file, as PNG, unless --out names another (its suffix chooses
the format: .png, .svg or .pdf).

Exit codes: 0 drawn, 2 a file is not ours or is truncated, or the image cannot be written.
"""

import argparse
import pathlib

from stowage_results import needs  # noqa: F401
import numpy as np

from stowage_results.plots import rate_plots
from stowage_results.plots import scaling_plots
from stowage_results.tables.cells import gpu_name, label_of, tell_apart
from stowage_results.plots.figures import pyplot, saved
from stowage_results.outputs import made_by_tools, require_free
from stowage_results.result_files import Result, largest_of_ranks, printable, text


def smoothed(values):
    """Centred running mean over a fiftieth of the run: less noise of single batches."""
    width = max(1, len(values) // 50) | 1
    padded = np.pad(values, width // 2, mode="edge")
    return np.convolve(padded, np.ones(width) / width, mode="valid")


def legend_of(result):
    return f"{label_of(result)} ({result.verdict})"


class AlongTokens:
    """A result whose steps stand where their tokens were seen."""

    def __init__(self, result):
        self.result = result

    def __getattr__(self, name):
        return getattr(self.result, name)

    def series(self, path):
        series, seen = self.result.series(path), self.result.series("train/tokens")
        by_step = path.startswith(
            ("train/", "router_load/", "router/", "head/", "gradient_norms/", "activation_norms/",
             "weight_norms/", "update_norms/", "mtp/", "val_loss/", "source_loss/"))
        return (np.interp(series[0], *seen), series[1]) if series and seen and by_step else series


def draw_loss(axes, results):
    for index, result in enumerate(results):
        color = f"C{index}"
        train, validation = (result.series(f"train/{name}") for name in ("loss", "val_loss"))
        if train:
            axes.plot(*train, color=color, alpha=0.25, linewidth=0.8)
            axes.plot(train[0], smoothed(train[1]), color=color,
                      label=f"{legend_of(result)}, training")
        if validation:
            axes.plot(*validation, "o--", color=color, markersize=4, markerfacecolor="white",
                      label=f"{legend_of(result)}, validation: {validation[1][-1]:.3f}")
        for group, of, line in (("val_loss", "", ".:"), ("source_loss", "training on ", "--")):
            for name in result.datasets(f"series/{group}"):
                own = result.series(f"{group}/{name}")
                if own and name != "step" and own[1].ndim == 1:
                    shown = of + printable(name).replace("$", r"\$")
                    axes.plot(*own, line, color=color, linewidth=0.8,
                              label=f"{legend_of(result)}, {shown}: {own[1][-1]:.3f}")
    axes.set_ylabel("loss (nat)")


def draw_rate(axes, results):
    """Learning rate, and on an axis of its own the norm of the gradient before clipping."""
    norms = axes.twinx()
    for index, result in enumerate(results):
        rate, norm = (result.series(f"train/{name}") for name in ("lr", "grad_norm"))
        if rate:
            axes.plot(*rate, color=f"C{index}", linewidth=1.2,
                      label=f"{legend_of(result)}, learning rate")
        if norm:
            norms.plot(*norm, color=f"C{index}", alpha=0.4, linewidth=0.8)
    axes.set_ylabel("learning rate")
    axes.set_ylim(bottom=0)
    norms.set_ylabel("gradient norm (pale)")
    norms.set_yscale("log")


FURTHER_LOSSES = {"router/aux_loss": "load balancing", "router/z_loss": "router z-loss",
                  "head/z_loss": "z-loss of the head"}


def draw_further_losses(axes, results):
    """What is added to the loss that is learned, with its weight."""
    for index, result in enumerate(results):
        for (path, name), style in zip(FURTHER_LOSSES.items(), ("-", "--", ":")):
            series = result.series(path)
            if series and np.any(series[1] != 0):
                axes.plot(series[0], smoothed(series[1]), style, color=f"C{index}", linewidth=1,
                          label=f"{legend_of(result)}, {name}: {series[1][-1]:.3g}")
    axes.set_ylabel("further losses")
    axes.set_yscale("log")


def draw_balance(axes, results):
    """The busiest expert of each layer, over the mean, from the first layer (dark) to the last."""
    for index, result in enumerate(results):
        busiest, dead = (result.series(f"router_load/{name}") for name in ("busiest", "dead"))
        if not busiest or not dead or busiest[1].ndim != 2:
            continue
        layers = busiest[1].shape[1]
        for layer in range(layers):
            axes.plot(busiest[0], smoothed(busiest[1][:, layer]), color=f"C{index}", linewidth=0.8,
                      alpha=1 - 0.8 * layer / layers,
                      label=None if layer else f"{legend_of(result)}, by layer")
        axes.plot(dead[0], dead[1].reshape(len(dead[1]), -1).sum(axis=1), ":", color=f"C{index}",
                  label=f"{legend_of(result)}, experts without a token")
    axes.set_ylabel("busiest expert / mean")
    axes.set_ylim(bottom=0)


def draw_norms(axes, results):
    """The gradient's norm in each layer, from the first (dark) to the last."""
    draw_layers(axes, results, "gradient_norms/layers")
    axes.set_ylabel("gradient norm of a layer")


def draw_activations(axes, results):
    """Likewise the RMS of what each layer reads."""
    draw_layers(axes, results, "activation_norms/layers")
    axes.set_ylabel("RMS of what a layer reads")


def draw_weights(axes, results):
    """The norm of each layer's weights."""
    draw_layers(axes, results, "weight_norms/layers")
    axes.set_ylabel("norm of a layer's weights")


def draw_updates(axes, results):
    """The norm of what a step changes each layer's weights by."""
    draw_layers(axes, results, "update_norms/layers")
    axes.set_ylabel("norm of a layer's update")


def draw_layers(axes, results, path):
    for index, result in enumerate(results):
        norms = result.series(path)
        if not norms or norms[1].ndim != 2:
            continue
        layers = norms[1].shape[1]
        for layer in range(layers):
            axes.plot(norms[0], smoothed(norms[1][:, layer]), color=f"C{index}", linewidth=0.8,
                      alpha=1 - 0.8 * layer / layers,
                      label=None if layer else f"{legend_of(result)}, by layer")
    axes.set_yscale("log")


def draw_step_time(axes, results):
    for index, result in enumerate(results):
        series = result.series("train/step_time")
        if series:
            median = np.median(series[1])
            axes.plot(*series, ".", color=f"C{index}", markersize=2, alpha=0.6)
            axes.axhline(median, color=f"C{index}", linewidth=1,
                         label=f"{legend_of(result)}, median {median:.4g} s")
    axes.set_ylabel("step time (s)")
    axes.set_ylim(bottom=0)


def binary_unit(peak):
    """The unit in which a peak has one to four digits."""
    return next(((size, name) for size, name in ((2.0**30, "GiB"), (2.0**20, "MiB"))
                 if peak >= size), (2.0**10, "KiB"))


def draw_memory(axes, results):
    """Live bytes at each operation of one planned step; without them, device memory by step."""
    by_operation = any(result.series("memory/transient") for result in results)
    styles = ({"memory/transient": "-"} if by_operation
              else {"train/mem_device": "-", "train/mem_pinned": "--"})
    lines = []
    for index, result in enumerate(results):
        for name, style in styles.items():
            series = result.series(name)
            if series and np.any(series[1] > 0):
                where, values = series[0], largest_of_ranks(series[1])
                lines.append((f"C{index}", style, f"{legend_of(result)}, {name}", where, values))
    peak = max((values.max() for *_, values in lines), default=0)
    size, unit = binary_unit(peak)
    for color, style, label, where, values in lines:
        axes.plot(where, values / size, style, color=color, linewidth=1,
                  label=f"{label}: at most {values.max() / size:.4g} {unit}")
    axes.set_ylabel(f"memory ({unit})")
    axes.set_xlabel("operation of a step" if by_operation else "step")
    axes.set_ylim(0, 1.15 * peak / size if peak else 1)  # room for the legend


def plans(result):
    """(plan, graph mode, transient GiB, step times, seconds of waiting for copies) of a sweep."""
    found = []
    for name in result.datasets("samples/offload"):
        node = result.file[f"samples/offload/{name}"]
        plan, _, mode = name.rpartition("/")
        found.append((plan, mode, node.attrs["transient_bytes"] / 2**30, largest_of_ranks(node[()]),
                      node.attrs.get("exposed_s", np.nan)))
    return found


MARKERS = {"off": "o", "scopes": "s", "step": "^"}


def draw_plans(axes, results):
    """One point for each plan: transient memory, and median step time with its quartiles."""
    drawn = []
    for index, result in enumerate(results):
        for mode, marker in MARKERS.items():
            chosen = [entry for entry in plans(result) if entry[1] == mode]
            if not chosen:
                continue
            memory = [entry[2] for entry in chosen]
            times = [1e3 * np.percentile(entry[3], (25, 50, 75)) for entry in chosen]
            middle = [time[1] for time in times]
            spread = [[time[1] - time[0] for time in times], [time[2] - time[1] for time in times]]
            axes.errorbar(memory, middle, yerr=spread, fmt=marker, markersize=5, alpha=0.8,
                          color=f"C{3 * index + list(MARKERS).index(mode)}",
                          label=f"{legend_of(result)}, graphs {mode}")
            for (plan, *_), x, y in zip(chosen, memory, middle):
                if (index, plan) not in drawn:
                    drawn.append((index, plan))
                    axes.annotate(plan, (x, y), fontsize="x-small", xytext=(4, 3),
                                  textcoords="offset points")
    axes.set_xlabel("transient memory (GiB)")
    axes.set_ylabel("step time (ms)")


def draw_waits(axes, results):
    """What copies cost by waiting, beside what they cost in all."""
    for index, result in enumerate(results):
        eager = [entry for entry in plans(result) if entry[1] == "off"]
        kept = [np.median(entry[3]) for entry in eager if entry[0] == "keep"]
        if not kept:
            continue
        names = [entry[0] for entry in eager]
        axes.plot(names, [1e3 * entry[4] for entry in eager], "o", color=f"C{3 * index}",
                  label=f"{legend_of(result)}, waits for copies")
        axes.plot(names, [1e3 * (np.median(entry[3]) - kept[0]) for entry in eager], "x",
                  color=f"C{3 * index}", label=f"{legend_of(result)}, added to the step")
    axes.set_ylabel("time (ms), op by op")
    axes.tick_params(axis="x", rotation=60, labelsize="small")


THIRD = 10 / 3  # inches: three panels fill a page
RATES = ("ceilings", "bench_kernels", "bench_comm")  # drivers whose sets rate_plots.py draws


def panels_of(results):
    """(function, inches) of the panels for sets of one kind, and whether all but the last share
    their steps. Sets of several kinds are drawn as the first."""
    driver = text(results[0].file.attrs.get("driver", ""))
    if any(result.datasets("samples/scaling") for result in results):
        return [(panel, THIRD) for panel in scaling_plots.PANELS], False
    if any(plans(result) for result in results):
        return [(draw_plans, 5), (draw_waits, 5)], False
    rates = rate_plots.panels_of(results) if driver in RATES else []
    if rates:
        return rates, False
    panels = [draw_loss, draw_rate, draw_step_time]
    if any(np.any(series[1] != 0) for result in results for path in FURTHER_LOSSES
           if (series := result.series(path))):
        panels.insert(2, draw_further_losses)
    if any(result.series("router_load/busiest") for result in results):
        panels.insert(2, draw_balance)
    if any(result.series("gradient_norms/layers") for result in results):
        panels.insert(2, draw_norms)
    if any(result.series("activation_norms/layers") for result in results):
        panels.insert(2, draw_activations)
    if any(result.series("weight_norms/layers") for result in results):
        panels.insert(2, draw_weights)
    if any(result.series("update_norms/layers") for result in results):
        panels.insert(2, draw_updates)
    panels.append(draw_memory)
    return [(panel, THIRD) for panel in panels], True


def draw(results, out, by="steps"):
    plt = pyplot()
    if by == "tokens":
        results = [AlongTokens(result) for result in results]
    drawers, by_step = panels_of(results)
    inches = [high for _, high in drawers]
    figure, panels = plt.subplots(len(drawers), 1, figsize=(9, sum(inches)), squeeze=False,
                                  height_ratios=inches, constrained_layout=True)
    panels = panels[:, 0]
    for axes, (draw_panel, _) in zip(panels, drawers):
        draw_panel(axes, results)
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
        elif not axes.has_data():
            axes.text(0.5, 0.5, "not recorded", transform=axes.transAxes, ha="center")
    if by_step:
        for axes in panels[1:-1]:  # the last one is of a single step
            axes.sharex(panels[0])
        panels[-2].set_xlabel("step" if by == "steps" else "tokens seen")
    facts = results[0].file.attrs
    words = [text(facts.get(key, "")) for key in ("driver", "git_describe")]
    if len(results) == 1:
        words += [text(results[0].config().get("run.name", "")), gpu_name(results[0])]
    title = printable(" ".join(word for word in words if word))
    panels[0].set_title(title.replace("$", r"\$"), fontsize="medium")  # no formula of anybody
    saved(figure, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", nargs="+", metavar="result.h5")
    parser.add_argument("--out", type=pathlib.Path, metavar="image.png")
    parser.add_argument("--by", choices=("steps", "tokens"), default="steps",
                        help="what runs are drawn against")
    options = parser.parse_args()
    out = options.out or pathlib.Path(options.results[0]).with_suffix(".png")
    require_free(out, made_by_tools)
    results = [Result(path, unfinished_too=True) for path in options.results]
    tell_apart(results)
    draw(results, out, options.by)
    print(out)
    return 0
