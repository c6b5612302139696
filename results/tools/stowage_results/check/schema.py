"""The form of a result set: every object of a file against the table in results/schema.md."""

import re

import numpy as np

from stowage_results.result_files import text


class Row:
    """One row of the table in schema.md."""

    def __init__(self, cells):
        self.path, self.kind, self.shape, required, attributes = cells[:5]
        self.required = required == "yes"
        words = attributes.split()
        self.open = "*" in words
        self.optional = {word.partition(":")[0] for word in words if word.endswith("?")}
        self.attributes = dict(word.rstrip("?").split(":") for word in words if word != "*")
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
    value = node.attrs[name]
    return "text" if isinstance(value, str) else type_name(value.dtype)


def kind_of(node):
    """Also of an object of h5py."""
    if not hasattr(node, "dtype"):
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
        if name not in fields and name in row.optional:
            continue
        if name not in fields:
            problems.append(f"{path}: {name} is missing")
        elif fields[name] != wanted:
            problems.append(f"{path}: {name} is {fields[name]}, wanted {wanted}")
    if not row.open:
        problems += [f"{path}: {name} is not in the schema"
                     for name in fields if name not in row.attributes]
    return problems


def check_structure(result, rows):
    """Problems of form. Every byte was read against its checksum when the file was opened."""
    nodes, problems = result.stored.nodes, []
    for path, node in nodes.items():
        problems += check_node(path, node, rows)
    for row in rows:
        if row.required and row.path not in nodes:
            problems.append(f"{row.path}: is missing")
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
