"""Draws pipelines over time: what `stowage_plan DECK --timeline --trace FILE` expects, what
`stowage_train --trace FILE` measured, or each rank's plan with its run below, on one time axis.

Each rank has a row for compute, where red is waiting, one for exchanges and one for copies each
way. Colours are microbatches, and the letters F, B and W forward, backward and weights. A run's
time begins with the first op of a layer on any rank. Without `zero_bubble` products for weights
are part of B. With it, those that follow the backward of their own microbatch at once look like
a part of it in a run.
The image goes beside the first file, as PNG, unless --out names another (its suffix chooses the
format: .png, .svg or .pdf).

Exit codes: 0 drawn, 2 a file is not ours or is damaged, or the image cannot be written.
"""

import argparse
import dataclasses
import itertools
import pathlib
import re

from stowage_results.plots.figures import pyplot, saved
from stowage_results.outputs import made_by_tools, require_free
from stowage_results.plain_files import Refused, parse_json, read_text

LETTERS = {"forward": "F", "backward": "B", "weights": "W"}
EXPECTED = re.compile(r"(forward|backward|weights) of microbatch (\d+)")
MEASURED = re.compile(r"(?:rerun of )?mb(\d+)/(?!step/|inputs/|optimizer/|stage\.\d+/counts_)")
LOSS = re.compile(r"/head/loss|/loss/")


def read(path):
    """[(rank, queue, name, begin_ms, time_ms)] of a trace, ranks and queues in order."""
    try:
        events = parse_json(path, read_text(path))["traceEvents"]
        names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
        bars = [(e["pid"], names[e["pid"], e["tid"]], e["name"], 1e-3 * e["ts"], 1e-3 * e["dur"])
                for e in events if e["ph"] == "X"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refused(f"{path}: not a trace: {error!r}") from None
    if not bars:
        raise Refused(f"{path}: a trace of nothing")
    return bars


@dataclasses.dataclass
class Row:
    """What a rank does, by its plan or in a run."""
    rank: int
    ran: bool
    file: pathlib.Path
    passes: list  # (letter, microbatch, begin_ms, time_ms)
    others: dict  # by queue, [(begin_ms, time_ms)]
    end_ms: float = 0  # of the last pass on any rank


def expected_passes(bars):
    """Those that a plan names, in order."""
    return [(LETTERS[found[1]], int(found[2]), begin, time)
            for name, begin, time in bars if (found := EXPECTED.match(name))]


def one_pass(letter, microbatch, ops):
    return letter, microbatch, ops[0][1], max(begin + time for _, begin, time in ops) - ops[0][1]


def measured_passes(bars):
    """Ops of a microbatch in a row are a pass; the head's loss ends its forward."""
    before = itertools.takewhile(lambda bar: not bar[0].endswith("optimizer/norm"), bars)
    ops = [(int(found[1]), bar) for bar in before if (found := MEASURED.match(bar[0]))]
    found = []
    for microbatch, group in itertools.groupby(ops, key=lambda op: op[0]):
        own = [bar for _, bar in group]
        head = max((i + 1 for i, bar in enumerate(own) if LOSS.search(bar[0])), default=0)
        if head > 0:
            found.append(one_pass("F", microbatch, own[:head]))
        if rest := own[head:]:
            weights = all(name.endswith("weight_backward") for name, *_ in rest)
            backward = head > 0 or any("backward" in name for name, *_ in rest)
            found.append(one_pass("W" if weights else "B" if backward else "F", microbatch, rest))
    return found


def rows_of(path):
    """[Row] of a file, by rank."""
    found = []
    bars = sorted(read(path), key=lambda bar: bar[3])
    ran = not any(EXPECTED.match(bar[2]) for bar in bars)
    for rank in sorted({bar[0] for bar in bars}):
        own = [bar[1:] for bar in bars if bar[0] == rank]
        computed = [bar[1:] for bar in own if bar[0].startswith("compute")]
        others = {}
        for queue, _, begin, time in own:
            if not queue.startswith("compute"):
                others.setdefault(queue, []).append((begin, time))
        passes = measured_passes(computed) if ran else expected_passes(computed)
        if not passes:
            raise Refused(f"{path}: rank {rank} computes no microbatch")
        found.append(Row(rank, ran, path, passes, others))
    start = min(row.passes[0][2] for row in found) if ran else 0
    end = max(begin + time for row in found for *_, begin, time in row.passes) - start
    for row in found:
        row.end_ms = end
        row.passes = [(*what, begin - start, time) for *what, begin, time in row.passes]
        row.others = {queue: [(begin - start, time) for begin, time in spans if begin >= start]
                      for queue, spans in row.others.items()}
    return found


def rows(files):
    """[Row] of all files: for each rank what is planned, and below what ran."""
    found = [row for path in files for row in rows_of(path)]
    return sorted(found, key=lambda row: (row.rank, row.ran))


def draw(found, out):
    plt = pyplot()
    end = max(row.end_ms for row in found)
    height = sum(1 + 0.35 * len(row.others) for row in found)
    height += 0.3 * len({row.rank for row in found})
    figure, axes = plt.subplots(figsize=(14, 0.8 + 0.7 * height), constrained_layout=True)
    colors = plt.get_cmap("tab20")
    ticks, top, above = [], 0, None
    for row in found:
        if above is not None and row.rank != above:  # a line between ranks
            axes.axhline(top + 0.1, color="black", linewidth=0.6)
            top += 0.3
        above = row.rank
        axes.broken_barh([(0, row.end_ms)], (top, 0.9), facecolors="#f6c9c4", linewidth=0)
        for letter, microbatch, begin, time in row.passes:
            axes.broken_barh([(begin, time)], (top, 0.9), facecolors=[colors(microbatch % 20)],
                             edgecolor="white", linewidth=0.4,
                             hatch={"B": "//", "W": "xx"}.get(letter))
            if time > end / 70:
                axes.text(begin + time / 2, top + 0.45, f"{letter}{microbatch}", ha="center",
                          va="center", fontsize="x-small")
        waits = 1 - sum(time for *_, time in row.passes) / row.end_ms
        ticks.append((top + 0.45, f"rank {row.rank} {'ran' if row.ran else 'planned'}, "
                                  f"{row.file.stem}\nwaits {100 * waits:.1f} %"))
        top += 1
        for queue in sorted(row.others):
            axes.broken_barh(row.others[queue], (top, 0.28), facecolors="#555555", linewidth=0)
            ticks.append((top + 0.14, queue))
            top += 0.35
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks], fontsize="x-small")
    axes.set_ylim(top, 0)
    axes.set_xlim(0, end)
    axes.set_xlabel("time (ms); red: waits")
    saved(figure, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("traces", type=pathlib.Path, nargs="+", metavar="trace.json")
    parser.add_argument("--out", type=pathlib.Path, metavar="image.png")
    options = parser.parse_args()
    out = options.out or options.traces[0].with_suffix(".png")
    require_free(out, made_by_tools)
    found = rows(options.traces)
    draw(found, out)
    print(out)
    return 0
