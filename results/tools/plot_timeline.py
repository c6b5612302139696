#!/usr/bin/python3
"""Draws pipelines over time: what `stowage_plan DECK --timeline --trace FILE` expects, and below
what `stowage_train --trace FILE` measured.

Each rank has a row for compute, where red is waiting, one for exchanges and one for copies each
way. Colours are microbatches, and the letters F, B and W forward, backward and weights. A trace of
a run, which is of rank 0, is drawn below that rank: its time begins with the first op of a layer.
The image goes beside the first file, as PNG, unless --out names another (its suffix chooses the
format: .png, .svg or .pdf).

Exit codes: 0 drawn, 2 a file is not ours or is damaged, or the image cannot be written.
"""

import argparse
import json
import pathlib
import re

from result_files import Refused, run

LETTERS = {"forward": "F", "backward": "B", "weights": "W"}
EXPECTED = re.compile(r"(forward|backward|weights) of microbatch (\d+)")
MEASURED = re.compile(r"mb(\d+)/(?!step/|inputs/|optimizer/)")


def read(path):
    """[(rank, queue, name, begin_ms, time_ms)] of a trace, ranks and queues in order."""
    try:
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
        bars = [(e["pid"], names[e["pid"], e["tid"]], e["name"], 1e-3 * e["ts"], 1e-3 * e["dur"])
                for e in events if e["ph"] == "X"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refused(f"{path}: not a trace: {error!r}") from None
    if not bars:
        raise Refused(f"{path}: a trace of nothing")
    return bars


def passes(bars):
    """[(letter, microbatch, begin_ms, time_ms)]; ops of a microbatch in a row are one."""
    found = []
    for _, queue, name, begin, time in sorted(bars, key=lambda bar: bar[3]):
        if not queue.startswith("compute"):
            continue
        if expected := EXPECTED.match(name):
            found.append((LETTERS[expected[1]], int(expected[2]), begin, time))
        elif measured := MEASURED.match(name):
            if found and found[-1][1] == int(measured[1]):
                time, begin = begin + time - found[-1][2], found[-1][2]
                found.pop()
            found.append(("", int(measured[1]), begin, time))
    return found


def rows(files):
    """[(label, passes, {queue: [(begin_ms, time_ms)]})], for each rank the files in their order."""
    found = []
    for index, path in enumerate(files):
        bars = read(path)
        for rank in sorted({bar[0] for bar in bars}):
            own = [bar for bar in bars if bar[0] == rank]
            computed = passes(own)
            if not computed:
                raise Refused(f"{path}: rank {rank} computes no microbatch")
            start = min(p[2] for p in computed) if all(p[0] == "" for p in computed) else 0
            others = {}
            for _, queue, _, begin, time in own:
                if not queue.startswith("compute") and begin >= start:
                    others.setdefault(queue, []).append((begin - start, time))
            found.append((rank, index, f"rank {rank}, {path.stem}",
                          [(*p[:2], p[2] - start, p[3]) for p in computed], others))
    return [row[2:] for row in sorted(found, key=lambda row: row[:2])]


def draw(found, out):
    import matplotlib  # takes a second: only once the files are known to be good
    matplotlib.use("Agg")  # no display on a compute node
    import matplotlib.pyplot as plt

    end = max(begin + time for _, computed, _ in found for _, _, begin, time in computed)
    heights = [1 + 0.35 * len(others) for _, _, others in found]
    figure, axes = plt.subplots(figsize=(14, 0.8 + 0.7 * sum(heights)), constrained_layout=True)
    colors = plt.get_cmap("tab20")
    ticks, top = [], 0
    for label, computed, others in found:
        axes.broken_barh([(0, end)], (top, 0.9), facecolors="#f6c9c4", linewidth=0)
        for letter, microbatch, begin, time in computed:
            axes.broken_barh([(begin, time)], (top, 0.9), facecolors=[colors(microbatch % 20)],
                             edgecolor="white", linewidth=0.4,
                             hatch={"B": "//", "W": "xx"}.get(letter))
            if time > end / 70:
                axes.text(begin + time / 2, top + 0.45, f"{letter}{microbatch}", ha="center",
                          va="center", fontsize="x-small")
        waits = 1 - sum(time for *_, time in computed) / end
        ticks.append((top + 0.45, f"{label}\nwaits {100 * waits:.1f} %"))
        top += 1
        for queue in sorted(others):
            axes.broken_barh(others[queue], (top, 0.28), facecolors="#555555", linewidth=0)
            ticks.append((top + 0.14, queue))
            top += 0.35
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks], fontsize="x-small")
    axes.set_ylim(top, 0)
    axes.set_xlim(0, end)
    axes.set_xlabel("time (ms); red: waits")
    try:
        figure.savefig(out, dpi=150)
    except (OSError, ValueError) as error:
        raise Refused(f"{out}: cannot be written: {error}") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=pathlib.Path, nargs="+", metavar="trace.json")
    parser.add_argument("--out", type=pathlib.Path, metavar="image.png")
    options = parser.parse_args()
    found = rows(options.traces)
    out = options.out or options.traces[0].with_suffix(".png")
    draw(found, out)
    print(out)
    return 0


if __name__ == "__main__":
    run(main)
