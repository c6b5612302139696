#!/usr/bin/python3
"""Draws how documents lie in sequences: what `stowage_data stats DECK --json FILE` has written.

The image goes beside the file, as PNG, unless --out names another (its suffix chooses the format).

Exit codes: 0 drawn, 2 the file is not ours or is damaged, or the image cannot be written.
"""

import argparse
import json
import pathlib

from result_files import Refused, run

SCHEMA = "stowage-documents"


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            stats = json.load(file)
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: cannot be read: {error}") from None
    if not isinstance(stats, dict) or stats.get("schema") != SCHEMA:
        raise Refused(f"{path}: not a {SCHEMA} file")
    return stats


def draw(stats, out):
    import matplotlib  # takes a second: only once the file is known to be good
    matplotlib.use("Agg")  # no display on a compute node
    import matplotlib.pyplot as plt

    percent = range(101)
    figure, (lengths, counts, filled) = plt.subplots(3, 1, figsize=(9, 10),
                                                     constrained_layout=True)
    lengths.plot(stats["length_quantiles"], percent)
    lengths.set_xscale("log")
    lengths.set_xlabel("tokens of a document")
    packed = [packing for packing in stats["packings"] if "refused" not in packing]
    for packing in packed:
        counts.plot(packing["microbatch_quantiles"], percent, label=packing["packing"])
        if packing["packing"] != stats["packing"]:
            continue
        for proposal in packing["max_packed_seqs"]:
            counts.axvline(proposal["documents"], color="grey", linewidth=0.8, linestyle="--")
    counts.set_xlabel("documents of a microbatch; dashed: proposed capacities")
    counts.legend(fontsize="small")
    for axes in (lengths, counts):
        axes.set_ylabel("share at most (%)")
    bars = filled.bar([packing["packing"] for packing in packed],
                      [100 * packing["efficiency"] for packing in packed])
    filled.bar_label(bars, fmt="%.2f %%")
    filled.set_ylabel("positions that hold a token (%)")
    filled.set_ylim(0, 110)
    for axes in (lengths, counts, filled):
        axes.grid(alpha=0.3)
    lengths.set_title(f"{stats['source']}: {stats['documents']} documents", fontsize="medium")
    try:
        figure.savefig(out, dpi=150)
    except (OSError, ValueError) as error:
        raise Refused(f"{out}: cannot be written: {error}") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stats", type=pathlib.Path, metavar="stats.json")
    parser.add_argument("--out", type=pathlib.Path, metavar="image.png")
    options = parser.parse_args()
    stats = read(options.stats)
    out = options.out or options.stats.with_suffix(".png")
    draw(stats, out)
    print(out)
    return 0


if __name__ == "__main__":
    run(main)
