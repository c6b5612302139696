"""One self-contained page of any result sets: tables that sort, plots as SVG, no file beside it.

  report.py OUT.html A.h5 B.h5 FOLDER ...     a folder stands for the sets in it

The tables are table.py's, so a page is made of sets that conform. The plots show training (loss by
step, step time), sweeps of plans (time against memory), kernels (share of the limit, as bars),
copies and exchanges (rates by size) and curves (efficiency of each layout, as bars).

Exit codes: 0 written, 2 a file is not ours or does not conform, or the page cannot be written.
"""

import argparse
import collections
import html
import pathlib
import re

from stowage_results import needs  # noqa: F401
import numpy as np

from stowage_results.inspection import read_set
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
# Classes of cells.
VERDICTS = {"VALID": "right", "INVALID": "wrong", "REFUSED": "wrong", "STOPPED": "stopped"}
MOST_BARS = 40  # of one plot: more are no longer read
LEAST_STEPS = 6  # of a run that is drawn
MOST_ROWS_OPEN = 12  # of a table that stands open under a paragraph
CONTINUED = re.compile(r"\.from_\d+$")  # the name of a run that goes on from another's step


OTHER_FILES = ("stowage-dump", "stowage-checkpoint")  # which runs leave beside their sets


def is_set(path):
    """False for a dump or a checkpoint; what else is none is told when it is opened."""
    try:
        schema = read_set(path).root.attrs.get("schema", "")
    except Refused:
        return True
    return text(schema) not in OTHER_FILES


def sets_in(arguments):
    """Files, and the sets of folders, by name."""
    found = []
    for path in arguments:
        if path.is_dir():
            inside = [one for one in sorted(path.glob("*.h5")) if is_set(one)]
            if not inside:
                raise Refused(f"{path}: no result set (*.h5) in it")
            found += inside
        else:
            found.append(path)
    return found


def inline(markdown):
    """Code and text of a cell or a paragraph, without the marks of `cells.plain`."""
    parts = re.split(r"`([^`]*)`", markdown)
    return "".join("<code>" + html.escape(part.replace("\\|", "|")) + "</code>" if index % 2 else
                   html.escape(re.sub(r"\\([|<\]])", r"\1", part))
                   for index, part in enumerate(parts))


def row_of(line, tag):
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
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


def block_html(block, before):
    """A table, a heading, a list or a paragraph. A long table whose paragraph ends with a colon
    folds under that paragraph."""
    words = " ".join(block)
    if words.startswith("|"):
        made = table_html(block)
        if len(block) - 2 > MOST_ROWS_OPEN and before and before[-1].endswith(":</p>"):
            head = before.pop().removeprefix("<p>").removesuffix("</p>")
            made = f"<details><summary>{head}</summary>{made}</details>"
        return made
    if words.startswith("### "):
        return f"<h3>{inline(words[4:])}</h3>"
    if words.startswith("- "):
        items = "".join(f"<li>{inline(item)}</li>" for item in "\n".join(block)[2:].split("\n- "))
        return f"<ul>{items}</ul>"
    return f"<p>{inline(words)}</p>"


def sections(markdown):
    """(title, [HTML of a block]) of each `##` section of table.py's Markdown."""
    found, block = [], []

    def close():
        if block:
            parts = found[-1][1]
            parts.append(block_html(block, parts))
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
    return found


def same_work(result):
    """The title of a plot of runs that belong together: those of one deck and batch."""
    batch = result.key("train.global_batch_size")
    return result.key("run.name") + (f", batch {batch}" if batch else "")


def as_one_run(series):
    """(name, x, y) of runs, those that went on from a checkpoint joined to their first part. A step
    that was taken twice counts as it was taken last."""
    joined = {}
    for name, x, y in series:
        joined.setdefault(CONTINUED.sub("", name), {}).update(zip(x, y))
    return [(name, sorted(taken), [taken[step] for step in sorted(taken)])
            for name, taken in joined.items()]


def training_plots(results):
    """Losses and step times, a plot for the runs of one deck and batch."""
    made = []
    for title in sorted({same_work(result) for result in results}):
        losses, times = [], []
        for result in results:
            loss, step = result.series("train/loss"), result.series("train/step_time")
            if same_work(result) != title or loss is None or len(loss[0]) < LEAST_STEPS:
                continue
            losses.append((name_of(result), *loss))
            times.append((name_of(result), step[0], 1e3 * largest_of_ranks(step[1])))
        made += [lines(as_one_run(losses), f"{title}: training loss", "step", "nat"),
                 lines(as_one_run(times), f"{title}: time of a step", "step", "ms",
                       from_zero=True)]
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


def summary(results):
    """What the page is of: sets and their verdicts, machines, commits, dates."""
    def of(values, none="none"):
        return html.escape(", ".join(sorted(set(values) - {""})) or none)
    counts = collections.Counter(one.verdict for one in results)
    verdicts = ", ".join(f'<span class="{VERDICTS.get(verdict, "wrong")}">{count} '
                         f"{html.escape(verdict)}</span>" for verdict, count in counts.items())
    ranks = [one.array("provenance/system/ranks") for one in results]
    dates = sorted(text(one.file.attrs["created"])[:10] for one in results)
    rows = [("sets", verdicts),
            ("GPU", of(text(name) for one in ranks for name in one["gpu_name"])),
            ("CPU", of(text(name) for one in ranks for name in one["cpu_model"])),
            ("ranks", of(f"{len(one)}" for one in ranks)),
            ("commit", of(text(one.file.attrs["git_describe"]) for one in results)),
            ("measured", html.escape(" to ".join(dict.fromkeys((dates[0], dates[-1])))))]
    return "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)


def document(title, body):
    """A whole page, with the style and the script that sorts tables in it."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="generator" content="{html.escape(MADE)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title><style>
{STYLE.read_text(encoding="utf-8")}</style></head><body>
<h1>{html.escape(title)}</h1>
<p>A click on the head of a column sorts by it.</p>
{body}
<script>
{SCRIPT.read_text(encoding="utf-8")}</script></body></html>
"""


def page(results):
    contents, body = [], []
    for number, (title, parts) in enumerate(sections(tables(results))):
        driver, plot = PLOTS.get(title, ("", None))
        chosen = [r for r in results if text(r.file.attrs["driver"]) == driver]
        plots = [f"<figure>{one}</figure>" for one in plot(chosen) if one] if plot else []
        if plots:  # behind the first table, which is the short one
            first = next((i for i, part in enumerate(parts) if "<table>" in part), len(parts)) + 1
            parts.insert(first, '<div class="plots">' + "\n".join(plots) + "</div>")
        contents.append(f'<a href="#s{number}">{html.escape(title)}</a>')
        body.append(f'<section id="s{number}"><h2>{html.escape(title)}</h2>\n' +
                    "\n".join(parts) + "</section>")
    return document("Stowage results", f"""<dl>{summary(results)}</dl>
<nav>{" ".join(contents)}</nav>
{"".join(body)}""")


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
