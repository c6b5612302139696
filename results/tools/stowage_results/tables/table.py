"""Tables of result sets as Markdown: what a README says of measurements is made by this.

  table.py A.h5 B.h5 ...                      prints the tables
  table.py --into README.md A.h5 ...          puts the short ones between two marks in README.md,
                                              the long ones and plots into files beside it
  table.py --into README.md --check A.h5 ...  says whether that would change anything
  ... --short-into PAGE.md                    also the training table between PAGE.md's marks

A set that is not official by the run rules (results/README.md) is marked, with the reason below.
Medians stand with the 95 % interval that the set stores, where there are samples enough for one. A
page is made of sets that validate.py accepts alone; peers that scripts timed are the JSON lines
beside the sets. A rate above a ceiling by more than ceilings differ from run to run is printed as
an error: the ceiling is not that row's, or its cost is wrong.

Exit codes: 0, 1 if --check finds another text or plot, or losses beyond the bands of the page, 2 a
file is not ours or does not conform, or README.md has no marks.
"""

import argparse
import collections
import pathlib

from stowage_results.plots import page_plots
from stowage_results.publish import pages
from stowage_results.tables import peer_times
from stowage_results.tables.cells import (GPU, NOT_OFFICIAL, caption, code, digits, gpu_of,
                                          interval, metric, name_of, table, tell_apart)
from stowage_results.tables.communication import communication
from stowage_results.tables.headline import beside_scripts, headline
from stowage_results.tables.kernel_tables import ABOUT, kernels
from stowage_results.tables.machine import machine
from stowage_results.tables.offload_tables import offload
from stowage_results.check.official import mark_unofficial
from stowage_results.result_files import Refused, Result, text
from stowage_results.tables.run_tables import runs
from stowage_results.tables.scaling import scaling_tables
from stowage_results.tables.train_tables import beyond_bands, curves, training
from stowage_results.check.validate import check, schema_rows

WHY = f"{NOT_OFFICIAL}: not official, for the reason that stands in `sets.md`, What each set is."
Chapter = collections.namedtuple("Chapter", "name title lines")  # a file, its title, its Markdown


def sources(results):
    """What each set was built from, and whether the run rules call it official."""
    rows = []
    for result in results:
        seconds = "; ".join(result.unofficial) or "yes"
        rows.append((gpu_of(result), f"`{name_of(result)}`",
                     code(text(result.file.attrs["git_describe"])),
                     text(result.file.attrs["created"])[:10], result.verdict, seconds))
    return ["## What each set is", ""] + table(
        (GPU, "set", "git describe", "date", "verdict", "official"), rows)


def bandwidth_or_flops(tag, value, bounds):
    scale, unit = (1e-12, "TFLOP/s") if tag.endswith("flops_per_s") else (1e-9, "GB/s")
    return f"{digits(scale * value)} {unit}", interval(bounds, scale)


def ceilings(results):
    lines = ["## Limits of the machine", ""]
    for result in results:
        lines += [f"{caption(result)}:", ""] if gpu_of(result) else []
        tags = [f"ceilings/{tag}" for tag in result.datasets("metrics/ceilings")]
        rows = [(tag[len("ceilings/"):], *bandwidth_or_flops(tag, *metric(result, tag)))
                for tag in tags if not tag.endswith("slowdown")]
        lines += table(("limit", "median", "95 % interval"), rows)
        slow = [(tag[len("ceilings/"):-len("/slowdown")], digits(metric(result, tag)[0]),
                 interval(metric(result, tag)[1])) for tag in tags if tag.endswith("slowdown")]
        if slow:
            lines += ["Time beside copies over the link / time alone:", ""]
            lines += table(("victim / copies", "ratio", "95 % interval"), slow)
    return lines


def by_driver(results):
    of = {}
    for result in results:
        of.setdefault(text(result.file.attrs["driver"]), []).append(result)
    return of


def chapters(results, timed):
    """The long tables, each with the file that it has beside a page; `timed`: peers of scripts."""
    of = by_driver(results)
    found = [Chapter("sets.md", "What each set is", sources(results))]
    for driver, name, title, parts in (
            ("ceilings", "ceilings.md", "Limits of the machine", [ceilings]),
            ("train", "training.md", "Training, operator by operator; loss curves",
             [lambda found: training(found, results), lambda found: beside_scripts(found, timed),
              curves, runs])):
        if driver in of:
            found.append(Chapter(name, title, sum((part(of[driver]) for part in parts), [])))
    for family, lines in kernels(of.get("bench_kernels", []), timed):
        file = "kernels_" + family.replace(",", "").replace(" ", "_") + ".md"
        title = f"Kernels: {family}"
        found.append(Chapter(file, title, [f"## {title}", "", ABOUT, "", *lines]))
    for driver, name, title, part in (
            ("bench_offload", "offload.md", "Offload and recompute", offload),
            ("bench_comm", "communication.md", "Communication", communication),
            ("bench_scaling", "scaling.md", "Scaling", scaling_tables)):
        if driver in of:
            found.append(Chapter(name, title, part(of[driver])))
    return [chapter._replace(lines=chapter.lines + [WHY, ""])
            if any(NOT_OFFICIAL in line for line in chapter.lines) else chapter
            for chapter in found]


def tables(results):
    """All tables in one text."""
    prepare(results)
    timed = peer_times.read(results)
    lines, kernels_seen = headline(results, timed) + machine(results), False
    for chapter in chapters(results, timed):
        if not chapter.name.startswith("kernels_"):
            lines += chapter.lines
            continue
        if not kernels_seen:
            lines += ["## Kernels", "", ABOUT, ""]
        kernels_seen = True
        lines += ["#" + chapter.lines[0], "", *chapter.lines[4:]]
    return "\n".join(lines)


def prepare(results):
    """Names and marks that every table of these sets has."""
    tell_apart(results)
    mark_unofficial(results)


def conforming(path):
    result = Result(path)
    problems = check(result, schema_rows())
    if problems:
        raise Refused(f"{path}: {problems[0]}")
    return result


def into(options, results):
    """Writes or checks a page; the exit code."""
    prepare(results)
    timed = peer_times.read(results)
    figures = page_plots.figures(results, timed)
    short = headline(results, timed)
    made = pages.texts(options.into, short, machine(results), chapters(results, timed), figures)
    if options.short_into is not None:
        made[options.short_into] = pages.summary(options.short_into, results, timed)
    if not options.check:
        pages.write(options.into, made, figures)
        return 0
    problems = pages.check(options.into, made, figures)
    problems += beyond_bands(by_driver(results).get("train", []))
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{options.into}: says what the sets hold, in {len(made)} files and "
              f"{len(figures)} plots")
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", nargs="+", metavar="result.h5")
    parser.add_argument("--into", type=pathlib.Path, metavar="README.md")
    parser.add_argument("--short-into", type=pathlib.Path, metavar="PAGE.md")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if it would")
    options = parser.parse_args()
    if options.into is None and (options.check or options.short_into is not None):
        parser.error("--check and --short-into need --into")
    results = [conforming(path) for path in sorted(options.results)]
    if options.into is None:
        print(tables(results))
        return 0
    return into(options, results)
