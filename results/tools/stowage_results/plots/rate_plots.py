"""Panels of plot.py for sets of ceilings, kernels and exchanges: rates beside limits and peers."""

import numpy as np

from stowage_results.tables.cells import label_of, metric
from stowage_results.tables.communication import rows_of, usual
from stowage_results.tables.kernel_tables import PEERS, cases, times_of
from stowage_results.medians import median_interval
from stowage_results.result_files import largest_of_ranks

MOST_CASES = 40  # of a bar plot; those that take longest are shown
BAR = 0.22  # inches that a bar of ours and one of its peer need


def prefix(results, result):
    return f"{label_of(result)}: " if len(results) > 1 else ""


def rates_by_size(result):
    """{limit: (bytes, bytes per second)} of copies; limits of exchanges are drawn as those."""
    found = {}
    if "metrics/ceilings" not in result.file:
        return found
    for name in result.datasets("ceilings"):
        values, sizes = (result.array(f"ceilings/{part}") for part in (name, f"{name}_size"))
        units = result.file[f"ceilings/{name}"].attrs.get("units", b"")
        if sizes is not None and units in (b"B/s", "B/s"):
            found[name] = sizes, values
    return found


def draw_copies(axes, results):
    for result in results:
        for marker, (name, (sizes, rates)) in zip("osv^Dx*", rates_by_size(result).items()):
            axes.plot(sizes / 2**20, 1e-9 * rates, f"{marker}-", markersize=6, fillstyle="none",
                      linewidth=1,
                      label=f"{prefix(results, result)}{name}, at most {1e-9 * rates.max():.4g}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("size (MiB)")
    axes.set_ylabel("rate of copies (GB/s)")


def of_ceilings(results, ending):
    """(label, value, (low, high)) of the metrics of ceilings that end so."""
    found = []
    for result in results:
        for tag in result.datasets("metrics/ceilings"):
            if tag.endswith(ending):
                found.append((prefix(results, result) + tag[:-len(ending)],
                              *metric(result, f"ceilings/{tag}")))
    return found


def draw_bars(axes, rows, scale, unit):
    """A bar for each row with its interval, the first on top."""
    up = np.arange(len(rows))[::-1]
    values = [scale * value for _, value, _ in rows]
    bounds = [[value if np.isnan(bound) else bound for bound in pair] for _, value, pair in rows]
    spread = np.array([[max(0, value - low), max(0, high - value)]
                       for (_, value, _), (low, high) in zip(rows, bounds)]).T * scale
    bars = axes.barh(up, values, 0.7, xerr=spread, capsize=2)
    axes.bar_label(bars, fmt="%.4g", padding=3, fontsize="small")
    axes.set_yticks(up, [label for label, *_ in rows], fontsize="small")
    axes.set_xlabel(unit)
    axes.margins(x=0.12)


def draw_products(axes, results):
    draw_bars(axes, of_ceilings(results, "/flops_per_s"), 1e-12, "matrix products (TFLOP/s)")


def draw_slowdowns(axes, results):
    draw_bars(axes, of_ceilings(results, "/slowdown"), 1.0, "time beside copies / time alone")


def share_rows(results):
    """(label, ours, peer or NaN) in shares of the limit, the longest cases first; how many there
    are in all."""
    found = []
    for result in results:
        for case, implementations in cases(result).items():
            share = metric(result, f"kernels/{case}/ours/pct_ceiling")[0]
            if "ours" not in implementations or not np.isfinite(share):
                continue
            times = times_of(result, case, implementations)
            peer = min((times[one] for one in implementations if one.startswith(PEERS)),
                       default=np.nan)
            found.append((times["ours"], prefix(results, result) + case.replace("/", " "), share,
                          share * times["ours"] / peer))
    found.sort(key=lambda row: (-row[0], row[1]))
    return [row[1:] for row in found[:MOST_CASES]], len(found)


def draw_shares(axes, results):
    """Ours and the fastest library's share of the limit that binds."""
    rows, whole = share_rows(results)
    up = np.arange(len(rows))[::-1]
    axes.barh(up + 0.2, [100 * share for _, share, _ in rows], 0.38, label="ours")
    beside = [(y, 100 * peer) for y, (*_, peer) in zip(up, rows) if np.isfinite(peer)]
    if beside:
        axes.barh([y - 0.2 for y, _ in beside], [peer for _, peer in beside], 0.38, color="0.75",
                  label="fastest library")
    axes.axvline(100, color="C3", linewidth=1, label="limit")
    axes.set_yticks(up, [label for label, *_ in rows], fontsize="x-small")
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_xlim(0, 135 * max(1, *(share for _, share, _ in rows)))  # room for the legend
    some = f", the {len(rows)} longest of {whole} cases" if whole > len(rows) else ""
    axes.set_xlabel(f"share of the limit (%){some}")


def time_rows(results):
    """(label, seconds, interval) of ours and of libraries, the longest first."""
    found = []
    for result in results:
        for case, implementations in cases(result).items():
            found += [(f"{prefix(results, result)}{case.replace('/', ' ')} {one}",
                       *metric(result, f"kernels/{case}/{one}/time"))
                      for one in implementations if one.startswith(("ours", *PEERS))]
    return sorted(found, key=lambda row: (-row[1], row[0]))[:MOST_CASES]


def draw_case_times(axes, results):
    draw_bars(axes, time_rows(results), 1e6, f"time (us), the {MOST_CASES} longest at most")


def roof_points(result, of=lambda case: True):
    """(FLOP per byte, FLOP/s, whether it is ours) of ours and of libraries, of the cases `of`."""
    found = []
    for case, implementations in cases(result).items():
        if not of(case):
            continue
        for one in implementations:
            attributes = result.file[f"samples/kernels/{case}/{one}"].attrs
            flops, moved = (float(attributes.get(name, 0)) for name in ("flops", "bytes"))
            if flops > 0 and moved > 0 and one.startswith(("ours", *PEERS)):
                time_s = metric(result, f"kernels/{case}/{one}/time")[0]
                found.append((flops / moved, flops / time_s, one.startswith("ours")))
    return found


def limits_of(result):
    """(FLOP/s, B/s) of the ceilings that a set refers to, or None."""
    stored = result.file.get("provenance/ceilings")
    return stored and (float(stored.attrs["flops_per_s"]), float(stored.attrs["bytes_per_s"]))


def draw_roof(axes, limits, reach, **style):
    """The rates that limits allow to work per byte within `reach`."""
    flops_per_s, bytes_per_s = limits
    ridge = flops_per_s / bytes_per_s
    work = np.array(sorted({reach[0] / 2, ridge, max(2 * reach[1], 2 * ridge)}))
    axes.plot(work, 1e-12 * np.minimum(bytes_per_s * work, flops_per_s), linewidth=1, **style)


def name_roofline(axes):
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOP per byte of the contract")
    axes.set_ylabel("TFLOP/s")


def draw_roofline(axes, results):
    """Rates against work per byte, below the roofs of the ceilings that a set refers to."""
    for index, result in enumerate(results):
        found, limits = roof_points(result), limits_of(result)
        for is_ours, marker, who in ((False, "x", "libraries"), (True, "o", "ours")):
            points = [(work, 1e-12 * rate) for work, rate, ours in found if ours == is_ours]
            if points:
                axes.plot(*zip(*points), marker, color=f"C{index}" if is_ours else "0.5",
                          markersize=4, label=f"{prefix(results, result)}{who}")
        if found and limits:
            reach = [pick(work for work, *_ in found) for pick in (min, max)]
            draw_roof(axes, limits, reach, color=f"C{index}",
                      label=f"{prefix(results, result)}limits")
    name_roofline(axes)


def exchanges(results):
    """{label: [(bytes, seconds, bytes per second of a bus)]} of each kind and library."""
    found = {}
    for result in results:
        paths = result.datasets("samples/comm")
        first = prefix(results, result)
        if paths and "kind" in result.file[f"samples/comm/{paths[0]}"].attrs:
            for (group, kind), sizes in rows_of(result).items():
                for libraries in sizes.values():
                    for library, places in libraries.items():
                        row = usual(places)
                        found.setdefault(f"{first}{kind}, {group}, {library}", []).append(
                            (int(row.facts["bytes"]), 1e-6 * row.us, 1e9 * row.busbw))
            continue
        for path in paths:
            node = result.file[f"samples/comm/{path}"]
            times = largest_of_ranks(result.array(f"samples/comm/{path}"))
            found.setdefault(first + path.rpartition("/")[0], []).append(
                (int(node.attrs["bytes"]), median_interval(times)[0],
                 metric(result, f"comm/{path}/busbw")[0]))
    return {label: sorted(rows) for label, rows in sorted(found.items())}


def draw_exchanges(axes, results, column, scale, unit):
    kinds, libraries = {}, {}  # a color for each kind, a style for each library
    for label, rows in exchanges(results).items():
        kind, _, library = label.rpartition(", ")
        color = kinds.setdefault(kind, len(kinds)) if kind else len(axes.lines)
        style = libraries.setdefault(library, len(libraries)) if kind else 0
        axes.plot([row[0] for row in rows], [scale * row[column] for row in rows],
                  marker="o", markersize=3, linewidth=1, color=f"C{color % 10}",
                  linestyle=("-", "--", ":", "-.")[style % 4], label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("bytes")
    axes.set_ylabel(unit)


def draw_bus(axes, results):
    draw_exchanges(axes, results, 2, 1e-9, "bus bandwidth (GB/s)")


def draw_times(axes, results):
    draw_exchanges(axes, results, 1, 1e6, "time of an exchange (us)")


def panels_of(results):
    """(function, inches) of each panel for which sets of one kind have something. Times of kernels
    are drawn where no limit says what they should be."""
    products, slowdowns = (of_ceilings(results, ending) for ending in ("/flops_per_s", "/slowdown"))
    shares, _ = share_rows(results)
    moved, times = exchanges(results), time_rows(results)
    found = [(draw_copies, 4, any(rates_by_size(result) for result in results)),
             (draw_products, 1 + BAR * len(products), products),
             (draw_slowdowns, 1 + BAR * len(slowdowns), slowdowns),
             (draw_shares, 1.5 + BAR * len(shares), shares),
             (draw_case_times, 1 + BAR * len(times), times and not shares),
             (draw_roofline, 4.5, any(roof_points(result) for result in results)),
             (draw_bus, 5, moved), (draw_times, 5, moved)]
    return [(function, inches) for function, inches, there in found if there]
