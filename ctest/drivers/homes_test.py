#!/usr/bin/python3
"""Optimizer states with their home on the host (offload.states): whole processes.

Usage: homes_test.py CASE --train PROGRAM --source FOLDER. Each case runs in a folder of its own.
"""
import re
import sys

from process_cases import Cases
from train_test import EVERYTHING_LEAVES, assert_equal, main

CASES = case = Cases()


@case(ranks=4)
def states_on_the_host_change_no_bit(r):
    keys = ["run.steps=3", "train.dtype=bf16", "parallel.bucket_elements=1024"]
    ways = [["offload.states=all"],
            ["offload.states=moments", "graphs.mode=step", "execution.delay_seed=5"],
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
    r.run("run.output=a.h5", *keys)
    r.run("run.output=b.h5", *keys, "offload.states=all", "execution.audit=true")
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
             says=["offload.host_budget_bytes = 2000", "optimizer states on the host"])
    r.refuse("offload.states=auto", "offload.device_budget_bytes=1000",
             says=["offload.states", "100 %", "GiB"])


if __name__ == "__main__":
    sys.exit(main(CASES))
