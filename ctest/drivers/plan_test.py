#!/usr/bin/python3
"""stowage_plan as a process: exit codes, streams and files. What it says is judged in process, by
plan_text_test.cpp, plan_stages_test.cpp and plan_layouts_test.cpp.

Usage: plan_test.py CASE --plan PROGRAM --source FOLDER.
"""
import argparse
import json
import math
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


@case
def a_plan_ends_with_its_exit_code(r):
    """0: it fits, 1: it does not, 2: it cannot be; a plan goes to standard output, with the figures
    as a line of JSON to a file, and a refusal to the other stream."""
    deck = os.path.join(r.source, "ctest/drivers/tiny.toml")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.jsonl")
        for memory, ends in (("4GiB", 0), ("2049MiB", 1)):
            done = r.start(deck, f"machine.device_memory_bytes={memory}", "--json", path,
                           expect=ends)
            with open(path, encoding="utf-8") as file:
                line, = file
            assert json.loads(line)["fits"] == (ends == 0), line
            assert f"# {'fits' if ends == 0 else 'does not fit'}: " in done.stdout, done.stdout
        refused = os.path.join(folder, "refused.jsonl")
        done = r.start(deck, "--machine", "h300", "--json", refused, expect=2)
        assert not done.stdout and done.stderr.startswith("stowage: error: --machine h300"), done
        assert not os.path.exists(refused)
    assert "--fewest" in r.start("--help").stdout
    assert r.start("--version").stdout.startswith("stowage_plan "), r.start("--version").stdout


def tree(node):
    """A node of a file and all below it."""
    yield node
    for child in node.values() if isinstance(node, h5py.Group) else ():
        yield from tree(child)


@case
def a_set_that_does_not_say_what_was_exchanged_gives_no_links(r):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ops.h5")
        shutil.copy(os.path.join(r.source, "results/published/h100x2/ops_expert_moe_2b.h5"), path)
        keys = (*RATES, "machine.name=H100", "--ops", path, "--print-config")
        assert "links_beside = []" not in r.run("inputs/hybrid-moe-2b.toml", *keys)
        with h5py.File(path, "r+") as file:  # as before sets said what was exchanged
            for op in [op for layer in file["samples/ops"].values() for op in tree(layer)]:
                op.attrs.pop("collective", None)
        assert "links_beside = []" in r.run("inputs/hybrid-moe-2b.toml", *keys)


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
def a_timeline_is_traced_and_plotted(r):
    deck = "inputs/hybrid-dense-1b.toml"
    keys = [*RATES, "model.pattern=M-M*-M-", "parallel.pipeline=2", "train.global_batch_size=8"]
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


@case
def layouts_of_thousands_of_ranks_are_found(r):
    """In seconds, of the largest standard deck and the machine that results/predicted has tables
    for."""
    ranks = 16384
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as deck:
        files = [os.path.join(r.source, "inputs", name)
                 for name in ("nemotron-nano-30b.toml", "machines/h200-cluster.toml")]
        deck.write(f"include = {json.dumps(files)}\n")
        deck.flush()
        text = r.run(deck.name, "--ranks", str(ranks), "--best", "1", "--quick",
                     f"train.global_batch_size={4 * ranks}", timeout=900)
    assert "# quick: " in text and f"on {ranks} ranks" in text and "why they lose" in text, text
    assert len(text.split("# keys of these layouts")[1].splitlines()) == 2, text
    grids = re.findall(r"  ((?:[a-z]+ \d+ x )*[a-z]+ \d+)(?:,| {2})", text)
    assert len(grids) > 10, text
    for grid in grids:
        assert math.prod(int(size) for size in re.findall(r"\d+", grid)) == ranks, (grid, text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--plan", required=True)
    parser.add_argument("--source", required=True)
    given = parser.parse_args()
    CASES[given.case](Runner(given.plan, given.source))


if __name__ == "__main__":
    main()
