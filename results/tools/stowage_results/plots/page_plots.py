"""Plots of a published page. Each carries a digest of what it shows, so that a check needs no
drawing: another version of matplotlib draws other bytes."""

import hashlib
import json
import re
import struct

from stowage_results import needs  # noqa: F401
import numpy as np

from stowage_results.tables.beside_one import layout_words, pairs
from stowage_results.tables.cells import gpu_of
from stowage_results.plots.figures import pyplot, saved
from stowage_results.tables.headline import operators, training_runs
from stowage_results.tables.kernel_tables import FAMILIES, family_of
from stowage_results.plots.rate_plots import draw_roof, limits_of, name_roofline, roof_points
from stowage_results.result_files import text
from stowage_results.tables.scaling import PARTS

DECKS_SEQUENCE = 8192  # tokens, of the standard decks: longer ones are named
OURS, PEER, LIMIT = "C0", "0.75", "C3"
SIGNATURE = b"\x89PNG\r\n\x1a\n"


class Figure:
    """A plot by its file's name, and what it shows: rows of words and numbers."""

    def __init__(self, name, title, size, rows, panels):
        self.name, self.title, self.size, self.rows, self.panels = name, title, size, rows, panels
        shown = json.dumps([title, rows], sort_keys=True)
        self.digest = hashlib.sha256(shown.encode()).hexdigest()

    def is_at(self, path):
        return path.exists() and text_chunks(path).get("Source") == self.digest


def text_chunks(path):
    """{keyword: text} of the tEXt chunks of a PNG file; empty if it is not one."""
    data, found, at = path.read_bytes(), {}, len(SIGNATURE)
    while data.startswith(SIGNATURE) and at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"tEXt":
            keyword, _, words = data[at + 8:at + 8 + size].partition(b"\0")
            found[keyword.decode("latin-1")] = words.decode("latin-1")
        at += 12 + size
    return found


def is_plot(path):
    """Whether this tool drew it: a digest stands in it."""
    return re.fullmatch(r"[0-9a-f]{64}", text_chunks(path).get("Source", "")) is not None


def finite(value):
    """A number for JSON: None where there is none."""
    return float(value) if np.isfinite(value) else None


def draw_rates(panels, rows):
    """A panel for each deck, since their rates are far apart: ours, and PyTorch's."""
    for axes, (deck, ours, peer, mfu) in zip(panels, rows):
        found = [("Stowage", ours, OURS)] + ([("PyTorch", peer, PEER)] if peer else [])
        bars = axes.bar([name for name, *_ in found], [1e-3 * rate for _, rate, _ in found],
                        color=[color for *_, color in found], width=0.6)
        axes.bar_label(bars, fmt="%.1f")
        faster = f", {ours / peer:.2f}x" if peer else ", PyTorch not timed"
        axes.set_title(f"{deck}\nMFU {100 * mfu:.1f} %{faster}", fontsize="medium")
        axes.set_xlim(-0.7, 1.7)
        axes.set_ylim(0, 1.15e-3 * max(ours, peer or 0))
        axes.grid(alpha=0.3, axis="y")
    panels[0].set_ylabel("thousand tokens/s")


def draw_shares(panels, rows):
    """A pair of bars for each operator: ours and the best peer's share of the same limit."""
    axes, up = panels[0], np.arange(len(rows))[::-1]
    ours = [100 * share for _, share, _, _ in rows]
    axes.barh(up + 0.2, ours, 0.38, color=OURS, label="Stowage")
    beside = [(y, 100 * share * ratio) for y, (_, share, ratio, _) in zip(up, rows) if ratio]
    if beside:
        axes.barh([y - 0.2 for y, _ in beside], [share for _, share in beside], 0.38, color=PEER,
                  label="best peer")
    for y, share, (_, _, ratio, peer) in zip(up, ours, rows):
        if ratio:
            axes.text(share + 1, y + 0.2, f"{1 / ratio:.2f}x", va="center", fontsize="small")
            axes.text(1, y - 0.2, peer, va="center", fontsize="x-small")
    axes.axvline(100, color=LIMIT, linewidth=1, label="limit of the machine")
    axes.set_yticks(up, [name for name, *_ in rows], fontsize="small")
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_xlim(0, 1.12 * max(100, *ours))
    axes.set_xlabel("share of the limit that binds (%); numbers: the peer's time / ours")
    axes.grid(alpha=0.3, axis="x")
    axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)


def roofs(results):
    """[family, points, limits] of the kernels whose sets refer to their ceilings: those of one
    machine and run, so that one pair of limits holds for all."""
    sets = [one for one in results if text(one.file.attrs["driver"]) == "bench_kernels"
            and limits_of(one)]
    found = []
    for family, _ in FAMILIES:
        points = [point for result in sets
                  for point in roof_points(result, lambda case: family_of(case) == family)]
        if points:
            found.append([family, sorted(points), [max(limits_of(one)[i] for one in sets)
                                                   for i in (0, 1)]])
    return found


def draw_roofs(panels, rows):
    """Rates against work per byte, a color for each family; crosses are libraries."""
    axes = panels[0]
    for index, (family, points, _) in enumerate(rows):
        for is_ours, marker in ((True, "o"), (False, "x")):
            chosen = [(work, 1e-12 * rate) for work, rate, ours in points if ours == is_ours]
            if chosen:
                axes.plot(*zip(*chosen), marker, color=f"C{index}", markersize=4, alpha=0.8,
                          label=family if is_ours else f"{family}, libraries")
    every = [work for _, points, _ in rows for work, *_ in points]
    draw_roof(axes, rows[0][2], (min(every), max(every)), color="black", label="limits")
    name_roofline(axes)
    least = 1e-12 * min(rate for _, points, _ in rows for _, rate, _ in points)
    axes.set_ylim(10 ** np.floor(np.log10(least)), 1.5e-12 * rows[0][2][0])
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def layouts(results):
    """[label, efficiency, parts of a step in its own share] of every layout beside one GPU."""
    curves = [one for one in results if text(one.file.attrs["driver"]) == "bench_scaling"]
    found = []
    for modes in pairs(curves):
        pair = next(iter(modes.values()))
        point, sequence = pair.point, int(pair.result.key("train.seq_length"))
        label = f"{pair.result.key('run.name')}\n{layout_words(pair.result, point)}"
        if sequence > DECKS_SEQUENCE:
            label += f", T {sequence // 1024}k"
        found.append([on_machine(label, pair.result), pair.efficiency,
                      [point[f"{part}_s"] / point["timed_step_s"] for part in PARTS]])
    return found


def draw_layouts(panels, rows):
    """Efficiency of each layout, and beside it where the time of its step goes."""
    up = np.arange(len(rows))[::-1]
    bars = panels[0].barh(up, [100 * efficiency for _, efficiency, _ in rows], 0.7, color=OURS)
    panels[0].bar_label(bars, fmt="%.1f", label_type="center", color="white", fontsize="small")
    panels[0].axvline(100, color=LIMIT, linewidth=1)
    panels[0].set_yticks(up, [label for label, *_ in rows], fontsize="small")
    panels[0].set_xlabel("efficiency beside one GPU (%)")
    panels[0].set_xlim(0, 105)
    left = np.zeros(len(rows))
    for part, color in zip(PARTS, (OURS, "C1", "C2", PEER)):
        values = np.array([100 * parts[PARTS.index(part)] for *_, parts in rows])
        panels[1].barh(up, values, 0.7, left=left, color=color, label=part.replace("_", " "))
        left += values
    panels[1].set_yticks([])
    panels[1].set_xlabel("parts of a step that is timed op by op (%)")
    panels[1].set_xlim(0, 100)
    panels[1].legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    for axes in panels:
        axes.set_ylim(-0.7, len(rows) - 0.3)
        axes.grid(alpha=0.3, axis="x")


def on_machine(label, result):
    return f"{label}\n{gpu_of(result)}" if gpu_of(result) else label


def figures(results, peers):
    """The plots for which the sets hold something."""
    found = []
    rates = [[on_machine(run.deck, run.run), run.tokens_per_s,
              run.peer and run.peer["tokens_per_s"], finite(run.mfu)]
             for run in training_runs(results, peers)]
    rates = [row for row in rates if row[3] is not None]
    if rates:
        found.append(Figure("tokens.png", "Tokens per second of training on one GPU",
                            (3.2 * len(rates), 3.4), rates, (1, len(rates), draw_rates)))
    shares = [[on_machine(one.name.replace("; ", ";\n"), one.result), finite(one.limit),
               finite(one.time_s / one.peer_s), one.peer] for one in operators(results, peers)]
    shares = [row for row in shares if row[1] is not None]
    if shares:
        found.append(Figure("operators.png", "Operators beside their limits and best peers",
                            (9, 1 + 0.42 * len(shares)), shares, (1, 1, draw_shares)))
    under = roofs(results)
    if under:
        found.append(Figure("roofline.png", "Rates of kernels below the limits of the machine",
                            (9, 5), under, (1, 1, draw_roofs)))
    beside = layouts(results)
    if beside:
        found.append(Figure("scaling.png", "Several GPUs beside one",
                            (10, 1.2 + 0.5 * len(beside)), beside, (1, 2, draw_layouts)))
    return found


def draw(figure, out):
    plt = pyplot()
    down, across, draw_panels = figure.panels
    shown, panels = plt.subplots(down, across, figsize=figure.size, constrained_layout=True,
                                 squeeze=False)
    draw_panels(panels[0], figure.rows)
    saved(shown, out, dpi=110,
          metadata={"Title": figure.title, "Source": figure.digest, "Software": None},
          ours=is_plot, keep=False)
    plt.close(shown)
