"""Tables of offload sweeps: plans by memory and time, modules, graphs."""

import numpy as np

from stowage_results.tables.cells import caption, digits, interval, metric, table
from stowage_results.result_files import largest_of_ranks, text


def offload(results):
    lines = ["## Offload and recompute", "",
             "One step of every plan in turn, over and over. Added: median of the differences from "
             "the step of the same round that keeps everything, over the median of the latter. "
             "Exposed: what compute waits for copies, measured where steps are issued op by op; "
             "hidden: the part of the copies' time that it does not wait for. In gradients: bytes "
             "kept in the memory of gradients that are written later; `no_berths_*` plans keep "
             "none there (`aside_*` in sets of earlier versions).", ""]
    for result in results:
        rows = [offload_row(result, name) for name in result.datasets("samples/offload")]
        rows.sort(key=lambda row: -float(row[2]))
        lines += [f"{caption(result)}:", ""] + table(
            ("plan", "steps", "transient GiB", "in gradients GiB", "host GiB", "copies out",
             "reruns", "ms a step", "added", "95 %", "predicted ms", "exposed ms", "predicted",
             "hidden"), rows)
        lines += (free_copies(result) + graph_costs(result) + stages_of_plans(result) +
                  modules_of_deck(result))
    return lines


def stages_of_plans(result):
    """What each plan is on the stages of a pipeline, and how far their memory is apart."""
    stored = result.array("offload/stages")
    if stored is None or stored["stage"].max(initial=0) == 0:
        return []
    rows = []
    for plan in dict.fromkeys(text(row["plan"]) for row in stored):
        own = [row for row in stored if text(row["plan"]) == plan]
        device = [row["persistent_bytes"] + row["transient_bytes"] for row in own]
        for row, needs in zip(own, device):
            rows.append((plan, row["stage"], f"{needs / 2**30:.3f}",
                         f"{(max(device) - needs) / 2**30:.3f}",
                         f"{row['transient_bytes'] / 2**30:.3f}",
                         f"{row['host_bytes'] / 2**30:.3f}",
                         f"{row['offloaded_bytes'] / 2**30:.3f}", row["copies"], row["reruns"],
                         f"{1e3 * row['exposed_s']:.2f}" if np.isfinite(row["exposed_s"]) else ""))
    return ["Stage by stage, on the first rank of each; below: how much less it needs than the "
            "stage that needs most:", ""] + table(
        ("plan", "stage", "device GiB", "below GiB", "transient GiB", "host GiB", "out GiB",
         "copies", "reruns", "exposed ms"), rows)


def modules_of_deck(result):
    """What the plan that the deck itself asks for does with each module's tensors."""
    stored = result.array("offload/modules")
    rows = []
    for row in [] if stored is None else stored:
        if text(row["plan"]).startswith("deck/") and row["copies"] + row["recomputed_bytes"] > 0:
            timed = np.isfinite(row["exposed_s"]) and 0 < row["d2h_bytes_per_s"] < np.inf
            rows.append((text(row["plan"]), text(row["module"]), f"{row['bytes'] / 2**30:.3f}",
                         f"{row['offloaded_bytes'] / 2**30:.3f}",
                         f"{row['recomputed_bytes'] / 2**30:.3f}", row["copies"],
                         *((f"{row['d2h_bytes_per_s'] / 1e9:.1f}",
                            f"{row['h2d_bytes_per_s'] / 1e9:.1f}",
                            f"{1e3 * row['exposed_s']:.3f}") if timed else ("", "", ""))))
    if not rows:
        return []
    return ["Module by module, of the plan that the deck asks for; what lies in graphs is not "
            "timed copy by copy:", ""] + table(
        ("plan", "module", "saved GiB", "out GiB", "again GiB", "copies", "out GB/s", "back GB/s",
         "exposed ms"), rows)


def offload_row(result, name):
    node = {key: result.attribute(f"samples/offload/{name}", key)
            for key in ("transient_bytes", "host_bytes", "copies_out", "reruns",
                        "predicted_time_s", "predicted_exposed_s")}
    berths = result.file[f"samples/offload/{name}"].attrs.get("berth_bytes", 0)
    times = largest_of_ranks(result.array(f"samples/offload/{name}"))
    added, bounds = metric(result, f"offload/{name}/added")
    exposed_s = metric(result, f"offload/{name}/exposed_copy")[0]
    hidden = metric(result, f"offload/{name}/overlap")[0]
    timed = np.isfinite(exposed_s)
    return (name, len(times), f"{node['transient_bytes'] / 2**30:.3f}",
            f"{berths / 2**30:.3f}",
            f"{node['host_bytes'] / 2**30:.3f}", node["copies_out"], node["reruns"],
            digits(1e3 * np.median(times)), f"{100 * added:+.2f} %", interval(bounds, 100),
            digits(1e3 * node["predicted_time_s"]), f"{1e3 * exposed_s:.2f}" if timed else "",
            f"{1e3 * node['predicted_exposed_s']:.2f}", f"{100 * hidden:.1f} %" if timed else "")


def free_copies(result):
    """Whether the plan that moves what costs nothing uses the link."""
    if "validation/free_moves" not in result.file:
        return []
    part = result.file["validation/free_moves"].attrs["value"]
    return [f"`free` moves {part:.3f} of what the link carries at its measured rate while forward "
            "runs, or of all that may leave if that is less.", ""]


def graph_costs(result):
    """Plans in graphs beside the same plan op by op, step by step of the same rounds."""
    rows = []
    for name in result.datasets("samples/offload"):
        cost, bounds = metric(result, f"offload/{name}/graph_cost")
        if np.isfinite(cost):
            rows.append((name, len(result.array(f"samples/offload/{name}")),
                         result.attribute(f"samples/offload/{name}", "graph_launches"),
                         f"{100 * cost:+.2f} %", interval(bounds, 100)))
    if not rows:
        return []
    return ["In graphs, beside the same plan issued op by op:", ""] + table(
        ("plan", "steps", "graphs", "added", "95 %"), rows)
