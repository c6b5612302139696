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

import numpy as np

from cells import digits, interval, metric, name_of, percent, ranks_of, table
from communication import communication
from official import by_uuid, is_checked, not_official
from result_files import Refused, Result, largest_of_ranks, run, text
from scaling import scaling_tables
from validate import check, schema_rows

BEGIN = "<!-- made by results/tools/table.py -->"
END = "<!-- end of what table.py made -->"
LEAST_SHARE = 0.01  # of a step, for an operator to have a row
YARDSTICK = "copy"  # an implementation that is a column of the others
PEERS = ("cublas", "cudnn", "cuda")  # libraries, by what implementations of theirs begin with
OF_LIBRARY = ("product", "linear_")  # operators whose own implementation is a product of cuBLASLt
# Above 1 / this a rate is no longer explained by clocks: products of one board differ by 8 % with
# the shape and the moment, copies by 1 %.
ABOVE_PRODUCTS, ABOVE_COPY = 1.1, 1.05


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


def kernels(results):
    lines = ["## Kernels", "",
             "Implementations of a shape ran in turn, sample by sample, with a cold L2. Limit: the "
             "time that the binding ceiling allows / median time. Copy: median time of a plain "
             "copy kernel that reads and writes as many bytes, in turn with it / median time. "
             "Peer: median time of the fastest library's / that of ours, marked `=` where ours is "
             "the same library by another choice of its algorithms; other rows are parts or forms "
             "of ours. Error: the largest of the row's relative errors against fp64. `ERROR` in "
             "limit or copy: a rate above a ceiling, which is not this row's, or a cost that "
             "counts too much.", ""]
    rows = []
    for result in results:
        cases = {}
        for path in result.datasets("samples/kernels"):
            case, _, implementation = path.rpartition("/")
            cases.setdefault(case, []).append(implementation)
        for case, implementations in cases.items():
            times = {one: metric(result, f"kernels/{case}/{one}/time")[0]
                     for one in implementations}
            for one in sorted(implementations, key=lambda i: (not i.startswith("ours"), i)):
                if one == YARDSTICK:
                    continue
                rows.append(kernel_row(result, case, one, times))
    return lines + table(("operator", "shape", "implementation", "by", "error", "median us",
                          "95 % interval us", "TFLOP/s", "GB/s", "limit", "copy", "peer"), rows)


def library_of(result, case, one):
    """Library, version and algorithm behind an implementation; empty for kernels of ours."""
    stored = result.file[f"samples/kernels/{case}/{one}"].attrs.get("library")
    if stored is not None:
        return text(stored)
    if one.startswith("cublas") or (one == "ours" and case.startswith(OF_LIBRARY)):
        return text(result.attribute("provenance/software", "cublas"))
    return f"{one.partition('_')[0]}, version not stored" if one.startswith(PEERS) else ""


def error_of(result, case, one):
    attributes = result.file[f"samples/kernels/{case}/{one}"].attrs
    return f"{float(attributes['error']):.1e}" if is_checked(attributes) else "not checked"


def first_words(library):
    """The name and the version, without the algorithm."""
    return library.partition(",")[0]


def kernel_row(result, case, one, times):
    base = f"kernels/{case}/{one}"
    operator, _, shape = case.partition("/")
    time_s, bounds = metric(result, f"{base}/time")
    share, of_copy = (metric(result, f"{base}/{one_of}")[0]
                      for one_of in ("pct_ceiling", "pct_copy"))
    peers = {other: time for other, time in times.items() if other.startswith(PEERS)}
    peer, library = "", library_of(result, case, one)
    if one.startswith("ours") and peers:
        best = min(peers, key=peers.get)
        same = library and first_words(library) == first_words(library_of(result, case, best))
        peer = f"{peers[best] / time_s:.2f}x{' =' if same else ''}"
    return (operator, shape, one, library, error_of(result, case, one), digits(1e6 * time_s),
            interval(bounds, 1e6),
            digits(1e-12 * metric(result, f"{base}/flops_per_s")[0]),
            digits(1e-9 * metric(result, f"{base}/bytes_per_s")[0]),
            percent(share, ABOVE_PRODUCTS), percent(of_copy, ABOVE_COPY), peer)


def training(results):
    lines = ["## Training", ""]
    rows = []
    for result in results:
        rate, bounds = metric(result, "train/tokens_per_s")
        gib = metric(result, "train/peak_device_bytes")[0] / 2**30
        rows.append((result.key("run.name"), f"`{name_of(result)}`", ranks_of(result),
                     result.key("execution.backend"), result.key("train.dtype"),
                     len(timed_steps(result)), f"{digits(1e-3 * rate)} k",
                     interval(bounds, 1e-3),
                     digits(1e3 * metric(result, "train/step_time")[0]),
                     digits(1e-12 * metric(result, "train/model_flops_per_s_gpu")[0]),
                     f"{gib:.1f} GiB", digits(metric(result, "train/setup_time")[0]),
                     f"{metric(result, 'train/loss')[0]:.4f}"))
    lines += table(("deck", "set", "ranks", "backend", "dtype", "steps", "tokens/s",
                    "95 % interval", "ms a step", "model TFLOP/s a rank", "planned memory a rank",
                    "set-up s", "loss"), rows)
    for result in results:
        lines += operators(result)
    return lines + longest(results) + scaling(results)


def timed_steps(result):
    steps = result.array("samples/train/step_time")
    return np.array([]) if steps is None else steps


def losses(result):
    found = result.array("series/train/loss")
    return np.array([]) if found is None else found


def longest(results):
    """Runs whose sequence is as long as memory allows: sets named longest_..."""
    rows = []
    for result in results:
        if not name_of(result).startswith("longest_"):
            continue
        steps = timed_steps(result)
        policy = result.key("offload.policy")
        if result.key("recompute.modules") != "[]":
            policy += ", recompute"
        length = int(result.key("train.seq_length"))
        rows.append((length,
                     (f"`{name_of(result)}`", result.key("run.name"), policy, length,
                      f"{metric(result, 'train/peak_device_bytes')[0] / 2**30:.1f} GiB",
                      len(steps), digits(np.median(steps)),
                      f"{digits(1e-3 * metric(result, 'train/tokens_per_s')[0])} k",
                      f"{metric(result, 'train/loss')[0]:.4f}")))
    if not rows:
        return []
    rows.sort(key=lambda row: row[0])
    return ["The longest sequences that train on one GPU:", ""] + table(
        ("set", "deck", "offload.policy", "tokens", "planned memory", "steps", "s a step",
         "tokens/s", "loss"), [row for _, row in rows])


def scaling(results):
    """Runs on several ranks beside those of one: the rate of the same work a rank, and the losses
    of the same global batch."""
    def facts(result):
        return (result.key("run.name"), ranks_of(result),
                int(result.key("train.global_batch_size")))

    single = {facts(r): r for r in results if ranks_of(r) == 1}
    rows = []
    for result in results:
        deck, ranks, batch = facts(result)
        weak, strong = single.get((deck, 1, batch // ranks)), single.get((deck, 1, batch))
        if ranks == 1 or (weak is None and strong is None):
            continue
        rate = metric(result, "train/tokens_per_s")[0]
        efficiency, loss = np.nan, ""
        if weak is not None:
            efficiency = rate / (ranks * metric(weak, "train/tokens_per_s")[0])
        if strong is not None and schedule(strong) != schedule(result):
            loss = "not compared: another schedule"
        elif strong is not None:
            one, many = losses(strong), losses(result)
            common = min(len(one), len(many))
            apart = np.abs(one[:common] / many[:common] - 1).max(initial=0)
            loss = f"{apart:.1e} over {common} steps"
        rows.append((f"`{name_of(result)}`", ranks,
                     f"{100 * efficiency:.1f} %" if weak is not None else "",
                     loss))
    if not rows:
        return []
    return ["Efficiency: tokens/s / (ranks x tokens/s of one rank with the same work a rank). "
            "Loss: largest relative distance from one rank's with the same global batch.",
            ""] + table(
        ("set", "ranks", "weak scaling efficiency", "loss"), rows)


def operators(result):
    """Where the time of a step goes, if it was timed op by op."""
    step = result.array("samples/train/timed_step")
    if step is None:
        return []
    step_s = np.median(step)
    rows = []
    for path in result.datasets("samples/ops"):
        times = result.array(f"samples/ops/{path}")
        queue, calls, flops, moved = (result.attribute(f"samples/ops/{path}", name)
                                      for name in ("queue", "calls", "flops", "bytes"))
        time_s = np.median(times)
        if time_s >= LEAST_SHARE * step_s:
            rows.append((time_s, (path, text(queue), calls,
                                  digits(1e3 * time_s), f"{100 * time_s / step_s:.1f} %",
                                  digits(1e-12 * flops / time_s),
                                  digits(1e-9 * moved / time_s))))
    rows.sort(key=lambda row: -row[0])
    return [f"Where a step of `{name_of(result)}` goes ({1e3 * step_s:.1f} ms timed op by op, "
            f"median of {len(step)} steps; rows of 1 % and more):", ""] + table(
        ("op", "queue", "calls", "ms", "share", "TFLOP/s", "GB/s"), [row for _, row in rows])


def schedule(result):
    """What two losses must have in common to be compared: learning rates, order and batch."""
    keys = {key: value for key, value in result.config().items()
            if key.startswith(("optim.", "data.", "model.", "run.seed", "train.seq_length",
                               "train.global_batch_size"))}
    keys["optim.decay_steps"] = int(result.key("optim.decay_steps")) or int(result.key("run.steps"))
    return keys


def curves(results):
    """Losses of runs of one deck, against the first of them: the host's, or the lowest name."""
    groups = {}
    for result in results:
        key = result.key("run.name"), result.key("train.dtype")
        groups.setdefault(key, []).append(result)
    rows = []
    for (deck, dtype), runs in sorted(groups.items()):
        hosts = [r for r in runs if r.key("execution.backend") == "host"]
        if not hosts:
            continue
        base = hosts[0]
        for other in runs:
            if other is base:
                continue
            a, b = losses(base), losses(other)
            common = min(len(a), len(b))
            if common == 0 or schedule(base) != schedule(other):
                continue
            apart = np.abs(a[:common] - b[:common])
            rows.append((deck, dtype, f"`{name_of(other)}`", f"`{name_of(base)}`", common,
                         f"{apart.max():.2e}", f"{apart[-20:].mean():.2e}"))
        twins = [r for r in runs if r not in hosts]
        for a, b in zip(twins, twins[1:]):
            same = np.array_equal(losses(a), losses(b))
            if ranks_of(a) == ranks_of(b) and schedule(a) == schedule(b):
                rows.append((deck, dtype, f"`{name_of(b)}`", f"`{name_of(a)}`",
                             len(losses(a)),
                             "0 (all bits)" if same else "OTHER BITS", ""))
    if not rows:
        return []
    return ["## Loss curves", ""] + table(
        ("deck", "dtype", "set", "beside", "steps", "largest distance in nat",
         "mean of the last 20"), rows)


def offload(results):
    lines = ["## Offload and recompute", "",
             "One step of every plan in turn, over and over. Added: median of the differences from "
             "the step of the same round that keeps everything, over the median of the latter. "
             "Exposed: what compute waits for copies, measured where steps are issued op by op; "
             "hidden: the part of the copies' time that it does not wait for. At berths: bytes "
             "kept in the memory of gradients that are written later; `aside_*` plans do without "
             "them.", ""]
    for result in results:
        rows = [offload_row(result, name) for name in result.datasets("samples/offload")]
        rows.sort(key=lambda row: -float(row[2]))
        lines += [f"`{name_of(result)}`:", ""] + table(
            ("plan", "steps", "transient GiB", "at berths GiB", "host GiB", "copies out",
             "reruns", "ms a step", "added", "95 %", "predicted ms", "exposed ms", "predicted",
             "hidden"), rows)
        lines += free_copies(result) + graph_costs(result) + modules_of_deck(result)
    return lines


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
