"""Figures of runs for a monitoring system, in the text of OpenMetrics: openmetrics.py SET ...
[--out FILE.prom]. SET is a result set (NAME.h5), or the JSON lines of a run (NAME.jsonl), also
while it runs.

A node exporter reads the text from the folder of its textfile collector:

  openmetrics.py acceptance/*.h5 --out FOLDER/stowage.prom

Each metric of `docs/reference/metrics.md` is a gauge. Its family is the row's name with `_` for `/`
and the unit behind it, so `train/step_time` is `stowage_train_step_time_seconds`; what stands for
the stars of a row is the label `of`. The label `run` is the file's name. With them come

  stowage_valid              1 if the verdict is VALID, 0 if it is another; none while it runs
  stowage_start_time_seconds when the run began: a monitor sees by it that a figure is old
  stowage_run_info           1, with driver, commit and GPU as labels, as far as the file says
  stowage_step_...           of JSON lines: what the newest step says

A metric with an interval has two more gauges, `..._ci95_low` and `..._ci95_high`. FILE.prom is
whole or as it was; one that is no text of ours is refused.

Exit codes: 0 written, 2 a file is not ours or is truncated, or two have one name, 3 a package is
missing.
"""

import argparse
import datetime
import math
import numbers
import pathlib
import re
import sys

from stowage_results.check.metrics import row_of
from stowage_results.outputs import write
from stowage_results.plain_files import Refused, parse_json, read_text
from stowage_results.result_files import Result, text

SUFFIXES = {"s": "seconds", "B": "bytes", "J": "joules"}  # units that OpenMetrics asks for
OURS = b"# TYPE stowage_"
HELP = {
    "valid": "1 if the verdict is VALID, 0 if it is another.",
    "start_time_seconds": "Start of the run, in seconds since 1970.",
    "run_info": "What ran.",
}


class Families:
    """Gauges by family, in the order in which they came."""

    def __init__(self):
        self.held = {}

    def add(self, name, value, labels, unit="", about=""):
        if value is None or not math.isfinite(value):  # as of an interval that is not known
            return
        name = "stowage_" + re.sub(r"\W", "_", name)
        rows = self.held.setdefault(name, (unit, about, {}))[2]
        shown = ",".join(f'{key}="{escaped(word)}"' for key, word in labels.items())
        if shown in rows:
            raise Refused(f"{name}{{{shown}}}: two files say it; give them different names")
        rows[shown] = value

    def text(self):
        lines = []
        for name, (unit, about, rows) in self.held.items():
            lines.append(f"# TYPE {name} gauge")
            if unit:
                lines.append(f"# UNIT {name} {unit}")
            if about:
                lines.append(f"# HELP {name} {escaped(about)}")
            lines += [f"{name}{{{labels}}} {float(value)!r}" for labels, value in rows.items()]
        return "\n".join([*lines, "# EOF"]) + "\n"


def escaped(word):
    return str(word).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def add_metric(families, run, tag, value, low, high):
    """One metric of a set, with the ends of its interval."""
    row, stars = row_of(tag)
    if row is None:  # of another version
        return
    name = "_".join(part for part in row.tag.split("/") if part[0] != "*")
    unit = SUFFIXES.get(row.unit, "")
    labels = {"run": run} | ({"of": "/".join(stars)} if stars else {})
    for end, number in (("", value), ("_ci95_low", low), ("_ci95_high", high)):
        whole = name + end
        if unit and not whole.endswith("_" + unit):
            whole += "_" + unit
        families.add(whole, number, labels, unit, row.help)


def add_run(families, run, valid, start, info):
    begin = datetime.datetime.fromisoformat(start).timestamp()
    families.add("start_time_seconds", begin, {"run": run}, "seconds", HELP["start_time_seconds"])
    told = {key: word for key, word in info.items() if word}
    families.add("run_info", 1, {"run": run} | told, about=HELP["run_info"])
    if valid is not None:
        families.add("valid", int(valid), {"run": run}, about=HELP["valid"])


def add_set(families, path):
    result, run = Result(path), pathlib.Path(path).stem
    ranks = result.file["provenance/system/ranks"]
    add_run(families, run, result.verdict == "VALID",
            text(result.attribute("provenance/run", "start")),
            {"driver": text(result.file.attrs["driver"]),
             "commit": text(result.file.attrs["git_describe"]),
             "gpu": text(ranks[0]["gpu_name"]), "ranks": str(len(ranks))})
    for tag in result.datasets("metrics"):
        node = result.file[f"metrics/{tag}"]
        add_metric(families, run, tag, float(node[()]), *(
            float(node.attrs.get(end, math.nan)) for end in ("ci95_low", "ci95_high")))


def add_lines(families, path):
    """JSON lines; the last one may be under way."""
    run, first, step, verdict = pathlib.Path(path).stem, None, None, None
    metrics = {}
    whole, _, _ = read_text(path).rpartition("\n")
    for number, line in enumerate(whole.splitlines(), 1):
        told = parse_json(f"{path}:{number}", line)
        if not isinstance(told, dict) or not {"event", "time"} <= told.keys():
            raise Refused(f"{path}:{number}: is no line of a run: it has no event and time")
        first = first or told
        if told["event"] == "start":  # a run that goes on adds to its lines
            metrics, verdict = {}, None
        elif told["event"] == "step":
            step = told
        elif told["event"] == "metric":
            metrics[told["tag"]] = told
        elif told["event"] == "verdict":
            verdict = told["result"] == "VALID"
    if first is None:
        raise Refused(f"{path}: has no whole line")
    add_run(families, run, verdict, first["time"], {"driver": first.get("driver")})
    for key, value in (step or {}).items():
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            families.add(f"step_{key}", value, {"run": run}, about="Of the newest step.")
    for tag, told in metrics.items():
        add_metric(families, run, tag, told["value"], told["ci95_low"], told["ci95_high"])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="SET", help="NAME.h5 or NAME.jsonl")
    parser.add_argument("--out", metavar="FILE.prom", help="instead of the terminal")
    arguments = parser.parse_args()
    families = Families()
    for path in arguments.sets:
        (add_lines if path.endswith(".jsonl") else add_set)(families, path)
    if arguments.out is None:
        sys.stdout.write(families.text())
    else:
        write(arguments.out, families.text().encode(), keep=False,
              ours=lambda path: path.read_bytes().startswith(OURS))
    return 0
