#!/usr/bin/python3
"""Checks result sets against results/schema.md, and says whether a result is official.

Exit codes: 0 all files conform, 1 one does not, 2 a file is not ours, truncated or damaged.
"""

import argparse
import pathlib
import re

import h5py
import numpy as np

from result_files import Refused, Result, largest_of_ranks, run, text

SCHEMA_FILE = pathlib.Path(__file__).resolve().parent.parent / "schema.md"
ALLOWED_ENVIRONMENT = re.compile(r"(NCCL|UCX|OMPI|PMIX|SLURM|CUDA|OMP|STOWAGE)_")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
OFFICIAL_SECONDS = 600
OFFICIAL_STEPS = 50


class Row:
    """One row of the table in schema.md."""

    def __init__(self, cells):
        self.path, self.kind, self.shape, required, attributes = cells[:5]
        self.required = required == "yes"
        words = attributes.split()
        self.open = "*" in words
        self.attributes = dict(word.split(":") for word in words if word != "*")
        pattern = re.escape(self.path).replace(r"\*\*", ".+").replace(r"\*", "[^/]+")
        self.pattern = re.compile(pattern)


def read_schema(path):
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| /") and len(cells) == 6:
            rows.append(Row(cells))
    return rows


def type_name(dtype):
    if dtype.kind in "SO":
        return "text"
    return {"f8": "f64", "i8": "i64"}.get(dtype.str[1:], dtype.str)


def attribute_type(node, name):
    return type_name(h5py.h5a.open(node.id, name.encode()).dtype)


def kind_of(node):
    if isinstance(node, h5py.Group):
        return "group"
    if node.dtype.names:
        return "table"
    if node.dtype.kind in "SO":
        return "lines" if node.ndim else "text"
    if text(node.attrs.get("CLASS", "")) == "DIMENSION_SCALE":
        return "scale"
    return type_name(node.dtype)


def shape_fits(wanted, shape):
    if not wanted:
        return True
    extents = [part.strip() for part in wanted.strip("()").split(",") if part.strip()]
    if extents and extents[-1] == "...":
        return len(shape) >= len(extents) - 1
    return len(shape) == len(extents)


def own_attributes(node):
    """Attributes without those that the dimension-scale standard writes."""
    return [name for name in node.attrs
            if name not in ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST")]


def fields_of(node, kind):
    if kind == "table":
        return {name: type_name(node.dtype[name]) for name in node.dtype.names}
    return {name: attribute_type(node, name) for name in own_attributes(node)}


def check_node(path, node, rows):
    """Problems of one object; a path may be described by rows of several kinds."""
    kind = kind_of(node)
    matching = [row for row in rows if row.pattern.fullmatch(path)]
    if not matching:
        return [f"{path}: not in the schema"]
    row = next((row for row in matching if row.kind == kind), None)
    if row is None:
        kinds = " or ".join(row.kind for row in matching)
        return [f"{path}: is of kind {kind}, wanted {kinds}"]
    problems = []
    if kind != "group" and not shape_fits(row.shape, node.shape):
        problems.append(f"{path}: has shape {node.shape}, wanted {row.shape}")
    fields = fields_of(node, kind)
    for name, wanted in row.attributes.items():
        if name not in fields:
            problems.append(f"{path}: {name} is missing")
        elif fields[name] != wanted:
            problems.append(f"{path}: {name} is {fields[name]}, wanted {wanted}")
    if not row.open:
        problems += [f"{path}: {name} is not in the schema"
                     for name in fields if name not in row.attributes]
    return problems


def check_structure(result, rows):
    nodes = {"/": result.file}
    result.file.visititems(lambda name, node: nodes.__setitem__("/" + name, node))
    problems = []
    for path, node in nodes.items():
        problems += check_node(path, node, rows)
    for row in rows:
        if row.required and row.path not in nodes:
            problems.append(f"{row.path}: is missing")
    for path, node in nodes.items():
        if isinstance(node, h5py.Dataset):
            result.array(path)  # every byte against its checksum
    return problems


def check_series(result):
    problems = []
    for name in result.datasets("series"):
        node = result.file[f"series/{name}"]
        values = node[()]
        if kind_of(node) == "scale":
            if np.any(np.diff(values) <= 0):
                problems.append(f"/series/{name}: the scale does not increase")
        elif not len(node.dims[0]):
            problems.append(f"/series/{name}: is attached to no scale")
        elif len(node.dims[0][0]) != len(values):
            problems.append(f"/series/{name}: has {len(values)} entries, its scale has "
                            f"{len(node.dims[0][0])}")
    return problems


def expected_verdict(result):
    """The verdict that the stored numbers give: nobody edits one by hand."""
    checks = [node.attrs for node in result.file["validation"].values()]
    if any(not (check["low"] <= check["value"] <= check["high"]) for check in checks):
        return "INVALID"
    if result.verdict == "STOPPED":
        return "STOPPED"
    return "VALID" if checks else "INVALID"


def check_facts(result):
    problems = []
    root, started = result.file.attrs, result.file["provenance/run"].attrs
    if not UUID.fullmatch(text(root["uuid"])) or text(started["uuid"]) != text(root["uuid"]):
        problems.append("/: uuid is not a uuid, or differs from that of /provenance/run")
    for name in ("start", "stop"):
        if not TIME.fullmatch(text(started[name])):
            problems.append(f"/provenance/run: {name} is not a time in UTC")
    if started["ranks"] != len(result.file["provenance/system/ranks"]):
        problems.append("/provenance/system/ranks: has not one row per rank")
    for name in result.file["provenance/env"].attrs:
        if not ALLOWED_ENVIRONMENT.match(name):
            problems.append(f"/provenance/env: {name} is not on the allow-list")
    for name, check in result.file["validation"].items():
        passed = check.attrs["low"] <= check.attrs["value"] <= check.attrs["high"]
        if text(check.attrs["result"]) != ("PASSED" if passed else "FAILED"):
            problems.append(f"/validation/{name}: result contradicts its value")
    expected = expected_verdict(result)
    if result.verdict != expected:
        problems.append(f"/: verdict is {result.verdict}, the checks say {expected}")
    return problems


def not_official(result):
    """What keeps a conforming result from being official, by the run rules in README.md."""
    reasons = []
    if result.verdict != "VALID":
        reasons.append(f"the verdict is {result.verdict}")
    described = text(result.file.attrs["git_describe"])
    if described.endswith("-dirty") or described == "unknown":
        reasons.append(f"the source is not a committed state ({described})")
    if text(result.file["provenance/software"].attrs["build_type"]) != "Release":
        reasons.append("the build is not Release")
    if len(result.file["provenance/system/differences"]):
        reasons.append("the ranks differ")
    times = result.array("samples/train/step_time")
    if times is not None:
        timed = largest_of_ranks(times).sum()
        if len(times) < OFFICIAL_STEPS:
            reasons.append(f"{len(times)} timed steps < {OFFICIAL_STEPS}")
        if timed < OFFICIAL_SECONDS:
            reasons.append(f"timed for {timed:.3g} s < {OFFICIAL_SECONDS} s")
    return reasons


def validate(path, rows):
    result = Result(path)
    problems = check_structure(result, rows)
    if not problems:
        problems = check_series(result) + check_facts(result)
    for problem in problems:
        print(f"{path}: {problem}")
    if not problems:
        reasons = not_official(result)
        status = "official" if not reasons else "not official: " + "; ".join(reasons)
        version = text(result.file.attrs["schema_version"])
        print(f"{path}: conforms to schema {version}, {result.verdict} ({status})")
    return not problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", metavar="result.h5")
    parser.add_argument("--schema", type=pathlib.Path, default=SCHEMA_FILE)
    options = parser.parse_args()
    try:
        rows = read_schema(options.schema)
    except OSError as error:
        raise Refused(f"{options.schema}: {error.strerror}") from None
    return 0 if all([validate(path, rows) for path in options.results]) else 1


if __name__ == "__main__":
    run(main)
