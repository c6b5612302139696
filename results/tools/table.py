#!/usr/bin/python3
"""Tables of result sets as Markdown: what a README says of measurements is made by this.

  table.py A.h5 B.h5 ...                      prints the tables
  table.py --into README.md A.h5 ...          puts the short ones between two marks in README.md,
                                              the long ones and plots into files beside it
  table.py --into README.md --check A.h5 ...  says whether that would change anything
  ... --short-into PAGE.md                    also the training table between PAGE.md's marks

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

import page_plots
import pages
import peers
from cells import digits, interval, metric, name_of, table
from communication import communication
from headline import beside_scripts, headline
from kernel_tables import ABOUT, kernels
from offload_tables import offload
from official import by_uuid, not_official
from result_files import Refused, Result, run, text
from run_tables import runs
from scaling import scaling_tables
from train_tables import beyond_bands, curves, training
from validate import check, schema_rows

Chapter = collections.namedtuple("Chapter", "name title lines")  # a file, its title, its Markdown


def sources(results):
    """What each set was built from, and whether the run rules call it official."""
    rows = []
    others = by_uuid(results)
    for result in results:
        reasons = not_official(result, others)
        seconds = "; ".join(reasons) if reasons else "yes"
        rows.append((f"`{name_of(result)}`", f"`{text(result.file.attrs['git_describe'])}`",
                     text(result.file.attrs["created"])[:10], result.verdict, seconds))
    return ["## What each set is", ""] + table(
        ("set", "git describe", "date", "verdict", "official"), rows)


def bandwidth_or_flops(tag, value, bounds):
    scale, unit = (1e-12, "TFLOP/s") if tag.endswith("flops_per_s") else (1e-9, "GB/s")
    return f"{digits(scale * value)} {unit}", interval(bounds, scale)


def ceilings(results):
    lines = ["## Limits of the machine", ""]
    for result in results:
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
    return found


def tables(results):
    """All tables in one text."""
    timed = peers.read(results)
    lines, kernels_seen = headline(results, timed), False
    for chapter in chapters(results, timed):
        if not chapter.name.startswith("kernels_"):
            lines += chapter.lines
            continue
        if not kernels_seen:
            lines += ["## Kernels", "", ABOUT, ""]
        kernels_seen = True
        lines += ["#" + chapter.lines[0], "", *chapter.lines[4:]]
    return "\n".join(lines)


def conforming(path):
    result = Result(path)
    problems = check(result, schema_rows())
    if problems:
        raise Refused(f"{path}: {problems[0]}")
    return result


def into(options, results):
    """Writes or checks a page; the exit code."""
    timed = peers.read(results)
    figures = page_plots.figures(results, timed)
    made = pages.texts(options.into, headline(results, timed), chapters(results, timed), figures)
    if options.short_into is not None:
        made[options.short_into] = pages.summary(options.short_into, options.into, results, timed,
                                                 figures)
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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


if __name__ == "__main__":
    run(main)
