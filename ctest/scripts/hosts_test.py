#!/usr/bin/python3
"""Runs over two hosts that are network namespaces of this machine (scripts/two_hosts.sh).

Usage: hosts_test.py CASE --bin FOLDER --source FOLDER. Exit code 77: skipped, since this machine or
user cannot make them.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import h5py

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "drivers"))
from process_cases import Cases  # noqa: E402

CASES = case = Cases()
SKIPPED = 77


class Hosts:
    def __init__(self, given, folder):
        self.bin, self.folder = given.bin, folder
        self.script = os.path.join(given.source, "scripts/two_hosts.sh")
        self.deck = os.path.join(given.source, "ctest/drivers/tiny.toml")
        self.env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMP_NUM_THREADS="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def run(self, *words, expect=0):
        done = subprocess.run(words, cwd=self.folder, env=self.env, capture_output=True, text=True,
                              timeout=100)
        if done.returncode == 3 and expect != 3:
            print(f"skipped: {done.stderr.strip()}")
            sys.exit(SKIPPED)
        assert done.returncode == expect, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def program(self, name, *arguments):
        return (os.path.join(self.bin, name), self.deck, "execution.backend=host", *arguments)

    def over_hosts(self, each, *words, expect=0):
        return self.run(self.script, str(each), *words, expect=expect)


def names(path):
    with h5py.File(path) as file:
        return [row["host"] for row in file["provenance/system/ranks"][()]]


def end(path):
    with h5py.File(path) as file:
        return file["series/train/loss"][()].tolist(), file["validation/state_digest"][-1]


@case(ranks=2)
def a_run_has_the_bits_of_one_host(h):
    """Four ranks, two on each host, with an exchange of each kind within and between hosts."""
    for axes in (("parallel.tensor=2",), ("parallel.expert=2", "parallel.zero=1"),
                 ("parallel.pipeline=2",),
                 ("parallel.context=4", "parallel.context_attention=all_gather",
                  "parallel.context_tokens=zigzag"),
                 ("parallel.context=2", "parallel.context_attention=all_to_all")):
        h.run("mpirun", "--oversubscribe", "--bind-to", "none", "-np", "4",
              *h.program("stowage_train", *axes, "run.output=one.h5"))
        h.over_hosts(2, *h.program("stowage_train", *axes, "run.output=two.h5"))
        hosts = names(os.path.join(h.folder, "two.h5"))
        assert hosts[0] == hosts[1] != hosts[2] == hosts[3], hosts
        assert end(os.path.join(h.folder, "one.h5")) == end(os.path.join(h.folder, "two.h5")), axes
        os.remove(os.path.join(h.folder, "one.h5"))
        os.remove(os.path.join(h.folder, "two.h5"))


@case(ranks=2)
def a_curve_goes_from_one_host_to_two(h):
    said = h.over_hosts(2, *h.program("stowage_bench_scaling", "--layouts", "d=1, d=2, t=2 d=2",
                                      "--samples", "3", "run.output=curve.h5"))
    assert "np 4 on 2 hosts" in said and "STOWAGE RESULT VALID" in said, said


@case(ranks=2)
def what_cannot_be_is_told(h):
    assert "usage" in h.over_hosts("none", "true", expect=2)
    assert "unknown key" in h.over_hosts(1, *h.program("stowage_train", "no.key=1"), expect=2)
    with subprocess.Popen((h.script, "1", "sh", "-c", "exit 7"), env=h.env,
                          stderr=subprocess.DEVNULL) as process:
        assert process.wait(timeout=60) == 7
    left = subprocess.run(("ip", "netns"), capture_output=True, text=True, check=False).stdout
    assert f"stowage-{process.pid}-" not in left, left


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    for name in ("bin", "source"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        CASES[given.case](Hosts(given, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
