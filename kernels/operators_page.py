#!/usr/bin/env python3
"""Prints the page docs/reference/operators.md, of the declarations in the headers of kernels/;
with --check PAGE it exits 1 if that page is another."""

import pathlib
import re
import sys

KERNELS = pathlib.Path(__file__).resolve().parent
HEAD = """# Operators

Operands of every operator, in the order of an op's uses, as its header declares them.
`kernels/operators_page.py` makes this page.

- `storage` is the type of activations and weights, `sums` the one that they are added up in.
- An operand that is added to is stored where the condition does not hold.
- Workspaces have as many bytes as the operator says."""
ACCESS = {"in": "read", "out": "stored"}


def closing(text, start):
    """Index of the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise SystemExit(f"error: no end of {text[start:start + 60]}")


def arguments(text):
    """Parts of a list between commas outside brackets."""
    parts, depth = [""], 0
    for one in text:
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(one, 0)
        if one == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += one
    return [" ".join(part.split()) for part in parts]


def words(expression, known):
    """An expression of C++ as the page has it."""
    for name, meaning in known.items():
        expression = re.sub(rf"\b{name}\b", lambda _, to=meaning: to, expression)
    expression = re.sub(r"(?:execution::)?Dtype::|\bop\.", "", expression)
    return re.sub(r"(execution::)?accumulation\(storage\)", "sums", expression).strip()


def operand(spec, known):
    """The cells name, access, type, extents and condition of one."""
    kind, open_at = re.match(r"(\w+)\(", spec)[1], spec.index("(")
    end = closing(spec, open_at)
    given = arguments(spec[open_at + 1:end])
    there = re.search(r"\.when\(", spec)
    condition = spec[there.end():closing(spec, there.end() - 1)] if there else ""
    if kind == "workspace":
        return "workspace", "scratch", "", words(given[0], known), ""
    access = ACCESS.get(kind)
    if kind == "sum":
        added = words(given.pop(1), known)
        access = "updated" if added == "true" else f"added to if {added}"
    name, dtype, extents = given
    extents = words(extents, known)
    extents = extents[1:-1] if extents.startswith("{") else extents
    return name.strip('"'), access, words(dtype, known), extents, words(condition, known)


def body_of(text, start):
    first = text.index("{", text.index(")", start))
    return text[first + 1:closing(text, first)]


def operands(body, header):
    known = {}
    for names in re.findall(r"const (?:auto|[\w:<>]+) (\w+ = [^;]+);", body):
        for one in arguments(names):
            name, meaning = one.split(" = ", 1)
            known[name] = meaning
    found = []
    for call in re.finditer(r"\b(f|each_\w+)\(", body):
        inside = body[call.end():closing(body, call.end() - 1)]
        if call[1] == "f":
            found.append(operand(arguments(inside)[0], known))
        else:  # a list that operators of a family share
            found += operands(body_of(header, header.index(f"{call[1]}(const")), header)
    return found


def page():
    lines = [HEAD]
    for folder in sorted(one for one in KERNELS.iterdir() if one.is_dir()):
        rows = []
        for path in sorted(folder.glob("*.hpp")):
            header = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
            for name in re.finditer(r'kName = "(\w+)"', header):
                all_of_it = operands(body_of(header, header.index(" each(", name.end())), header)
                all_of_it = [cells for cells in all_of_it if cells[-1] != "false"]
                for at, cells in enumerate(all_of_it):
                    rows.append((f"`{name[1]}`" if at == 0 else "", f"`{cells[0]}`", *cells[1:]))
        if rows:
            lines += [f"\n## {folder.name}\n",
                      "| operator | operand | access | type | extents | there if |",
                      "| --- | --- | --- | --- | --- | --- |",
                      *("| " + " | ".join(row).replace("||", "or") + " |" for row in rows)]
    return "\n".join(lines) + "\n"


if sys.argv[1:2] == ["--check"]:
    if pathlib.Path(sys.argv[2]).read_text(encoding="utf-8") != page():
        sys.exit("run: kernels/operators_page.py > docs/reference/operators.md")
else:
    print(page(), end="")
