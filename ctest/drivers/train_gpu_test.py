#!/usr/bin/env python3
"""stowage_train on GPUs, and on machines that lack them: whole processes, files and exit codes.

Usage: train_gpu_test.py CASE --train PROGRAM --source FOLDER [--old-driver FOLDER]; `--list` names
the cases with the GPUs that each needs. Exits 77 where there are too few.
"""
import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import h5py
import numpy

from train_test import EVERYTHING_LEAVES, Runner, assert_equal, losses, start

CASES = {}  # name: (GPUs needed, function)


def case(gpus):
    def add(function):
        CASES[function.__name__] = (gpus, function)
        return function
    return add


def gpus_here():
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return listing.stdout.count("GPU ")


def refuse(r, *arguments, says, deck=None, ranks=1, env=None):
    """Exit code 3, one message with all of `says`, and no result set."""
    done = subprocess.run(r.command(deck or r.deck, "execution.backend=cuda", *arguments,
                                    ranks=ranks),
                          env=dict(r.env, **(env or {})), capture_output=True, text=True,
                          timeout=200)
    assert done.returncode == 3, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.count("stowage: error:") == 1, done.stderr
    for words in says:
        assert words in done.stderr, f"'{words}' is not in: {done.stderr}"
    assert not list(pathlib.Path(".").glob("*.h5*")), os.listdir(".")


@case(gpus=0)
def a_machine_without_a_gpu_is_refused(r):
    for ranks in (1, 2):
        refuse(r, says=["no GPU"], ranks=ranks, env={"CUDA_VISIBLE_DEVICES": ""})


@case(gpus=0)
def an_old_driver_is_refused(r):
    folders = f"{r.old_driver}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    refuse(r, says=["driver serves CUDA 12.2", "needs 1"], env={"LD_LIBRARY_PATH": folders})
    # Asked for nothing, it computes on the host, and one rank says so.
    for ranks in (1, 2):
        done = subprocess.run(r.command(r.deck, "--quiet", ranks=ranks),
                              env=dict(r.env, LD_LIBRARY_PATH=folders), capture_output=True,
                              text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        said = [line for line in done.stderr.splitlines() if "WARN" in line]
        assert len(said) == 1 and "CUDA 12.2" in said[0] and "host" in said[0], done.stderr
    # Who asks for the host is told nothing.
    done = subprocess.run(r.command(r.deck, "execution.backend=host"),
                          env=dict(r.env, LD_LIBRARY_PATH=folders), capture_output=True,
                          text=True, timeout=200)
    assert done.returncode == 0 and "WARN" not in done.stderr, done.stderr


@case(gpus=1)
def a_mixed_job_is_refused(r):
    def rank_that_sees(gpus):
        return ["env", f"CUDA_VISIBLE_DEVICES={gpus}", r.train, r.deck]
    done = r.run_apart(1, rank_that_sees(0), rank_that_sees(""), timeout=200)
    assert done.returncode == 3, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.count("stowage: error:") == 1, done.stderr
    for words in ("rank 0 on host", "rank 1 on host"):
        assert words in done.stderr, done.stderr
    assert not list(pathlib.Path(".").glob("*.h5*")), os.listdir(".")


@case(gpus=1)
def more_ranks_than_gpus_are_refused(r):
    ranks = gpus_here() + 1
    refuse(r, f"train.global_batch_size={ranks}", ranks=ranks,
           says=[f"{ranks} ranks", f"{ranks - 1} GPUs", "one of its own"])


@case(gpus=1)
def too_little_memory_is_refused(r):
    deck = os.path.join(os.path.dirname(r.deck), "..", "..", "inputs", "nemotron-nano-30b.toml")
    refuse(r, deck=deck, says=["bytes free", "parameters 6", "gradients 1", "optimizer states 3",
                               "transient"])


@case(gpus=1)
def seed_and_plan_give_the_bits(r):
    """Twice the same seed, and every way to run the same program: equal to the bit."""
    for dtype in ("fp32", "bf16"):
        r.run("execution.backend=cuda", f"train.dtype={dtype}", f"run.output=plain_{dtype}.h5")
        for name, keys in {
                "again": [], "moved": EVERYTHING_LEAVES, "step": ["graphs.mode=step"],
                "both": ["graphs.mode=step", *EVERYTHING_LEAVES],
                "layers": ["graphs.mode=scopes", 'graphs.scopes=["layer"]', *EVERYTHING_LEAVES,
                           "graphs.warmup_steps=2"]}.items():
            r.run("execution.backend=cuda", f"train.dtype={dtype}", f"run.output={name}.h5", *keys)
            assert_equal(f"plain_{dtype}.h5", f"{name}.h5")
            assert_equal(f"plain_{dtype}.h5", f"{name}.h5", "grad_norm")


@case(gpus=1)
def losses_are_the_hosts(r):
    """The tiny deck: fp32 sums of some hundred terms in another order, grown over six steps."""
    for dtype, band in (("fp32", 2e-5), ("bf16", 2e-2)):
        for backend in ("host", "cuda"):
            r.run(f"execution.backend={backend}", f"train.dtype={dtype}",
                  f"run.output={backend}.h5")
        apart = numpy.abs(losses("cuda.h5") - losses("host.h5")) / losses("host.h5")
        assert apart.max() < band, apart


@case(gpus=1)
def choices_of_libraries_are_recorded(r):
    r.run("execution.backend=cuda", "train.dtype=bf16")
    with h5py.File("tiny.h5") as file:
        rows = file["/provenance/choices"][:]
        assert len(rows) > 10 and all(row["chosen"].startswith(b"algo ") for row in rows), rows


@case(gpus=2)
def two_gpus_repeat_and_agree_with_one(r):
    for dtype, band in (("fp32", 2e-5), ("bf16", 2e-2)):
        for name, ranks in (("one", 1), ("two", 2), ("again", 2)):
            r.run("execution.backend=cuda", f"train.dtype={dtype}", f"run.output={name}.h5",
                  ranks=ranks)
        assert_equal("two.h5", "again.h5")
        assert_equal("two.h5", "again.h5", "grad_norm")
        apart = numpy.abs(losses("two.h5") - losses("one.h5")) / losses("one.h5")
        assert apart.max() < band, apart
        for name, keys in {"step": ["graphs.mode=step"],
                           "moved": ["graphs.mode=step", *EVERYTHING_LEAVES],
                           "layers": ["graphs.mode=scopes", 'graphs.scopes=["layer"]']}.items():
            r.run("execution.backend=cuda", f"train.dtype={dtype}", f"run.output={name}.h5", *keys,
                  ranks=2)
            assert_equal("two.h5", f"{name}.h5")
    with h5py.File("two.h5") as file:
        chosen = {row["what"]: row["chosen"] for row in file["/provenance/choices"][:]
                  if row["library"] == b"nccl"}
        assert chosen[b"NCCL_ALGO"] == b"Ring" and chosen[b"channels"] == b"16", chosen


# What two ranks share of the tiny deck, and how.
SHARED = {
    "zero": ["parallel.zero=1"],
    "tensor": ["parallel.tensor=2"],
    "few_heads": ["parallel.tensor=2", "model.num_query_groups=1", "model.mamba_num_groups=1"],
    "experts": ["parallel.expert=2", "parallel.expert_exchange=all_gather"],
    "slots": ["parallel.expert=2", "parallel.expert_exchange=all_to_all"],
    "keys": ["parallel.context=2", "parallel.context_attention=all_gather"],
    "zigzag": ["parallel.context=2", "parallel.context_attention=all_gather",
               "parallel.context_tokens=zigzag"],
    "heads": ["parallel.context=2", "parallel.context_attention=all_to_all"],
    "stages": ["parallel.pipeline=2"],
    "no_bubble": ["parallel.pipeline=2", "parallel.schedule=zero_bubble"],
    "interleaved": ["parallel.pipeline=2", "parallel.schedule=interleaved",
                    "parallel.virtual_stages=2"],
}


def two_gpus_share(names):
    """A test that they agree with one GPU, and give the same bits in graphs and over NCCL."""
    def check(r):
        ways = {"step": ["graphs.mode=step"], "nccl": ["parallel.transport=nccl"],
                "moved": ["graphs.mode=scopes", 'graphs.scopes=["layer"]', *EVERYTHING_LEAVES]}
        for name in names:
            for dtype, band in (("fp32", 2e-5), ("bf16", 2e-2)):
                keys = ["execution.backend=cuda", f"train.dtype={dtype}", *SHARED[name]]
                r.run(*[key for key in keys if not key.startswith("parallel.")],
                      "run.output=one.h5")
                r.run(*keys, "run.output=two.h5", ranks=2)
                apart = numpy.abs(losses("two.h5") - losses("one.h5")) / losses("one.h5")
                assert apart.max() < band, (name, dtype, apart)
            for way, more in ways.items():  # in bf16, as one trains
                r.run(*keys, *more, f"run.output={way}.h5", ranks=2)
                assert_equal("two.h5", f"{way}.h5")
                assert_equal("two.h5", f"{way}.h5", "grad_norm")
    return check


for axis, shared in (("data", ["zero"]), ("tensor", ["tensor", "few_heads"]),
                     ("expert", ["experts", "slots"]), ("context", ["keys", "zigzag", "heads"]),
                     ("pipeline", ["stages", "no_bubble", "interleaved"])):
    CASES[f"two_gpus_share_the_{axis}_axis"] = (2, two_gpus_share(shared))


@case(gpus=2)
def two_gpus_have_the_bits_of_one(r):
    """With one tree of microbatches, of which each GPU has three: a number that is no node."""
    for dtype in ("fp32", "bf16"):
        keys = ["execution.backend=cuda", "run.same_bits=ranks", f"train.dtype={dtype}",
                "train.global_batch_size=6", "model.untie_embeddings=true"]
        r.run(*keys, "run.output=one.h5")
        for name, more in {"data": [], "zero": ["parallel.zero=1", "graphs.mode=step"],
                           "stages": ["parallel.pipeline=2"]}.items():
            r.run(*keys, *more, f"run.output={name}.h5", ranks=2)
            for series in ("loss", "grad_norm", "val_loss"):
                assert_equal("one.h5", f"{name}.h5", series)


def rank_of(pid):
    """The rank that mpirun gave to a process."""
    words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return int(next(w.split(b"=")[1] for w in words if w.startswith(b"OMPI_COMM_WORLD_RANK=")))


def ended(pid, patience_s=10):
    """Whether a process is gone, or dead and not yet waited for by its parent."""
    deadline = time.time() + patience_s
    while time.time() < deadline:
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.2)
    return False


@case(gpus=2)
def a_stuck_rank_is_named(r):
    """A rank that stops for ever: the other says which collective waits for it, and ends the job,
    also where the collective lies in a graph."""
    for stuck, keys in ((1, []), (0, ["graphs.mode=step"])):
        process, pids = start(r, f"stuck{stuck}", "execution.backend=cuda",
                              "parallel.collective_patience_s=3", *keys, ranks=2)
        victim = next(pid for pid in pids if rank_of(pid) == stuck)
        stopped_at = time.time()
        os.kill(victim, signal.SIGSTOP)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 4, (process.returncode, out[-2000:], err[-2000:])
        assert f"rank {1 - stuck}" in err and "all_reduce/" in err, err
        assert "has not ended for" in err, err
        print(f"named after {time.time() - stopped_at:.1f} s: {err.splitlines()[0]}")
        assert ended(victim), "the stuck rank lives on"


@case(gpus=2)
def a_rank_that_is_killed_or_fails_ends_all(r):
    """Within a minute, whichever rank it is, and while collectives lie in a graph."""
    for killed, keys in ((1, []), (0, ["graphs.mode=step"])):
        process, pids = start(r, f"killed{killed}", "execution.backend=cuda", *keys, ranks=2)
        os.kill(next(pid for pid in pids if rank_of(pid) == killed), signal.SIGKILL)
        out, err = process.communicate(timeout=60)
        assert process.returncode != 0 and "signal 9" in err, (process.returncode, err[-2000:])
        assert all(ended(pid) for pid in pids), f"a rank lives on without rank {killed}"
    process, pids = start(r, "failing", "execution.backend=cuda", "checkpoint.directory=gone",
                          "checkpoint.interval=1", ranks=2)
    shutil.rmtree("gone", ignore_errors=True)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 4 and "gone" in err, (process.returncode, err[-2000:])
    assert all(ended(pid) for pid in pids), "a rank lives on after the other's error"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", nargs="?", choices=sorted(CASES))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--train")
    parser.add_argument("--source")
    parser.add_argument("--old-driver")
    options = parser.parse_args()
    if options.list:
        for name, (gpus, _) in CASES.items():
            print(gpus, name)
        return 0
    gpus, function = CASES[options.case]
    if gpus_here() < gpus:
        print(f"skipped: {gpus} GPUs are needed")
        return 77
    runner = Runner(os.path.abspath(options.train), os.path.abspath(options.source))
    runner.old_driver = os.path.abspath(options.old_driver) if options.old_driver else None
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        function(runner)
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
