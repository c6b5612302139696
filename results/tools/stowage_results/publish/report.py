"""One self-contained page of any result sets: tables that sort, plots as SVG, no file beside it.

  report.py OUT.html A.h5 B.h5 FOLDER ...     a folder stands for the sets in it

The tables are table.py's, so a page is made of sets that conform. The plots show training (loss by
step, step time), sweeps of plans (time against memory), kernels (share of the limit, as bars),
copies and exchanges (rates by size) and curves (efficiency of each layout, as bars).

Exit codes: 0 written, 2 a file is not ours or does not conform, or the page cannot be written.
"""

import argparse
import html
import pathlib
import re

from stowage_results import needs  # noqa: F401
import numpy as np

from stowage_results.tables.cells import metric, name_of
from stowage_results.tables.kernel_tables import YARDSTICK
from stowage_results.outputs import MADE, made_by_tools, require_free, write
from stowage_results.plots.rate_plots import exchanges, rates_by_size
from stowage_results.publish.report_plots import bars, lines, points
from stowage_results.result_files import Refused, largest_of_ranks, printable, text
from stowage_results.tables.scaling import points as curve_points
from stowage_results.tables.table import conforming, tables

STYLE = pathlib.Path(__file__).with_name("report.css")
SCRIPT = pathlib.Path(__file__).with_name("report.js")
VERDICTS = {"VALID": "right", "INVALID": "wrong", "STOPPED": "stopped"}  # classes of cells
MOST_BARS = 40  # of one plot: more are no longer read
LEAST_STEPS = 6  # of a run that is drawn


def sets_in(arguments):
    """Files, and those of folders, by name."""
    found = []
    for path in arguments:
        if path.is_dir():
            inside = sorted(path.glob("*.h5"))
            if not inside:
                raise Refused(f"{path}: no result set (*.h5) in it")
            found += inside
        else:
            found.append(path)
    return found


def inline(markdown):
    """Code and text of a cell or a paragraph."""
    parts = re.split(r"`([^`]*)`", markdown)
    return "".join(f"<code>{html.escape(part)}</code>" if index % 2 else html.escape(part)
                   for index, part in enumerate(parts))


def row_of(line, tag):
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    made = []
    for cell in cells:
        kind = "wrong" if cell.startswith(("ERROR", "OTHER BITS")) else VERDICTS.get(cell)
        shown = f' class="{kind}"' if kind else ""
        made.append(f"<{tag}{shown}>{inline(cell)}</{tag}>")
    return "<tr>" + "".join(made) + "</tr>"


def table_html(block):
    body = "\n".join(row_of(line, "td") for line in block[2:])
    return ('<div class="wide"><table>\n<thead>' + row_of(block[0], "th") +
            f"</thead>\n<tbody>\n{body}\n</tbody></table></div>")


def sections(markdown):
    """(title, HTML) of each `##` section of table.py's Markdown."""
    found, block = [], []

    def close():
        if block:
            words = " ".join(block)
            found[-1][1].append(
                table_html(block) if words.startswith("|") else
                f"<h3>{inline(words[4:])}</h3>" if words.startswith("### ") else
                f"<p>{inline(words)}</p>")
            block.clear()
    for line in markdown.splitlines():
        if line.startswith("## "):
            if found:
                close()
            found.append((line[3:], []))
        elif not line.strip():
            close()
        else:
            block.append(line)
    close()
    return [(title, "\n".join(parts)) for title, parts in found]


def training_plots(results):
    """Losses and step times, the runs of one deck together."""
    made = []
    for deck in sorted({result.key("run.name") for result in results}):
        losses, times = [], []
        for result in results:
            loss, step = result.series("train/loss"), result.series("train/step_time")
            if result.key("run.name") != deck or loss is None or len(loss[0]) < LEAST_STEPS:
                continue
            losses.append((name_of(result), *loss))
            times.append((name_of(result), step[0], 1e3 * largest_of_ranks(step[1])))
        made += [lines(losses, f"{deck}: training loss", "step", "nat"),
                 lines(times, f"{deck}: time of a step", "step", "ms", from_zero=True)]
    return made


def sweep_plots(results):
    made = []
    for result in results:
        found = []
        for name in result.datasets("samples/offload"):
            memory = result.attribute(f"samples/offload/{name}", "transient_bytes") / 2**30
            found.append((name, memory,
                          1e3 * float(np.median(result.array(f"samples/offload/{name}")))))
        made.append(points(found, name_of(result), "transient memory, GiB", "ms a step"))
    return made


def kernel_plots(results):
    """Shares of the limit of each set's rows, ours and peers beside each other."""
    made = []
    for result in results:
        shares = []
        for tag in result.datasets("metrics/kernels"):
            case, _, quantity = tag.rpartition("/")
            case, _, one = case.rpartition("/")
            operator, _, shape = case.partition("/")
            if quantity == "pct_ceiling" and one != YARDSTICK:
                shares.append((operator, shape, one, metric(result, f"kernels/{tag}")[0]))
        for first in range(0, len(shares), MOST_BARS):
            made.append(bars(shares[first:first + MOST_BARS], name_of(result),
                             "share of the limit"))
    return made


def ceiling_plots(results):
    """Rates of copies by their size."""
    return [lines([(name, np.log2(sizes), 1e-9 * rates)
                   for name, (sizes, rates) in rates_by_size(result).items()],
                  f"{name_of(result)}: rates of copies", "log2 of bytes", "GB/s", from_zero=True)
            for result in results]


def exchange_plots(results):
    """Bus bandwidth by size, a plot for each kind of exchange and a line for each library."""
    made = []
    for result in results:
        kinds = {}
        for label, rows in exchanges([result]).items():
            kind, _, library = label.rpartition(", ")
            kinds.setdefault(kind, []).append((library or label, np.log2([row[0] for row in rows]),
                                               [1e-9 * row[2] for row in rows]))
        made += [lines(of, f"{name_of(result)}: {kind or 'exchanges'}", "log2 of bytes",
                       "GB/s of a bus", from_zero=True) for kind, of in kinds.items()]
    return made


def scaling_plots(results):
    """Efficiency of every point that stands beside another."""
    made = []
    for result in results:
        shares = []
        for point in curve_points(result):
            share = metric(result, f"scaling/{point['path']}/efficiency")[0]
            if np.isfinite(share):
                shares.append((f"{point['scale']} scaling beside {point['base']}", point["layout"],
                               f"graphs {point['mode']}", share))
        made.append(bars(sorted(shares, key=lambda row: row[0]), name_of(result), "efficiency"))
    return made


PLOTS = {"Training": ("train", training_plots), "Kernels": ("bench_kernels", kernel_plots),
         "Offload and recompute": ("bench_offload", sweep_plots),
         "Limits of the machine": ("ceilings", ceiling_plots),
         "Communication": ("bench_comm", exchange_plots),
         "Scaling": ("bench_scaling", scaling_plots)}


def page(results):
    contents, body = [], []
    for number, (title, tables_of) in enumerate(sections(tables(results))):
        driver, plot = PLOTS.get(title, ("", None))
        chosen = [r for r in results if text(r.file.attrs["driver"]) == driver]
        plots = "\n".join(f"<figure>{one}</figure>" for one in plot(chosen) if one) if plot else ""
        contents.append(f'<a href="#s{number}">{html.escape(title)}</a>')
        body.append(f'<section id="s{number}"><h2>{html.escape(title)}</h2>\n{tables_of}\n'
                    f'<div class="plots">{plots}</div></section>')
    commits = sorted({text(r.file.attrs["git_describe"]) for r in results})
    gpus = sorted({text(name) for r in results
                   for name in r.array("provenance/system/ranks")["gpu_name"]} - {""})
    facts = f"{len(results)} sets of {', '.join(commits)}" + (f" on {', '.join(gpus)}" if gpus
                                                               else " without a GPU")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="generator" content="{html.escape(MADE)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Stowage results</title><style>
{STYLE.read_text(encoding="utf-8")}</style></head><body>
<h1>Stowage results</h1>
<p>{html.escape(facts)}. A click on the head of a column sorts by it.</p>
<nav>{" ".join(contents)}</nav>
{"".join(body)}
<script>
{SCRIPT.read_text(encoding="utf-8")}</script></body></html>
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=pathlib.Path, metavar="OUT.html")
    parser.add_argument("results", nargs="+", type=pathlib.Path, metavar="SET|FOLDER")
    options = parser.parse_args()
    if options.out.suffix == ".h5" or options.out.is_dir():
        raise Refused(f"{options.out}: the page comes first, as OUT.html")
    require_free(options.out, made_by_tools)
    made = page([conforming(path) for path in sets_in(options.results)])
    write(options.out, printable(made).encode(), made_by_tools)
    print(options.out)
    return 0
