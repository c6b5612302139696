#!/usr/bin/python3
"""States with their home on the host (offload.states): whole processes.

Usage: homes_test.py CASE --train PROGRAM --source FOLDER. Each case runs in a folder of its own.
"""
import re
import sys

from process_cases import Cases
from train_test import EVERYTHING_LEAVES, assert_equal, main, states

CASES = case = Cases()


@case(ranks=4)
def states_on_the_host_change_no_bit(r):
    keys = ["run.steps=3", "train.dtype=bf16", "parallel.bucket_elements=1024"]
    everything = "offload.states=all,gradients,parameters"
    ways = [[everything, "graphs.mode=step", "execution.delay_seed=5"],
            ["offload.states=all", "offload.states_fraction=0.5", *EVERYTHING_LEAVES,
             "graphs.mode=scopes", 'graphs.scopes=["layer"]']]
    for ranks, grid in ((1, []), (2, ["parallel.zero=1"]), (2, ["parallel.pipeline=2"]),
                        (2, ["parallel.expert=2"]), (2, ["parallel.context=2"]),
                        (2, ["parallel.tensor=2", "optim.state_dtype=fp8"]),
                        (4, ["parallel.tensor=2", "parallel.zero=1"])):
        r.run("run.output=a.h5", *keys, *grid, ranks=ranks)
        for way in ways if ranks < 4 else ways[:1]:
            r.run("run.output=b.h5", *keys, *grid, *way, ranks=ranks)
            assert_equal("a.h5", "b.h5")
    for ranks, grid in ((1, []), (2, ["parallel.zero=1"])):
        r.run("run.output=a.h5", *keys, *grid, ranks=ranks)
        for away in ("offload.states=moments", everything):
            r.run("run.output=b.h5", *keys, *grid, away, "execution.audit=true", ranks=ranks)
            assert_equal("a.h5", "b.h5")


@case
def states_are_away_as_the_memory_table_says(r):
    keys = ["--dry-run", "train.dtype=bf16", "parallel.bucket_elements=1024"]
    all_there = r.run(*keys).stdout
    away = r.run(*keys, "offload.states=all").stdout
    def row(text, name):
        found = re.search(rf"^  {name} +([0-9]+) B", text, re.M)
        return int(found[1]) if found else 0
    states = row(all_there, "  optimizer states")
    assert states == 0, all_there
    moved = row(away, "  optimizer states")
    assert row(away, "optimizer states") + moved == row(all_there, "optimizer states"), away
    assert row(away, "pinned host memory") >= moved > 0, away


@case
def what_is_impossible_is_refused(r):
    r.refuse("offload.states=adam_w", says=["offload.states", "adam_w", "moments, adam_m, adam_v"])
    r.refuse("offload.states=auto", says=["offload.states", "offload.device_budget_bytes"])
    r.refuse("offload.states=auto,master", "offload.device_budget_bytes=1GiB",
             says=["offload.states", "stands alone"])
    r.refuse("offload.states=all", "offload.host_budget_bytes=2000",
             says=["offload.host_budget_bytes = 2000", "states on the host"])
    r.refuse("offload.states=auto", "offload.device_budget_bytes=1000",
             says=["offload.states", "100 %", "GiB"])


@case(ranks=2)
def formats_that_do_not_go_together_are_refused(r):
    r.refuse("optim.state_dtype=fp8", "optim.adam_beta1=0.98", "optim.adam_beta2=0.95",
             says=["optim.state_dtype", "optim.adam_beta1 = 0.98", "14"])
    r.refuse("optim.state_dtype=fp8", "optim.optimizer=muon",
             says=["optim.state_dtype", "muon", "fp32"])
    r.refuse("optim.state_dtype=fp8", "offload.states=master",
             says=["offload.states", "master", "adam_m, adam_v"])
    r.refuse("optim.gradient_dtype=bf16", "optim.optimizer=muon",
             says=["optim.gradient_dtype", "muon", "fp32"])
    r.refuse("optim.gradient_dtype=bf16", ranks=2, says=["optim.gradient_dtype", "2 ranks"])
    r.refuse("optim.gradient_dtype=bf16", "run.same_bits=ranks",
             says=["optim.gradient_dtype", "run.same_bits"])


@case(ranks=2)
def states_of_three_bytes_go_on_to_the_bit(r):
    same = ["train.dtype=bf16", "optim.decay_steps=6", "validate.finite_differences=off"]
    away = ["offload.states=all,gradients,parameters"]
    for ranks, more, before, after in ((1, ["optim.gradient_dtype=bf16"], away, []),
                                       (2, ["parallel.zero=1"], [], away)):
        keys = [*same, "optim.state_dtype=fp8", *more]
        saved = f"checkpoint.directory=ckpt{ranks}"
        whole, rest = f"whole{ranks}.h5", f"rest{ranks}.h5"
        r.run(f"run.output={whole}", "run.steps=6", *keys, ranks=ranks)
        r.run("run.output=first.h5", "run.steps=3", saved, *keys, *before, ranks=ranks)
        r.refuse("run.steps=6", saved, *same, *more, ranks=ranks,
                 says=["optim.state_dtype", "checkpoint.allow_changes"])
        r.refuse("run.steps=6", saved, *same, *more, "checkpoint.allow_changes=true", ranks=ranks,
                 says=["has no tensor 'master/"])
        r.run(f"run.output={rest}", "run.steps=6", saved, *keys, *after, ranks=ranks)
        assert states(rest)[6] == states(whole)[6]


if __name__ == "__main__":
    sys.exit(main(CASES))
