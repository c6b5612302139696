#!/usr/bin/python3
"""stowage_train on several ranks that share a step: whole processes, their files and exit codes.

Usage: sharing_test.py CASE --train PROGRAM --source FOLDER. Each case runs in a folder of its own.
"""
import glob
import json
import os
import pathlib
import re
import subprocess
import sys

import h5py
import numpy

from process_cases import Cases
from train_test import (EVERYTHING_LEAVES, assert_equal, losses, main, memory_rows,
                        states)

CASES = case = Cases()


@case(ranks=2)
def ops_of_several_ranks_are_timed(r):
    """All ranks issue the timed steps op by op; rank 0 tells its own, collectives among them."""
    for zero in (0, 1):
        for name, keys in {"eager": [], "graphs": ["graphs.mode=step"],
                           "moved": ["graphs.mode=step", *EVERYTHING_LEAVES]}.items():
            keys = [*keys, f"parallel.zero={zero}"]
            r.run("run.output=plain.h5", *keys, ranks=2)
            done = r.run("run.output=timed.h5", "--time-ops", "3", "--trace", "trace.json", *keys,
                         ranks=2)
            assert_equal("plain.h5", "timed.h5")
            assert done.stdout.count("where the time goes") == 1, done.stdout
            assert "communication, all: " in done.stdout, done.stdout
            assert "on rank 0" in done.stdout and "queue comm data" in done.stdout, done.stdout
            busy_ms = [float(ms) for ms in re.findall(r" busy +([\d.]+) of", done.stdout)]
            ops_ms = [float(ms) for ms in re.findall(r"^#   \S.* (-?\d+\.\d{3}) +\S+ %(?: .*)?$",
                                                     done.stdout, re.M)]
            assert len(ops_ms) > len(busy_ms) > 1 and min(ops_ms) >= 0, done.stdout
            assert abs(sum(ops_ms) - sum(busy_ms)) < 6e-4 * len(ops_ms + busy_ms), done.stdout
            with h5py.File("timed.h5") as file:
                row = file["/offload/modules"].dtype
                assert row.itemsize == sum(row[name].itemsize for name in row.names), row
                kinds = []
                file["/samples/ops"].visititems(
                    lambda path, o: kinds.append((path, o.shape, (o[:] > 0).all()))
                    if isinstance(o, h5py.Dataset) and o.attrs["queue"] in ("comm data",
                                                                            b"comm data") else None)
                busy, exposed = (file[f"/samples/communication/all/{what}"][:]
                                 for what in ("busy", "exposed"))
                assert len(busy) == 3 and (0 <= exposed).all() and (exposed <= busy).all()
                assert (busy <= file["/samples/train/timed_step"][:]).all()
                overlap = file["/metrics/communication/all/overlap"][()]
                assert overlap == 1 - numpy.median(exposed) / numpy.median(busy)
            checked = subprocess.run([sys.executable, os.path.join(r.tools, "validate.py"),
                                      "timed.h5"], capture_output=True, text=True, timeout=60)
            assert checked.returncode == 0, checked.stdout
            wanted = ("reduce_scatter", "all_gather") if zero else ("all_reduce/gradient/dense",)
            for words in wanted:
                assert any(words in path for path, *_ in kinds), (name, words, kinds)
            assert all(shape == (3,) and positive for _, shape, positive in kinds), kinds
            trace = json.load(open("trace.json"))["traceEvents"]
            queue = next(e["tid"] for e in trace
                         if e["ph"] == "M" and e["args"]["name"] == "comm data")
            drawn = [e["name"] for e in trace if e["ph"] == "X" and e["tid"] == queue]
            assert all(any(words in one for one in drawn) for words in wanted), drawn


@case(ranks=4)
def ranks_agree(r):
    for ranks in (1, 2, 4):
        r.run(f"run.output=np{ranks}.h5", ranks=ranks)
        r.run(f"run.output=again{ranks}.h5", ranks=ranks)
        assert_equal(f"np{ranks}.h5", f"again{ranks}.h5")
    # fp32 sums of 8 microbatches in another order: 8 roundings a step, grown by 6 steps of lr 1e-2.
    for ranks in (2, 4):
        band = numpy.abs(losses("np1.h5") - losses(f"np{ranks}.h5")) / losses("np1.h5")
        assert band.max() < 2e-5, band
    with h5py.File("np4.h5") as file:
        assert file["/provenance/system/ranks"].shape == (4,)


@case(ranks=2)
def the_grid_is_told(r):
    for ranks, zero, said in ((1, 0, "1 rank"), (2, 0, "data 2"),
                              (2, 1, "data 2, optimizer states sharded (ZeRO-1)")):
        done = r.run(f"parallel.zero={zero}", ranks=ranks)
        line = next(one for one in done.stdout.splitlines() if one.startswith("#   grid "))
        assert line.split(maxsplit=2)[2] == said, line
        with h5py.File("tiny.h5") as file:
            grid = dict(file["/provenance/grid"].attrs)
        shape = grid.pop("shape")
        assert (shape.decode() if isinstance(shape, bytes) else shape) == said.split(",")[0], shape
        assert grid == {"tensor": 1, "context": 1, "expert": 1, "pipeline": 1, "data": ranks,
                        "zero": zero}, grid


@case(ranks=2)
def dry_run_is_what_the_run_takes(r):
    """To the byte, on each of one and two ranks."""
    packed = ["data.packing=best_fit", "data.synthetic_document_length=4",
              "train.seq_length=200"]
    for ranks in (1, 2):
        transient = {}
        for name, keys in {
                "plain": [], "zero": ["parallel.zero=1"], "moved": EVERYTHING_LEAVES,
                "packed": packed,
                "few": [*packed, "data.max_documents=3", "data.held_out_fraction=0"],
                "graphed": [*packed, "graphs.mode=step",
                            "graphs.max_packed_seqs=[2, 200]"]}.items():
            planned = r.run("--dry-run", *keys, ranks=ranks).stdout
            assert "as the deck says" not in planned, planned
            rows = memory_rows(planned)
            live = re.search(r"live at once, at most +(\d+) B ", planned)[1]
            by_module = planned.split("by module\n")[1].split("# one step")[0]
            assert sum(map(int, re.findall(r" (\d+) B ", by_module))) == int(live), planned
            r.run(f"run.output={name}.h5", "run.steps=1", *keys, ranks=ranks)
            with h5py.File(f"{name}.h5") as file:
                run = {what: file[f"/metrics/train/{what}_bytes"][()]
                       for what in ("transient", "persistent", "pinned", "peak_device")}
            os.remove(f"{name}.h5")
            assert run == {"transient": rows["transient"],
                           "persistent": rows["all device memory"] - rows["transient"],
                           "pinned": rows["pinned host memory"],
                           "peak_device": rows["all device memory"]}, (name, ranks, run, rows)
            transient[name] = run["transient"]
        assert transient["few"] < transient["packed"] == transient["graphed"], transient


@case(ranks=2)
def resumed_on_other_ranks(r):
    r.run("run.output=whole.h5", ranks=2)
    r.run("run.output=a.h5", "checkpoint.directory=ckpt", "run.steps=3", "optim.decay_steps=6")
    r.run("run.output=b.h5", "checkpoint.directory=ckpt", "optim.decay_steps=6", ranks=2)
    assert numpy.allclose(losses("b.h5"), losses("whole.h5")[3:], rtol=2e-5)


@case(ranks=2)
def ranks_save_together_by_the_clock(r):
    kept = ("checkpoint.keep_last=1", "checkpoint.keep_every=3", "checkpoint.directory=ckpt")
    r.run("run.output=plain.h5", ranks=2)
    r.run("run.output=saved.h5", "checkpoint.interval_minutes=1e-9", *kept, ranks=2)
    # Rank 0 asks with every step; all ranks hear of it with the report of that step, which comes
    # behind the next: 1 (which is looked at alone), 3, 5 and the end are saved.
    found = sorted(os.path.basename(path) for path in glob.glob("ckpt/step_*.h5"))
    assert found == [f"step_{step:08}.h5" for step in (3, 6)], found
    assert_equal("plain.h5", "saved.h5")
    r.run("run.output=never.h5", "checkpoint.interval_minutes=1e6", "checkpoint.directory=never",
          "checkpoint.keep_last=9", ranks=2)
    assert [os.path.basename(path) for path in glob.glob("never/step_*.h5")] == [
        "step_00000006.h5"]
    r.run("run.output=more.h5", *kept, "run.steps=8", "optim.decay_steps=6",
          "checkpoint.allow_changes=true", ranks=2)
    with h5py.File("more.h5") as file:
        assert list(file["/series/train/step"]) == [7, 8]
    r.refuse("checkpoint.interval_minutes=5", says=["checkpoint.interval_minutes", "directory"])


# How two ranks share sequences.
SEQUENCES = {"keys": ["parallel.context_attention=all_gather"],
             "heads": ["parallel.context_attention=all_to_all"],
             "zigzag": ["parallel.context_attention=all_gather", "parallel.context_tokens=zigzag"]}
# Documents of 1 to 59 tokens in sequences of 40, which ranks have 20 of: cut anywhere; or whole
# ones with padding behind them, two sequences a microbatch, so that a rank has one of them.
PACKED = {"cut": ["data.packing=documents"],
          "whole": ["data.packing=best_fit", "train.micro_batch_size=2"]}


@case(ranks=2)
def context_ranks_share_packed_documents(r):
    """The losses of one rank, each repeated to the bit, and by graphs, copies and reruns too."""
    again = ["graphs.mode=step", *EVERYTHING_LEAVES, 'recompute.modules=["core_attn", "mlp_act"]']
    for packing, packed in PACKED.items():
        r.run("run.output=one.h5", *packed)
        for form, keys in SEQUENCES.items():
            keys = ["parallel.context=2", *keys, *packed]
            r.run("run.output=two.h5", *keys, ranks=2)
            for name in ("loss", "grad_norm", "val_loss"):
                assert numpy.allclose(losses("two.h5", name), losses("one.h5", name),
                                      rtol=2e-5), (packing, form, name)
            for how in ([], again):
                r.run("run.output=again.h5", *keys, *how, ranks=2)
                assert_equal("two.h5", "again.h5")
                assert_equal("two.h5", "again.h5", "grad_norm")
    r.refuse("parallel.context=2", *SEQUENCES["zigzag"], "recompute.modules=attn_proj", ranks=2,
             says=["recompute.modules: attn_proj", 'parallel.context_tokens = "zigzag"',
                   "offload.modules"])


@case(ranks=2)
def resumed_on_other_context_ranks(r):
    """From two ranks to one and back: all read what one has written, and go on from it."""
    packed = [*PACKED["cut"], "optim.decay_steps=6"]
    r.run("run.output=whole.h5", *packed)
    for form, keys in SEQUENCES.items():
        save = [*packed, f"checkpoint.directory={form}"]
        grids = {1: (save, 1), 2: ([*save, "parallel.context=2", *keys], 2)}
        found, reached = [], None
        for steps, context in ((2, 2), (4, 1), (6, 2)):
            words, ranks = grids[context]
            if reached:
                read = f"{form}_read{steps}.h5"
                r.run("--evaluate-only", f"run.output={read}", *words, ranks=ranks)
                assert states(read)[steps - 2] == reached, (form, steps)
            r.run(f"run.output={form}{steps}.h5", f"run.steps={steps}", *words, ranks=ranks)
            found += list(losses(f"{form}{steps}.h5"))
            reached = states(f"{form}{steps}.h5")[steps]
        assert numpy.allclose(found, losses("whole.h5"), rtol=2e-5), (form, found)


@case(ranks=2)
def experts_without_room_are_run_again(r):
    """A step whose rows have no room changes nothing and is done again: the same bits, counted."""
    shared = ["parallel.expert=2", "validate.replayed_step=false", "train.micro_batch_size=2",
              "parallel.expert_exchange=all_gather"]  # as many bytes in every class
    r.run("run.output=all.h5", "parallel.expert_capacity=[]", *shared, ranks=2)
    with h5py.File("all.h5") as file:
        experts = {name: values[:] for name, values in file["/series/experts"].items()}
        assert (experts["capacity_class"] == 2).all() and (experts["reruns"] == 0).all(), experts
        need = experts["busiest_rank"]
        assert ((1 <= need) & (need <= 2)).all() and (experts["busiest_expert"] >= need).all()
    # Between the least and the most that a step needs, so that classes change; and far too little.
    middle = float(numpy.median(need))
    for name, classes in {"two": [middle], "three": [0.25, middle]}.items():
        for how in ([], ["graphs.mode=step"], ["--time-ops", "6"], ["parallel.zero=1"]):
            done = r.run(f"run.output={name}.h5", f"parallel.expert_capacity={classes}", *shared,
                         *how, ranks=2)
            assert_equal("all.h5", f"{name}.h5")
            with h5py.File(f"{name}.h5") as file:
                found = {key: values[:] for key, values in file["/series/experts"].items()}
                assert file["/metrics/experts/reruns"][()] == found["reruns"].sum()
                assert file["/metrics/train/skipped_steps"][()] == 0
            assert (found["busiest_rank"] == need).all(), (found, need)
            assert (found["capacity_class"] >= need).all(), (found, need)
            assert found["reruns"].sum() > 0 and found["reruns"].max() < 3, found
            exchanged = found["exchanged"] / (1 + found["reruns"])
            assert (exchanged == exchanged[0]).all() and exchanged[0] > 0, found
            assert done.stdout.count("experts lacked room") == (found["reruns"] > 0).sum()
            checked = subprocess.run([sys.executable, os.path.join(r.tools, "validate.py"),
                                      f"{name}.h5"], capture_output=True, text=True, timeout=60)
            assert checked.returncode == 0, checked.stdout
    # By slots, of which there are more in the larger class: bytes differ, bits do not.
    r.run("run.output=slots.h5", *shared, "parallel.expert_exchange=all_to_all",
          f"parallel.expert_capacity=[0.25, {middle}]", ranks=2)
    assert_equal("all.h5", "slots.h5")
    with h5py.File("slots.h5") as file:
        found = {key: values[:] for key, values in file["/series/experts"].items()}
    assert (found["busiest_rank"] == need).all() and found["reruns"].sum() > 0, found
    # The first step was issued in the smallest class.
    assert found["reruns"][0] > 0, found
    assert found["exchanged"][0] < (1 + found["reruns"][0]) * experts["exchanged"][0], found
    for bad in ("[0]", "[-1.0]", "[\"all\"]"):
        r.refuse(f"parallel.expert_capacity={bad}", says=["parallel.expert_capacity"], ranks=2)
    r.refuse("parallel.expert_exchange=ring", says=["parallel.expert_exchange", "all_to_all"],
             ranks=2)


@case(ranks=2)
def forced_loads_are_as_they_are_called(r):
    """Experts that are drawn: the same rows in each step, and nobody takes it for a training."""
    longer = ["train.seq_length=320", "train.global_batch_size=2"]
    shared = ["parallel.expert=2", "validate.replayed_step=false", *longer]
    busiest = {}
    for load in ("balanced", "zipf"):
        key = f"model.moe_router_force_load={load}"
        done = r.run(f"run.output={load}.h5", key, *shared, ranks=2)
        assert f"VALID (not official: model.moe_router_force_load is {load})" in done.stdout
        with h5py.File(f"{load}.h5") as file:
            found = file["/series/experts/busiest_expert"][:]
        assert (found == found[0]).all() and len(found) == 6, found
        busiest[load] = found[0]
        checked = subprocess.run([sys.executable, os.path.join(r.tools, "validate.py"),
                                  f"{load}.h5"], capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stdout
        assert f"model.moe_router_force_load is {load}" in checked.stdout, checked.stdout
    # Of 4 experts, 2 a token: the first is drawn by 0.48 + 0.32 of the tokens, over 1 / 2.
    assert busiest["balanced"] < 1.2 and 1.5 < busiest["zipf"] < 1.7, busiest
    r.run("run.output=alone.h5", "model.moe_router_force_load=zipf", *longer)
    assert numpy.allclose(losses("alone.h5"), losses("zipf.h5"), rtol=2e-5)
    r.refuse("model.moe_router_force_load=uniform", *shared, ranks=2,
             says=["model.moe_router_force_load", "uniform", "balanced"])


@case(ranks=4)
def resumed_on_other_ranks_that_share_experts(r):
    """What ranks wrote whose experts lacked room is what others read and go on from."""
    kinds = {1: [], 2: ["parallel.expert=2"],
             4: ["parallel.expert=4", "parallel.expert_exchange=all_to_all"]}
    shared = ["parallel.expert_capacity=[0.5, 1.1]", "optim.decay_steps=6",
              "validate.replayed_step=false"]
    r.run("run.output=whole.h5", *shared, ranks=4)
    for e, keys in kinds.items():
        folder = f"checkpoint.directory=ckpt{e}"
        r.run(f"run.output=e{e}.h5", folder, "run.steps=2", *keys, *shared, ranks=4)
        assert numpy.allclose(losses(f"e{e}.h5"), losses("whole.h5")[:2], rtol=2e-5)
        if e > 1:
            with h5py.File(f"e{e}.h5") as file:
                assert file["/metrics/experts/reruns"][()] > 0
        for other, others in kinds.items():
            if other == e:
                continue
            read = f"read{e}_{other}.h5"
            r.run("--evaluate-only", f"run.output={read}", folder, *others, *shared, ranks=4)
            assert states(read)[2] == states(f"e{e}.h5")[2], (e, other)
    # From 1 over 2 to 4, and back.
    for way in ((1, 2, 4), (4, 2, 1)):
        folder = f"checkpoint.directory=ckpt{way[0]}"
        for e, steps in ((way[1], 4), (way[2], 6)):
            part = f"part{way[0]}_{e}.h5"
            r.run(f"run.output={part}", folder, f"run.steps={steps}", *kinds[e], *shared, ranks=4)
            assert numpy.allclose(losses(part), losses("whole.h5")[steps - 2:steps],
                                  rtol=2e-5), way


@case(ranks=4)
def ranks_that_share_experts_are_drawn(r):
    """Their trace has them all on one time axis, and none of a copy of the model."""
    r.run("parallel.expert=2", "parallel.data=2", "train.global_batch_size=8", "run.steps=2",
          "--trace", "run.json", "run.output=run.h5", ranks=4)
    trace = [e for e in json.load(open("run.json"))["traceEvents"] if e["ph"] == "X"]
    names = {rank: [e["name"] for e in trace if e["pid"] == rank]
             for rank in {e["pid"] for e in trace}}
    assert sorted(names) == [0, 1] and names[0] == names[1], {k: len(v) for k, v in names.items()}
    begins, ends = ([min(e["ts"] for e in trace if e["pid"] == rank) for rank in names],
                    [max(e["ts"] + e["dur"] for e in trace if e["pid"] == rank) for rank in names])
    assert min(begins) == 0 and max(begins) < min(ends), (begins, ends)


@case(ranks=4)
def a_pipeline_that_ran_is_drawn(r):
    """Its trace has all ranks of rank 0's pipeline, and lies below the plan on one time axis."""
    sys.path.insert(0, r.tools)
    from stowage_results.plots import plot_timeline
    for schedule, copies in (("1f1b", 1), ("zero_bubble", 1), ("1f1b", 2)):
        keys = ["parallel.pipeline=2", f"parallel.schedule={schedule}", "train.global_batch_size=8",
                f"parallel.data={copies}", "run.steps=2"]
        r.run(*keys, "--trace", "run.json", f"run.output=run{schedule}{copies}.h5",
              ranks=2 * copies)
        subprocess.run([os.path.join(os.path.dirname(r.train), "stowage_plan"), r.deck, *keys,
                        "machine.matmul_flops_per_s=7e14", "machine.device_copy_bytes_per_s=4e12",
                        "--timeline", "--trace", "plan.json"], check=True, capture_output=True,
                       timeout=60)
        microbatches = 8 // copies
        trace = json.load(open("run.json"))["traceEvents"]
        drawn = {rank: [e["name"] for e in trace if e["ph"] == "X" and e["pid"] == rank]
                 for rank in {e["pid"] for e in trace}}
        assert sorted(drawn) == [0, 1], sorted(drawn)
        for rank, own, other in ((0, (".mamba/scan", ".mamba/scan_backward", "/send_stream",
                                      "/receive_gradient"), ".moe/"),
                                 (1, (".moe/router", ".moe/router_backward", "/receive_stream",
                                      "/send_gradient"), ".mamba/")):
            counts = [sum(name.endswith(end) for name in drawn[rank]) for end in own]
            assert counts == [microbatches] * 4, (rank, counts)
            assert not any(other in name for name in drawn[rank]), drawn[rank]
        rows = plot_timeline.rows([pathlib.Path(name) for name in ("run.json", "plan.json")])
        assert [(row.rank, row.ran) for row in rows] == [(0, False), (0, True), (1, False),
                                                         (1, True)], rows
        for row in rows:
            for letter in "FB":
                of = [microbatch for one, microbatch, *_ in row.passes if one == letter]
                assert of == list(range(microbatches)), (row, letter)
            held = any(one == "W" for one, *_ in row.passes)  # the first rank waits at no end
            assert held == (schedule == "zero_bubble" and row.rank == 1), (schedule, row)
            assert all(begin >= 0 for *_, begin, _ in row.passes), row
            assert all(a[2] + a[3] <= b[2] + 1e-6 for a, b in zip(row.passes, row.passes[1:])), row
        # A microbatch goes from the first rank to the second, and back. Passes end with what they
        # were sent, and may begin before it comes: recomputation waits for no gradient.
        for first, second in (rows[0::2], rows[1::2]):
            begins = [{passed[:2]: passed[2] for passed in row.passes} for row in (first, second)]
            ends = [{passed[:2]: passed[2] + passed[3] for passed in row.passes}
                    for row in (first, second)]
            for m in range(microbatches):
                assert begins[0]["F", m] < ends[1]["F", m], (m, begins, ends)
                assert begins[1]["B", m] < ends[0]["B", m], (m, begins, ends)
        subprocess.run([sys.executable, os.path.join(r.tools, "plot_timeline.py"), "plan.json",
                        "run.json", "--out", "both.png"], check=True, capture_output=True,
                       timeout=60)
        assert os.path.getsize("both.png") > 10000


@case(ranks=4)
def stages_are_bitwise_equal(r):
    r.run("run.output=whole.h5", "--dump-step", "3", "--dump", "whole_step.h5")
    for stages, schedule, several in ((2, "1f1b", 1), (4, "zero_bubble", 1),
                                      (2, "interleaved", 2)):
        r.run(f"run.output={schedule}.h5", f"parallel.pipeline={stages}",
              f"parallel.schedule={schedule}", f"parallel.virtual_stages={several}",
              "--dump-step", "3", "--dump", f"{schedule}_step.h5", ranks=stages)
        assert_equal("whole.h5", f"{schedule}.h5")
        assert_equal("whole.h5", f"{schedule}.h5", "grad_norm")
        with h5py.File("whole_step.h5") as a, h5py.File(f"{schedule}_step.h5") as b:
            for group in ("parameter", "gradient", "updated"):
                assert list(a[group]) == list(b[group]), group
                for name in a[group]:
                    assert (a[group][name][()] == b[group][name][()]).all(), (group, name)
        with h5py.File("whole.h5") as a, h5py.File(f"{schedule}.h5") as b:
            assert a["/series/train/val_loss"][-1] == b["/series/train/val_loss"][-1]
            work = [dict(f["/samples/train/step_time"].attrs) for f in (a, b)]
            assert work[0]["model_flops"] == work[1]["model_flops"], work
            # What is added: sums that are handed on, and the ends of the step on each stage.
            assert 0 <= work[1]["hw_flops"] / work[0]["hw_flops"] - 1 < 0.01, work


# Of two copies of a pipeline.
STAGES = {"one": [],
          "two": ["parallel.pipeline=2"],
          "several": ["parallel.pipeline=2", "parallel.virtual_stages=2",
                      "parallel.schedule=interleaved"]}


@case(ranks=4)
def resumed_on_other_stages(r):
    for zero, tied in ((0, "true"), (1, "false")):
        keys = [f"parallel.zero={zero}", f"model.untie_embeddings={tied}", "optim.decay_steps=6"]
        r.run(f"run.output=whole{zero}.h5", *keys, ranks=2)
        for source, target in (("one", "several"), ("several", "two"), ("two", "one")):
            save = [*keys, f"checkpoint.directory=ckpt{zero}{source}"]
            r.run("run.output=a.h5", *save, "run.steps=3", *STAGES[source],
                  ranks=2 if source == "one" else 4)
            r.run("run.output=b.h5", *save, *STAGES[target], ranks=2 if target == "one" else 4)
            found = losses("b.h5")
            os.remove("a.h5")
            os.remove("b.h5")
            assert numpy.allclose(found, losses(f"whole{zero}.h5")[3:], rtol=2e-5), (zero, source)


@case(ranks=4)
def further_tokens_go_on_on_other_ranks(r):
    """Heads of further tokens and latent experts, from each layout to another."""
    keys = ["model.moe_latent_size=32", "model.moe_latent_norm=true", "model.mtp_num_layers=2",
            "model.mtp_pattern=*E", "model.mtp_use_repeated_layer=true", "eval.mtp_loss=true",
            "optim.decay_steps=6", "train.micro_batch_size=1"]
    layouts = {"one": (1, []),
               "stages": (4, ["parallel.pipeline=2", "parallel.tensor=2", "parallel.zero=1"]),
               "experts": (4, ["parallel.expert=2", "parallel.context=2"])}
    r.run("run.output=whole.h5", *keys)
    with h5py.File("whole.h5") as file:
        further, held_out = file["/series/mtp/loss"][:], file["/series/mtp/val_loss"][:]
        assert further.shape == (6, 2) and held_out.shape[1:] == (2,), (further, held_out)
        assert (further[-1] < further[0]).all(), further
    for source, target in (("one", "stages"), ("stages", "experts"), ("experts", "one")):
        save = [*keys, f"checkpoint.directory=ckpt_{source}"]
        for name, layout, more in (("a", source, ["run.steps=3"]), ("b", target, [])):
            ranks, shared = layouts[layout]
            r.run(f"run.output={name}.h5", *save, *more, *shared, ranks=ranks)
        assert numpy.allclose(losses("b.h5"), losses("whole.h5")[3:], rtol=2e-5), (source, target)
        with h5py.File("b.h5") as file:
            assert numpy.allclose(file["/series/mtp/loss"][:], further[3:], rtol=2e-5), source
            assert numpy.allclose(file["/series/mtp/val_loss"][-1], held_out[-1], rtol=2e-5), source
        os.remove("a.h5")
        os.remove("b.h5")


@case(ranks=4)
def resumed_where_heads_and_groups_are_fewer_than_ranks(r):
    """Rows that several tensor ranks have are in a checkpoint once, whatever their number."""
    keys = ["model.num_query_groups=1", "model.mamba_num_groups=1", "optim.decay_steps=6"]
    r.run("run.output=whole.h5", *keys)
    for source, target, zero in ((1, 4, 0), (4, 2, 1), (2, 1, 0)):
        save = [*keys, f"checkpoint.directory=ckpt{source}", f"parallel.zero={zero}"]
        r.run("run.output=a.h5", *save, "run.steps=3", f"parallel.tensor={source}", ranks=source)
        r.run("run.output=b.h5", *save, f"parallel.tensor={target}", ranks=target)
        assert numpy.allclose(losses("b.h5"), losses("whole.h5")[3:], rtol=2e-5), (source, target)
        assert len(states("b.h5")) > 0
        os.remove("a.h5")
        os.remove("b.h5")
    r.refuse("model.num_attention_heads=12", "model.head_dim=8", "model.num_query_groups=3",
             "parallel.tensor=2", says=["model.num_query_groups = 3", "2"], ranks=2)
    r.refuse("parallel.tensor_pieces=2", says=["parallel.tensor_pieces", "leave it out"], ranks=2)


@case(ranks=2)
def ranks_with_different_decks_are_refused(r):
    done = r.run_apart(1, [r.train, r.deck, "run.steps=9"], [r.train, r.deck])
    assert done.returncode == 2, (done.returncode, done.stderr)
    says = "different decks: rank 0 has run.steps = 9, rank 1 has run.steps = 6"
    assert says in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(main(CASES))
