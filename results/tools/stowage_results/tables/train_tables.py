"""Tables of training runs: rates, parts of a step, longest sequences, ranks, loss curves."""

import datetime

import numpy as np

from stowage_results.tables.cells import (GPU, caption, digits, gpu_of, interval, metric, name_of,
                                          percent, ranks_of, set_cell, shown_cells,
                                          shown_headings, stem_of, table)
from stowage_results.tables.kernel_tables import ABOVE_PRODUCTS
from stowage_results.medians import quotient_interval
from stowage_results.check.official import time_of
from stowage_results.result_files import largest_of_ranks, text

LEAST_SHARE = 0.01  # of a step, for an operator to have a row
RUN_LASTS = datetime.timedelta(days=1)  # sets of one run were made within this time
SAME_MACHINE = ("host", "cpu_model", "kernel", "gpu_name", "gpu_uuid", "gpu_driver")
SAME_WORK = ("model.", "train.", "data.", "graphs.", "offload.", "recompute.", "execution.")
ALONE = "no one-rank set of its run"
# How far losses of a GPU may lie from the host's at any step, in nat, by deck and type: in fp32 a
# GPU sums in another order, and 200 steps let that grow.
BANDS = {("quickstart", "fp32"): 5e-3, ("quickstart", "bf16"): 2e-2}


def dtype_of(result):
    """The storage type of a run, and that of its products if it is another: "bf16, fp8"."""
    dtype, products = result.key("train.dtype"), result.config().get("train.precision", "dtype")
    return dtype if products == "dtype" else f"{dtype}, {products}"


def training(results, ceilings=()):
    """@param ceilings sets of limits, for the runs of the same machine and day"""
    lines = ["## Training", ""]
    rows = []
    for result in results:
        rows.append((gpu_of(result), result.key("run.name"), set_cell(result),
                     ranks_of(result), result.key("execution.backend"), dtype_of(result),
                     len(timed_steps(result)), *shown_cells(result)))
    lines += table((GPU, "deck", "set", "ranks", "backend", "dtype", "steps", *shown_headings()),
                   rows)
    timed = [result for result in results if "samples/train/timed_step" in result.file]
    if timed:
        lines += ["Of steps that were timed op by op, limit: the time that the fastest product and "
                  "a plain copy among the ceilings of the same run allow / the op's. `ERROR`, by "
                  f"the rule of kernels' tables, above {100 * ABOVE_PRODUCTS:.0f} %: the ceiling "
                  "is not that op's, such as one measured at another clock, or its cost counts too "
                  "much.", ""]
    for result in timed:
        lines += operators(result, limits_of_run(ceilings, result))
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
        if not stem_of(result).startswith("longest_"):
            continue
        steps = timed_steps(result)
        policy = result.key("offload.policy")
        if result.key("recompute.modules") != "[]":
            policy += ", recompute"
        length = int(result.key("train.seq_length"))
        rows.append((length,
                     (gpu_of(result), set_cell(result), result.key("run.name"), policy,
                      length, f"{metric(result, 'train/peak_device_bytes')[0] / 2**30:.1f} GiB",
                      len(steps), digits(np.median(steps)),
                      f"{digits(1e-3 * metric(result, 'train/tokens_per_s')[0])} k",
                      f"{metric(result, 'train/loss')[0]:.4f}")))
    if not rows:
        return []
    rows.sort(key=lambda row: row[0])
    return ["The longest sequences that train on one GPU:", ""] + table(
        (GPU, "set", "deck", "offload.policy", "tokens", "planned memory", "steps", "s a step",
         "tokens/s", "loss"), [row for _, row in rows])


def machine(result):
    """What a set tells of the board and host of its first rank."""
    ranks = result.array("provenance/system/ranks")
    return {name: ranks[0][name] for name in SAME_MACHINE if name in ranks.dtype.names}


def of_one_run(a, b):
    """Whether two sets are of one run of the list: commit, board, host and day."""
    one, other = machine(a), machine(b)
    described, days = ([text(r.file.attrs[name]) for r in (a, b)]
                       for name in ("git_describe", "created"))
    return (described[0] == described[1] and abs(time_of(days[0]) - time_of(days[1])) <= RUN_LASTS
            and all(one[name] == other[name] for name in one.keys() & other.keys()))


def work(result):
    """Keys that decide how long a rank needs for its part of the batch, but for its size."""
    return {key: value for key, value in result.config().items()
            if key.startswith(SAME_WORK) and key != "train.global_batch_size"}


def one_rank(results, many, batch, same):
    """The one-rank set of the same run, deck, sequences and batch that `same` accepts and that has
    most steps; None if there is none."""
    keys = ("run.name", "train.seq_length", "train.micro_batch_size")
    found = [one for one in results if ranks_of(one) == 1
             and all(one.key(key) == many.key(key) for key in keys)
             and int(one.key("train.global_batch_size")) == batch
             and of_one_run(one, many) and same(one)]
    return min(found, key=lambda one: (-len(timed_steps(one)), name_of(one)), default=None)


def efficiency(one, many):
    """Cells of tokens/s / (ranks x tokens/s of one rank), with its interval: the quotient of the
    step times, since the work a rank is the same."""
    if one is None:
        return ALONE, ""
    times = [largest_of_ranks(timed_steps(result)) for result in (one, many)]
    value = np.median(times[0]) / np.median(times[1])
    return f"{100 * value:.1f} %", interval(quotient_interval(*times), 100)


def scaling(results):
    """Runs on several ranks beside those of one: the rate of the same work a rank, and the losses
    of the same global batch."""
    rows = []
    for result in results:
        ranks, batch = ranks_of(result), int(result.key("train.global_batch_size"))
        if ranks == 1:
            continue
        weak = one_rank(results, result, batch // ranks,
                        lambda one, of=work(result): work(one) == of)
        strong = one_rank(results, result, batch, lambda one: True)
        if strong is None:
            loss = ALONE
        elif schedule(strong) != schedule(result):
            loss = f"not compared with {set_cell(strong)}: another schedule"
        else:
            one, many = losses(strong), losses(result)
            common = min(len(one), len(many))
            apart = np.abs(one[:common] / many[:common] - 1).max(initial=0)
            loss = f"{apart:.1e} over {common} steps of {set_cell(strong)}"
        beside = set_cell(weak) if weak is not None else ""
        rows.append((gpu_of(result), set_cell(result), ranks, beside,
                     *efficiency(weak, result), loss))
    if not rows:
        return []
    return ["Efficiency: tokens/s / (ranks x tokens/s of one rank with the same work a rank), "
            "beside a set of the same run: one commit, board, host and day. Its interval holds "
            "with at least 95 %. Loss: largest relative distance from one rank's with the same "
            "global batch.", ""] + table(
        (GPU, "set", "ranks", "beside", "weak scaling efficiency", "95 % interval", "loss"), rows)


def limits_of_run(ceilings, run):
    """(FLOP/s, B/s) of the fastest product and of a plain copy among the limits of the same run;
    NaN where there are none."""
    best = {"flops_per_s": np.nan, "bandwidth": np.nan}
    for result in ceilings:
        if text(result.file.attrs["driver"]) == "ceilings" and of_one_run(result, run):
            for tag in result.datasets("metrics/ceilings"):
                quantity = tag.rpartition("/")[2]
                if quantity == "flops_per_s" or tag == "device_copy/bandwidth":
                    rate = metric(result, f"ceilings/{tag}")[0]
                    best[quantity] = np.fmax(best[quantity], rate)
    return best["flops_per_s"], best["bandwidth"]


def operators(result, limits=(np.nan, np.nan)):
    """Where the time of a step goes, if it was timed op by op.

    @param limits FLOP/s and B/s of the machine, for ops that compute"""
    step = result.array("samples/train/timed_step")
    step_s = np.median(step)
    rows = []
    for path in result.datasets("samples/ops"):
        times = result.array(f"samples/ops/{path}")
        queue, calls, flops, moved = (result.attribute(f"samples/ops/{path}", name)
                                      for name in ("queue", "calls", "flops", "bytes"))
        time_s = np.median(times)
        if time_s >= LEAST_SHARE * step_s:
            computes = text(queue) == "compute"
            least_s = max(flops / limits[0], moved / limits[1]) if computes else np.nan
            rows.append((time_s, (path, text(queue), calls,
                                  digits(1e3 * time_s), f"{100 * time_s / step_s:.1f} %",
                                  digits(1e-12 * flops / time_s), digits(1e-9 * moved / time_s),
                                  percent(least_s / time_s, ABOVE_PRODUCTS))))
    rows.sort(key=lambda row: -row[0])
    return [f"Where a step of {caption(result)} goes ({1e3 * step_s:.1f} ms timed op by op, "
            f"median of {len(step)} steps; rows of 1 % and more):", ""] + table(
        ("op", "queue", "calls", "ms", "share", "TFLOP/s", "GB/s", "limit"),
        [row for _, row in rows])


def schedule(result):
    """What two losses must have in common to be compared: learning rates, order and batch."""
    keys = {key: value for key, value in result.config().items()
            if key.startswith(("optim.", "data.", "model.", "run.seed", "train.seq_length",
                               "train.global_batch_size"))}
    keys["optim.decay_steps"] = int(result.key("optim.decay_steps")) or int(result.key("run.steps"))
    return keys


def beside_host(results):
    """(deck, dtype, run, host's run, distance in nat at each common step) of runs of one deck and
    schedule, and pairs (deck, dtype, run, run before, None) of those that must agree to the bit."""
    groups = {}
    for result in results:
        key = result.key("run.name"), dtype_of(result)
        groups.setdefault(key, []).append(result)
    found = []
    for (deck, dtype), runs in sorted(groups.items()):
        hosts = [r for r in runs if r.key("execution.backend") == "host"]
        for other in runs if hosts else []:
            base, common = hosts[0], min(len(losses(hosts[0])), len(losses(other)))
            if other is not base and common > 0 and schedule(base) == schedule(other):
                apart = np.abs(losses(base)[:common] - losses(other)[:common])
                found.append((deck, dtype, other, base, apart))
        twins = [r for r in runs if r not in hosts] if hosts else []
        found += [(deck, dtype, b, a, None) for a, b in zip(twins, twins[1:])
                  if ranks_of(a) == ranks_of(b) and schedule(a) == schedule(b)]
    return found


def same_bits(a, b):
    return np.array_equal(losses(a), losses(b))


def beyond_bands(results):
    """What contradicts the bands that a page states: a sentence for each."""
    problems = []
    for deck, dtype, run, base, apart in beside_host(results):
        band = BANDS.get((deck, dtype), np.inf)
        if apart is None and not same_bits(run, base):
            problems.append(f"{name_of(run)}: losses are not those of {name_of(base)} to the bit")
        if apart is not None and not apart.max() <= band:
            problems.append(f"{name_of(run)}: losses are {apart.max():.2e} nat from those of "
                            f"{name_of(base)}, the band of {deck} in {dtype} is {band:g}")
    return problems


def curves(results):
    """Losses of runs of one deck, against the first of them: the host's, or the lowest name."""
    rows = []
    for deck, dtype, run, base, apart in beside_host(results):
        band = BANDS.get((deck, dtype), np.inf)
        if apart is None:
            cells = (len(losses(run)), "0 (all bits)" if same_bits(run, base) else "ERROR: other "
                     "bits", "0", "")
        else:
            wrong = "" if apart.max() <= band else "ERROR: "
            cells = (len(apart), f"{wrong}{apart.max():.2e}",
                     f"{band:g}" if np.isfinite(band) else "", f"{apart[-20:].mean():.2e}")
        rows.append((gpu_of(run), deck, dtype, set_cell(run), set_cell(base), *cells))
    if not rows:
        return []
    return ["## Loss curves", ""] + table(
        (GPU, "deck", "dtype", "set", "beside", "steps", "largest distance in nat", "band",
         "mean of the last 20"), rows)
