"""Draws how documents lie in sequences: what `stowage_data stats DECK --json FILE` has written.

The image goes beside the file, as PNG, unless --out names another (its suffix chooses the format).

Exit codes: 0 drawn, 2 the file is not ours or is damaged, or the image cannot be written.
"""

import argparse
import pathlib

from stowage_results.plots.figures import pyplot, saved
from stowage_results.outputs import made_by_tools, require_free
from stowage_results.plain_files import Refused, parse_json, read_text

SCHEMA = "stowage-documents"


def read(path):
    stats = parse_json(path, read_text(path))
    if not isinstance(stats, dict) or stats.get("schema") != SCHEMA:
        raise Refused(f"{path}: not a {SCHEMA} file")
    return stats


def draw(stats, out):
    plt = pyplot()
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
    saved(figure, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("stats", type=pathlib.Path, metavar="stats.json")
    parser.add_argument("--out", type=pathlib.Path, metavar="image.png")
    options = parser.parse_args()
    out = options.out or options.stats.with_suffix(".png")
    require_free(out, made_by_tools)
    stats = read(options.stats)
    draw(stats, out)
    print(out)
    return 0
