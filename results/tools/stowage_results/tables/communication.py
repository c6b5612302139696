"""Tables of collectives: ours and the libraries' in one row a size, with nccl-tests' columns."""

from stowage_results.tables.cells import caption, digits, gpu_of, interval, metric, ranks_of, table
from stowage_results.result_files import text

OURS, OVER_NCCL, PINNED, FREE, _ = LIBRARIES = (
    "stowage", "stowage_over_nccl", "nccl", "nccl_unpinned", "mpi")
APART = 0.05  # pinned and free choice of NCCL differ if their times do by more


class Row:
    """What one library showed at one size, in one place."""

    def __init__(self, result, path):
        self.facts = {key: text(value) if isinstance(value, bytes) else value
                      for key, value in result.file[f"samples/comm/{path}"].attrs.items()}
        self.us = 1e6 * metric(result, f"comm/{path}/time")[0]
        self.algbw, self.busbw = (1e-9 * metric(result, f"comm/{path}/{rate}")[0]
                                  for rate in ("algbw", "busbw"))

    def cells(self):
        return digits(self.us), digits(self.algbw), digits(self.busbw)


def rows_of(result):
    """{(group, kind): {size: {library: {in_place: Row}}}}, in the order in which they were made."""
    found = {}
    for path in result.datasets("samples/comm"):
        row = Row(result, path)
        facts = row.facts
        sizes = found.setdefault((facts["group"], facts["kind"]), {})
        of = sizes.setdefault(int(facts["size"]), {}).setdefault(facts["library"], {})
        of[bool(facts["in_place"])] = row
    return found


def usual(places):
    """In place where a library has it, as training does."""
    return places.get(True) or places[False]


def apart(places):
    """The time out of place, where a library has both."""
    return digits(places[False].us) if len(places) == 2 else ""


def pinned_beside_free(libraries):
    """By how much of its time NCCL as it is pinned differs from its free choice."""
    return usual(libraries[PINNED]).us / usual(libraries[FREE]).us - 1


def peer(libraries):
    """Time of the library's fastest / that of ours."""
    others = [usual(places).us for library, places in libraries.items()
              if library not in (OURS, OVER_NCCL)]
    if OURS not in libraries or not others:
        return ""
    return f"{min(others) / usual(libraries[OURS]).us:.2f}x"


def size_row(libraries, names):
    first = usual(next(iter(libraries.values()))).facts
    reduces = first["kind"] in ("all_reduce", "reduce_scatter")
    cells = [first["bytes"], first["count"], "float", "sum" if reduces else "none",
             0 if first["kind"] == "broadcast" else -1]
    for name in names:
        places = libraries.get(name)
        cells += (*usual(places).cells(), apart(places)) if places else ("", "", "", "")
    wrong = sum(int(row.facts["wrong"]) for places in libraries.values()
                for row in places.values())
    return cells + [wrong, peer(libraries)]


def of_kind(result, group, kind, sizes):
    names = [name for name in LIBRARIES if any(name in of for of in sizes.values())]
    facts = usual(next(iter(next(iter(sizes.values())).values()))).facts
    graphs = ", in graphs" if facts["graph"] else ""
    beside = f", beside {facts['beside']}" if facts.get("beside") else ""
    header = ["size B", "count", "type", "redop", "root"]
    for name in names:
        header += [f"{name} us", "algbw", "busbw", "us out of place"]
    lines = [f"`{kind}`, group {group} of {facts['ranks']} ranks{graphs}{beside}:", ""]
    header += ["wrong", "peer"]
    rows = [size_row(sizes[size], names) for size in sorted(sizes)]
    if not {PINNED, FREE} <= set(names):
        return lines + table(header, rows)
    shares = [pinned_beside_free(sizes[size]) for size in sorted(sizes)]
    differ = [f"{100 * share:+.0f} %" if abs(share) > APART else "" for share in shares]
    lines += table(header + ["pinned - free"], [row + [cell] for row, cell in zip(rows, differ)])
    return lines + [f"Pinned NCCL differs from its free choice by more than {100 * APART:.0f} % of "
                    f"the time at {sum(map(bool, differ))} of {len(sizes)} sizes.", ""]


def links(result):
    rows = []
    for tag in result.datasets("metrics/comm"):
        base, _, quantity = tag.rpartition("/")
        if quantity == "latency":
            rows.append((f"`{base}`", digits(1e6 * metric(result, f"comm/{tag}")[0]),
                         digits(1e-9 * metric(result, f"comm/{base}/bandwidth")[0])))
    if not rows:
        return []
    return ["Time = latency + bytes that a rank sends / bandwidth, by the least squares of "
            "relative errors; `<group>/link`: all kinds of ours.", ""] + table(
        ("group, kind, library", "latency us", "bandwidth GB/s"), rows)


def algorithms(found):
    """What each library was made to do, once."""
    chosen = {row.facts["library"]: f"{row.facts['version']}, {row.facts['algorithm']}"
              for sizes in found.values() for libraries in sizes.values()
              for places in libraries.values() for row in places.values()}
    return [f"- `{name}`: {chosen[name]}" for name in LIBRARIES if name in chosen] + [""]


def of_one_group(result):
    """Sets of before, when all ranks were one group: a rate for each exchange."""
    rows = []
    for tag in result.datasets("metrics/comm"):
        rate, bounds = metric(result, f"comm/{tag}")
        rows.append((tag[:-len("/busbw")], ranks_of(result), digits(1e-9 * rate),
                     interval(bounds, 1e-9)))
    return table(("exchange", "ranks", "bus bandwidth GB/s", "95 % interval"), rows)


def communication(results):
    lines = ["## Communication", ""]
    for result in results:
        paths = result.datasets("samples/comm")
        lines += [f"{caption(result)}:", ""] if gpu_of(result) else []
        if not paths or "kind" not in result.file[f"samples/comm/{paths[0]}"].attrs:
            lines += of_one_group(result)
            continue
        found = rows_of(result)
        lines += ["Medians on the slowest rank, in place where a library has it; rates in GB/s, by "
                  "nccl-tests' formulas. Wrong: elements, all libraries and places. Peer: time of "
                  "the library's fastest / that of `stowage`. Pinned - free: by how much of its "
                  f"time pinned NCCL is slower, where that is more than {100 * APART:.0f} %.", ""]
        lines += algorithms(found)
        for (group, kind), sizes in found.items():
            lines += of_kind(result, group, kind, sizes)
        lines += links(result)
    return lines
