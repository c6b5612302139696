#!/usr/bin/env python3
"""Prints the registry of files of metrics as C++, or as the page docs/reference/metrics.md:
metric_registry.py cpp|page FILE..."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "tools"))

from stowage_results.check.metrics import read_metrics  # noqa: E402
from stowage_results.plain_files import Refused  # noqa: E402

CPP = """// The rows of metrics.toml, by metric_registry.py.
#include <array>

#include "results/metric.hpp"

namespace stowage::results {{

std::span<const MetricInfo> metric_registry() {{
  static constexpr auto kRows = std::to_array<MetricInfo>({{
{rows}
  }});
  return kRows;
}}

}}  // namespace stowage::results
"""
PAGE = """# Metrics

The metrics of result sets, and how `validate.py` holds a set to them. `results/metric_registry.py`
makes this page of `results/metrics.toml`.

{head}

| metric | units | better | samples | from | due | meaning |
| --- | --- | --- | --- | --- | --- | --- |
{rows}
"""


def cpp(files):
    return CPP.format(rows="\n".join(
        f"    {{{json.dumps(row.tag)}, {json.dumps(row.unit)}, Better::{row.better}, "
        f"{json.dumps(row.help)}}}," for row in read_metrics(files)))


def samples_of(row):
    """Where they are not what the tag begins with."""
    return "" if row.samples == row.tag.rpartition("/")[0] else f"`{row.samples}`"


def page(files):
    """The comment above the first table, then the rows."""
    lines = files[0].read_text(encoding="utf-8").splitlines()
    head = lines[:next(at for at, line in enumerate(lines) if not line.startswith("#"))]
    rows = [f"| `{row.tag}` | {row.unit} | {row.better} | {samples_of(row)} | {row.derived} | "
            f"{row.due} | {row.help} |" for row in read_metrics(files)]
    return PAGE.format(head="\n".join(line[2:] for line in head), rows="\n".join(rows))


try:
    kind, *paths = sys.argv[1:]
    print({"cpp": cpp, "page": page}[kind]([pathlib.Path(one) for one in paths]), end="")
except Refused as problem:
    sys.exit(f"error: {problem}")
