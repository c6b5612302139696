#!/usr/bin/python3
"""Checkpoints that are written beside training, by all ranks: whole processes and their files.

Usage: saving_test.py CASE --train PROGRAM --source FOLDER. Each case runs in a folder of its own.
"""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import h5py

from process_cases import Cases
from train_test import assert_equal, main, states

CASES = case = Cases()

LAYOUTS = {
    "data": (2, ["parallel.zero=1"]),
    "tensor": (4, ["parallel.tensor=2", "parallel.zero=1"]),
    "expert": (2, ["parallel.expert=2"]),
    "context": (2, ["parallel.context=2", "parallel.zero=1"]),
    "pipeline": (2, ["parallel.pipeline=2"]),
}


def tensors(path):
    """The bytes of a checkpoint's tensors by name."""
    found = {}
    with h5py.File(path) as file:
        file["/tensors"].visititems(
            lambda name, o: found.update({name: o[()].tobytes()})
            if isinstance(o, h5py.Dataset) else None)
    return found


def steps_in(folder):
    return sorted(int(path.stem.split("_")[1]) for path in pathlib.Path(folder).glob("step_*.h5"))


@case(ranks=4)
def every_layout_reads_what_another_has_written(r):
    for name, (ranks, keys) in LAYOUTS.items():
        folder = f"checkpoint.directory={name}"
        r.run(f"run.output={name}.h5", "run.steps=3", "optim.decay_steps=6", folder, *keys,
              ranks=ranks)
        digest = states(f"{name}.h5")[3]
        r.run("--evaluate-only", f"run.output={name}_alone.h5", "optim.decay_steps=6", folder)
        assert states(f"{name}_alone.h5")[3] == digest, name
        r.run("--evaluate-only", f"run.output={name}_zero.h5", "optim.decay_steps=6", folder,
              "parallel.zero=1", ranks=2)
        assert states(f"{name}_zero.h5")[3] == digest, name
        assert not list(pathlib.Path(name).glob("*.part*")), os.listdir(name)


@case(ranks=2)
def a_copy_aside_changes_no_bit(r):
    r.run("run.output=plain.h5", ranks=2)
    for copy in ("none", "device", "host", "auto"):
        for busy in ("wait", "put_off"):
            folder = f"{copy}_{busy}"
            said = r.run(f"run.output={folder}.h5", f"checkpoint.directory={folder}",
                         "checkpoint.interval=1", "checkpoint.keep_last=9",
                         f"checkpoint.copy={copy}", f"checkpoint.busy={busy}", ranks=2).stdout
            assert_equal("plain.h5", f"{folder}.h5")
            wanted = list(range(1, 7))
            if busy == "put_off" and copy != "none":  # the disk decides how many, and they are told
                assert set(steps_in(folder)) <= set(wanted) and 6 in steps_in(folder), folder
                assert ("put off" in said) == (steps_in(folder) != wanted), said
            else:
                assert steps_in(folder) == wanted, (folder, steps_in(folder))
            for step in steps_in(folder):
                assert (tensors(f"{folder}/step_{step:08}.h5")
                        == tensors(f"none_wait/step_{step:08}.h5")), (folder, step)
    def memory(path):
        with h5py.File(path) as file:
            return (file["/metrics/ckpt/copy_bytes"][()],
                    file["/metrics/train/peak_device_bytes"][()])
    copy, peak = memory("device_wait.h5")
    assert copy > 0 and memory("auto_wait.h5") == (copy, peak)
    assert memory("none_wait.h5") == memory("host_wait.h5") == (0, peak - copy)
    with h5py.File("device_wait.h5") as file:
        saved = file["/series/checkpoint"]
        assert list(saved["step"]) == list(range(1, 7)), list(saved["step"])
        assert (saved["stall"][:] > 0).all() and (saved["time"][:] > 0).all()
        assert saved["beside"][:].all()
        logged = [line for line in map(json.loads, open("device_wait.jsonl"))
                  if line["event"] == "checkpoint"]
        for key, name in (("step", "step"), ("stall_s", "stall"), ("time_s", "time")):
            assert [line[key] for line in logged] == list(saved[name]), (key, logged)
        assert file["/metrics/ckpt/bytes_per_s"][()] > 0
        assert 0 < file["/metrics/ckpt/stalled_part"][()] < 1
    with h5py.File("none_wait.h5") as file:
        assert not file["/series/checkpoint/beside"][:].any()
        assert "stalled_part" not in file["/metrics/ckpt"]
    checked = subprocess.run([sys.executable, os.path.join(r.tools, "validate.py"),
                              "device_wait.h5"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout


@case(ranks=2)
def products_of_8_bits_go_on_to_the_bit(r):
    keys = ["train.precision=fp8", "train.fp8_first_layers=0", "train.fp8_last_layers=0",
            "train.seq_length=48", "model.mamba_num_heads=16", "model.mamba_head_dim=4",
            "model.moe_shared_expert_hidden_size=32", "optim.decay_steps=6"]
    saved = "checkpoint.directory=ckpt"
    r.run("run.output=whole.h5", *keys, ranks=2)
    r.run("run.output=first.h5", "run.steps=3", saved, *keys, ranks=2)
    r.run("run.output=rest.h5", saved, *keys, ranks=2)
    assert states("rest.h5")[6] == states("whole.h5")[6]


def ranks_of(job):
    """Processes of the program that mpirun has started."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            if int(rest.split()[1]) == job.pid and name.startswith("stowage_train"):
                found.append(int(path.parent.name))
        except (OSError, ValueError):
            continue
    return found


def await_end(processes):
    """mpirun may end before the ranks that it ends, of which one holds the checkpoint directory."""
    begin = time.monotonic()
    while any(pathlib.Path(f"/proc/{pid}").exists() for pid in processes):
        assert time.monotonic() - begin < 60, processes
        time.sleep(0.01)


@case(ranks=4)
def killed_at_random_moments_it_goes_on_to_the_bit(r):
    kills = int(os.environ.get("STOWAGE_KILLS", "5"))
    seed = int(os.environ.get("STOWAGE_SEED", random.SystemRandom().randrange(1 << 30)))
    print("seed", seed)
    chance = random.Random(seed)
    keys = ["run.steps=60", "optim.decay_steps=60", "parallel.tensor=2", "parallel.zero=1",
            "parallel.bucket_elements=1024", "train.dtype=bf16", "eval.steps=1",
            "optim.state_dtype=" + chance.choice(["bf16", "fp8"]),
            "validate.finite_differences=off", "validate.replayed_step=false"]
    r.run("run.output=whole.h5", *keys, ranks=4)
    wanted = states("whole.h5")[60]
    saved = ["checkpoint.directory=ckpt", "checkpoint.interval=1", "checkpoint.keep_last=2"]
    homes = [[], ["offload.states=all"], ["offload.states=moments", "offload.states_fraction=0.5"],
             ["offload.states=all", "checkpoint.copy=none"]]
    def start_anew():
        """Where all steps are done: what they led to is what the whole run has."""
        r.run("--evaluate-only", "run.output=end.h5", *keys, *saved, ranks=4)
        assert states("end.h5")[60] == wanted
        for path in pathlib.Path("ckpt").glob("step_*"):
            path.unlink()
        pathlib.Path("ckpt/latest").unlink()

    done = rounds = 0
    while done < kills:
        rounds += 1
        assert rounds < 20 + 10 * kills, "the run ends before it is killed"
        home = chance.choice(homes)
        job = subprocess.Popen(r.command(r.deck, "run.output=a.h5", *keys, *saved, *home, ranks=4),
                               env=r.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, start_new_session=True)
        begin, found = time.monotonic(), set(steps_in("ckpt"))
        while (job.poll() is None and set(steps_in("ckpt")) == found
               and time.monotonic() - begin < 60):
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.2))
        victims = ranks_of(job)
        if job.poll() is None and victims:
            os.kill(chance.choice(victims), signal.SIGKILL)
            done += 1
        out, _ = job.communicate(timeout=120)
        await_end(victims)
        assert job.returncode != 2, out  # a restart that is refused
        if 60 in steps_in("ckpt"):
            start_anew()
    r.run("run.output=a.h5", *keys, *saved, ranks=4)
    assert states("a.h5")[60] == wanted
    assert not list(pathlib.Path("ckpt").glob("*.part*")), os.listdir("ckpt")


if __name__ == "__main__":
    sys.exit(main(CASES))
