#!/usr/bin/python3
"""Muon (optim.optimizer = "muon"): whole processes.

Usage: muon_test.py CASE --train PROGRAM --source FOLDER. Each case runs in a folder of its own.
"""
import sys

import numpy

from process_cases import Cases
from train_test import EVERYTHING_LEAVES, assert_equal, losses, main

CASES = case = Cases()
MUON = ["optim.optimizer=muon"]


@case(ranks=2)
def no_choice_of_the_plan_changes_a_bit(r):
    keys = [*MUON, "run.steps=3", "train.dtype=bf16", "parallel.bucket_elements=1024"]
    for ranks in (1, 2):
        r.run("run.output=a.h5", *keys, ranks=ranks)
        for way in (["offload.states=all", "graphs.mode=step"],
                    ["parallel.zero=1", "execution.delay_seed=5", "--time-ops", "1"],
                    ["parallel.zero=1", "offload.states=muon_m", *EVERYTHING_LEAVES]):
            r.run("run.output=b.h5", *keys, *way, ranks=ranks)
            assert_equal("a.h5", "b.h5")
    r.run("run.output=a.h5", *keys)
    r.run("run.output=b.h5", *keys, "execution.audit=true")
    assert_equal("a.h5", "b.h5")


@case(ranks=4)
def a_run_goes_on_from_any_layout(r):
    keys = [*MUON, "optim.decay_steps=6", "checkpoint.keep_last=9"]
    r.run("run.output=whole.h5", *keys, "parallel.zero=1", ranks=2)
    r.run("run.output=a.h5", *keys, "checkpoint.directory=ckpt", "run.steps=3", "parallel.zero=1",
          ranks=2)
    start = "checkpoint.resume=ckpt/step_00000003.h5"
    r.run("run.output=b.h5", *keys, start, ranks=2)
    assert_equal_end("b.h5", "whole.h5")
    for number, (ranks, grid) in enumerate(((1, []), (2, ["parallel.tensor=2"]),
                                            (4, ["parallel.expert=2", "parallel.zero=1"]))):
        name = f"other{number}.h5"
        r.run(f"run.output={name}", *keys, start, *grid, ranks=ranks)
        assert numpy.allclose(losses(name), losses("whole.h5")[3:], rtol=1e-4), grid


def assert_equal_end(end, whole):
    assert (losses(end) == losses(whole)[3:]).all(), f"{losses(end)} {losses(whole)}"


@case
def another_optimizer_is_refused_or_restarted(r):
    r.run("run.output=a.h5", "run.steps=3", "checkpoint.directory=ckpt", "optim.decay_steps=6")
    r.refuse("checkpoint.directory=ckpt", "optim.decay_steps=6", *MUON,
             says=["optim.optimizer = \"muon\"", "\"adamw\"", "checkpoint.allow_changes"])
    said = r.run("run.output=b.h5", "checkpoint.directory=ckpt", "optim.decay_steps=6", *MUON,
                 "checkpoint.allow_changes=true").stdout
    assert "# changed: states that the checkpoint's optimizer does not have begin at zero" in said
    assert len(losses("b.h5")) == 3
    # And back; numbers of Muon are of no run by AdamW.
    r.refuse("checkpoint.directory=ckpt", "optim.decay_steps=6", "run.steps=8",
             says=["optim.optimizer", "checkpoint.allow_changes"])
    r.run("run.output=c.h5", "checkpoint.directory=ckpt", "optim.decay_steps=6", "run.steps=8",
          "checkpoint.allow_changes=true")
    r.run("run.output=d.h5", "checkpoint.directory=ckpt", "optim.decay_steps=6", "run.steps=9",
          "checkpoint.allow_changes=true", "optim.muon_momentum=0.5")


@case
def what_is_impossible_is_refused(r):
    r.refuse("optim.optimizer=sgd", says=["optim.optimizer", "sgd", "adamw", "muon"])
    r.refuse(*MUON, "optim.muon_coefficients=[1.5, 2]",
             says=["optim.muon_coefficients = [1.5, 2.0]", "2 numbers", "three"])
    r.refuse(*MUON, "optim.muon_momentum=1", says=["optim.muon_momentum", "1"])
    r.refuse(*MUON, "optim.muon_split=rows", says=["optim.muon_split", "rows", "heads"])
    r.refuse(*MUON, "optim.state_dtype=bf16", "optim.muon_momentum=0.995",
             says=["optim.state_dtype", "optim.muon_momentum = 0.995"])
    r.refuse(*MUON, "offload.states=adam", says=["muon_m, adam_m, adam_v"])


if __name__ == "__main__":
    sys.exit(main(CASES))
