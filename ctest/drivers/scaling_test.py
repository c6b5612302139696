#!/usr/bin/python3
"""stowage_bench_scaling as a user meets it, on the host.

Usage: scaling_test.py CASE --bench PROGRAM --source FOLDER. Each case runs in a
folder of its own.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib

import h5py
import numpy

from process_cases import Cases

CASES = case = Cases()
HOST = "execution.backend=host"


class Runner:
    def __init__(self, given, folder):
        self.given = given
        self.folder = folder
        self.deck = os.path.join(given.source, "ctest/drivers/tiny.toml")
        self.env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMP_NUM_THREADS="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def start(self, ranks):
        """What starts a program on so many ranks."""
        start = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
        return start if ranks > 1 else []

    def command(self, *arguments, ranks=2):
        return [*self.start(ranks), self.given.bench, self.deck, HOST, *arguments]

    def run(self, command, expect):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=150,
                              env=self.env)
        assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        return done.stdout + (done.stderr if expect else "")

    def bench(self, *arguments, expect=0, ranks=2):
        return self.run(self.command(*arguments, ranks=ranks), expect)

    def tool(self, name, *arguments, expect=0):
        return self.run([sys.executable, os.path.join(self.given.source, "results/tools", name),
                         *arguments], expect)

    def points(self, path):
        """{point: (samples, attributes)} of a set."""
        found = {}
        with h5py.File(os.path.join(self.folder, path)) as file:
            if "scaling" in file["samples"]:
                file["samples/scaling"].visititems(
                    lambda name, node: found.__setitem__(name, (node[()], dict(node.attrs)))
                    if isinstance(node, h5py.Dataset) else None)
        return found


@case(ranks=4)
def a_curve_is_measured_and_drawn(r):
    """Every axis, strong and weak, with and without graphs; four ranks, of which points take some.
    """
    layouts = ["d1", "d2", "t2", "c2", "e2", "p2", "d2_zero", "t2_d2"]
    said = r.bench("--layouts", "d=1, d=2, t=2, c=2, e=2, p=2, d=2 zero, t=2 d=2", "--scales",
                   "strong,weak", "--modes", "off,step", "--samples", "8",
                   "run.output=curve.h5", "--json", "curve.jsonl", ranks=4)
    assert "VALID" in said, said
    with open(os.path.join(r.folder, "curve.jsonl"), encoding="utf-8") as file:
        events = [json.loads(line)["event"] for line in file]
    assert events[0] == "benchmark" and events[-1] == "verdict" and "metric" in events, events
    found = r.points("curve.h5")
    assert set(found) == {f"{scale}/{layout}/{mode}" for scale in ("strong", "weak")
                          for layout in layouts for mode in ("off", "step")}, found.keys()
    digests = {}
    for name, (times, about) in found.items():
        ranks = numpy.prod([about[axis] for axis in ("tensor", "context", "expert", "pipeline",
                                                     "data")])
        assert times.shape == ((8, ranks) if ranks > 1 else (8,)), (name, times.shape)
        assert (times > 0).all(), name
        assert about["global_batch"] == 8 * (ranks if name.startswith("weak") else 1), name
        assert about["tokens"] == 40 * about["global_batch"], name
        assert about["base"] == b"d1", name
        assert (about["communication_s"] > 0) == (ranks > 1), (name, about)
        of_ranks = [float(word) for word in about["compute_s_of_ranks"].split()]
        assert len(of_ranks) == ranks, (name, of_ranks)
        assert abs(numpy.mean(of_ranks) / about["compute_s"] - 1) < 1e-9, (name, of_ranks)
        assert 0 <= about["exposed_communication_s"] <= about["communication_s"] * 1.0001, name
        # Modes and sharded optimizer states leave the bits of the same grid and batch.
        digests.setdefault((about["global_batch"], name.split("/")[1].removesuffix("_zero")),
                           set()).add(about["state_digest"])
    assert all(len(of) == 1 for of in digests.values()), digests
    assert len({digest for of in digests.values() for digest in of}) > 2, "all digests are one"
    optimizer = {name: about["optimizer_bytes"] for name, (_, about) in found.items()}
    assert optimizer["strong/d2_zero/off"] < 0.6 * optimizer["strong/d2/off"], optimizer
    # The first layout stands beside nothing, the others have what their samples say.
    with h5py.File(os.path.join(r.folder, "curve.h5")) as file:
        metrics = file["metrics/scaling"]
        assert "efficiency" not in metrics["strong/d1/off"]
        wanted = (numpy.median(found["strong/d1/off"][0])
                  / numpy.median(found["strong/d2/off"][0].max(axis=1)) / 2)
        got = metrics["strong/d2/off/efficiency"]
        assert numpy.isclose(got[()], wanted, rtol=1e-12), (got[()], wanted)
        assert got.attrs["ci95_low"] <= got[()] <= got.attrs["ci95_high"]
        assert "graph_gain" in metrics["strong/d2/step"]
        assert "graph_gain" not in metrics["strong/d2/off"]
    assert "VALID" in r.tool("validate.py", "curve.h5")
    page = r.tool("table.py", "curve.h5")
    assert "### Strong scaling" in page and "| t2_d2 | step | 4 | 32 | 8 |" in page, page
    assert "VALID" in r.bench("--layouts", "d=2", "--modes", "off,scopes", "--samples", "2",
                              "run.output=scopes.h5")
    r.tool("plot.py", "curve.h5", "scopes.h5", "--out", "curve.png")
    assert os.path.getsize(os.path.join(r.folder, "curve.png")) > 10000


@case(ranks=2)
def pipelines_stand_beside_what_their_schedule_allows(r):
    """Stages are timed pass by pass; the table makes of that what the schedule allows for."""
    for schedule in ("1f1b", "zero_bubble"):
        path = f"{schedule}.h5"
        r.bench("--layouts", "d=1, p=2", "--modes", "off", "--samples", "2",
                f"parallel.schedule={schedule}", f"run.output={path}")
        found = r.points(path)
        assert "schedule" not in found["strong/d1/off"][1]
        about = found["strong/p2/off"][1]
        assert about["schedule"] == schedule.encode() and about["microbatches"] == 8, about
        busy = [about[f"rank_{rank}_rest_s"] + 8 * sum(
            about[f"stage_{rank}_{which}_s"] for which in ("forward", "backward", "weights"))
            for rank in (0, 1)]
        # Ops of passes and the rest are all that computes; passes have gaps between ops on top.
        assert about["compute_s"] < 1.001 * sum(busy) / 2, (about["compute_s"], busy)
        assert 0.999 * max(busy) < about["schedule_time_s"] < sum(busy), (busy, about)
        # A pipeline whose rank 1 is the slower: 8 (1 + 2 + 1) + 4 ms, and 2 % above what it may.
        allowed = 40e-3 if schedule == "1f1b" else 38e-3
        with h5py.File(os.path.join(r.folder, path), "r+") as file:
            made_up = file["samples/scaling/strong/p2/off"].attrs
            for stage, scale in ((0, 0.9), (1, 1)):
                for which, time_ms in (("forward", 1), ("backward", 2), ("weights", 1)):
                    made_up[f"stage_{stage}_{which}_s"] = scale * time_ms * 1e-3
                made_up[f"rank_{stage}_rest_s"] = 4e-3
            metrics = file["metrics/scaling/strong/p2/off"]
            scale = 1.02 * allowed / made_up["timed_step_s"]
            for part in ("compute", "exposed_communication", "exposed_copy", "idle"):
                made_up[f"{part}_s"] = scale * made_up[f"{part}_s"]
                if part in metrics:
                    metrics[part][()] = made_up[f"{part}_s"]
            made_up["timed_step_s"] = 1.02 * allowed
            made_up["schedule_time_s"] = 0.99 * allowed
        row = next(line for line in r.tool("table.py", path).splitlines()
                   if f"| p2 | off | {schedule} |" in line).split(" | ")
        assert row[4:] == ["8", "36.00", "1", f"{100 * (1 - 36e-3 / allowed):.1f} %",
                           f"{1e3 * allowed:.2f}", f"{990 * allowed:.2f}",
                           f"{1020 * allowed:.2f}", "1.020", "1.030 |"], row


@case(ranks=2)
def a_resumed_curve_is_a_whole_one(r):
    """Stopped by the limit, by a signal, and gone on with: what was measured before is kept as it
    was, and the whole set is as one of a job that was not stopped."""
    asked = ("--layouts", "d=1, d=2, t=2", "--modes", "off,step", "run.output=curve.h5")
    long = [*asked, "--samples", "1000000"]
    said = r.bench(*long, "--time-limit", "2", expect=75)
    assert "6 points are left" in said and not r.points("curve.h5"), said
    assert "--resume goes on)  uuid=" in said, said  # nothing measured, so no figure
    assert "STOPPED" in r.tool("validate.py", "curve.h5")
    short = [*asked, "--samples", "7", "--resume"]
    process = subprocess.Popen(r.command(*short), cwd=r.folder, env=r.env, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for line in process.stdout:  # mpirun hands SIGUSR1 on to its ranks
        if "strong/d2/step" in line:
            process.send_signal(signal.SIGUSR1)
            break
    rest = process.stdout.read()
    assert process.wait(timeout=60) in (0, 75), rest
    first = r.points("curve.h5")
    assert {"strong/d1/off", "strong/d2/step"} <= set(first), first.keys()
    assert "VALID" in r.bench(*short)
    whole = r.points("curve.h5")
    assert set(whole) == {f"strong/{layout}/{mode}" for layout in ("d1", "d2", "t2")
                          for mode in ("off", "step")}, whole.keys()
    for name, (times, about) in first.items():
        assert (times == whole[name][0]).all(), name
        assert about == whole[name][1], (name, about, whole[name][1])
    assert "VALID" in r.tool("validate.py", "curve.h5")
    kept = [name for name in os.listdir(r.folder) if name.startswith("curve.older")]
    assert len(kept) == 2, kept
    # Too few samples for what is asked now: measured anew.
    r.bench(*asked, "--samples", "8", "--resume")
    assert all(len(times) == 8 for times, _ in r.points("curve.h5").values())


@case(ranks=3)
def what_was_measured_otherwise_is_refused(r):
    asked = ("--layouts", "d=1, d=2", "--samples", "2", "run.output=curve.h5")
    r.bench(*asked)
    before = open(os.path.join(r.folder, "curve.h5"), "rb").read()
    said = r.bench(*asked, "--resume", "optim.lr=1e-3", expect=2)
    assert "another deck" in said and "lr = 0.001" in said, said
    said = r.bench(*asked, "--resume", ranks=3, expect=2)
    assert "by a job of 2 ranks, this one has 3" in said, said
    for name, place, key, words in (("commit", "/", "git_describe", "by commit v0"),
                                    ("driver", "/", "driver", "is a result of v0")):
        path = os.path.join(r.folder, f"{name}.h5")
        shutil.copy(os.path.join(r.folder, "curve.h5"), path)
        with h5py.File(path, "r+") as file:
            file[place].attrs[key] = numpy.bytes_("v0")
        said = r.bench(*asked[:-1], f"run.output={name}.h5", "--resume", expect=2)
        assert words in said or "another deck" in said, said
    path = os.path.join(r.folder, "curve.h5")
    with h5py.File(path, "r+") as file:
        ranks = file["provenance/system/ranks"][()]
        ranks["cpu_model"] = b"abacus"
        file["provenance/system/ranks"][...] = ranks
    said = r.bench(*asked, "--resume", expect=2)
    assert "another machine: cpu_model of rank 0 was 'abacus'" in said, said
    open(path, "wb").write(before[:len(before) // 2])
    assert "truncated" in r.bench(*asked, "--resume", expect=2)
    assert not [name for name in os.listdir(r.folder) if "older" in name or "part" in name]


@case
def what_cannot_be_is_refused(r):
    alone = ((("--layouts", "d=2"), "'d=2' needs 2 ranks, the job has 1"),
             (("--layouts", "d=1, q=2"), "'q=2' in 'q=2' is no part of a layout"),
             (("--layouts", ","), "names no layout"),
             (("--scales", "stronk"), "--scales stronk: must be some of strong"),
             (("--modes", "off,off"), "--modes off: is given twice"),
             (("--samples", "0"), "--samples 0: must be at least 1"),
             (("--time-limit", "-1"), "--time-limit -1: must be at least 0"),
             (("run.output=" + r.deck,), "tiny.toml"))
    shared = ((("--layouts", "d=2", "train.global_batch_size=3"),
               "strong/d2/off: train.global_batch_size = 3"),
              (("--layouts", "t=2", "model.num_attention_heads=3", "model.num_query_groups=3",
                "model.hidden_size=48"), "strong/t2/off: model.num_attention_heads = 3"),
              (("--layouts", "e=2", "model.num_moe_experts=5"), "strong/e2/off"),
              (("--layouts", "p=2", "model.pattern=M"), "strong/p2/off"))
    for ranks, refusals in ((1, alone), (2, shared)):
        for arguments, words in refusals:
            said = r.bench(*arguments, expect=2, ranks=ranks)
            assert words in said, (arguments, said)
    assert not os.listdir(r.folder), os.listdir(r.folder)


@case
def predictions_stand_beside(r):
    """Where the deck names its machine; and a set of a deck that has a layout of its own."""
    said = r.bench("--layouts", "d=1, p=2", "--samples", "3", "machine.name=here",
                   "parallel.tensor=2", "run.output=curve.h5")
    assert "scaling/worst_prediction=" in said, said
    worst = 0
    for name, (times, about) in r.points("curve.h5").items():
        assert about["tensor"] == 1 and about["predicted_time_s"] > 0, (name, about)
        assert (about["predicted_bubble"] > 0) == ("p2" in name), (name, about)
        median = numpy.median(times if times.ndim == 1 else times.max(axis=1))
        worst = max(worst, abs(about["predicted_time_s"] / median - 1))
        row = next(line.split() for line in said.splitlines() if line.startswith(f"#   {name} "))
        assert abs(float(row[-2]) - 1e3 * about["predicted_time_s"]) < 1e-3, row
        assert abs(float(row[-1]) - 100 * (about["predicted_time_s"] / median - 1)) < 0.06, row
    with h5py.File(os.path.join(r.folder, "curve.h5")) as file:
        assert numpy.isclose(file["metrics/scaling/worst_prediction"][()], worst, rtol=1e-12)
    assert "VALID" in r.tool("validate.py", "curve.h5")


@case
def predictions_take_measured_rates(r):
    """Of the machine's own sets; what the command line says still counts."""
    published = os.path.join(r.given.source, "results", "published", "h200")
    measured = ("--ceilings", os.path.join(published, "ceilings.h5"))
    said = r.bench(*measured, "machine.d2h_bytes_per_s=1e9", "--print-config", ranks=1)
    assert "\nd2h_bytes_per_s = 1000000000.0\n" in said, said
    assert "\ndevice_copy_bytes_per_s = 42" in said, said  # TB/s
    for option in ("--ceilings", "--links"):
        said = r.bench(option, os.path.join(published, "ssd.h5"), expect=2)
        assert option in said and "not a result of" in said, said
    shutil.copy(measured[1], os.path.join(r.folder, "measured.h5"))
    said = r.bench("--ceilings", "measured.h5", "run.output=./measured.h5", expect=2)
    assert "would replace the result set of --ceilings measured.h5" in said, said
    assert os.listdir(r.folder) == ["measured.h5"], os.listdir(r.folder)


# Points of published curves that are not predicted within 8 %, by file: they are to be measured
# again, or their costs to be mended, and then to leave this list.
NOT_PREDICTED = {
    "h100x4": {
        # As with four H200.
        "data_moe_2b.h5": ("e4_zero",),
        # Passes of tensor ranks in a pipeline take longer than predicted (docs/guides/layouts.md).
        "pairs_dense_1b.h5": ("t2_p2_v2",), "pairs_moe_2b.h5": ("t2_p2_v4",),
    },
    "h200x4": {
        # The load of untrained experts takes a class of room whose plan copies to the host.
        "data_moe_2b.h5": ("e4_zero",),
        # Tensor ranks of a pipeline waited for 40 ms of their exchanges, of which 4 are predicted;
        # its plan was another, too, before dq of heads of 128 was made inside.
        "pairs_dense_1b.h5": ("t2_p2_v2",),
        # Messages of stages held up what tensor ranks exchanged.
        "pairs_moe_2b.h5": ("t2_p2_v4",),
        # Ops of some microseconds.
        "shared_dense_124m.h5": ("t4",), "pipeline_zero_bubble_dense_124m.h5": ("d1", "p4"),
    }
}
# The machine as it was to the curves of a folder and a commit, or to one of them.
# Rows of four ranks were summed in three waits one after another.
SUMS_OF_FOUR = tuple(f"{op} 0.355" for op in (
    "attn/sum_delta", "attn/sum_dx_mine", "mamba/sum_delta", "mamba/sum_dx_mine",
    "embedding/sum_out", "head/sum_dnormed_mine"))
EARLIER = {("h200x4", b"3d69cae"): {
    # Four H200 all began with the rows of the same rank, at half the rate (comm_np4 of that
    # commit), and columns moved more slowly.
    "links": ("any:4 3.1e-5 2.2e11", "any:4 all_gather 3.1e-5 1.9e11",
              "any:4 all_reduce 4.3e-5 1.6e11", "any:4 all_to_all 3.4e-5 1.8e11",
              "any:4 exchange 2.7e-5 3.6e11", "any:4 reduce_scatter 3.4e-5 1.5e11"),
    "op_efficiency": ("attn/core_out_join 0.22", "attn/dheads_out_split 0.28",
                      "attn/dqkv_join 0.21", "attn/heads_out_again_split 0.28",
                      "attn/qkv_split 0.28"),
}, ("h200x4", b"bee5626", "shared_dense_1b.h5"): {"op_efficiency": (
    *SUMS_OF_FOUR, "mlp/sum_delta 0.355", "mlp/sum_dx_mine 0.355")
}, ("h200x4", b"bee5626", "shared_moe_2b.h5"): {"op_efficiency": (
    *SUMS_OF_FOUR, "moe/sum_delta 0.355", "moe/sum_dx_mine 0.355")}}


def of(line):
    """What a line of [machine] is about: all but its numbers."""
    return re.sub(r"( [0-9.e+-]+)+$", "", line)


def timed_ops(folder):
    """The ops that a folder's sets have timed."""
    found = set()
    for name in os.listdir(folder):
        if name.startswith("ops_"):
            with h5py.File(os.path.join(folder, name)) as file:
                for layer, ops in file["samples/ops"].items():
                    found |= {f"{layer}/{op}" for op in ops}
    return found


def machine_of(source, path):
    """Overrides of [machine] for the curves of a set, by the file of its machine."""
    folder, curve = path.split(os.sep)[-2:]
    with open(os.path.join(source, f"inputs/machines/{folder[:4]}.toml"), "rb") as file:
        machine = tomllib.load(file)["machine"]
    with h5py.File(path) as file:
        commit = file.attrs["git_describe"]
    earlier = {**EARLIER.get((folder, commit), {}), **EARLIER.get((folder, commit, curve), {})}
    for key, lines in earlier.items():
        mended = {of(line) for line in lines}
        known = {of(line) for line in machine[key]} | timed_ops(os.path.dirname(path))
        assert mended <= known, (key, mended - known)
        machine[key] = [line for line in machine[key] if of(line) not in mended] + list(lines)
    return [f"machine.{key}={json.dumps(value)}" for key, value in machine.items()]


@case
def published_curves_are_predicted(r):
    """Every published point, within 8 %, by the machine file alone where its step is still what it
    was."""
    published = os.path.join(r.given.source, "results", "published")
    # Layers alone (mlp_*) are no step that anyone trains.
    paths = [path for name in ("h100x2", "h100x4", "h200x2", "h200x4")
             for path in sorted(glob.glob(os.path.join(published, name, "*.h5")))
             if not os.path.basename(path).startswith("mlp_") and is_curve(path)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda path: predicted_again(r, path,
                                                           *machine_of(r.given.source, path)),
                              paths))
    points = 0
    for path, offs in zip(paths, found):
        name, curve = path.split(os.sep)[-2:]
        for point, (then, off) in offs.items():
            layout = point.split("/")[1]
            if layout in NOT_PREDICTED.get(name, {}).get(curve, ()):
                assert abs(off) >= 8, (name, curve, point, then, off)
                continue
            # Two H100 exchanged rows of tensor ranks otherwise: what counts is what was
            # predicted of that step.
            other = name == "h100x2" and layout.startswith("t2")
            assert abs(then if other else off) < 8, (name, curve, point, then, off)
            points += 1
    assert points >= 205, points


@case
def predicting_again_is_what_was_predicted(r):
    """For the machine that the set was predicted for; and it wants a curve."""
    r.bench("--layouts", "d=1, p=2", "--samples", "3", "machine.name=here", "run.output=made.h5")
    for point, (then, now) in predicted_again(r, os.path.join(r.folder, "made.h5")).items():
        assert then == now, (point, then, now)
    published = os.path.join(r.given.source, "results", "published")
    curve = os.path.join(published, "h100x2", "data_dense_1b.h5")
    slow = predicted_again(r, curve, "machine.matmul_flops_per_s=1e14")
    assert all(now > then + 50 for then, now in slow.values()), slow
    for option in ("--predict", "--foretell"):  # the second is its earlier name
        said = r.bench(option, ranks=1, expect=2)
        assert "--predict" in said and "--from" in said, said
    other = os.path.join(published, "h200x2", "train_hybrid_dense_1b_np2.h5")
    said = r.run([r.given.bench, "--from", other, "--predict"], 2)
    assert "not a result of stowage_bench_scaling" in said, said


@case
def the_list_for_eight_gpus_is_read(r):
    """Each command is read by its program on as many ranks, and takes sets of lines before it."""
    with open(os.path.join(r.given.source, "results", "eight_gpus.txt"), encoding="utf-8") as file:
        lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
    made = []
    for ranks, name, program, *words in lines:
        assert name not in made, name
        made.append(name)
        if program == "stowage_ceilings":  # has no deck
            continue
        decks = os.path.join(r.given.source, "inputs")
        words = [word.replace("{decks}", decks).replace("{set}", f"{name}.h5") for word in words]
        for option in ("--ceilings", "--links", "--ops"):
            if option in words:
                sets = words.pop(words.index(option) + 1)
                words.remove(option)
                assert {f"{one}.h5" for one in made} >= set(sets.split(",")), (name, sets)
        # Others say how they read their words before they ask how many ranks there are.
        start = r.start(int(ranks)) if program.startswith("stowage_bench_") else []
        program = os.path.join(os.path.dirname(r.given.bench), program)
        said = r.run([*start, program, *words, HOST, "--print-config"], 0)
        assert "[model]" in said, (name, said)
    assert {"nano_30b_e8", "comm_np8"} <= set(made) and len(made) >= 20, made


def is_curve(path):
    with h5py.File(path) as file:
        return file.attrs["driver"] == b"bench_scaling"


def predicted_again(r, path, *arguments):
    """{point: how far off in %, (then, now)} of what --predict says."""
    said = r.run([r.given.bench, "--from", path, "--predict", *arguments], 0)
    rows = [line.split() for line in said.splitlines() if "/" in line]
    assert rows and all(len(row) == 9 for row in rows), said
    return {row[1]: (float(row[4]), float(row[6])) for row in rows}


def edited(r, change):
    path = os.path.join(r.folder, "edited.h5")
    shutil.copy(os.path.join(r.folder, "curve.h5"), path)
    with h5py.File(path, "r+") as file:
        change(file)
    return r.tool("validate.py", "edited.h5", expect=1)


@case
def edited_curves_do_not_conform(r):
    r.bench("--layouts", "d=1, d=2", "--modes", "off,step", "--samples", "7",
            "run.output=curve.h5")
    point = "samples/scaling/strong/d2/off"

    def attribute(name, value, of=point):
        return lambda file: file[of].attrs.modify(name, value)

    def faster(file):
        file[point][...] = file[point][...] / 2

    def better(file):
        file["metrics/scaling/strong/d2/off/efficiency"][...] = 1.5

    for change, words in ((faster, "metrics/scaling/strong/d2/off/step_time: is"),
                          (better, "efficiency: is 1.5, its samples say"),
                          (attribute("tokens", 640), "tokens_per_s: is"),
                          (attribute("loss", 1.0), "validation/first_loss: value is"),
                          (attribute("state_digest", b"0" * 32), "validation/other_states: value"),
                          (attribute("base", b"d2"), "stands beside d2"),
                          (attribute("data", 1), "has times of 2 ranks, its layout has 1"),
                          (attribute("idle_s", 7.0), "parts of a step add up to 7"),
                          (attribute("high", 1.0, "validation/first_loss"), "first_loss")):
        said = edited(r, change)
        assert words in said, (words, said)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    for name in ("bench", "source"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        CASES[given.case](Runner(given, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
