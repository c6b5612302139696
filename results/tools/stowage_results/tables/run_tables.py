"""Tables of training runs that belong together: seeds, capacities of packing, saving, and what
ranks exchange of a sequence that they share."""

import numpy as np

from stowage_results.tables.cells import (GPU, code, digits, gpu_of, interval, metric, ranks_of,
                                          set_cell, stem_of, table)
from stowage_results.check.official import SEEDS, losses_by_seed
from stowage_results.result_files import largest_of_ranks, text
from stowage_results.states import digests
from stowage_results.tables.train_tables import losses, of_one_run, timed_steps

# Ops that pass a Mamba layer's state on along a sequence, and its adjoint back.
STATES = ("mamba/gather_segment_states", "mamba/gather_segment_adjoints")
DIGITS = 8  # of a digest that a table shows


def commit(result):
    return code(text(result.file.attrs["git_describe"]))


def seed_of(result):
    return int(result.file["provenance/run"].attrs["seed"])


def seeds(results):
    """Losses of one deck that was trained with several seeds."""
    rows = []
    for sets, count in losses_by_seed(results):
        if count < 2:
            continue
        sets = sorted(sets, key=seed_of)
        cells = []
        for tag in ("train/loss", "train/val_loss"):
            values = np.array([metric(one, tag)[0] for one in sets])
            cells += [", ".join(f"{value:.4f}" for value in values),
                      f"{values.mean():.4f}", f"{np.ptp(values):.4f}"]
        rows.append((gpu_of(sets[0]), sets[0].key("run.name"), commit(sets[0]),
                     len(losses(sets[0])), ", ".join(str(seed_of(one)) for one in sets), *cells))
    if not rows:
        return []
    return ["## Losses by seed", "",
            "Runs that differ in their seed alone: initial weights, data and their order. Loss: "
            "mean of the last tenth of the steps; apart: the largest less the smallest. A loss is "
            f"official with {SEEDS} seeds.", ""] + table(
        (GPU, "deck", "commit", "steps", "seeds", "loss", "mean", "apart", "validation loss",
         "mean", "apart"), sorted(rows))


def exchanged_states(results):
    """What passing on the states of Mamba layers takes, of runs whose ranks share sequences."""
    rows = []
    for result in results:
        step, paths = result.array("samples/train/timed_step"), result.datasets("samples/ops")
        if step is None or not any(path in paths for path in STATES):
            continue
        times = [np.median(result.array(f"samples/ops/{path}")) if path in paths else 0.0
                 for path in STATES]
        moved = sum(result.attribute(f"samples/ops/{path}", "bytes") for path in STATES
                    if path in paths)
        shares = [*(time_s / np.median(step) for time_s in times), sum(times) / np.median(step)]
        rows.append((gpu_of(result), set_cell(result), ranks_of(result),
                     result.key("train.seq_length"), digits(1e-6 * moved),
                     *(f"{100 * share:.2f} %" for share in shares)))
    if not rows:
        return []
    return ["## States along a sequence", "",
            "What ranks that share a sequence exchange of the states of Mamba layers: the share of "
            "the steps timed op by op in which these ops run, waiting for the other ranks "
            "included, whether or not something computes beside them. Their bytes do not grow "
            "with the sequence.", ""] + table(
        (GPU, "set", "ranks", "tokens of a sequence", "MB a step", "states", "adjoints",
         "together"), rows)


def packed(results):
    """Packed documents by the room of the graph: sets named packed_..."""
    rows = []
    for result in results:
        if not stem_of(result).startswith("packed_"):
            continue
        rate, bounds = metric(result, "train/tokens_per_s")
        room = text(result.key("graphs.max_packed_seqs")).strip("[]")
        room = (room or "what the data need") if result.key("graphs.mode") == "step" else "op by op"
        kept = digests(result)
        last = f"`{kept[max(kept)][:DIGITS]}`" if kept else ""
        rows.append((gpu_of(result), result.key("run.name"), set_cell(result),
                     commit(result), ranks_of(result), text(result.key("data.packing")), room,
                     digits(1e-3 * rate), interval(bounds, 1e-3), len(losses(result)), last))
    if not rows:
        return []
    return ["## Packed documents", "",
            "Thousand tokens/s by the room of the graph in documents. State: the first digits of "
            "the digest of all that a run keeps, after its last step.", ""] + table(
        (GPU, "deck", "set", "commit", "ranks", "packing", "room", "tokens/s", "95 %", "steps",
         "state"), sorted(rows))


def median_step(result):
    return float(np.median(largest_of_ranks(timed_steps(result))))


def unsaved(results, saved):
    """The set of the same run, deck and length without saves; None if there is none."""
    def work(result):
        return {key: str(value) for key, value in result.config().items()
                if not key.startswith(("checkpoint.", "run.output", "run.log"))}
    return next((one for one in results if one.series("checkpoint/stall") is None
                 and of_one_run(one, saved) and work(one) == work(saved)), None)


def saving(results):
    """Runs that save, beside the same without: one row for each save."""
    rows = []
    for result in results:
        stalls = result.series("checkpoint/stall")
        if stalls is None:
            continue
        beside = unsaved(results, result)
        added = "" if beside is None else \
            f"{100 * (median_step(result) / median_step(beside) - 1):+.2f} % ({set_cell(beside)})"
        for (step, stall_s), time_s, moved in zip(zip(*stalls), result.series("checkpoint/time")[1],
                                                  result.series("checkpoint/bytes")[1]):
            rows.append((gpu_of(result), set_cell(result),
                         result.key("checkpoint.interval"), step, digits(1e3 * stall_s),
                         digits(1e-9 * moved), digits(time_s),
                         digits(1e-9 * moved / time_s), added))
    if not rows:
        return []
    return ["## Saving", "",
            "Every save of a run. Stall: what the step waits for it, at the end of a run until it "
            "is written. Median step: beside that of the same run without saves.", ""] + table(
        (GPU, "set", "every steps", "after step", "stall ms", "GB", "written in s", "GB/s",
         "median step"), rows)


def runs(results):
    return exchanged_states(results) + seeds(results) + packed(results) + saving(results)
