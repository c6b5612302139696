#!/usr/bin/python3
"""stowage_bench_offload as a user meets it, on the host.

Usage: offload_test.py CASE --bench PROGRAM --plan PROGRAM --source FOLDER.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import h5py
import numpy

from process_cases import Cases

CASES = case = Cases()
SMALL = ("execution.backend=host", "offload.min_tensor_bytes=0")


class Runner:
    def __init__(self, given, folder):
        self.given = given
        self.folder = folder
        self.deck = os.path.join(given.source, "ctest/drivers/tiny.toml")

    def run(self, *command, expect=0, ranks=1, output=False):
        if ranks > 1:
            command = ("mpirun", "--oversubscribe", "-np", str(ranks), *command)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120,
                              env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMP_NUM_THREADS="1",
                                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
        assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        return done.stdout if expect == 0 or output else done.stderr

    def bench(self, *arguments, expect=0, ranks=1):
        return self.run(self.given.bench, self.deck, *SMALL, *arguments, expect=expect,
                        ranks=ranks)

    def tool(self, name, *arguments):
        return self.run(sys.executable, os.path.join(self.given.source, "results/tools", name),
                        *arguments)


@case
def a_sweep_keeps_every_bit_and_can_be_drawn(r):
    text = r.bench("--samples", "2", "--modes", "off,scopes,step", "--only", "free,fraction_100",
                   "run.output=sweep.h5")
    for plan in ("keep/off", "free/off", "free/scopes", "free/step", "fraction_100/step"):
        row = next(line for line in text.splitlines() if f" {plan} " in line)
        assert row.endswith("same"), row
    assert "VALID" in text and "graphs beside the same plan op by op" in text, text
    assert "no plan moves anything" not in text, text
    assert "no plan moves anything: all that is saved is below" in r.bench(
        "--samples", "1", "--only", "free", "offload.min_tensor_bytes=1GiB", "run.output=no.h5")
    assert "VALID" in r.tool("validate.py", "sweep.h5")
    with h5py.File(os.path.join(r.folder, "sweep.h5")) as file:
        metrics, samples = file["metrics/offload"], {}
        file["samples/offload"].visititems(lambda name, node: samples.update({name: node})
                                           if isinstance(node, h5py.Dataset) else None)
        off = [abs(of.attrs["predicted_time_s"] / numpy.median(of[()]) - 1)
               for of in samples.values()]
        assert numpy.isclose(metrics["worst_prediction"][()], max(off), rtol=1e-12), off
        for plan, of in samples.items():
            one_by_one = plan.endswith("/off")
            assert ("graph_cost" in metrics[plan]) != one_by_one, plan
            for metric in ("exposed_copy", "overlap"):
                moves = one_by_one and of.attrs["copying_s"] > 0
                assert (metric in metrics[plan]) == moves, (plan, metric)
    r.tool("plot.py", "sweep.h5", "--out", "sweep.png")
    assert os.path.getsize(os.path.join(r.folder, "sweep.png")) > 10000
    # The deck is in the result: it can be planned, and swept again.
    assert "proven" in r.run(r.given.plan, "--from", "sweep.h5")
    r.run(r.given.bench, "--from", "sweep.h5", "--samples", "1", "--only", "keep",
          "run.output=again.h5")


def digests(path):
    """The digest of the state that each plan of a sweep left, and that of the set."""
    with h5py.File(path) as file:
        found = {}
        file["samples/offload"].visititems(
            lambda name, node: found.__setitem__(name, node.attrs["state_digest"].decode())
            if isinstance(node, h5py.Dataset) else None)
        (step, kept), = file["validation/state_digest"]
        assert step == 3
        for check in ("other_states", "other_bits"):
            assert file[f"validation/{check}"].attrs["value"] == 0
        return found, kept.decode()


@case(ranks=2)
def every_plan_leaves_the_same_state(r):
    for ranks, dtype in ((1, "bf16"), (2, "fp32")):
        sets = {}
        for seed in (7, 8):
            r.bench("--samples", "1", "--modes", "off,step", "--only",
                    "free,fraction_100/,recompute", f"train.dtype={dtype}", f"run.seed={seed}",
                    f"run.output={seed}.h5", ranks=ranks)
            found, kept = digests(os.path.join(r.folder, f"{seed}.h5"))
            assert len(found) > 8 and set(found.values()) == {kept}, (found, kept)
            sets[seed] = kept
        assert sets[7] != sets[8]
    # Whoever edits a digest is found out, by the check that says how many differ.
    with h5py.File(os.path.join(r.folder, "8.h5"), "r+") as file:
        file["samples/offload/recompute/off"].attrs["state_digest"] = "0" * 32
    said = r.run(sys.executable, os.path.join(r.given.source, "results/tools/validate.py"),
                 "8.h5", expect=1, output=True)
    assert "/validation/other_states: value is 0, the samples and series say 1" in said, said


@case
def what_each_module_does_is_kept(r):
    r.bench("--samples", "2", "--modes", "off,step", "--only", "deck", "offload.policy=manual",
            'offload.modules=["mamba_in_proj", "mamba_ssm"]', "offload.keep_exposed=false",
            'recompute.modules=["mlp_act"]', "run.output=modules.h5")
    assert "VALID" in r.tool("validate.py", "modules.h5")
    with h5py.File(os.path.join(r.folder, "modules.h5")) as file:
        rows = {(row["plan"].decode(), row["module"].decode()): row
                for row in file["offload/modules"]}
        about = dict(file["samples/offload/deck/off"].attrs)
    bytes_out = about["bytes_out"]
    assert 0 < about["predicted_rerun_s"] < about["predicted_time_s"], about
    moved = [row for (plan, _), row in rows.items() if plan == "deck/off" and row["copies"] > 0]
    assert {row["module"] for row in moved} == {b"mamba_in_proj", b"mamba_ssm"}, moved
    assert sum(row["offloaded_bytes"] for row in moved) == bytes_out > 0
    for row in moved:
        assert row["offloaded_bytes"] <= row["bytes"] and row["d2h_bytes_per_s"] > 0, row
        assert row["h2d_bytes_per_s"] > 0 and row["exposed_s"] >= 0, row
        in_graph = rows["deck/step", row["module"].decode()]  # not timed there, and so it says
        assert in_graph["offloaded_bytes"] == row["offloaded_bytes"]
        assert numpy.isnan(in_graph["exposed_s"]) and numpy.isnan(in_graph["d2h_bytes_per_s"])
    again = rows["deck/off", "mlp_act"]
    assert again["recomputed_bytes"] == again["bytes"] > 0 and again["copies"] == 0, again
    with h5py.File(os.path.join(r.folder, "modules.h5"), "r+") as file:
        table = file["offload/modules"]
        changed = table[()]
        changed["offloaded_bytes"][changed["plan"] == b"deck/off"] += 1
        table[...] = changed
    said = r.run(sys.executable, os.path.join(r.given.source, "results/tools/validate.py"),
                 "modules.h5", expect=1, output=True)
    assert "/offload/modules: bytes_out of deck/off add up to" in said, said


@case(ranks=4)
def counted_rows_are_those_that_moved(r):
    """What a module moved of rows that are counted is what was counted, not what was expected."""
    r.bench("--samples", "2", "--modes", "off,step", "--only", "deck", "parallel.expert=4",
            "parallel.expert_capacity=[]", "offload.policy=manual", 'offload.modules=["moe_act"]',
            "offload.keep_exposed=false", "offload.min_tensor_bytes=0", "run.output=counted.h5",
            ranks=4)
    assert "VALID" in r.tool("validate.py", "counted.h5")
    with h5py.File(os.path.join(r.folder, "counted.h5")) as file:
        rows = {row["plan"]: row for row in file["offload/modules"] if row["module"] == b"moe_act"}
        for plan in ("deck/off", "deck/step"):
            row, about = rows[plan.encode()], file[f"samples/offload/{plan}"].attrs
            expected = row["bytes"] // 4  # of four ranks with room for all rows
            assert row["offloaded_bytes"] == about["bytes_out"] != expected, (row, plan)
            assert 0 < row["offloaded_bytes"] < row["bytes"], (row, plan)


# The decks of the published sweeps with layers of a few numbers each.
TINY = ("execution.backend=host offload.min_tensor_bytes=0 model.hidden_size=32 "
        "model.vocab_size=64 model.num_attention_heads=2 model.num_query_groups=1 "
        "model.head_dim=16 model.ffn_hidden_size=32 model.mamba_num_heads=2 "
        "model.mamba_head_dim=16 model.mamba_num_groups=1 model.mamba_state_dim=8 "
        "model.mamba_chunk_size=16 model.moe_ffn_hidden_size=16 "
        "model.moe_shared_expert_hidden_size=16 train.seq_length=32 data.synthetic_tokens=5000 ")


@case(ranks=2)
def published_sweeps_do_what_they_say(r):
    script = os.path.join(r.given.source, "scripts/publish_gpu.sh")
    made = set()
    for folder, only, ranks, pattern in (
            ("h200", "^(forced_mamba|fractions|inflight)", 1, "M-M*-"),
            ("h200", "^(forced_group_mlp|accumulate)", 1, "ME*E"),
            ("h200x2", "^fractions", 2, "M-")):
        commands = os.path.join(r.given.source, "results/published", folder, "commands.txt")
        said = r.run("bash", script, "sets", "--bin", os.path.dirname(r.given.bench), "--list",
                     commands, "--only", only, "--ranks", str(ranks), "--with",
                     f"{TINY} model.pattern={pattern}")
        assert "0 failed, 0 left out" in said, said
        made |= {line.split(":")[0] for line in said.splitlines() if ": code 0" in line}
    assert len(made) == 13, made
    modules = {}
    for name in made:
        path = os.path.join(r.folder, "sets", f"{name}.h5")
        with h5py.File(path) as file:
            for row in file["offload/modules"]:
                if row["plan"].startswith(b"deck/") and row["copies"] > 0:
                    modules.setdefault(name, set()).add(row["module"].decode())
    mamba = {"mamba_norm", "mamba_in_proj", "mamba_conv", "mamba_ssm"}
    assert modules.pop("forced_mamba_inside") == modules.pop("forced_mamba_beside") == mamba
    assert modules.pop("forced_group_mlp_moe_2b") == {"expert_fc1", "moe_act"}
    assert len(modules) == 5 and all(name.startswith("inflight_") for name in modules), modules


@case(ranks=2)
def ranks_sweep_together(r):
    for zero in (0, 1):
        text = r.bench("--samples", "3", "--time-limit", "100", "--modes", "off,step", "--only",
                       "free,recompute,fraction_100", f"parallel.zero={zero}",
                       f"run.output=two{zero}.h5", ranks=2)
        for plan in ("keep/off", "free/off", "recompute/step", "fraction_100/step"):
            rows = [line for line in text.splitlines() if f" {plan} " in line and " same" in line]
            assert len(rows) == 1, (plan, text)  # one rank prints
        assert text.count("STOWAGE RESULT VALID") == 1, text
        assert "VALID" in r.tool("validate.py", f"two{zero}.h5")
        with h5py.File(os.path.join(r.folder, f"two{zero}.h5")) as file:
            for plan in ("keep/off", "fraction_100/step"):
                times = file[f"samples/offload/{plan}"][()]
                assert times.shape == (3, 2) and (times > 0).all(), times
                slowest = numpy.median(times.max(axis=1))
                assert file[f"metrics/offload/{plan}/step_time"][()] == slowest, (times, slowest)
            assert file["samples/offload/fraction_100/off"].attrs["copies_out"] > 0
            assert file["provenance/system/ranks"].shape == (2,)
    r.tool("plot.py", "two0.h5", "--out", "two.png")
    # Rank 0's clock ends the rounds: the first is whole, on all ranks.
    r.bench("--samples", "100000", "--seconds", "1", "--only", "keep", "run.output=short.h5",
            "--json", "short.jsonl", ranks=2)  # by the earlier name of --time-limit
    with open(os.path.join(r.folder, "short.jsonl"), encoding="utf-8") as file:
        assert '"driver":"bench_offload"' in file.readline()
    with h5py.File(os.path.join(r.folder, "short.h5")) as file:
        assert 1 <= len(file["samples/offload/keep/off"]) < 100000
    said = r.bench("offload.host_budget_bytes=10", "offload.policy=manual",
                   'offload.modules=["core_attn"]', "--samples", "1", "--only", "deck",
                   "run.output=none.h5", expect=2, ranks=2)
    assert said.count("stowage: error:") == 1, said
    assert "deck/off: offload.host_budget_bytes" in said, said
    said = r.bench("train.global_batch_size=7", expect=2, ranks=2)
    assert said.count("stowage: error:") == 1 and "train.global_batch_size" in said, said
    assert not os.path.exists(os.path.join(r.folder, "none.h5"))


@case(ranks=4)
def stages_of_a_pipeline_sweep_together(r):
    """Each stage has plans of its own; the bits are those of the plan that keeps all."""
    half = ("model.pattern=M*-|M*-", "parallel.pipeline=2", "train.global_batch_size=16",
            "--samples", "2", "--modes", "off,step")
    moved = {}
    for ranks, delta in ((2, "0"), (4, "64KiB")):
        name = f"stages{ranks}.h5"
        text = r.bench(*half, "--only", "fraction_100,deck", f"parallel.data={ranks // 2}",
                       "offload.policy=manual", "offload.keep_exposed=false",
                       'offload.modules=["mamba_ssm", "core_attn", "mlp_act"]',
                       f"offload.delta_bytes_across_pp_ranks={delta}", f"run.output={name}",
                       ranks=ranks)
        rows = [line.split()[1:3] for line in
                text[text.index("# memory and copies of the stages"):].splitlines()[2:]
                if line.startswith("#   ")]
        plans = ["keep/off", "fraction_100/off", "fraction_100/step", "deck/off", "deck/step"]
        assert rows == [[plan, stage] for plan in plans for stage in "01"], text
        assert "VALID" in r.tool("validate.py", name)
        with h5py.File(os.path.join(r.folder, name)) as file:
            stages = {(row["plan"].decode(), int(row["stage"])): row
                      for row in file["offload/stages"]}
            assert file["samples/offload/deck/off"].shape == (2, ranks)
        for (plan, stage), row in stages.items():
            assert row["transient_bytes"] > 0 and row["persistent_bytes"] > 0, row
            assert row["predicted_time_s"] > 0, row
            assert (row["copies"] > 0) == (plan != "keep/off"), row
            assert numpy.isnan(row["exposed_s"]) == plan.endswith("/step"), row
        moved[delta] = [stages["deck/off", stage]["offloaded_bytes"] for stage in (0, 1)]
    # A delta leaves the second stage, which has fewer microbatches in flight, more of its own.
    assert moved["0"][0] == moved["0"][1], moved
    assert 0 < moved["64KiB"][1] < moved["64KiB"][0], moved
    with h5py.File(os.path.join(r.folder, "stages2.h5"), "r+") as file:
        table = file["offload/stages"]
        changed = table[()]
        changed["transient_bytes"][0] += 1
        table[...] = changed
    said = r.run(sys.executable, os.path.join(r.given.source, "results/tools/validate.py"),
                 "stages2.h5", expect=1, output=True)
    assert "/offload/stages: transient_bytes of keep/off on stage 0 is" in said, said
    # What one stage has no plan for, none runs, and the sweep says whose it is.
    said = r.bench(*half, "offload.host_budget_bytes=10", "offload.policy=manual",
                   'offload.modules=["core_attn"]', "--only", "deck", expect=2, ranks=2)
    assert said.count("stowage: error:") == 1 and "deck/off: stage 0: offload" in said, said


@case(ranks=2)
def a_delta_makes_the_memory_of_stages_more_even(r):
    """The second stage, with fewer microbatches in flight, keeps what the first one moves."""
    # A buffer is given back when its copy has ended, and the sweep plans with op times that it
    # measures: a copy that is shorter than any op ends within the next one at any measured time.
    keys = ("model.pattern=M*-|M*-", "parallel.pipeline=2", "train.global_batch_size=16",
            "offload.policy=manual", "offload.keep_exposed=false",
            'offload.modules=["mamba_ssm", "core_attn", "mlp_act"]', "machine.name=link",
            "machine.d2h_bytes_per_s=1e15", "machine.h2d_bytes_per_s=1e15",
            "machine.duplex_bytes_per_s=2e15")
    apart, planned, moved = [], [], []  # by delta
    deltas = (0, 64 << 10, 1 << 20)  # nothing, a part, and more than there is
    for delta in deltas:
        keep = f"offload.delta_bytes_across_pp_ranks={delta}"
        r.bench(*keys, keep, "--samples", "1", "--modes", "off", "--only", "deck",
                f"run.output=delta{delta}.h5", ranks=2)
        with h5py.File(os.path.join(r.folder, f"delta{delta}.h5")) as file:
            stages = {(row["plan"].decode(), int(row["stage"])): row
                      for row in file["offload/stages"]}
        device = [int(row["persistent_bytes"] + row["transient_bytes"])
                  for row in (stages["deck/off", 0], stages["deck/off", 1])]
        apart.append(device[0] - device[1])
        moved.append([int(stages["deck/off", stage]["offloaded_bytes"]) for stage in (0, 1)])
        said = [r.run(r.given.plan, r.deck, *SMALL, *keys, keep, "--stage", f"{stage}/2")
                for stage in (0, 1)]
        device = [int(re.search(r"all device memory +(\d+) B", text).group(1)) for text in said]
        planned.append(device[0] - device[1])
        for stage, text in enumerate(said):
            lasts = re.findall(r"^  (?:parameters|gradients|optimizer states) +(\d+) B", text, re.M)
            assert stages["deck/off", stage]["persistent_bytes"] == sum(map(int, lasts)), text
        table = r.tool("table.py", f"delta{delta}.h5")
        rows = re.findall(r"\| deck/off \| ([01]) \| .*\|", table[table.index("Stage by stage"):])
        assert rows == ["0", "1"], table
    assert moved[0][0] == moved[0][1] == moved[1][0] == moved[2][0] > 0, moved
    assert 0 < moved[0][1] - moved[1][1] <= deltas[1] and moved[2][1] == 0, moved
    keeps_all = stages["keep/off", 1]
    assert stages["deck/off", 1]["transient_bytes"] == keeps_all["transient_bytes"], stages
    assert apart == planned, (apart, planned)
    assert planned[0] > planned[1] > planned[2] > 0, planned


@case
def what_cannot_be_is_refused(r):
    said = r.bench("--only", "nonsense", expect=2)
    assert "nonsense" in said and "keep/off" in said and "auto_55/off" in said, said
    assert "--modes" in r.bench("--modes", "eager", expect=2)
    assert "--samples" in r.bench("--samples", "0", expect=2)
    assert "--time-limit" in r.bench("--time-limit", "-1", expect=2)
    assert "--quiet" in r.bench("--quiet", expect=2)
    # The default name of the result is checked, too: here it is that of the deck.
    os.symlink(r.deck, os.path.join(r.folder, "tiny.offload.h5"))
    said = r.bench("--samples", "1", expect=2)
    assert "would replace the deck" in said and "tiny.offload.h5" in said, said
    os.remove(os.path.join(r.folder, "tiny.offload.h5"))
    # A sweep goes on without a plan that memory does not allow, unless the deck itself asks for it.
    manual = ("offload.policy=manual", 'offload.modules=["core_attn"]', "--samples", "1")
    said = r.bench("offload.host_budget_bytes=10", *manual, "--only", "deck", expect=2)
    assert "deck/off: offload.host_budget_bytes = 10" in said and "more" in said, said
    said = r.bench("offload.policy=auto", "offload.device_budget_bytes=10KiB", "--only", "deck",
                   expect=2)
    assert "offload.device_budget_bytes" in said, said
    assert not [name for name in os.listdir(r.folder) if name.endswith(".h5")]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    for option in ("bench", "plan", "source"):
        parser.add_argument(f"--{option}", required=True)
    with tempfile.TemporaryDirectory() as place:
        given_options = parser.parse_args()
        CASES[given_options.case](Runner(given_options, place))
