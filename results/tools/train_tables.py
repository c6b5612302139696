"""Tables of training runs: rates, parts of a step, longest sequences, ranks, loss curves."""

import numpy as np

from cells import digits, interval, metric, name_of, ranks_of, table
from result_files import text

LEAST_SHARE = 0.01  # of a step, for an operator to have a row


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
