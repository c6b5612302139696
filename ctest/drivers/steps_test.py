#!/usr/bin/python3
"""Steps of stowage_train that go wrong: what is skipped, done again, told and judged.

Usage: steps_test.py CASE --train PROGRAM --source FOLDER. Each case runs in a folder of its own.
"""
import json
import os
import shutil
import subprocess
import sys

import h5py
import numpy

from process_cases import Cases
import train_test
from train_test import assert_equal, losses, states

CASES = case = Cases()

# Norms of this run fall with some noise: with a window of one step, a norm above the last one is a
# spike.
SPIKES = ("run.steps=12", "optim.spike_factor=1", "optim.spike_window=1")


def ok(path):
    return losses(path, "ok")


def skipped(path):
    """The steps that were."""
    with h5py.File(path) as file:
        return list(file["/series/train/step"][:][file["/series/train/ok"][:] == 0])


def spikes(norms, most_in_a_row=3):
    """Steps that the rule skips, from the norms of all steps."""
    found, mean, row = [], 0.0, 0
    for step, norm in enumerate(norms, 1):
        if mean > 0 and norm > mean and row < most_in_a_row:
            found.append(step)
            row += 1
        else:
            mean, row = norm, 0
    return found


def validate(r, path):
    done = subprocess.run([sys.executable, os.path.join(r.tools, "validate.py"), path],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@case
def spikes_are_skipped_and_counted(r):
    done = r.run(*SPIKES, "validate.most_skipped_steps=12", "--json", "tiny.jsonl")
    wanted = spikes(losses("tiny.h5", "grad_norm"))
    assert 0 < len(wanted) < 12 and skipped("tiny.h5") == wanted, (wanted, ok("tiny.h5"))
    with h5py.File("tiny.h5") as file:
        again = file["/series/again"]
        assert list(again["step"]) == wanted
        assert not again["transient"][:].any() and (again["rank"][:] == -1).all()
        norms = file["/series/train/grad_norm"][:][[step - 1 for step in wanted]]
        assert numpy.array_equal(again["grad_norm"][:], norms)
        assert file["/metrics/train/skipped_steps"][()] == len(wanted)
        assert file["/metrics/train/transient_errors"][()] == 0
    for step in wanted:
        assert f"# step {step}: gradient norm " in done.stdout, done.stdout
        assert f"# step {step}: done again with the same bits" in done.stdout, done.stdout
    with open("tiny.jsonl") as lines:
        events = [json.loads(line) for line in lines]
    assert [e["step"] for e in events if e["event"] == "again"] == wanted
    validate(r, "tiny.h5")


@case
def as_many_as_the_deck_allows_are_no_failure(r):
    r.run(*SPIKES, "run.output=a.h5", "validate.most_skipped_steps=12")
    count = len(skipped("a.h5"))
    r.run(*SPIKES, "run.output=b.h5", f"validate.most_skipped_steps={count}")
    r.run(*SPIKES, "run.output=c.h5", f"validate.most_skipped_steps={count - 1}", expect=1)
    # By default one is.
    first = skipped("a.h5")[0]
    short = (*SPIKES[1:], f"run.steps={first}", "optim.decay_steps=12")
    r.run(*short, "run.output=d.h5")
    assert skipped("d.h5") == [first]
    validate(r, "d.h5")
    r.run(*short, "run.output=e.h5", "validate.most_skipped_steps=0", expect=1)


@case(ranks=4)
def a_step_done_again_changes_no_bit(r):
    many = (*SPIKES, "validate.most_skipped_steps=12")
    for ranks, grid in ((1, ()), (4, ("parallel.pipeline=2", "parallel.zero=1"))):
        for word in ("true", "false"):
            r.run(*many, *grid, f"run.output=np{ranks}_{word}.h5",
                  f"validate.bad_steps_again={word}", ranks=ranks)
        assert len(skipped(f"np{ranks}_true.h5")) > 0
        assert_equal(f"np{ranks}_true.h5", f"np{ranks}_false.h5")
        assert states(f"np{ranks}_true.h5") == states(f"np{ranks}_false.h5")
        with h5py.File(f"np{ranks}_false.h5") as file:
            assert "again" not in file["/series"]


@case(ranks=4)
def counted_rows_of_a_step_done_again_count_once(r):
    """A timed step that is issued twice has moved what it moves when it is issued once."""
    shared = (*SPIKES[1:], "optim.decay_steps=12", "validate.most_skipped_steps=12",
              "parallel.expert=4", "parallel.expert_capacity=[]", "offload.policy=manual",
              'offload.modules=["moe_act"]', "offload.keep_exposed=false",
              "offload.min_tensor_bytes=0")
    r.run(SPIKES[0], *shared, "run.output=all.h5", ranks=4)
    last, moved = skipped("all.h5")[0], []
    for word in ("true", "false"):
        r.run(f"run.steps={last}", *shared, f"run.output={word}.h5", "--time-ops", "1",
              f"validate.bad_steps_again={word}", ranks=4)
        assert skipped(f"{word}.h5") == [last]
        with h5py.File(f"{word}.h5") as file:
            rows = {row["module"]: row for row in file["/offload/modules"]}
            assert ("again" in file["/series"]) == (word == "true")
        moved.append((rows[b"moe_act"]["offloaded_bytes"], rows[b"moe_act"]["bytes"]))
    assert moved[0] == moved[1] and 0 < moved[0][0] < moved[0][1], moved


@case(ranks=2)
def spikes_and_experts_without_room_are_told_apart(r):
    """Both kinds of steps are issued again; the classes of room change no bit of what is kept."""
    shared = (*SPIKES, "validate.most_skipped_steps=12", "validate.replayed_step=false",
              "parallel.expert=2", "train.micro_batch_size=2")
    r.run(*shared, "run.output=all.h5", "parallel.expert_capacity=[]", ranks=2)
    with h5py.File("all.h5") as file:
        middle = float(numpy.median(file["/series/experts/busiest_rank"][:]))
    wanted = skipped("all.h5")
    assert len(wanted) > 0
    for word in ("true", "false"):
        r.run(*shared, f"run.output={word}.h5", f"validate.bad_steps_again={word}",
              f"parallel.expert_capacity=[0.25, {middle}]", ranks=2)
        assert skipped(f"{word}.h5") == wanted
        assert_equal("all.h5", f"{word}.h5")
        assert states("all.h5") == states(f"{word}.h5")
        with h5py.File(f"{word}.h5") as file:
            assert file["/metrics/experts/reruns"][()] > 0


@case(ranks=2)
def a_restart_knows_the_norms_before(r):
    many = (*SPIKES, "validate.most_skipped_steps=12", "optim.decay_steps=12",
            "optim.spikes_in_a_row=1")
    for ranks, grid in ((1, ()), (2, ("parallel.pipeline=2",))):
        r.run(*many, *grid, f"run.output=whole{ranks}.h5", ranks=ranks)
        wanted = skipped(f"whole{ranks}.h5")
        stop = wanted[0]  # the step behind a skipped one knows that it was
        saved = ("checkpoint.directory=ckpt%d" % ranks,)
        r.run(*many, *grid, *saved, f"run.output=first{ranks}.h5", f"run.steps={stop}", ranks=ranks)
        r.run(*many, *grid, *saved, f"run.output=more{ranks}.h5", ranks=ranks)
        assert skipped(f"first{ranks}.h5") + skipped(f"more{ranks}.h5") == wanted
        assert states(f"more{ranks}.h5")[12] == states(f"whole{ranks}.h5")[12]


@case(ranks=2)
def spikes_may_begin_and_end_at_a_restart(r):
    many = (*SPIKES[1:], "validate.most_skipped_steps=12", "optim.decay_steps=12")
    plain = ("optim.decay_steps=12",)
    def go(name, steps, *keys, folder, expect=0, ranks=1):
        return r.run(*keys, f"run.output={name}.h5", f"run.steps={steps}",
                     f"checkpoint.directory={folder}", expect=expect, ranks=ranks).stdout
    go("plain", 5, *plain, folder="on")
    shutil.copytree("on", "on2", symlinks=True)
    r.refuse(*many, "run.steps=12", "run.output=x.h5", "checkpoint.directory=on",
             says=["optim.spike_factor", "allow_changes"])
    for folder, ranks in (("on", 1), ("on2", 2)):
        said = go(folder, 12, *many, "checkpoint.allow_changes=true", folder=folder, ranks=ranks)
        assert said.count("the checkpoint has no mean of gradient norms: it begins anew") == 1, said
        # The rule as if the steps before had not been: the first norm is none.
        wanted = [5 + step for step in spikes(losses(f"{folder}.h5", "grad_norm"))]
        assert len(wanted) > 0 and skipped(f"{folder}.h5") == wanted, wanted
    go("first", 6, *many, folder="off")
    r.refuse(*plain, "run.steps=12", "run.output=x.h5", "checkpoint.directory=off",
             says=["optim.spike_factor", "allow_changes"])
    said = go("off", 9, *plain, "checkpoint.allow_changes=true", folder="off")
    assert "mean of gradient norms is dropped" in said and skipped("off.h5") == [], said
    said = go("off2", 12, *plain, folder="off")  # which has none now
    assert "mean of gradient norms" not in said, said


@case
def what_is_not_finite_is_told_and_judged(r):
    done = r.run("run.steps=4", "optim.lr=1e30", "optim.clip_grad=0", "run.output=bad.h5",
                 expect=1)
    assert skipped("bad.h5") == [2, 3, 4]
    for step in (2, 3, 4):
        assert f"# step {step}: gradient is not finite, nothing changed" in done.stdout
        assert f"# step {step}: done again with the same bits" in done.stdout
    r.refuse("optim.spike_factor=0.5", "run.output=b.h5", says=["optim.spike_factor", "0.5"])


if __name__ == "__main__":
    sys.exit(train_test.main(CASES))
