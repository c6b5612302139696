#!/usr/bin/python3
"""Signals, ranks that differ and checkpoints that are damaged, as whole processes meet them.

Usage: faults_test.py CASE --train PROGRAM --source FOLDER. Each case runs in a folder of its own.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy

from process_cases import Cases, least_address_space, within_address_space
import train_test
from train_test import SLOWLY, losses, start

CASES = case = Cases()


def noted(pid, number):
    """Does this process have a handler for the signal?"""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1


@case
def signals_are_heard_from_the_first_moment_on(r):
    for number in (signal.SIGUSR1, signal.SIGINT):
        folder = f"ckpt{int(number)}"
        process = subprocess.Popen(
            r.command(r.deck, "run.steps=100000", "optim.decay_steps=100000",
                      f"run.output={folder}.h5", f"checkpoint.directory={folder}"),
            env=r.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not noted(process.pid, number):
            time.sleep(0.0002)
        assert not pathlib.Path(f"{folder}.jsonl").exists(), "too late: steps are being done"
        process.send_signal(number)
        out, err = process.communicate(timeout=100)
        assert process.returncode == 75, (number, process.returncode, out, err)
        assert len(list(pathlib.Path(folder).glob("step_*.h5"))) == 1


@case
def losses_of_sources_are_told_up_to_a_signal(r):
    """Of the steps since the last line as well, whatever the interval."""
    for name in ("one", "two"):
        pathlib.Path(name).write_text("and the light of the sea " * 200)
    process, _ = start(r, "stopped", "data.source=text", "data.mix=some=one,more=two",
                       "model.vocab_size=256", "run.source_losses=true", "run.log_interval=100000")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=100)
    with h5py.File("stopped.h5") as file:
        series = file["series"]
        assert series["source_loss/step"][-1] == series["train/step"][-1]


@case
def weights_that_a_run_started_from_are_closed(r):
    """A folder that is deleted while the run trains frees its disk space."""
    published = pathlib.Path(__file__).parent / "interop/fixtures/nemotron_h/model"
    model = shutil.copytree(published, pathlib.Path("model").resolve())
    subprocess.run([pathlib.Path(r.train).with_name("stowage_convert"), "import", model,
                    "--out", "ck", "--deck", "it.toml"], env=r.env, check=True, timeout=100)
    r.deck = "it.toml"
    for number, resume in enumerate((f"hf:{model}", "ck/step_00000000.h5")):
        process, (pid,) = start(r, f"from{number}", "data.source=synthetic", "train.seq_length=16",
                                "train.global_batch_size=2", "checkpoint.directory=",
                                f"checkpoint.resume={resume}", "eval.steps=0",
                                "validate.finite_differences=off")
        held = [os.readlink(one) for one in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
        held += pathlib.Path(f"/proc/{pid}/maps").read_text().split()
        process.kill()
        process.communicate()
        names = [pathlib.Path(one).name for one in held if one.startswith("/")]
        assert f"from{number}.jsonl" in names, names
        assert not {"model.safetensors", "step_00000000.h5"} & set(names), names


@case(ranks=4)
def a_second_signal_ends_at_once(r):
    for ranks in (1, 4):
        process, pids = start(r, f"twice{ranks}", f"train.global_batch_size={192 * ranks}", SLOWLY,
                              "validate.replayed_step=false", ranks=ranks)  # a step takes seconds
        os.kill(pids[-1], signal.SIGINT)
        time.sleep(1.2)  # later than what counts as one event
        os.kill(pids[-1], signal.SIGTERM)
        _, err = process.communicate(timeout=100)
        ended = (-signal.SIGTERM, 128 + signal.SIGTERM)  # by itself, or as mpirun tells it
        assert process.returncode in ended and "second signal" in err, (process.returncode, err)


def bench(r, name):
    return os.path.join(os.path.dirname(r.train), f"stowage_bench_{name}")


def refuse_mode(r, program, option, splits, what="modes"):
    """A rank that is given an option which the others are not given."""
    for others, first, second in splits:
        command = [program, r.deck, "execution.backend=host"]
        done = r.run_apart(others, [*command, *(option if first else ())],
                           [*command, *(option if second else ())])
        assert done.returncode == 2 and f"different {what}" in done.stderr, (program, option,
                                                                             done.stderr)


@case(ranks=4)
def ranks_in_another_mode_are_refused(r):
    last, first, last_of_four = (1, False, True), (1, True, False), (3, False, True)
    for option in ("--help", "--dry-run", "--print-config", "--version"):
        refuse_mode(r, r.train, (option,), (last, first, last_of_four))
    for name in ("comm", "offload", "scaling"):
        refuse_mode(r, bench(r, name), ("--help",), (last, first, last_of_four))
        refuse_mode(r, bench(r, name), ("--print-config",), (first,))
    refuse_mode(r, bench(r, "scaling"), ("--predict",), (last, first), "options")


@case
def ranks_with_other_options_are_refused(r):
    last, first = (1, False, True), (1, True, False)
    for option in (("--trace", "t.json"), ("--dump-step", "2")):
        refuse_mode(r, r.train, option, (last, first), "options")
    refuse_mode(r, r.train, ("--evaluate-only",), (last,), "options")
    refuse_mode(r, bench(r, "comm"), ("--maxbytes", "4096"), (last,), "options")
    assert not list(pathlib.Path(".").glob("t.json*"))


@case(ranks=4)
def ranks_with_different_data_are_refused(r):
    pathlib.Path("a.txt").write_bytes(bytes(range(64)) * 200)
    pathlib.Path("b.txt").write_bytes(bytes(range(63, -1, -1)) * 200)  # of the same length
    for name in "ab":
        os.mkdir(name)
        os.rename(f"{name}.txt", f"{name}/text.txt")
    text = [r.deck, "execution.backend=host", "data.source=text", "data.path=text.txt"]
    for program, all_others in ((r.train, (1, 3)), (bench(r, "offload"), (1,)),
                                (bench(r, "scaling"), (1,))):
        for others in all_others:
            done = r.run_apart(others, ["env", "-C", "a", program, *text],
                               ["env", "-C", "b", program, *text])
            assert done.returncode == 2 and "different data" in done.stderr, (
                program, done.returncode, done.stderr)


@case(ranks=4)
def edited_checkpoints_are_refused(r):
    """What h5py changes in place keeps HDF5's own order: only the seal tells."""
    options = ["optim.decay_steps=6", "checkpoint.directory=ckpt"]
    r.run("run.steps=3", *options, "run.output=a.h5")
    path = pathlib.Path("ckpt/step_00000003.h5")
    whole = path.read_bytes()

    def refuse(edit, *says):
        with h5py.File(path, "r+") as file:
            edit(file)
        for ranks in (1, 2, 4):  # which verify it together
            r.refuse(*options, says=[str(path), *says], ranks=ranks)
        r.refuse(*options, f"checkpoint.resume={path}", says=[str(path), *says], ranks=2)
        path.write_bytes(whole)

    def zero(file):
        file["tensors/output.weight"][...] = 0
    refuse(zero, "tensor 'output.weight' is damaged")
    refuse(lambda file: file.attrs.modify("step", numpy.int64(2)), "damaged", "step, state, deck")
    refuse(lambda file: file["state"].attrs.modify("loader.sample", numpy.int64(1)), "damaged")


@case(ranks=4)
def other_data_is_refused(r):
    for name, step in (("a", 1), ("b", -1)):  # the same length, other tokens
        pathlib.Path(f"{name}.txt").write_bytes(bytes(range(64))[::step] * 300)
    text = ["data.source=text", "checkpoint.directory=ckpt", "optim.decay_steps=6"]
    r.run(*text, "data.path=a.txt", "run.steps=3", "run.output=a.h5")
    for ranks in (1, 2, 4):
        r.refuse(*text, "data.path=b.txt", says=["other data", "b.txt", "allow_changes"],
                 ranks=ranks)
    os.rename("a.txt", "c.txt")  # the same tokens under another name are the same data
    r.run(*text, "data.path=c.txt", "run.steps=4", "run.output=c.h5")
    # An evaluation is of the checkpoint's model, on any data and in any form.
    r.run(*text, "data.path=b.txt", "--evaluate-only", "train.seq_length=20", "optim.lr=1",
          "train.micro_batch_size=2", "data.packing=best_fit", "run.output=e.h5")
    r.refuse(*text, "data.path=b.txt", "--evaluate-only", "model.norm_epsilon=1",
             says=["model.norm_epsilon = 1", "allow_changes"])
    said = r.run(*text, "data.path=b.txt", "checkpoint.allow_changes=true",
                 "run.output=b.h5").stdout
    assert "# changed: the checkpoint has other data" in said, said


@case(ranks=4)
def a_broken_latest_falls_back_and_says_so(r):
    options = ["optim.decay_steps=6", "checkpoint.directory=ckpt"]
    r.run("run.output=whole.h5")
    r.run("run.steps=4", *options, "checkpoint.interval=2", "run.output=a.h5")
    with open("ckpt/step_00000004.h5", "r+b") as file:
        file.seek(-1000, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 4]))
    shutil.copytree("ckpt", "kept", symlinks=True)
    for ranks in (1, 4):
        shutil.rmtree("ckpt")
        shutil.copytree("kept", "ckpt", symlinks=True)
        done = r.run(*options, f"run.output=b{ranks}.h5", ranks=ranks)
        assert done.stderr.count("# warning: ckpt/step_00000004.h5") == 1, done.stderr
        assert "resumed from ckpt/step_00000002.h5" in done.stderr, done.stderr
        assert len(losses(f"b{ranks}.h5")) == 4
    assert (losses("b1.h5") == losses("whole.h5")[2:]).all()


def is_gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@case(ranks=4)
def a_stopped_rank_is_named(r):
    for ranks in (2, 4):
        process, pids = start(r, f"stopped{ranks}", "parallel.collective_patience_s=3", ranks=ranks)
        os.kill(max(pids), signal.SIGSTOP)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 4, (process.returncode, err)
        # A collective's watch speaks, or the job's if the signal came between collectives.
        assert re.search(r"(collective \S+ of group \S+ has not ended|waits in MPI_\w+)"
                         r" for [\d.]+ s;.* does not answer: rank \d ", err), err
        deadline = time.time() + 20
        while not all(is_gone(pid) for pid in pids):
            assert time.time() < deadline, "a rank outlives its job"
            time.sleep(0.1)


@case(ranks=4)
def a_data_file_that_shrinks_is_an_error(r):
    for ranks in (1, 2, 4):
        for shrunk in ("text.txt", "text.txt.mask"):
            pathlib.Path("text.txt").write_bytes(bytes(range(64)) * 300)
            pathlib.Path("text.txt.mask").write_bytes(bytes([0, 1]) * 32 * 300)
            process, _ = start(r, f"{shrunk}{ranks}", "data.source=text", "data.path=text.txt",
                               ranks=ranks)
            os.truncate(shrunk, 1000)
            out, err = process.communicate(timeout=100)
            assert process.returncode == 4, (shrunk, process.returncode, err)
            assert f"'{shrunk}'" in err and "has become shorter" in err, (shrunk, err)


@case
def a_rank_without_memory_ends_all(r):
    if b"__asan_init" in pathlib.Path(r.train).read_bytes():
        sys.exit(77)  # a sanitizer needs more address space than any limit leaves
    kib = least_address_space(r.train, r.env) + 200_000
    done = r.run_apart(1, [r.train, r.deck], within_address_space(kib, r.train, r.deck))
    assert done.returncode == 3, (done.returncode, done.stderr)
    assert done.stderr.count("stowage: error:") == 1, done.stderr
    assert "stowage: error: rank 1 (host" in done.stderr, done.stderr
    assert "buffers of 128 MiB" in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(train_test.main(CASES))
