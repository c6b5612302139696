#!/usr/bin/python3
"""stowage_plan as a user meets it: what it prints, and what it refuses.

Usage: plan_test.py CASE --plan PROGRAM --source FOLDER.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import h5py

from process_cases import Cases

CASES = case = Cases()
# What a time is predicted from at least.
RATES = ("machine.matmul_flops_per_s=7.05e14", "machine.device_copy_bytes_per_s=4.24e12")


class Runner:
    def __init__(self, plan, source):
        self.plan = plan
        self.source = source

    def start(self, *arguments, expect=0, timeout=120):
        done = subprocess.run([self.plan, *arguments],
                              env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"),
                              capture_output=True, text=True, timeout=timeout)
        assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        return done

    def run(self, deck, *arguments, expect=0, timeout=120):
        done = self.start(os.path.join(self.source, deck), *arguments, expect=expect,
                          timeout=timeout)
        return done.stdout if expect == 0 else done.stderr


def transient_bytes(text):
    return int(re.search(r"transient +(\d+) B", text).group(1))


def predicted_ms(text, row):
    return float(re.search(rf"  {row} +([0-9.]+) ms", text).group(1))


@case
def standard_decks_are_planned(r):
    for deck in ("quickstart", "dense-124m", "hybrid-dense-1b", "hybrid-moe-2b"):
        text = r.run(f"inputs/{deck}.toml", *RATES)
        assert "proven" in text and "GiB +---" in text, text
        assert transient_bytes(text) > 0 and predicted_ms(text, "step") > 0


def partial_gradients(text):
    """Bytes of the gradients, of what a plan keeps of parts of them, and of the transient."""
    found = re.search(r"  partial gradients +(\d+) B", text)
    gradients = int(re.search(r"  gradients +(\d+) B", text).group(1))
    return gradients, int(found.group(1)) if found else 0, transient_bytes(text)


@case
def the_same_bits_have_a_price(r):
    """A binary counter of the leaves of a rank: log2 of them in partial gradients."""
    deck = "inputs/hybrid-dense-1b.toml"
    for batch, leaves, kept in ((2, 1, 0), (4, 2, 1), (16, 8, 3), (16, 2, 1)):
        keys = (f"train.global_batch_size={batch}", "--machine", "h200")
        each = batch // 2 // leaves
        fewer = [f"run.same_bits_leaves={leaves}"] if each > 1 else []
        text = r.run(deck, *keys, "run.same_bits=ranks", *fewer)
        gradients, partial, transient = partial_gradients(text)
        assert abs(partial - kept * gradients) <= 0.001 * gradients, (batch, text)
        said = re.search(rf"# same bits on any ranks: tree of {leaves} lea\w+, {each} micro", text)
        assert said, text
        by_rank = r.run(deck, *keys)
        assert "partial gradients" not in by_rank and "same bits" not in by_rank, by_rank
        assert transient >= transient_bytes(by_rank) + partial - gradients, (batch, text)
        slower = predicted_ms(text, "step") / predicted_ms(by_rank, "step")
        assert 0.99 < slower < 1.05, (batch, slower)


@case
def a_plan_says_whether_it_fits(r):
    """And whose time it is: none without a machine's rates."""
    deck, machines = "inputs/hybrid-dense-1b.toml", os.path.join(r.source, "inputs", "machines")
    h200 = ("--machine", os.path.join(machines, "h200-cluster.toml"))
    text = r.run(deck)
    assert "no time is predicted" in text and not re.search(r"\d ms|fits?: ", text), text
    text = r.run(deck, *h200)
    assert "\n# fits: " in text and "# predicted time on H200 cluster" in text, text
    assert r.run(deck, "--machine", "h200-cluster") == text
    assert predicted_ms(text, "step") == predicted_ms(r.run(deck, *h200, *RATES), "step")
    said = r.start(os.path.join(r.source, deck), *h200, "machine.device_memory_bytes=26GiB",
                   expect=1).stdout
    assert re.search(r"\n# does not fit: [0-9.]+ GiB, H200 cluster has 26.0 GiB", said), said
    assert f"offload.policy=auto offload.device_budget_bytes={24 * 2**30}" in said, said
    assert "\n# 994 M parameters, of which a token meets 994 M; " in said, said
    help = ("offload.policy=auto", f"offload.device_budget_bytes={24 * 2**30}")
    helped = r.run(deck, *h200, *help, "machine.device_memory_bytes=26GiB")
    price = re.search(r"GiB pinned, a step of ([0-9.]+) s, \d+ tokens/s\n", said)  # the first
    assert "\n# fits: " in helped and price, (said, helped)
    assert abs(1e3 * float(price.group(1)) - predicted_ms(helped, "step")) < 1, (said, helped)
    assert re.search(r"\n  device +\|p+g+s+\.+\| [0-9.]+ of 26.0 GiB\n", said), said
    said = r.start(os.path.join(r.source, deck), "machine.device_memory_bytes=7GiB",
                   expect=1).stdout
    assert "offload." not in said.partition("# it fits by")[2] and "--ranks N" in said, said
    away = r.run(deck, "machine.device_memory_bytes=26GiB", "offload.states=all")
    assert re.search(r"\n  host +\|s+ *\| [0-9.]+ GiB\n", away), away
    assert "--machine" in r.run(deck, "--machine", os.path.join(r.source, deck), expect=2)
    said = r.run(deck, "--machine", "h300", expect=2)
    names = sorted(file[:-len(".toml")] for file in os.listdir(machines))
    assert "--machine h300" in said and ", ".join(names) in said, said
    assert "nowhere.toml" in r.run(deck, "--machine", "nowhere.toml", expect=2)
    for option in (["--timeline", "parallel.pipeline=2"], ["--ranks", "2"]):
        said = r.run(deck, *option, "machine.device_memory_bytes=139GiB", expect=2)
        assert option[0] in said and "machine.matmul_flops_per_s" in said, said


@case
def a_smaller_budget_takes_less_and_lasts_longer(r):
    deck = "inputs/hybrid-dense-1b.toml"
    plain = r.run(deck)
    free = r.run(deck, "offload.policy=auto", *RATES)
    assert transient_bytes(free) < transient_bytes(plain)
    assert predicted_ms(free, "waiting for copies") < 1e-3
    last = 0
    for budget in (30, 26, 22):
        text = r.run(deck, "offload.policy=auto", f"offload.device_budget_bytes={budget}GiB",
                     *RATES)
        device = int(re.search(r"all device memory +(\d+) B", text).group(1))
        assert device <= budget * 2**30
        assert predicted_ms(text, "step") >= last
        last = predicted_ms(text, "step")


@case
def every_tensor_is_listed_with_its_reason(r):
    text = r.run("inputs/quickstart.toml", "--tensors", "offload.policy=manual",
                 'offload.modules=["mamba_conv"]', "offload.min_tensor_bytes=0",
                 "offload.keep_exposed=false")
    assert re.search(r"layers.0.mamba/in_proj_out +mamba_conv +\d+ B +leaves +listed", text), text
    assert re.search(r"layers.0.mamba/gated +mamba_out_proj +\d+ B +stays +not listed", text)


@case
def a_fused_mixer_saves_no_convolution(r):
    fused = ("model.mamba_mixer=fused", "offload.policy=manual", "offload.min_tensor_bytes=0",
             "offload.keep_exposed=false", "--tensors")
    text = r.run("inputs/quickstart.toml", *fused, 'offload.modules=["mamba_conv"]')
    assert re.search(r"  mamba_conv +0.000  nothing saved", text), text
    assert not re.search(r"\d B +leaves", text) and "/xBC " not in text, text
    text = r.run("inputs/quickstart.toml", *fused, 'offload.modules=["mamba_ssm"]')
    for tensor in ("in_proj_out", "scan_out"):
        assert re.search(rf"layers.0.mamba/{tensor} +mamba_ssm +\d+ B +leaves +listed", text), text
    separate = r.run("inputs/hybrid-dense-1b.toml")
    assert "nothing saved" not in separate
    fused = r.run("inputs/hybrid-dense-1b.toml", "model.mamba_mixer=fused")
    assert transient_bytes(fused) < transient_bytes(separate)


@case
def what_cannot_be_is_refused(r):
    said = r.run("inputs/hybrid-dense-1b.toml", "offload.policy=auto",
                 "offload.device_budget_bytes=18GiB", expect=2)
    assert "missing" in said and "the rest is" in said, said
    said = r.run("inputs/hybrid-dense-1b.toml", 'recompute.modules=["attn_norm"]', expect=2)
    assert "attn_norm" in said, said
    for keys in (("tensor", "context", "expert", "pipeline"), ("tensor", "pipeline")):
        said = r.run("inputs/hybrid-dense-1b.toml",
                     *(f"parallel.{key}=65536" for key in keys), expect=2)
        assert "parallel.tensor = 65536" in said and "no machine has more" in said, said
    deck = os.path.join(r.source, "inputs/hybrid-dense-1b.toml")
    said = r.run(deck, *RATES, "parallel.pipeline=2", "--timeline", "--trace", deck, expect=2)
    assert f"--trace {deck}: would replace the deck {deck}" in said, said


def memory_rows(text):
    return {name: int(size) for name, size in re.findall(r"^  ([a-z ]+?) +(\d+) B ", text, re.M)}


@case
def a_copy_of_the_state_is_planned(r):
    deck, saving = "ctest/drivers/tiny.toml", "checkpoint.directory=ckpt"
    plain = memory_rows(r.run(deck))
    assert "copy for checkpoints" not in plain
    copied = memory_rows(r.run(deck, saving, "checkpoint.copy=device"))
    copy, device = copied["copy for checkpoints"], copied["all device memory"]
    assert device == plain["all device memory"] + copy
    # All that outlives a step but the gradients, which differ from it by padding only.
    state = plain["parameters"] + plain["optimizer states"]
    assert state / 4 < copy <= state, (copy, state)
    on_host = memory_rows(r.run(deck, saving, "checkpoint.copy=host"))
    assert on_host["all device memory"] == plain["all device memory"]
    assert on_host["pinned host memory"] == copied["pinned host memory"] + copy
    # With less than there must be: auto takes the host if it may, and `device` is refused.
    machine = [f"machine.device_memory_bytes={2**31 + device}"]
    assert memory_rows(r.run(deck, saving, *machine)) == copied
    assert memory_rows(r.run(deck, saving, "checkpoint.copy=device", *machine)) == copied
    machine = [f"machine.device_memory_bytes={2**31 + device - 1}"]
    none = memory_rows(r.run(deck, saving, *machine))
    assert none["all device memory"] == plain["all device memory"], none
    assert "copy for checkpoints" not in none
    assert memory_rows(r.run(deck, saving, f"checkpoint.host_budget_bytes={copy}",
                             *machine)) == on_host
    said = r.run(deck, saving, "checkpoint.copy=device", *machine, expect=2)
    for word in ("checkpoint.copy", f"{copy} bytes", f"{copy - 1} of", '"host", "none"'):
        assert word in said, said


@case
def a_copy_of_the_state_counts_in_a_budget(r):
    deck, saving = "inputs/hybrid-dense-1b.toml", "checkpoint.directory=ckpt"
    def budget(gib):
        return "offload.policy=auto", f"offload.device_budget_bytes={gib}GiB"
    plain = memory_rows(r.run(deck, *budget(30)))
    copied = memory_rows(r.run(deck, saving, "checkpoint.copy=device", *budget(38)))
    copy = copied["copy for checkpoints"]
    assert copied["all device memory"] <= 38 * 2**30
    assert copied["transient"] > 0 and copied["all device memory"] > copy + plain["parameters"]
    with_auto = memory_rows(r.run(deck, saving, *budget(30)))  # takes what the plan leaves: none
    assert with_auto["all device memory"] == plain["all device memory"], with_auto
    said = r.run(deck, saving, "checkpoint.copy=device", *budget(30), expect=2)
    for word in ("offload.device_budget_bytes", 'checkpoint.copy = "device"', f"{copy} bytes"):
        assert word in said, said


@case
def the_longest_sequence_grows_with_what_leaves(r):
    text = r.run("ctest/drivers/tiny.toml", "--longest", "machine.device_memory_bytes=2200MiB",
                 "offload.min_tensor_bytes=0")
    tokens = {name: int(re.search(rf"  {name} +(\d+) ", text).group(1))
              for name in ("all stays", "all computed again", "and states leave", "all leaves",
                           "automatic")}
    assert 1024 <= tokens["all stays"] < tokens["all computed again"], text
    assert tokens["all computed again"] <= tokens["and states leave"], text
    assert tokens["all stays"] < tokens["automatic"], text
    shared = r.run("ctest/drivers/tiny.toml", "--longest", "machine.device_memory_bytes=2200MiB",
                   "offload.min_tensor_bytes=0", "parallel.context=2")
    assert "on context 2, each one" in shared, shared
    cut = r.run("ctest/drivers/tiny.toml", "--longest", "machine.device_memory_bytes=2200MiB",
                "offload.min_tensor_bytes=0", "parallel.tensor=2")
    assert int(re.search(r"  all stays +(\d+) ", cut).group(1)) > tokens["all stays"], (cut, text)
    for name, alone in tokens.items():
        both = int(re.search(rf"  {name} +(\d+) ", shared).group(1))
        assert both % 2048 == 0 and 1.5 * alone < both < 2.1 * alone + 2048, (name, text, shared)
    said = r.run("ctest/drivers/tiny.toml", "--longest", expect=2)
    assert "machine.device_memory_bytes" in said, said
    said = r.run("ctest/drivers/tiny.toml", "--longest", "parallel.pipeline=2",
                 "machine.device_memory_bytes=2200MiB", expect=2)
    assert "parallel.pipeline = 2" in said and "allowed: 1" in said, said
    for more in ("--timeline", "--tensors"):
        assert more in r.run("ctest/drivers/tiny.toml", "--longest", more, expect=2)


@case
def the_largest_model_grows_with_what_leaves(r):
    tight = ["machine.device_memory_bytes=2056MiB", "train.seq_length=640",
             "offload.min_tensor_bytes=0"]
    def sizes(growing, *keys):
        text = r.run("ctest/drivers/tiny.toml", "--largest", growing, *tight, *keys)
        return [int(n) for n in re.findall(r"  (?:all|and) [a-z ]+ (\d+) ", text)], text
    (kept, again, away), text = sizes("depth")
    assert 4 <= kept < again < away < 1024, text
    assert "layers of tiny, M*-E over and over, on one device; 5120 tokens a step" in text, text
    for count, ends in ((kept, 0), (kept + 1, 1)):  # what is found fits, one layer more does not
        r.run("ctest/drivers/tiny.toml", *tight, f"model.pattern={('M*-E' * count)[:count]}",
              expect=ends)
    text = sizes("depth", "offload.host_budget_bytes=1KiB")[1]
    assert "and states leave     not one layer" in text, text
    (kept, again, away), text = sizes("width", "machine.device_memory_bytes=2600MiB")
    assert 128 <= kept < again <= away and not any(n % 128 for n in (kept, again, away)), text
    assert "widest model of tiny, of the 4 layers M*-E, on one device" in text, text
    said = r.run("ctest/drivers/tiny.toml", "--largest", "depth", expect=2)
    assert "machine.device_memory_bytes" in said, said
    said = r.run("ctest/drivers/tiny.toml", "--largest", "height", *tight, expect=2)
    assert "--largest height: allowed: depth, width" in said, said
    said = r.run("ctest/drivers/tiny.toml", "--largest", "depth", "parallel.tensor=2", *tight,
                 expect=2)
    assert "tensor 2" in said, said
    for more in ("--timeline", "--tensors", "--longest", "--stage=0/2"):
        assert more.partition("=")[0] in r.run("ctest/drivers/tiny.toml", "--largest", "depth",
                                               more, *tight, expect=2)


@case
def exchanges_of_context_ranks_are_compared(r):
    def taken(*arguments):
        text = r.run("inputs/hybrid-dense-1b.toml", "parallel.context=2",
                     "train.micro_batch_size=1", *arguments)
        assert "# attention over 2 context ranks" in text, text
        return re.findall(r"^  (all_\w+) .*  taken$", text, re.MULTILINE)
    assert taken("machine.matmul_flops_per_s=1e12") == ["all_to_all"]
    assert taken("parallel.context_attention=all_gather") == ["all_gather"]
    assert "context ranks" not in r.run("inputs/hybrid-dense-1b.toml")


@case
def exchanges_of_experts_are_compared(r):
    def taken(*arguments):
        text = r.run("inputs/hybrid-moe-2b.toml", "train.global_batch_size=16", *arguments)
        assert f"# experts over {arguments[0][-1]} ranks" in text, text
        return re.findall(r"^  (all_\w+) .*  taken$", text, re.MULTILINE), " slots " in text
    assert taken("parallel.expert=2") == (["all_gather"], False)
    assert taken("parallel.expert=8") == (["all_to_all"], True)
    assert taken("parallel.expert=8", "parallel.expert_exchange=all_gather") == (
        ["all_gather"], False)
    assert "# experts" not in r.run("inputs/hybrid-moe-2b.toml")


@case
def reductions_and_capacities_are_planned(r):
    alone = r.run("ctest/drivers/tiny.toml", "train.global_batch_size=8")
    shared = r.run("ctest/drivers/tiny.toml", "train.global_batch_size=16", "parallel.data=2",
                   "graphs.max_packed_seqs=[4, 16]")
    steps = [int(re.search(r"(\d+) ops, proven", text).group(1)) for text in (alone, shared)]
    assert steps[1] > steps[0], steps
    programs = re.findall(r"^  (\w+), (\d+) documents +([0-9.]+) [KMG]iB", shared, re.MULTILINE)
    assert [row[:2] for row in programs] == [(kind, capacity) for kind in (
        "training", "evaluation") for capacity in ("4", "6")], shared  # as many as the data have
    assert all(float(bytes) > 0 for _, _, bytes in programs), programs
    assert "evaluation" not in r.run("ctest/drivers/tiny.toml", "data.held_out_fraction=0")


@case
def rates_come_from_measured_ceilings(r):
    deck = "inputs/hybrid-dense-1b.toml"
    sets = os.path.join(r.source, "results", "published", "h200")
    ceilings = ["--ceilings", os.path.join(sets, "ceilings.h5")]
    with open(os.path.join(r.source, "inputs", "machines", "h200.toml"), encoding="utf-8") as file:
        texts = (file.read(), r.run(deck, *ceilings, "--print-config"))
    stated, found = ({key: float(value) for key, value in re.findall(
        r"^(\w+_per_s) = ([0-9.e+]+)", text, re.MULTILINE)} for text in texts)
    for key in ("matmul_flops", "device_copy_bytes", "d2h_bytes", "h2d_bytes", "duplex_bytes"):
        assert 0.9 < found[f"{key}_per_s"] / stated[f"{key}_per_s"] < 1.1, (key, found, stated)
    stated, found = ({key: float(value) for key, value in re.findall(
        r"^(\w+_slowdown_\w+) = ([0-9.]+)", text, re.MULTILINE)} for text in texts)
    assert len(found) == 4 and min(found.values()) > 1, found
    for key, value in stated.items():
        assert abs(found[key] - value) < 0.01, (key, found, stated)
    measured = r.run(deck, *ceilings)
    slow = r.run(deck, *ceilings, "machine.matmul_flops_per_s=1e14")
    assert predicted_ms(slow, "step") > 2 * predicted_ms(measured, "step"), slow
    said = r.run(deck, "--ceilings", os.path.join(sets, "ssd.h5"), expect=2)
    assert "ceilings" in said, said


def tree(node):
    """A node of a file and all below it."""
    yield node
    for child in node.values() if isinstance(node, h5py.Group) else ():
        yield from tree(child)


@case
def times_of_ops_come_from_timed_steps(r):
    deck = "inputs/hybrid-moe-2b.toml"
    keys = (*RATES, "machine.name=H100", "parallel.expert=2", "train.global_batch_size=4")
    published = os.path.join(r.source, "results", "published", "h100x2")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ops.h5")
        shutil.copy(os.path.join(published, "ops_expert_moe_2b.h5"), path)
        said = r.run(deck, *keys, "--ops", path, "--print-config")
        parts = dict(re.findall(r'"([a-z_/]+) ([0-9.]+)"', said))
        assert 0.5 < float(parts["attn/core_backward"]) < 0.8, parts
        assert 0.9 < float(parts["attn/qkv"]) < 1.1 and not any("rerun" in p for p in parts), parts
        latency, rate = map(float, re.search(r'"any:2 all_gather (\S+) (\S+)"', said).groups())
        assert 2e-5 < latency < 6e-5 and 1e11 < rate < 4e11, said
        step = [predicted_ms(r.run(deck, *keys, *more), "step")
                for more in ((), ("--ops", f"{path},{path}"))]
        assert step[1] > 1.1 * step[0], step
        for line in ("mamba/scan", "mamba/scan 0", "mamba/scan 0.5 1"):
            said = r.run(deck, f'machine.op_efficiency=["{line}"]', expect=2)
            assert "machine.op_efficiency" in said and line in said, said
        with h5py.File(path, "r+") as file:  # as before sets said what was exchanged
            for op in [op for layer in file["samples/ops"].values() for op in tree(layer)]:
                op.attrs.pop("collective", None)
        said = r.run(deck, *keys, "--ops", path, "--print-config")
        assert "links_beside = []" in said, said
    said = r.run(deck, "--ops", os.path.join(published, "ceilings.h5"), expect=2)
    assert "--ops" in said and "--time-ops" in said, said


@case(ranks=4)
def a_group_has_the_links_that_were_measured_of_its_size(r):
    deck, published = "inputs/hybrid-moe-2b.toml", os.path.join(r.source, "results", "published")
    sets = [os.path.join(published, "h200x4", f"comm_np{ranks}.h5") for ranks in (2, 4)]

    def step_ms(ranks, *files):
        return predicted_ms(r.run(deck, *RATES, "machine.name=H200", f"parallel.tensor={ranks}",
                                  "--links", ",".join(files)), "step")
    said = r.run(deck, "--links", ",".join(sets), "--print-config")
    assert all(f'"{group}:{ranks} all_gather ' in said for group in ("any", "data")
               for ranks in (2, 4)), said
    # Two ranks are quicker by their own links than by those of four, and four have their own.
    assert step_ms(2, *sets) == step_ms(2, sets[0]) < step_ms(2, sets[1])
    assert step_ms(4, *sets) == step_ms(4, sets[1]) > step_ms(4, sets[0])


@case
def a_slowdown_of_one_is_believed(r):
    def step_ms(*overrides):
        return predicted_ms(r.run("inputs/hybrid-dense-1b.toml", "offload.policy=manual",
                                  'offload.modules=["mlp_act"]', *RATES, *overrides), "step")
    keys = [f"machine.{direction}_slowdown_{bound}" for direction in ("d2h", "h2d")
            for bound in ("arithmetic", "memory")]
    for name in ([], ["machine.name="]):
        unslowed = step_ms(*name, *(f"{key}=1" for key in keys))
        unknown = step_ms(*name, *(f"{key}=0" for key in keys))
        assert unslowed < unknown < 1.1 * unslowed, (name, unslowed, unknown)
    said = r.run("ctest/drivers/tiny.toml", f"{keys[0]}=0.9", expect=2)
    assert "{0} or [1, inf)" in said, said


@case
def results_of_earlier_versions_are_read(r):
    published = os.path.join(r.source, "results", "published", "h200")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "earlier.h5")
        shutil.copy(os.path.join(published, "offload_hybrid_dense_1b.h5"), path)
        with h5py.File(path, "r+") as file:
            name = "config/deck_resolved"
            deck = file[name][()]
            assert b"[machine]\n" in deck and b"copy_slowdown" not in deck, deck
            del file[name]
            earlier = deck.replace(b"[machine]\n", b"[machine]\ncopy_slowdown = 1.02\n")
            assert b"\nkeep_unhidden = true\n" in earlier, earlier
            assert b"\nberths = true\n" in earlier, earlier
            earlier = earlier.replace(b"\nberths = true\n", b"\nberths = false\n")
            file.create_dataset(name, data=earlier,
                                dtype=h5py.string_dtype("utf-8", len(earlier)))
        config = r.start("--from", path, "--print-config")
        said = {line.split(" is ")[0].split()[-1]: line for line in config.stderr.splitlines()}
        assert said.keys() == {"machine.copy_slowdown", "offload.berths",
                               "offload.keep_unhidden"}, config.stderr
        assert "machine.d2h_slowdown_memory" in said["machine.copy_slowdown"], config.stderr
        assert "offload.reuse_gradient_memory" in said["offload.berths"], config.stderr
        for key in said:
            assert key.split(".")[1] not in config.stdout, config.stdout
        assert "\nreuse_gradient_memory = false\n" in config.stdout, config.stdout
        assert "ops, proven" in r.start("--from", path).stdout
        said = r.start("--from", path, "machine.copy_slowdown=1.5", expect=2).stderr
        assert "machine.h2d_slowdown_arithmetic" in said, said


@case
def graphs_that_fork_are_counted(r):
    counted = {}
    for mode in ("scopes", "step"):
        text = r.run("ctest/drivers/tiny.toml", "train.global_batch_size=16", "parallel.data=2",
                     f"graphs.mode={mode}", 'graphs.scopes=["layer"]', "offload.policy=auto")
        found = re.search(r"(\d+) graphs; copies inside (\d+), collectives inside (\d+)", text)
        counted[mode] = [int(number) for number in found.groups()]
    assert counted["scopes"][0] > 1 and counted["scopes"][1:] == [0, 0], counted
    assert counted["step"][0] >= 1 and counted["step"][2] > 0, counted


@case
def stages_are_planned_and_drawn(r):
    deck = "inputs/hybrid-dense-1b.toml"
    keys = [*RATES, "train.global_batch_size=16"]
    transient = []
    for stage in (0, 1):
        text = r.run(deck, "--stage", f"{stage}/2", *keys)
        assert f"stage {stage} of 2" in text and "8 microbatches" in text, text
        assert ("embedding" in text.splitlines()[0]) == (stage == 0), text
        transient.append(transient_bytes(text))
    assert transient[0] > 1.5 * transient[1], transient  # two microbatches in flight, and one
    delta = ["offload.policy=manual", 'offload.modules=["mlp_act"]',
             "offload.delta_bytes_across_pp_ranks=1GiB", "offload.keep_exposed=false"]
    kept = ["kept by this pipeline rank" in r.run(deck, "--stage", f"{stage}/2", *keys, *delta)
            for stage in (0, 1)]
    assert kept == [False, True], kept
    drawn = {}
    for schedule in ("1f1b", "zero_bubble", "auto"):
        text = r.run(deck, "--timeline", "parallel.pipeline=2", f"parallel.schedule={schedule}",
                     *keys)
        assert len(re.findall(r"rank \d +\|", text)) == 2, text
        drawn[schedule] = float(re.search(r"# ([0-9.]+) ms without", text).group(1))
        assert ("W" in text.split("microbatch\n")[1]) == (schedule != "1f1b"), text
    assert drawn["zero_bubble"] < drawn["1f1b"] and drawn["auto"] == drawn["zero_bubble"], drawn
    # Passes that compute again take longer; so do steps that wait for others which do.
    again = r.run(deck, "--timeline", "parallel.pipeline=2", 'recompute.modules=["mlp_act"]', *keys)
    assert "what is computed again" in again and "h2d" not in again, again
    longer = float(re.search(r"# ([0-9.]+) ms without", again).group(1))
    assert 1.02 * drawn["1f1b"] < longer < 1.5 * drawn["1f1b"], (drawn, longer)
    several = ["parallel.virtual_stages=2", "parallel.schedule=interleaved"]
    text = r.run(deck, "--timeline", "parallel.pipeline=2", *several, *keys)
    assert "2 ranks with 2 stages each" in text and "schedule interleaved" in text, text
    assert set(re.findall(r"\| waits .*\n.*\n +\|([ 01]+)\|", text)[0]) >= set("01"), text
    drawn["interleaved"] = float(re.search(r"# ([0-9.]+) ms without", text).group(1))
    assert drawn["interleaved"] < drawn["1f1b"], drawn
    text = r.run(deck, "--stage", "1/2", *several, *keys)
    assert re.search(r"pipeline rank 1 of 2 with layers \d+ to \d+ and \d+ to", text), text
    assert "and the head" in text and "the embedding" not in text.splitlines()[0], text
    for arguments in (["--stage", "2/2"], ["--stage", "0/26"], ["--timeline"]):
        r.run(deck, *arguments, *keys, expect=2)


@case
def a_timeline_is_traced_and_plotted(r):
    deck = "inputs/hybrid-dense-1b.toml"
    keys = [*RATES, "parallel.pipeline=2", "train.global_batch_size=8"]
    moved = ["offload.policy=manual", 'offload.modules=["mlp_act"]', "offload.keep_exposed=false"]
    tool = os.path.join(r.source, "results", "tools", "plot_timeline.py")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        text = r.run(deck, "--timeline", "--trace", path, *keys, *moved)
        assert len(re.findall(r"exchange \|[ <>x]*[<>x]", text)) == 2, text
        assert len(re.findall(r"d2h \|[ >]*>", text)) == 2, text
        assert len(re.findall(r"h2d \|[ <]*<", text)) == 2, text
        total_us = 1e3 * float(re.search(r"# ([0-9.]+) ms without", text).group(1))
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        queues = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
        bars = [(e["pid"], queues[e["pid"], e["tid"]], e["name"], e["ts"], e["ts"] + e["dur"])
                for e in events if e["ph"] == "X"]
        busy = sum(end - begin for _, queue, _, begin, end in bars if queue == "compute")
        waits = float(re.search(r"ranks wait ([0-9.]+) %", text).group(1))
        assert abs(100 * (1 - busy / (2 * total_us)) - waits) < 0.1, (busy, total_us, waits)
        for rank in (0, 1):
            own = [bar for bar in bars if bar[0] == rank]
            for what in ("forward", "backward"):
                assert sum(bar[2].startswith(f"{what} of") for bar in own) == 4, own
            compute = sorted(bar[3:] for bar in own if bar[1] == "compute")
            assert all(a[1] <= b[0] + 1e-3 for a, b in zip(compute, compute[1:])), compute
            out, back = ([bar for bar in own if bar[1] == queue] for queue in ("d2h", "h2d"))
            assert out and len(out) == len(back), (len(out), len(back))
            assert all("mlp" in bar[2] for bar in out), out
        plain = os.path.join(folder, "plain.json")
        text = r.run(deck, "--timeline", "--trace", plain, *keys)
        with open(plain, encoding="utf-8") as file:
            assert "d2h" not in file.read() and "d2h" not in text, text
        for arguments, image in (([path], "plan.png"), ([plain, path], "plain.png")):
            subprocess.run([sys.executable, tool, *arguments], check=True, capture_output=True)
            assert os.path.getsize(os.path.join(folder, image)) > 10000
        with open(plain, "w", encoding="utf-8") as file:
            file.write('{"of": "somebody"}')
        done = subprocess.run([sys.executable, tool, plain], capture_output=True, text=True)
        assert done.returncode == 2 and "not a trace" in done.stderr, done
        # What is no older trace is somebody's.
        assert "--trace" in r.run(deck, "--trace", path, *keys, expect=2)
        r.run(deck, "--timeline", "--trace", plain, *keys, expect=2)


def main(cases):
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=cases)
    parser.add_argument("--plan", required=True)
    parser.add_argument("--source", required=True)
    given = parser.parse_args()
    cases[given.case](Runner(given.plan, given.source))


if __name__ == "__main__":
    main(CASES)
