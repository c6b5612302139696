"""Units, and which way is better, against metrics.toml."""

from stowage_results.check.metrics import UNITS, row_of
from stowage_results.check.schema import kind_of
from stowage_results.result_files import text

OTHERS = {"W", "degC", "Hz", ""}  # of series that no metric is made from


def check_metric(name, node):
    row, _ = row_of(name)
    if row is None:
        return [f"/metrics/{name}: no metric of the tables in metrics.toml"]
    problems = []
    for key, verb, wanted in (("units", "are", row.unit), ("better", "is", row.better)):
        if (found := text(node.attrs[key])) != wanted:
            problems.append(f"/metrics/{name}: {key} {verb} {found!r}, wanted {wanted!r}")
    return problems


def check_units(result):
    """Problems of units in a set whose form is right."""
    problems = []
    for name in result.datasets("metrics"):
        problems += check_metric(name, result.file[f"metrics/{name}"])
    for name in result.datasets("samples"):
        units = text(result.file[f"samples/{name}"].attrs["units"])
        if units != "s":
            problems.append(f"/samples/{name}: units are {units!r}, wanted 's'")
    known = OTHERS.union(UNITS)
    for group in ("series", "ceilings"):
        for name in result.datasets(group):
            node = result.file[f"{group}/{name}"]
            units = text(node.attrs.get("units", ""))
            if kind_of(node) == "f64" and units not in known:
                problems.append(f"/{group}/{name}: units are {units!r}, wanted one of "
                                f"{', '.join(sorted(known - {''}))}")
    return problems
