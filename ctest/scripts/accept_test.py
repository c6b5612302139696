#!/usr/bin/python3
"""stowage_accept: its rule on recorded times of healthy machines, and acceptances on the host.

Usage: accept_test.py CASE --bin FOLDER --source FOLDER.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import h5py

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent / "drivers"), str(HERE.parents[2] / "scripts/accept")]
from outliers import outliers  # noqa: E402
from process_cases import Cases  # noqa: E402

CASES = case = Cases()
MPIRUN = "mpirun --oversubscribe --bind-to none -np"
# Device 2 waits a random time before each op.
ALONE = f"""#!/bin/sh
device=$1; shift
[ "$device" != 2 ] || set -- "$@" execution.delay_seed=1
exec {MPIRUN} 1 "$@"
"""
HERE_TOML = '[machine]\nname = "here"\n'
RATES = 'device_memory_bytes = "8 GiB"\nmatmul_flops_per_s = {0}\ndevice_copy_bytes_per_s = {0}\n'


class Runner:
    def __init__(self, given, folder):
        self.given, self.folder = given, pathlib.Path(folder)
        self.deck = os.path.join(given.source, "ctest/drivers/tiny.toml")
        (self.folder / "alone").write_text(ALONE, encoding="utf-8")
        (self.folder / "alone").chmod(0o755)
        self.machine("here", None)

    def machine(self, name, rate):
        text = HERE_TOML + (RATES.format(rate) if rate else "")
        (self.folder / f"{name}.toml").write_text(text, encoding="utf-8")

    def accept(self, *words, expect=0):
        done = subprocess.run(
            [sys.executable, os.path.join(self.given.source, "scripts/accept/stowage_accept.py"),
             "--bin", self.given.bin, "--decks", self.deck, "--short", self.deck, "--keys",
             "execution.backend=host validate.finite_differences=off", "--alone",
             "./alone {device}", "--all", MPIRUN + " {ranks}", "--rounds", "2", "--steps", "20",
             "--largest", "64K", *words], cwd=self.folder, capture_output=True, text=True,
            check=False, env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMP_NUM_THREADS="1",
                                  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
        assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        return done.stdout if expect < 2 else done.stderr

    def report(self, folder="acceptance"):
        return json.loads((self.folder / folder / "acceptance.json").read_text(encoding="utf-8"))


def recorded(source):
    """Seconds by rank of all that was published of four GPUs: (set, what, samples by rank)."""
    for path in sorted(pathlib.Path(source, "results/published").glob("*x4/*.h5")):
        found = []
        with h5py.File(path) as file:
            def visit(name, node):
                if isinstance(node, h5py.Dataset) and name.startswith("samples/") and (
                        node.ndim == 2 and node.shape[1] == 4 and node.shape[0] >= 8):
                    found.append((name, node[()]))
            file.visititems(visit)
        for name, times in found:
            yield path.stem, name, {rank: list(times[:, rank]) for rank in range(4)}


@case
def healthy_machines_have_no_outlier(r):
    """In none of the published ones; and a rank whose steps are made 5 % slower is named, it alone.
    """
    runs = 0
    for name, what, samples in recorded(r.given.source):
        assert outliers(samples) == {}, (name, what, outliers(samples))
        if what.startswith("samples/scaling/"):  # exchanges may take microseconds
            runs += 1
            samples[1] = [1.05 * time for time in samples[1]]
            assert list(outliers(samples)) == [1], (name, what, outliers(samples))
    assert runs >= 20, runs
    # On paper: the middle is 1.01, the spread 1.4826 * 0.01; 3 % are never out of band.
    even = {"a": [1.0] * 9, "b": [1.01] * 9, "c": [1.02] * 9, "d": [1.01] * 9}
    assert outliers(even) == {}
    assert list(outliers({**even, "d": [1.2] * 9})) == ["d"]
    assert outliers({"a": [1.0] * 9, "b": [2.0] * 9}) == {}  # nobody knows which is right


@case(ranks=4)
def a_slow_device_is_named(r):
    """And a machine that is slower than pledged, with the pledge that it was held against."""
    r.machine("fast", 1e14)
    r.accept("fast.toml", "--ranks", "4", "--pledge", "pledge.json")
    pledge = json.loads((r.folder / "pledge.json").read_text(encoding="utf-8"))
    said = r.accept("fast.toml", "--ranks", "4", "--against", "pledge.json", expect=1)
    report = r.report()
    assert report["verdict"] == "INVALID" and report["pledge"] == pledge["digest"], report
    slow = {row["device"]: row["slower"] for row in report["alone"]}
    assert slow["2"] > 0.03, slow
    assert f"alone: 2 is {100 * slow['2']:.1f} % slower than the median: host " in said, said
    deck, = report["decks"]
    assert deck["step_s"] == pledge["decks"][r.deck]["step_s"], (deck, pledge)
    assert deck["beside"] > 0.05 and "5 % are allowed" in said, (deck, said)
    assert report["digest"] in said.splitlines()[-1], said
    page = (r.folder / "acceptance/acceptance.md").read_text(encoding="utf-8")
    assert page.startswith("# Acceptance of fast: INVALID") and "| tiny | " in page, page
    assert {"alone_2_1.h5", "pair_0_1.h5", "all.h5", "deck_tiny.h5"} <= set(report["sets_sha256"])
    pledge["decks"][r.deck]["step_s"] *= 100  # who pledged too much
    (r.folder / "pledge.json").write_text(json.dumps(pledge), encoding="utf-8")
    assert "changed since" in r.accept("fast.toml", "--ranks", "4", "--against", "pledge.json",
                                       expect=2)


@case(ranks=2)
def a_machine_without_rates_is_measured(r):
    """Two devices: nobody is out of band, nothing is predicted, and a set of each run is left."""
    said = r.accept("./here.toml", "--ranks", "2", "--out", "two")
    report = r.report("two")
    assert report["verdict"] == "VALID" and report["faults"] == [], report
    assert said.startswith("STOWAGE ACCEPTANCE VALID"), said
    deck, = report["decks"]
    assert deck["step_s"] is None and deck["measured_step_s"] > 0, deck
    low, high = deck["measured_ci95"]
    assert low <= deck["measured_step_s"] <= high, deck
    assert [row["samples"] for row in report["alone"]] == [2 * 20 - 2 * skipped(r)] * 2, report
    assert "no stowage_train" in r.accept("./here.toml", "--ranks", "2", "--bin", "/nowhere",
                                          expect=3)


def skipped(r):
    """Steps of a run that are not timed."""
    with h5py.File(r.folder / "two/alone_0_0.h5") as file:
        return 20 - len(file["samples/train/step_time"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    for name in ("bin", "source"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        CASES[given.case](Runner(given, folder))


if __name__ == "__main__":
    sys.exit(main())
