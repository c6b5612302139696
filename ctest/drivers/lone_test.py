#!/usr/bin/python3
"""Programs without a launcher, as under cron, in a pipeline or in a container: each is one process,
ends with its code whatever became of its streams, and leaves nothing behind.

Usage: lone_test.py CASE --bin FOLDER --source FOLDER. Each case runs in a folder of its own.
"""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid

from process_cases import Cases, least_address_space, within_address_space

CASES = case = Cases()
PROGRAMS = ("stowage_train", "stowage_plan", "stowage_data", "stowage_convert", "stowage_generate")
SAID = ("--initial-weights", "--prompt", "1 2 3", "--tokens", "20")
PATIENCE_S = 60
MOST_BYTES = 200 << 20


class Lone:
    """Starts programs whose environment has a mark, by which their children are found."""

    def __init__(self, folder, source):
        self.folder = pathlib.Path(folder)
        self.deck = os.path.join(source, "ctest", "drivers", "tiny.toml")
        self.mark = f"STOWAGE_LONE_TEST={uuid.uuid4()}".encode()
        name, value = self.mark.decode().split("=")
        launchers = ("OMPI_", "PMIX_", "PMI_", "PALS_", "ORTE_")
        self.env = {key: text for key, text in os.environ.items() if not key.startswith(launchers)}
        self.temporary = pathlib.Path("temporary").absolute()
        self.temporary.mkdir()
        self.env.update({name: value, "TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1",
                         "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})

    def start(self, program, *arguments, closed=(), **streams):
        def close():
            for stream in closed:
                os.close(stream)
        command = [self.folder / program, *arguments]
        for name in ("stdout", "stderr"):
            streams.setdefault(name, subprocess.DEVNULL)
        return subprocess.Popen(command, env=self.env, preexec_fn=close, **streams)

    def marked(self):
        """{pid: bytes of its own in memory} of all processes with the mark that still run."""
        found = {}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if self.mark in (process / "environ").read_bytes():
                    own = re.search(r"^RssAnon:\s+(\d+) kB", (process / "status").read_text(),
                                    re.MULTILINE)
                    found[int(process.name)] = 1024 * int(own.group(1)) if own else 0
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                pass  # it has ended, or is another user's
        return found

    def watch(self, process):
        """Its code. While it runs it is the only process, stays small, and shares no folder."""
        end = time.monotonic() + PATIENCE_S
        while process.poll() is None:
            running = self.marked()
            assert set(running) <= {process.pid}, f"{running} beside {process.pid}"
            assert not list(self.temporary.iterdir()), list(self.temporary.rglob("*"))
            assert all(size <= MOST_BYTES for size in running.values()), running
            if time.monotonic() > end:
                process.kill()
                raise AssertionError(f"{process.args} has not ended in {PATIENCE_S} s")
            time.sleep(0.01)
        return process.returncode

    def nothing_is_left(self):
        end = time.monotonic() + 2
        while self.marked() and time.monotonic() < end:
            time.sleep(0.02)
        left = {pid: pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.marked()}
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, left
        assert not list(self.temporary.iterdir()), list(self.temporary.rglob("*"))


@case
def each_is_one_process(r):
    for program in PROGRAMS:
        assert r.watch(r.start(program, "--help")) == 0, program
    assert r.watch(r.start("stowage_train", r.deck)) == 0
    assert r.watch(r.start("stowage_train", r.deck, "optim.lr=no")) == 2
    assert r.watch(r.start("stowage_generate", r.deck, *SAID)) == 0
    assert r.watch(r.start("stowage_generate", r.deck)) == 2
    r.nothing_is_left()


@case
def closed_streams_end_with_a_code(r):
    for program in PROGRAMS:
        code = r.watch(r.start(program, "--help", closed=(1, 2)))
        assert code == 4, (program, code)
    for closed, lost in (((1, 2), 4), ((0, 1, 2), 4), ((1,), 4), ((2,), 0), ((0,), 0)):
        name = "closed" + "".join(map(str, closed)) + ".h5"
        code = r.watch(r.start("stowage_train", r.deck, f"run.output={name}", closed=closed))
        assert code == lost, (closed, code)
        assert pathlib.Path(name).read_bytes()[:4] == b"\x89HDF", name  # no text went into it
    assert r.watch(r.start("stowage_train", "gone.toml", closed=(1, 2))) == 2
    for closed, lost in (((0, 1, 2), 4), ((1,), 4), ((2,), 0), ((0,), 0)):
        name = "said" + "".join(map(str, closed)) + ".jsonl"
        code = r.watch(r.start("stowage_generate", r.deck, *SAID, "--json", name, closed=closed))
        assert code == lost, (closed, code)
        assert pathlib.Path(name).read_bytes()[:1] == b"{", name
    r.nothing_is_left()


@case
def a_missing_working_directory_is_refused(r):
    os.mkdir("gone")
    command = ["bash", "-c", 'cd gone && rmdir ../gone && exec "$@"', "bash"]
    done = subprocess.run([*command, r.folder / "stowage_train", r.deck], env=r.env,
                          capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert "the working directory is not there" in done.stderr, done.stderr


@case
def too_little_memory_ends_with_3(r):
    if b"__asan_init" in (r.folder / "stowage_train").read_bytes():
        sys.exit(77)  # a sanitizer needs more address space than any limit leaves
    for name, words, says in (
            ("stowage_train", (), "ulimit -v"),
            ("stowage_generate", (*SAID, "model.vocab_size=2000000"), "memory")):
        program = r.folder / name
        least = least_address_space(program, r.env)
        for kib in (least, least + 100_000, least + 200_000):
            done = subprocess.run(within_address_space(kib, program, r.deck, *words), env=r.env,
                                  capture_output=True, text=True, timeout=PATIENCE_S)
            assert done.returncode == 3, (name, kib, done.returncode, done.stderr)
            assert done.stderr.count("stowage: error:") == 1, done.stderr
            assert says in done.stderr, done.stderr
    r.nothing_is_left()


@case
def a_reader_that_goes_away_leaves_nothing(r):
    for arguments, codes in (([r.deck], (0, 4)), (["--help"], (0, 4))):
        process = r.start("stowage_train", *arguments, stdout=subprocess.PIPE)
        head = subprocess.Popen(["head", "-1"], stdin=process.stdout, stdout=subprocess.PIPE)
        process.stdout.close()
        assert head.communicate(timeout=PATIENCE_S)[0], arguments
        code = r.watch(process)
        assert code in codes, (arguments, code)
    r.nothing_is_left()


@case
def killed_at_any_moment_it_leaves_nothing(r):
    for sent in (signal.SIGKILL, signal.SIGTERM):
        for i in range(8):
            for program, words in (("stowage_train", ()), ("stowage_generate", SAID)):
                process = r.start(program, r.deck, *words, closed=(1, 2) if i % 2 else ())
                time.sleep(0.06 * i)
                process.send_signal(sent)
                process.wait(timeout=PATIENCE_S)
                r.nothing_is_left()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--source", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        CASES[arguments.case](Lone(arguments.bin, arguments.source))
    print("ok")


if __name__ == "__main__":
    sys.exit(main())
