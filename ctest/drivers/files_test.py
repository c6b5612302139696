#!/usr/bin/python3
"""Nothing lost, nothing overwritten: stowage_train among the files of a user, and of other runs.

Usage: files_test.py CASE --train PROGRAM --source FOLDER. Each case runs in a folder of its own.
"""
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time

import h5py

from process_cases import Cases
import train_test
from train_test import Runner, SLOWLY, start

CASES = case = Cases()


def refused(r, *arguments, says, ranks=1, expect=2):
    """The run ends before it does anything: one message, and no file is made or changed."""
    def state():
        files = [p for p in pathlib.Path(".").rglob("*") if p.is_file() and p.name != "lock"]
        return {p: (p.stat().st_ino, p.read_bytes()) for p in files}
    before = state()
    done = subprocess.run(r.command(*arguments, ranks=ranks), env=r.env, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == expect, (done.returncode, arguments, done.stderr)
    assert done.stderr.count("stowage: error:") == 1, done.stderr
    for words in says:
        assert words in done.stderr, f"'{words}' is not in: {done.stderr}"
    assert state() == before, (arguments, set(state()) ^ set(before))


@case(ranks=4)
def files_of_others_are_refused(r):
    pathlib.Path("thesis").write_text("mine\n")
    pathlib.Path("part.h5.part").write_text("mine too\n")
    pathlib.Path("text.txt").write_bytes(bytes(range(64)) * 200)
    shutil.copy(r.deck, "deck.toml")
    pathlib.Path("link").symlink_to("deck.toml")
    os.link("deck.toml", "hard")
    text = ["deck.toml", "data.source=text", "data.path=text.txt"]
    dump = ["--dump-step", "2", "--dump"]
    for option in (["--out"], ["--json"], ["--trace"], dump):
        for path in ("thesis", "deck.toml", "link", "hard", "text.txt", "/dev/full", "."):
            refused(r, *text, *option, path, says=[path])
    for path in ("thesis", "deck.toml", "link", "hard", "text.txt", "/dev/full", "."):
        refused(r, *text, f"run.mllog={path}", says=[path])
    for ranks in (2, 4):
        for path in ("thesis", "./deck.toml", "/dev/null"):
            refused(r, *text, "--out", path, says=[path], ranks=ranks)
    refused(r, *text, "--out", "part.h5", says=["part.h5.part"])
    pathlib.Path("checkpoints").write_text("mine\n")
    refused(r, *text, "checkpoint.directory=checkpoints", says=["checkpoints"])


@case(ranks=4)
def two_outputs_need_two_files(r):
    here = pathlib.Path.cwd().name
    for others in (["--json", "./tiny.h5"], ["--json", "tiny.h5.part"], ["--trace", "tiny.h5"],
                   ["--trace", "tiny.jsonl"], ["--dump-step", "1", "--dump", f"../{here}/tiny.h5"],
                   ["--trace", "x", "--json", "x"], ["checkpoint.directory=tiny.h5"],
                   ["run.mllog=x", "--json", "x"], ["run.mllog=tiny.h5.part"]):
        refused(r, r.deck, *others, says=["two outputs need two files"])
    for ranks in (2, 4):
        refused(r, r.deck, "--json", "./tiny.h5", says=["two outputs need two files"], ranks=ranks)
    r.run("run.output=a.h5", "run.steps=1")
    refused(r, "--from", "a.h5", "--out", "./a.h5", says=["--from", "a.h5"])
    refused(r, "--from", "a.h5", "--out", "b.h5", "--trace", "a.h5", says=["the trace", "a.h5"])
    os.rename("a.h5", "c.h5.part")
    refused(r, "--from", "c.h5.part", "--out", "c.h5", says=["c.h5"])


@case
def an_older_result_is_kept(r):
    options = ["run.steps=2", "--trace", "t.json", "--dump-step", "1", "--dump", "d.h5"]
    r.run(*options)
    first = {name: pathlib.Path(name).read_bytes()
             for name in ("tiny.h5", "tiny.jsonl", "t.json", "d.h5")}
    r.run(*options)
    for name, content in first.items():
        path = pathlib.Path(name)
        assert path.with_name(f"{path.stem}.older_1{path.suffix}").read_bytes() == content, name
        assert path.read_bytes() != content or name == "d.h5", name
    assert not list(pathlib.Path(".").glob("*.part"))


@case(ranks=4)
def lines_are_added_only_to_a_log_of_ours(r):
    pathlib.Path("thesis.txt").write_text("mine\n")
    for ranks in (1, 2, 4):
        saved = ["optim.decay_steps=6", f"checkpoint.directory=ckpt{ranks}",
                 f"run.output=run{ranks}.h5"]
        log = pathlib.Path(f"ml{ranks}.log")
        r.run("run.steps=3", f"run.mllog={log}", *saved, ranks=ranks)
        first = log.read_text()
        for path in ("thesis.txt", f"run{ranks}.jsonl"):
            refused(r, r.deck, *saved, f"run.mllog={path}", ranks=ranks,
                    says=[path, "no older file of this kind"])
        r.run(f"run.mllog={log}", *saved, ranks=ranks)
        both = log.read_text()
        assert both.startswith(first) and both.count('"run_stop"') == 2, both
        r.run(f"run.mllog={log}", "run.steps=1", ranks=ranks)
        assert pathlib.Path(f"ml{ranks}.older_1.log").read_text() == both
        assert log.read_text().count('"run_stop"') == 1


@case
def options_that_would_do_nothing_are_refused(r):
    refused(r, r.deck, "--dump-step", "7", says=["--dump-step 7", "1 to 6"])
    refused(r, r.deck, "--dump-step", "-1", says=["--dump-step -1"])
    refused(r, r.deck, "--dump", "d.h5", says=["--dump-step"])
    refused(r, r.deck, "--time-ops", "-1", says=["--time-ops -1"])


def stop(process):
    process.send_signal(signal.SIGUSR1)
    out, err = process.communicate(timeout=100)
    assert process.returncode in (1, 75), (process.returncode, out, err)


@case(ranks=4)
def a_second_run_is_refused(r):
    first, _ = start(r, "one", "checkpoint.directory=ckpt", "checkpoint.interval=500",
                     "run.mllog=one.log", SLOWLY)
    try:
        refused_live = [
            (["run.output=one.h5"], "another run is writing"),
            (["run.output=other.h5", "--json", "one.jsonl"], "another run"),
            (["run.output=other.h5", "run.mllog=one.log"], "another run"),
            (["run.output=other.h5", "checkpoint.directory=ckpt"], "another run saves here")]
        for arguments, says in refused_live:
            for ranks in (1, 2, 4):
                done = subprocess.run(r.command(r.deck, *arguments, ranks=ranks), env=r.env,
                                      capture_output=True, text=True, timeout=100)
                assert done.returncode == 2 and says in done.stderr, (done.returncode, done.stderr)
    finally:
        stop(first)
    assert first.returncode == 75
    with h5py.File("one.h5") as file:
        steps = len(file["/series/train/loss"])
    saved = sorted(pathlib.Path("ckpt").glob("step_*.h5"))
    assert saved[-1].name == f"step_{steps:08}.h5", (saved, steps)
    assert not list(pathlib.Path(".").rglob("*.part"))


@case(ranks=4)
def what_a_killed_run_left_is_named(r):
    for ranks in (1, 2, 4):
        dead = pathlib.Path(f"dead{ranks}.h5")
        folder = f"checkpoint.directory=ckpt{ranks}"
        process, pids = start(r, dead.stem, folder, ranks=ranks)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=60)
        assert pathlib.Path(f"{dead}.part").exists() and not dead.exists()
        done = r.run(f"run.output={dead}", folder, ranks=ranks)
        assert f"{dead}.part was left by a run that did not end" in done.stderr, done.stderr
        assert dead.exists() and not pathlib.Path(f"{dead}.part").exists()


def on_a_disk_of_its_own(function):
    """Runs the case in a mount namespace, where `disk` is a small file system that can be full."""
    def run(r):
        if os.environ.get("STOWAGE_TEST_DISK") is None:
            if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
                print("skipped: no mount namespace can be made here")
                sys.exit(77)
            inside = subprocess.run(["unshare", "-rm", sys.executable, *sys.argv],
                                    env=dict(os.environ, STOWAGE_TEST_DISK="1"))
            return sys.exit(inside.returncode)
        os.mkdir("disk")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", "disk"], check=True)
        try:
            return function(r)
        finally:
            subprocess.run(["umount", "-l", "disk"], check=True)
    run.__name__ = function.__name__
    return run


def fill(free):
    """Fills the disk but for so many bytes."""
    pathlib.Path("disk/filler").unlink(missing_ok=True)
    space = os.statvfs("disk")
    pathlib.Path("disk/filler").write_bytes(bytes(space.f_bavail * space.f_frsize - free))


def fails(r, *arguments, says, code=4, ranks=1):
    done = subprocess.run(r.command(r.deck, *arguments, ranks=ranks), env=r.env,
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == code and says in done.stderr, (done.returncode, done.stderr)
    return done.stderr


@case
@on_a_disk_of_its_own
def a_full_disk_loses_nothing(r):
    schedule = ["optim.decay_steps=6", "checkpoint.directory=disk/ckpt"]
    r.run("run.steps=3", "run.output=a.h5", *schedule)
    whole = pathlib.Path("disk/ckpt/step_00000003.h5").read_bytes()
    for share, ranks in ((0, 1), (0.1, 1), (0.9, 1), (0.1, 2), (0.9, 4)):
        fill(int(share * len(whole)))
        fails(r, "run.output=b.h5", *schedule, says="disk/ckpt/step_00000006.h5", ranks=ranks)
        assert sorted(os.listdir("disk/ckpt")) == ["latest", "lock", "step_00000003.h5"]
        assert os.readlink("disk/ckpt/latest") == "step_00000003.h5"
        assert pathlib.Path("disk/ckpt/step_00000003.h5").read_bytes() == whole
    for free in (0, 4096, 20480):  # no result set, or none at its end
        fill(free)
        said = fails(r, "run.output=disk/c.h5", "--json", "c.jsonl", says="disk/c.h5")
        assert "No space left on device" in said and len(said) < 800, said
        assert not list(pathlib.Path("disk").glob("c.h5*")), free
    for option in (["--trace", "disk/t.json"], ["--dump-step", "3", "--dump", "disk/d.h5"]):
        fill(4096)
        fails(r, "run.output=d.h5", *option, says=option[-1])
        assert sorted(os.listdir("disk")) == ["ckpt", "filler"], os.listdir("disk")
    fill(4096)  # lines that are missing, in the log or on the terminal, are no success
    fails(r, "run.output=e.h5", "run.steps=60", "--json", "disk/e.jsonl",
          says="# warning: disk/e.jsonl cannot be written any more: No space left")
    fails(r, "run.output=f.h5", "run.steps=60", "run.log_interval=1", "run.mllog=disk/ml.log",
          says="disk/ml.log")
    for name in "ef":
        with h5py.File(f"{name}.h5") as file:
            assert len(file["/series/train/loss"]) == 60
    with open("/dev/full", "w") as full:
        done = subprocess.run(r.command(r.deck, "--print-config"), env=r.env, stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=100)
    assert done.returncode == 4 and "stowage: error:" in done.stderr, done
    os.remove("disk/filler")
    r.run("run.output=b.h5", *schedule)  # nothing stands in the way of going on


@case
@on_a_disk_of_its_own
def a_read_only_disk_is_refused(r):
    subprocess.run(["mount", "-o", "remount,ro", "disk"], check=True)
    for arguments in (["run.output=disk/a.h5"], ["--json", "disk/a.jsonl"],
                      ["--trace", "disk/t.json"], ["--dump-step", "1", "--dump", "disk/d.h5"],
                      ["run.mllog=disk/ml.log"],
                      ["checkpoint.directory=disk/ckpt"], ["checkpoint.directory=disk"]):
        for ranks in (1, 4):
            refused(r, r.deck, *arguments, says=["disk", "Read-only file system"], ranks=ranks)
    for ranks in (1, 4):  # with one microbatch
        refused(r, r.deck, "--evaluate-only", "--logits", "disk/l.h5", "train.micro_batch_size=1",
                f"train.global_batch_size={ranks}", "checkpoint.resume=never",
                says=["disk/l.h5", "Read-only file system"],
                ranks=ranks)


@case(ranks=4)
def a_vanished_folder_is_an_error(r):
    for ranks in (1, 2, 4):
        process, pids = start(r, f"gone{ranks}", "checkpoint.directory=ckpt", ranks=ranks)
        shutil.rmtree("ckpt")
        os.kill(pids[0], signal.SIGUSR1)
        out, err = process.communicate(timeout=100)
        assert process.returncode == 4 and "ckpt was removed" in err, (process.returncode, out, err)
        assert not pathlib.Path("ckpt").exists()
        os.mkdir("results")
        process, pids = start(r, "results/gone", ranks=ranks)
        shutil.rmtree("results")
        os.kill(pids[0], signal.SIGUSR1)
        out, err = process.communicate(timeout=100)
        assert process.returncode == 4 and "results/gone.h5" in err, (process.returncode, out, err)
    for option in (["--trace", "other/t.json"], ["--dump-step", "20", "--dump", "other/d.h5"]):
        os.mkdir("other")
        process, _ = start(r, option[0][2:], "run.steps=20", SLOWLY, *option)
        shutil.rmtree("other")
        out, err = process.communicate(timeout=100)
        assert process.returncode == 4 and option[-1] in err, (process.returncode, out, err)


@case(ranks=4)
def what_is_no_plain_file_is_no_input(r):
    os.mkfifo("fifo")
    for ranks in (1, 2, 4):
        refused(r, "fifo", says=["fifo", "not a plain file"], ranks=ranks)
        refused(r, r.deck, "data.source=text", "data.path=fifo", ranks=ranks,
                says=["fifo", "not a plain file"])
    refused(r, r.deck, "data.path=fifo", "data.source=auto", says=["fifo"])
    refused(r, "/dev/zero", says=["/dev/zero", "not a plain file"])
    refused(r, "--from", "fifo", says=["fifo", "not a regular file"])
    refused(r, r.deck, "checkpoint.resume=fifo", says=["fifo"])
    pathlib.Path("0.toml").write_text("")
    for i in range(1, 60):  # each reads the one before twice: 2^60 files
        pathlib.Path(f"{i}.toml").write_text(f'include = ["{i - 1}.toml", "{i - 1}.toml"]\n')
    refused(r, "59.toml", says=["at most 64 files"])
    pathlib.Path("huge.toml").write_bytes(b"#" * (2 << 20))
    refused(r, "huge.toml", says=["huge.toml", "no deck"])


def break_latest(kind):
    """Replaces the link by something else."""
    link = pathlib.Path("ckpt/latest")
    link.unlink()
    if kind == "folder":
        link.mkdir()
    elif kind == "file":
        shutil.copy("ckpt/step_00000003.h5", link)  # as a copy of the folder may have made it
    else:
        link.symlink_to(kind)


@case(ranks=2)
def odd_things_in_a_checkpoint_folder_lose_nothing(r):
    schedule = ["optim.decay_steps=6", "checkpoint.directory=ckpt", "eval.steps=1"]
    r.run("run.steps=3", "run.output=a.h5", *schedule)
    shutil.copytree("ckpt", "kept", symlinks=True)
    step = pathlib.Path("ckpt/step_00000003.h5")

    def anew():
        shutil.rmtree("ckpt")
        shutil.copytree("kept", "ckpt", symlinks=True)

    for kind in ("folder", "file"):  # what is the user's is never replaced
        break_latest(kind)
        for ranks in (1, 2):
            refused(r, r.deck, *schedule, says=["ckpt/latest", "no link"], ranks=ranks)
        anew()
    for number, make in enumerate((os.mkfifo, os.mkdir)):
        step.unlink()
        make(step)
        refused(r, r.deck, *schedule, says=[str(step), "not a regular file", "resume=never"])
        anew()
        os.remove("ckpt/lock")
        os.symlink("/etc/hostname", "ckpt/lock") if number else os.mkdir("ckpt/lock")
        refused(r, r.deck, *schedule, says=["ckpt", "lock cannot be opened"])
        anew()
    for number, odd in enumerate(("latest", "/etc/passwd", "gone.h5")):
        break_latest(odd)
        done = r.run(*schedule, f"run.output=b{number}.h5")
        assert "ckpt/latest leads to" in done.stderr, done.stderr
        assert "resumed from ckpt/step_00000003.h5 instead" in done.stderr, done.stderr
        anew()
    for name in ("step_00000009.h5", "step_00000005.h5", "step_99999999999999999999.h5"):
        os.remove("ckpt/latest")
        if "5" in name:
            pathlib.Path("ckpt", name).touch()
        else:
            shutil.copy(step, pathlib.Path("ckpt", name))
        done = r.run(*schedule, f"run.output={name}")
        told = len(name) == len("step_00000009.h5")  # other names are nobody's
        assert (f"# warning: ckpt/{name}" in done.stderr) == told, done.stderr
        with h5py.File(name) as file:
            assert len(file["/series/train/loss"]) == 3, name
        anew()


@case(ranks=2)
def a_resume_that_names_no_checkpoint_is_refused(r):
    os.mkdir("folder")
    for value in ("", "hf:", "folder", "."):
        for ranks in (1, 2):
            refused(r, r.deck, f"checkpoint.resume={value}", ranks=ranks,
                    says=["checkpoint.resume", '"auto", "never"'])


@case(ranks=2)
def ranks_that_see_other_folders_are_refused(r):
    for name in "ab":
        os.makedirs(f"{name}/ckpt")
    run = [r.train, r.deck, "run.steps=2", "checkpoint.directory=ckpt"]
    for stale in (False, True):
        if stale:
            pathlib.Path("b/ckpt/lock").write_text("of an older run\n")
        done = r.run_apart(1, ["env", "-C", "a", *run], ["env", "-C", "b", *run])
        assert done.returncode == 2 and "b/ckpt: is not the one that rank 0 sees" in done.stderr, (
            done.returncode, done.stderr)
        assert not list(pathlib.Path(".").rglob("*.h5*")), list(pathlib.Path(".").rglob("*"))


@case
def a_file_size_limit_is_a_full_disk(r):
    """Beyond `ulimit -f` writes fail; MPI's own files are smaller than this."""
    limit = 8 << 20

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    for copy in ("none", "host"):
        done = subprocess.run(
            r.command(r.deck, "run.steps=2", "model.vocab_size=40000", "eval.steps=1",
                      "checkpoint.directory=ckpt", f"checkpoint.copy={copy}",
                      "checkpoint.interval=1", f"run.output={copy}.h5"),
            env=r.env, capture_output=True, text=True, timeout=100, preexec_fn=limited)
        assert done.returncode == 4 and "File too large" in done.stderr, (done.returncode,
                                                                          done.stderr)
        assert os.listdir("ckpt") == ["lock"], os.listdir("ckpt")
    dump = ["run.steps=1", "run.output=d.h5", "--dump-step", "1", "--dump"]
    r.run(*dump, "whole.h5")
    limit = os.path.getsize("whole.h5") - 1  # what fails to be written is the end, as it closes
    done = subprocess.run(r.command(r.deck, *dump, "cut.h5"), env=r.env, capture_output=True,
                          text=True, timeout=100, preexec_fn=limited)
    assert done.returncode == 4 and "File too large" in done.stderr, (done.returncode, done.stderr)
    assert not list(pathlib.Path(".").glob("cut.h5*"))


@case(ranks=2)
def names_that_are_not_utf8_are_refused(r):
    bad = os.fsdecode(b"\xff.h5")
    for option in ("--out", "--json", "--trace", "--dump", "--logits", "--from", "--deck"):
        for arguments in ([option, bad], [f"{option}={bad}"]):
            refused(r, *arguments, says=[f"{option} is not UTF-8"])
    refused(r, r.deck, "--json", bad, says=["--json is not UTF-8"], ranks=2)
    refused(r, bad, says=["argument 1 is not UTF-8"])
    r.run("--json", "\u00e4.jsonl", "run.steps=1")
    assert pathlib.Path("\u00e4.jsonl").exists()


@case(ranks=2)
def long_streams_are_cut_at_once(r):
    """Documents are counted, not sequences, of which there are 2^37."""
    stream = ["data.synthetic_tokens=1099511627776", "data.synthetic_document_length=1048576",
              "train.seq_length=8", "eval.steps=1", "run.steps=1"]
    for ranks in (1, 2):
        r.run(*stream, f"run.output=run{ranks}.h5", ranks=ranks)
    refused(r, r.deck, *stream, "data.packing=best_fit",
            says=["data.synthetic_tokens", "train.seq_length = 8", "more than 268435456 sequences"])


@case
def a_reader_that_goes_away_stops_no_run(r):
    process = subprocess.Popen(r.command(r.deck, "run.steps=30"), env=r.env, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=100) == 4 and "standard output is not complete" in err, err
    with h5py.File("tiny.h5") as file:
        assert len(file["/series/train/loss"]) == 30


@case(ranks=2)
def sizes_that_no_machine_has_are_refused(r):
    deck = [r.deck]
    for value in ("4294967296", "4294967304", "2147483648", "9223372036854775807"):
        for key in ("train.global_batch_size", "model.num_attention_heads", "model.hidden_size"):
            refused(r, *deck, f"{key}={value}", says=[key, value])
            refused(r, *deck, f"{key}={value}", "--dry-run", says=[key, value])
    refused(r, *deck, "train.global_batch_size=4294967296", says=["global_batch_size"], ranks=2)
    # A product of extents that wraps would be a division by 0.
    grid = [f"parallel.{axis}=65536" for axis in ("tensor", "context", "expert", "pipeline")]
    for arguments in (grid, grid[:2], [*grid[:1], "parallel.data=65536"]):
        says = ["parallel.tensor = 65536", "ranks, no machine has more than 1048576"]
        refused(r, *deck, *arguments, says=says)
        refused(r, *deck, *arguments, "--dry-run", says=says)
    refused(r, *deck, *grid, says=["ranks, no machine has more"], ranks=2)
    # Within every range, but more than this host has.
    for arguments in (["model.hidden_size=1048576", "model.num_attention_heads=1024"],
                      ["train.global_batch_size=1073741824"],
                      ["model.vocab_size=2147483647", "model.hidden_size=1024"]):
        refused(r, *deck, *arguments, says=["memory"], expect=3)
        refused(r, *deck, *arguments, says=["memory"], expect=3, ranks=2)


if __name__ == "__main__":
    sys.exit(train_test.main(CASES))
