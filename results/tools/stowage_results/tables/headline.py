"""The short tables on top of a page: training, and each operator beside its best peer."""

import itertools

import numpy as np

from stowage_results.tables.beside_one import beside_one
from stowage_results.tables.cells import (GPU, NOT_OFFICIAL, code, digits, gpu_of, mark, metric,
                                          name_of, percent, plain, ranks_of, set_cell, table)
from stowage_results.tables.kernel_tables import (ABOVE_COPY, ABOVE_PRODUCTS, PEERS, cases,
                                                  first_words, library_of, times_of)
from stowage_results.tables.peer_times import of_board, of_case, of_step
from stowage_results.result_files import text
from stowage_results.tables.train_tables import dtype_of, limits_of_run, timed_steps
from stowage_results.tables.variants import variants

DECKS = ("dense-124m", "hybrid-dense-1b", "hybrid-moe-2b")
# Dense bf16 FLOP/s of a GPU, from its data sheet.
PEAKS = {"NVIDIA H200": 989.4e12, "NVIDIA H100 80GB HBM3": 989.4e12}
OPERATORS = (  # name, operator, how its shape begins: those of the decks, or of what has a peer
    ("attention, forward", "attention_forward", "B2_T8192_H32_K8_P128_"),
    ("attention, forward, head of 64", "attention_forward", "B1_T4096_H32_K32_P64_"),
    ("attention, backward", "attention_backward", "B2_T8192_H32_K8_P128_"),
    ("attention, backward, head of 64", "attention_backward", "B1_T4096_H32_K32_P64_"),
    ("attention of packed documents, forward", "attention_packed_forward", ""),
    ("attention of packed documents, backward", "attention_packed_backward", ""),
    ("Mamba-2 scan, forward", "ssd_forward", "B2_T8192_H64_P64_G8_N128"),
    ("Mamba-2 scan, backward", "ssd_backward", "B2_T8192_H64_P64_G8_N128"),
    ("convolution, forward", "conv1d_forward", "B2_T8192_C6144"),
    ("convolution, backward", "conv1d_backward", "B2_T8192_C6144"),
    ("add and RMSNorm, forward", "add_rmsnorm_forward", "n16384_D2048"),
    ("RMSNorm, backward", "rmsnorm_backward", "n16384_D2048"),
    ("gated RMSNorm, forward", "gated_rmsnorm_forward", "n16384_D4096"),
    ("gated RMSNorm, backward", "gated_rmsnorm_backward", "n16384_D4096"),
    ("head and cross-entropy; peer: its products alone", "linear_cross_entropy",
     "n16384_V65536_D2048"),
    ("experts, first product and activation", "grouped_fc1_forward",
     "E32_rows65536_D2048_F1024_swiglu0_load0"),
    ("experts, product", "grouped_linear_forward", "E32_rows65536_M1024_K2048_load0"),
    ("experts, gradient of rows", "grouped_linear_backward_input",
     "E32_rows65536_M1024_K2048_load0"),
    ("experts, gradient of weights", "grouped_linear_backward_weight",
     "E32_rows65536_M1024_K2048_load0_accumulate0"),
    ("linear, in_proj of Mamba-2", "product", "m16384_n10304_k2048_ta0_tb1_"),
    ("linear, fc1 of the MLP", "product", "m16384_n8192_k2048_ta0_tb1_"),
    ("AdamW on bf16 parameters", "adamw", "P1073741824_tensors256_bf161"))
NOT_TIMED = "not timed"
SCRIPT = " †"  # behind a peer that a script timed


def commit(result):
    return code(text(result.file.attrs["git_describe"]))


def by_machine(results):
    """Sets of each kind of GPU for themselves, those without one in every group; one group where
    sets are not told apart."""
    kinds = sorted({gpu_of(one) for one in results} - {"", "none"})
    return [[one for one in results if gpu_of(one) in (kind, "none")] for kind in kinds] \
        or [list(results)]



class Training:
    """What the longest one-rank run of a deck on a GPU showed, and the fastest peer's step."""

    def __init__(self, results, run, peers):
        self.run, self.deck = run, run.key("run.name")
        self.tokens_per_s, _ = metric(run, "train/tokens_per_s")
        rate = metric(run, "train/model_flops_per_s_gpu")[0]
        self.board = text(run.array("provenance/system/ranks")[0]["gpu_name"])
        self.mfu = rate / PEAKS.get(self.board, np.nan)
        self.of_products = rate / limits_of_run(results, run)[0]
        self.j_per_token = metric(run, "energy/j_per_token")[0]
        self.peak_bytes = metric(run, "train/peak_device_bytes")[0]
        tokens = int(run.key("train.global_batch_size")) * int(run.key("train.seq_length"))
        found = of_step(of_board(peers, run), self.deck, tokens,
                        int(metric(run, "train/parameters")[0]))
        self.peer = max(found, key=lambda peer: peer["tokens_per_s"], default=None)

    def cells(self):
        peer, rate = self.peer, self.tokens_per_s
        beside = (NOT_TIMED, "", "") if peer is None else (
            f"{digits(1e-3 * peer['tokens_per_s'])} k", f"{rate / peer['tokens_per_s']:.2f}x",
            f"{peer['peak_bytes'] / 2**30:.1f}")
        memory = f"{self.peak_bytes / 2**30:.1f}" + (f", {beside[2]}" if beside[2] else "")
        return (gpu_of(self.run), self.deck, f"{digits(1e-3 * rate)} k", beside[0], beside[1],
                percent(self.mfu), percent(self.of_products), f"{1e3 * self.j_per_token:.2f} mJ",
                memory, set_cell(self.run))


def beside_scripts(results, peers):
    """Every one-rank run whose step a script timed in another program, for the long tables."""
    runs = [Training(results, one, peers) for one in results
            if text(one.file.attrs["driver"]) == "train" and ranks_of(one) == 1
            and any(peer["operator"] == "train_step" for peer in peers)]
    rows = [(gpu_of(run.run), run.deck, set_cell(run.run), commit(run.run),
             digits(1e-3 * run.tokens_per_s), digits(1e-3 * run.peer["tokens_per_s"]),
             f"`{run.peer['file']}`", f"{run.tokens_per_s / run.peer['tokens_per_s']:.2f}x",
             f"{run.peak_bytes / 2**30:.1f}", f"{run.peer['peak_bytes'] / 2**30:.1f}")
            for run in runs if run.peer]
    if not rows:
        return []
    return ["### Beside peers that scripts timed", "",
            "Thousand tokens/s of the same model, batch and lengths; peak memory in GiB, ours as "
            "planned.", ""] + table(
        (GPU, "deck", "set", "commit", "ours", "peer", "timed in", "ratio", "our memory",
         "peer's memory"), sorted(rows))


def training_runs(results, peers):
    """One Training for each of the standard decks that the sets of a kind of GPU have: the longest
    run in bf16, rather one that saves no state, whose copy needs memory."""
    found = []
    for deck, sets in itertools.product(DECKS, by_machine(results)):
        runs = [one for one in sets if text(one.file.attrs["driver"]) == "train"
                and ranks_of(one) == 1 and one.config().get("run.name") == deck
                and one.config().get("execution.backend") == "cuda" and dtype_of(one) == "bf16"]
        if runs:
            saves = {one: int(one.config().get("checkpoint.interval", 0)) > 0 for one in runs}
            shown = min(runs, key=lambda one: (saves[one], -len(timed_steps(one)), name_of(one)))
            found.append(Training(sets, shown, peers))
    return found


def peaks_of(runs):
    """{board: peak} of the GPUs of these runs, as far as they are known."""
    boards = {run.board for run in runs}
    return {board: peak for board, peak in PEAKS.items() if board in boards}


def training(runs):
    if not runs:
        return []
    named = ", ".join(f"{1e-12 * peak:.1f} TFLOP/s of one {board}"
                      for board, peak in peaks_of(runs).items())
    software = sorted({run.peer["implementation"] for run in runs if run.peer})
    lines = ["One optimizer step of the standard decks on one GPU, in bf16.", ""]
    lines += [f"- PyTorch: {plain('; '.join(software))};"] if software else []
    lines += [f"- MFU: FLOP of the model / time / the dense bf16 peak ({named});",
              "- of products: the same rate / that of the fastest matrix product of the same run;",
              "- energy: of the GPU;",
              "- memory: ours as planned, then what PyTorch had at most.", ""]
    return lines + table((GPU, "deck", "tokens/s", "PyTorch", "ratio", "MFU", "of products",
                          "energy a token", "memory GiB", "set"),
                         [run.cells() for run in runs])


class Operator:
    """One case of a set, with the fastest peer that a library or a script gives."""

    def __init__(self, name, result, case, peers):
        self.name, self.result, self.case = name, result, case
        self.time_s = times_of(result, case, ["ours"])["ours"]
        implementations = cases(result)[case]
        library = library_of(result, case, "ours")
        found = [(time_s, library_of(result, case, one))
                 for one, time_s in times_of(result, case, implementations).items()
                 if one.startswith(PEERS)]
        operator, _, shape = case.partition("/")
        flops = result.file[f"samples/kernels/{case}/ours"].attrs["flops"]
        found += [(peer["median_s"], peer["implementation"] + SCRIPT)
                  for peer in of_case(of_board(peers, result), operator, shape, flops)]
        self.peer_s, self.peer = min(found, default=(np.nan, NOT_TIMED))
        self.same = bool(library) and first_words(library) == first_words(self.peer)
        self.limit, self.copy = (metric(result, f"kernels/{case}/ours/{share}")[0]
                                 for share in ("pct_ceiling", "pct_copy"))
        self.limit_is_named = "provenance/ceilings" in result.file

    def cells(self):
        ratio = self.peer_s / self.time_s
        limit = percent(self.limit, ABOVE_PRODUCTS)
        return (gpu_of(self.result), self.name, self.case.partition("/")[2],
                digits(1e6 * self.time_s), digits(1e6 * self.peer_s), self.peer,
                f"{ratio:.2f}x{' =' if self.same else ''}" if np.isfinite(ratio) else "",
                limit if self.limit_is_named or not limit else f"{limit} *",
                percent(self.copy, ABOVE_COPY), set_cell(self.result))


def operators(results, peers):
    """An Operator for each row of OPERATORS that the sets of a kind of GPU have, of the set with
    most samples."""
    found = []
    kernels = [one for one in results if text(one.file.attrs["driver"]) == "bench_kernels"]
    for (name, operator, start), sets in itertools.product(OPERATORS, by_machine(kernels)):
        candidates = [(-len(result.array(f"samples/kernels/{case}/ours")), name_of(result), case,
                       result) for result in sets for case, of in cases(result).items()
                      if case.startswith(f"{operator}/{start}") and "ours" in of]
        if candidates:
            *_, case, result = min(candidates, key=lambda candidate: candidate[:3])
            found.append(Operator(name, result, case, peers))
    return found


def kernels(rows):
    if not rows:
        return []
    return ["Operators alone, median us with a cold L2.", "",
            "- ratio: the fastest peer's time / ours, `=` where ours is the same library by "
            "another choice of its algorithms;",
            "- limit: what the binding ceiling of the same machine allows / ours, `*` where the "
            "set does not name its ceilings;",
            "- copy: a plain copy of as many bytes / ours;",
            f"- {SCRIPT.strip()}: timed by a script, not in turn with ours.", ""] + table(
        (GPU, "operator", "shape", "ours us", "peer us", "best peer", "ratio", "limit", "copy",
         "set"), [row.cells() for row in rows])


def reasons(results):
    """Why these sets are not official, one line each, below the tables that mark them."""
    marked = sorted({f"- {set_cell(one)}: {plain('; '.join(one.unofficial))}"
                     for one in results if mark(one)})
    return [f"{NOT_OFFICIAL}: not official by the run rules of `results/README.md`:", "", *marked,
            ""] if marked else []


def headline(results, peers):
    """The short tables; nothing if the sets have no row of them."""
    curves = [one for one in results if text(one.file.attrs["driver"]) == "bench_scaling"]
    lines = training(training_runs(results, peers)) + beside_one(curves) \
        + kernels(operators(results, peers))
    if not lines:
        lines = variants([one for one in results if text(one.file.attrs["driver"]) == "train"])
    shown = [one for one in results if any(set_cell(one) in line for line in lines)]
    return ["## In short", "", *lines, *reasons(shown)] if lines else []


def short_training(runs):
    """The training table for a reader who sees nothing else."""
    commits = sorted({commit(run.run) for run in runs})
    software = sorted({run.peer["implementation"] for run in runs if run.peer})
    known = peaks_of(runs)
    boards, peaks = " or ".join(known), " or ".join(f"{1e-12 * p:.1f}" for p in known.values())
    lines = [f"Training in bf16 on one {boards}, at {', '.join(commits)}; MFU of {peaks} TFLOP/s."
             + (f" Beside it: {plain('; '.join(software))}." if software else ""), ""]
    rows = [(gpu, f"{deck}{mark(run.run)}", *rest)
            for run in runs for gpu, deck, *rest in (run.cells(),)]
    return lines + table((GPU, "deck", "tokens/s", "PyTorch", "ratio", "MFU", "energy a token"),
                         [(*row[:6], row[7]) for row in rows]) + reasons([run.run for run in runs])
