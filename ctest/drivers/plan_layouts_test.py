#!/usr/bin/python3
"""stowage_plan as a planner's tool: layouts of ranks, and what a whole training takes.

Usage: plan_layouts_test.py CASE --plan PROGRAM --source FOLDER.
"""
import json
import math
import os
import re
import tempfile

from plan_test import RATES, main, predicted_ms
from process_cases import Cases

CASES = case = Cases()


def read_line(path):
    with open(path, encoding="utf-8") as file:
        line, = file
    return json.loads(line)


@case
def a_whole_training_is_priced(r):
    """Parameters, MFU, days, GPU-hours and energy: on paper by the deck, the peak and the step."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.jsonl")
        text = r.run("inputs/nemotron-nano-30b.toml", "--machine", "h200", "--tokens", "2 T",
                     "--json", path, "machine.device_memory_bytes=900GiB")
        plan = read_line(path)
        # Counted by hand: of 128 experts a token leaves out 122.
        assert abs(plan["parameters"] / 31.578e9 - 1) < 1e-3, plan
        experts = 23 * 128 * 2 * 2688 * 1856
        active = plan["parameters"] - experts * 122 / 128
        assert abs(plan["active_parameters"] / active - 1) < 1e-6, (plan, active)
        assert plan["fits"] and plan["ranks"] == 1 and plan["event"] == "plan", plan
        rate = plan["tokens_per_s"]
        assert abs(plan["step_s"] * 1e3 / predicted_ms(text, "step") - 1) < 1e-4, plan
        assert abs(plan["mfu"] / (rate * plan["model_flops_per_token"] / 9.894e14) - 1) < 1e-9
        assert 0.2 < plan["mfu"] < 0.8, plan
        assert abs(plan["days"] / (2e12 / rate / 86400) - 1) < 1e-9, plan
        assert abs(plan["gpu_hours"] / (24 * plan["days"]) - 1) < 1e-9, plan
        assert abs(plan["energy_kwh"] / (0.7 * plan["gpu_hours"]) - 1) < 1e-9, plan
        assert f"MFU {100 * plan['mfu']:.1f} %" in text and "# 2 T tokens: " in text, text
        assert "kWh of devices at 700 W" in text, text
        # Without a peak and a power there is no MFU and no energy, without rates no time.
        r.run("inputs/nemotron-nano-30b.toml", *RATES, "--tokens", "1e9", "--json", path)
        assert {"days"} <= set(plan := read_line(path)) and not {"mfu", "energy_kwh"} & set(plan)
        r.run("inputs/nemotron-nano-30b.toml", "--json", path)
        assert not {"step_s", "tokens_per_s"} & set(read_line(path))
    for wrong in ("0", "-1", "3X", "many", "1TT"):
        said = r.run("inputs/quickstart.toml", "--tokens", wrong, expect=2)
        assert f"--tokens {wrong}" in said, said
    said = r.run("inputs/quickstart.toml", "--tokens", "1", "--timeline", expect=2)
    assert "--timeline" in said, said


@case
def layouts_are_found_quickly(r):
    """At any batch: few plans of few microbatches, whose times are those of plans in full."""
    deck, batch = "inputs/hybrid-moe-2b.toml", "train.global_batch_size=256"
    h200 = ("--machine", "h200-cluster", batch)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "layouts.jsonl")
        text = r.run(deck, "--ranks", "8", "--quick", "--best", "2", "--tokens", "1T", "--json",
                     path, *h200)
        found = read_line(path)
    assert "# quick: " in text and found["quick"] and found["ranks"] == 8, text
    steps = [layout["step_s"] for layout in found["layouts"]]
    assert len(steps) == 2 and steps == sorted(steps), found
    assert [other["because"] for other in found["others"]], found
    best = found["layouts"][0]
    assert best["microbatches"] > 4 and best["gpu_hours"] > 0, best
    # The line of keys makes this layout: a plan in full takes as long, and as much memory.
    assert f"\n  {' '.join(best['keys'])}\n" in text, (best, text)
    stages = range(0, best["pipeline"], max(1, best["pipeline"] - 1))
    planned = [r.run(deck, *h200, *best["keys"], *(("--stage", f"{stage}/{best['pipeline']}")
                                                   if best["pipeline"] > 1 else ()))
               for stage in stages]
    step_s = 1e-3 * max(predicted_ms(one, "step") for one in planned)
    assert abs(best["step_s"] / step_s - 1) < 0.05, (best, step_s)
    device = max(int(re.search(r"all device memory +(\d+) B", one).group(1)) for one in planned)
    assert abs(best["device_bytes"] / device - 1) < 0.02, (best, device)


@case
def the_fewest_ranks_that_fit_are_found(r):
    deck = "inputs/hybrid-moe-2b.toml"
    tight = ("--machine", "h200", "machine.device_memory_bytes=12GiB", "train.global_batch_size=24",
             "--quick", "--best", "1")
    text = r.run(deck, "--fewest", *tight)
    fewest = int(re.match(r"# the fewest ranks that fit: (\d+)\n", text).group(1))
    assert 2 < fewest <= 8 and len(layouts(text)) == 1, text
    said = r.run(deck, "--ranks", str(fewest - 1), *tight, expect=2)
    assert f"--ranks {fewest - 1}: " in said, said
    assert "--fewest" in r.run(deck, "--fewest", "--ranks", "2", *tight, expect=2)
    said = r.run(deck, "--fewest", "--quick", expect=2)
    assert "--fewest: machine." in said, said
    assert "--quick" in r.run(deck, "--quick", expect=2)


def layouts(text):
    """Step in ms by layout, of those that fit, in the order of the table."""
    table = text.split("# the best of other kinds")[0]
    return {match.group(1): float(match.group(2))
            for match in re.finditer(r"^  ([a-z][^,\n]*?\d(?:,[^\n]*interleaved of \d+)?|1 rank)"
                                     r"(?:,[^\n]*?)? +(\d+\.\d{3}) ", table, re.MULTILINE)}


@case
def layouts_are_found_and_planned(r):
    deck = "inputs/hybrid-moe-2b.toml"
    with open(os.path.join(r.source, "inputs", "machines", "h200-cluster.toml"),
              encoding="utf-8") as file:
        words = re.findall(r"^(\w+_per_\w+|network_latency_s) = (.+)", file.read(), re.MULTILINE)
    machine = [*RATES, *(f"machine.{key}={value}" for key, value in words)]
    machine += ["machine.device_memory_bytes=139GiB", "train.global_batch_size=8"]
    found = layouts(text := r.run(deck, "--ranks", "4", *machine))
    assert len(found) == 5 and list(found.values()) == sorted(found.values()), text
    assert "data 4" in found and "why they lose" in text, text
    assert "-0.0" not in text, text
    # Other kinds stand in the order of time, and the parts that are named make up the difference.
    others = re.findall(r"  ([0-9.]+) ms, \+([0-9.]+) %(, estimated)?: (.*)", text)
    times = [float(ms) for ms, *_ in others]
    assert len(times) > 3 and times == sorted(times), others
    for ms, percent, _, parts in others:
        more = float(ms) * (1 - 1 / (1 + float(percent) / 100))
        named = sum(float(part) for part in re.findall(r"([+-][0-9.]+) ms", parts))
        assert abs(named - more) < 0.15 * more + 0.2, (ms, percent, parts)
    # Axes of the command line are obeyed.
    asked = layouts(r.run(deck, "--ranks", "4", *machine, "parallel.tensor=2"))
    assert asked and all("tensor 2" in layout for layout in asked), asked
    said = r.run(deck, "--ranks", "4", *machine, "parallel.tensor=3", expect=2)
    assert "--ranks 4: no grid of the model has parallel.tensor = 3" in said, said
    # The search says of a layout what a plan of it says.
    for layout, ms in found.items():
        keys = [f"parallel.{axis}={size}"
                for axis, size in re.findall(r"(\w+) (\d+)", layout.split(",")[0])]
        stages = re.findall(r"pipeline (\d+)", layout) or ["1"]
        ends = sorted({0, int(stages[0]) - 1})
        chunks = re.findall(r"interleaved of (\d+)", layout)
        keys += [f"parallel.virtual_stages={chunks[0]}",
                 "parallel.schedule=interleaved"] if chunks else ["parallel.schedule=auto"]
        planned = max(predicted_ms(r.run(deck, "--stage", f"{stage}/{stages[0]}", *keys, *machine,
                                         "parallel.zero=1"), "step")
                      for stage in ends)
        assert abs(ms / planned - 1) < 0.02, (layout, ms, planned)
    # A network that is slow makes exchanges between hosts dear: they stay inside.
    slow = [*machine, "machine.ranks_per_node=2", "machine.network_bytes_per_s=1e9"]
    inside = layouts(text := r.run(deck, "--ranks", "4", "--best", "1", *slow))
    assert inside and min(inside.values()) > min(found.values()), (inside, found)
    assert not any(name in layout for layout in inside for name in ("tensor 4", "expert 4")), text
    # What does not fit as the deck says is planned by the automatic policy, quicker than with all
    # computed again, within the memory.
    tight = [*machine, "machine.device_memory_bytes=24GiB"]
    rows = r.run(deck, "--ranks", "4", "--best", "3", *tight).splitlines()[3:6]
    assert any(row.endswith("offload.policy=auto") for row in rows), rows
    planned = r.run(deck, *tight, "parallel.data=4", "parallel.zero=1", "offload.policy=auto",
                    f"offload.device_budget_bytes={22 * 2**30}")
    data = [row for row in rows if row.startswith("  data 4")]
    ms = float(data[0].split()[2])
    assert abs(ms / predicted_ms(planned, "step") - 1) < 1e-5, (data, planned)
    # A copy of the state for checkpoints is memory like any other.
    def device_gib(*keys):
        row = r.run(deck, "--ranks", "4", "--best", "1", *machine, *keys).splitlines()[3]
        return float(row.split()[-2])
    saved = ("checkpoint.directory=kept", "checkpoint.copy=")
    kept, left = (device_gib(saved[0], saved[1] + place) for place in ("device", "host"))
    assert kept > left + 3, (kept, left)
    said = r.run(deck, "--ranks", "4", *machine, "machine.device_memory_bytes=8GiB", expect=2)
    assert "GiB too much" in said and "machine.device_memory_bytes" in said, said
    # The state fits, the rest does not: plans were made, and the nearest one says what is missing.
    said = r.run(deck, "--ranks", "4", *machine, "machine.device_memory_bytes=11GiB", expect=2)
    assert re.search(r"the state of [1-9]\d* fits and [1-9]\d* were planned", said), said
    assert "needs" in said and "more, with all computed again" in said, said
    said = r.run(deck, "--ranks", "37", *machine, expect=2)  # a prime, more than there are layers
    assert "--ranks 37" in said, said
    for more in (["--timeline"], ["--longest"], ["--stage", "0/2"]):
        said = r.run(deck, "--ranks", "4", *more, *machine, expect=2)
        assert "--ranks 4" in said and "--timeline" in said, said
    for wrong in (["--ranks", "0"], ["--best", "3"], ["--ranks", "4", "--best", "99"]):
        said = r.run(deck, *wrong, *machine, expect=2)
        assert f"{wrong[-2]} {wrong[-1]}" in said, said
    said = r.run(deck, "--ranks", "4", "train.global_batch_size=8", expect=2)
    assert "machine.device_memory_bytes" in said, said
    said = r.run(deck, "--ranks", "4", *machine, "machine.network_bytes_per_s=0",
                 "machine.ranks_per_node=2", expect=2)
    assert "machine.network_bytes_per_s" in said, said


@case
def layouts_with_the_same_bits_are_found(r):
    """Of those that one tree covers, with whole leaves on each rank."""
    text = r.run("inputs/hybrid-moe-2b.toml", "--machine", "h200-cluster", "--ranks", "16",
                 "--quick", "train.global_batch_size=32", "run.same_bits=ranks",
                 "run.same_bits_leaves=8", "model.untie_embeddings=true")
    assert re.search(r"^ +(pipeline \d+ x )?data \d", text, re.MULTILINE), text
    assert not re.search(r"(tensor|context|expert) [0-9]|data 16", text), text
    refused = r.run("inputs/hybrid-moe-2b.toml", "--machine", "h200-cluster", "--ranks", "16",
                    "--quick", "train.global_batch_size=32", "run.same_bits=ranks",
                    "parallel.tensor=2", expect=2)
    assert "run.same_bits" in refused and "parallel.tensor = 2" in refused, refused


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
    assert len(layouts(text)) == 1, text
    grids = re.findall(r"  ((?:[a-z]+ \d+ x )*[a-z]+ \d+)(?:,| {2})", text)
    assert len(grids) > 10, text
    for grid in grids:
        assert math.prod(int(size) for size in re.findall(r"\d+", grid)) == ranks, (grid, text)


if __name__ == "__main__":
    main(CASES)
