#!/usr/bin/python3
"""Tables of result sets as Markdown: what a README says of measurements is made by this.

  table.py A.h5 B.h5 ...                      prints the tables
  table.py --into README.md A.h5 ...          replaces what lies between the two marks in README.md
  table.py --into README.md --check A.h5 ...  says whether that would change anything

Medians stand with the 95 % interval that the set stores, where there are samples enough for one. A
page is made of sets that validate.py accepts alone. A rate above a ceiling by more than ceilings
differ from run to run is printed as an error: the ceiling is not that row's, or its cost is wrong.

Exit codes: 0, 1 if --check finds another text, 2 a file is not ours or does not conform, or
README.md has no marks.
"""

import argparse
import pathlib

from cells import digits, interval, metric, name_of, table
from communication import communication
from kernel_tables import kernels
from offload_tables import offload
from official import by_uuid, not_official
from result_files import Refused, Result, run, text
from scaling import scaling_tables
from train_tables import curves, training
from validate import check, schema_rows

BEGIN = "<!-- made by results/tools/table.py -->"
END = "<!-- end of what table.py made -->"


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


def tables(results):
    """All tables, by driver."""
    of = {}
    for result in results:
        of.setdefault(text(result.file.attrs["driver"]), []).append(result)
    lines = sources(results)
    for driver, parts in (("ceilings", [ceilings]), ("train", [training, curves]),
                          ("bench_kernels", [kernels]), ("bench_offload", [offload]),
                          ("bench_comm", [communication]), ("bench_scaling", [scaling_tables])):
        for part in parts if driver in of else []:
            lines += part(of[driver])
    return "\n".join(lines)


def conforming(path):
    result = Result(path)
    problems = check(result, schema_rows())
    if problems:
        raise Refused(f"{path}: {problems[0]}")
    return result


def with_tables(path, made):
    try:
        page = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise Refused(f"{path}: needs the lines '{BEGIN}' and '{END}' once, in this order")
    return page[:page.index(BEGIN) + len(BEGIN)] + "\n\n" + made + "\n" + page[page.index(END):]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", metavar="result.h5")
    parser.add_argument("--into", type=pathlib.Path, metavar="README.md")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if it would")
    options = parser.parse_args()
    made = tables([conforming(path) for path in sorted(options.results)])
    if options.into is None:
        print(made)
        return 0
    page = with_tables(options.into, made)
    if options.check:
        same = page == options.into.read_text(encoding="utf-8")
        print(f"{options.into}: {'says' if same else 'does not say'} what the sets hold")
        return 0 if same else 1
    try:
        options.into.write_text(page, encoding="utf-8")
    except OSError as error:
        raise Refused(f"{options.into}: {error.strerror}") from None
    return 0


if __name__ == "__main__":
    run(main)
