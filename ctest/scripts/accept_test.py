#!/usr/bin/python3
"""stowage_accept: its rule on recorded times of healthy machines, and acceptances on the host.

Usage: accept_test.py CASE --bin FOLDER --source FOLDER.
"""
import argparse
import hashlib
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

import h5py

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent / "drivers"), str(HERE.parents[2] / "scripts/accept")]
from outliers import of_interval, of_samples, outliers  # noqa: E402
from process_cases import Cases  # noqa: E402
from stowage_accept import SICK  # noqa: E402


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

    def accept(self, *words, expect=0, python=(sys.executable,), path=os.environ["PATH"]):
        done = subprocess.run(
            [*python, os.path.join(self.given.source, "scripts/accept/stowage_accept.py"),
             "--bin", self.given.bin, "--decks", self.deck, "--short", self.deck, "--keys",
             "execution.backend=host validate.finite_differences=off", "--alone",
             "./alone {device}", "--all", MPIRUN + " {ranks}", "--rounds", "2", "--steps", "20",
             "--largest", "64K", *words], cwd=self.folder, capture_output=True, text=True,
            check=False, env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMP_NUM_THREADS="1",
                                  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PATH=path))
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
    def found(samples):
        return outliers({name: of_samples(times) for name, times in samples.items()})

    runs = 0
    for name, what, samples in recorded(r.given.source):
        assert found(samples) == {}, (name, what, found(samples))
        if what.startswith("samples/scaling/"):  # exchanges may take microseconds
            runs += 1
            samples[1] = [1.05 * time for time in samples[1]]
            assert list(found(samples)) == [1], (name, what, found(samples))
    assert runs >= 20, runs
    # On paper: the middle is 1.01, the spread 1.4826 * 0.01; 3 % are never out of band.
    even = {"a": [1.0] * 9, "b": [1.01] * 9, "c": [1.02] * 9, "d": [1.01] * 9}
    assert found(even) == {}
    assert list(found({**even, "d": [1.2] * 9})) == ["d"]
    assert found({"a": [1.0] * 9, "b": [2.0] * 9}) == {}  # nobody knows which is right
    # Of rates the less is the worse; an interval of 0.1 says that its middle may be 0.0255 off.
    rates = {"a": (10, 0), "b": (10, 0), "c": (9, 0), "d": (10.1, 0)}
    assert outliers(rates, higher_is_worse=False) == {"c": 0.1}
    assert of_interval(1, None, None) == (1, 0.0)
    assert abs(of_interval(1, 0.95, 1.05)[1] - 0.0255) < 1e-4


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
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], check=True,
                   cwd=r.folder / "acceptance")
    sums = (r.folder / "acceptance/SHA256SUMS").read_bytes()
    assert report["files_digest"] == hashlib.sha256(sums).hexdigest(), report
    judged = {line.split()[1] for line in sums.decode().splitlines()}
    bases = {"pair_0_1", "all", "deck_tiny"} | {f"alone_{i}_{j}" for i in (0, 1) for j in range(4)}
    bases |= {f"pair_{i}_{i + 1}" for i in range(3)}
    assert judged == {f"{name}.{end}" for name in bases for end in ("h5", "jsonl")}, judged
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
    assert report["alone"][0]["step_s"] == statistics.median(
        time for round_ in (0, 1) for time in timed(r, f"two/alone_{round_}_0")), report
    assert "no stowage_train" in r.accept("./here.toml", "--ranks", "2", "--bin", "/nowhere",
                                          expect=3)
    assert "is no time" in r.accept("./here.toml", "--ranks", "2", "--soak", "2d", expect=2)


def timed(r, name):
    """The samples of a run's result set."""
    with h5py.File(r.folder / f"{name}.h5") as file:
        return [float(time) for time in file["samples/train/step_time"][()]]


# Device 1 has had memory errors, products of device 2 are a tenth slower.
CEILINGS = """#!/bin/sh
exec {python} {ceilings} "$@"
"""
CEILINGS_PY = """
import json, os, sys
import h5py
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
device = os.environ["CUDA_VISIBLE_DEVICES"]
with open(given["--json"], "w") as log:
    for tag in ("gemm_bf16/cube_8192/flops_per_s", "copy_kernel/bandwidth", "h2d/bandwidth",
                "d2h/bandwidth"):
        rate = 9e14 if device == "2" and "cube" in tag else 1e15
        log.write(json.dumps({"event": "metric", "tag": "ceilings/" + tag, "value": rate,
                              "ci95_low": 0.999 * rate, "ci95_high": 1.001 * rate}) + "\\n")
with h5py.File(given["--out"], "w") as file:
    names = ("host", "gpu_name", "gpu_uuid", "gpu_pci")
    table = [(b"n01", b"NVIDIA H200", b"GPU-" + device.encode(), b"")]
    import numpy
    file["provenance/system/ranks"] = numpy.array(table, dtype=[(name, "S20") for name in names])
    file["provenance/system/warnings"] = [
        b"rank 0: its GPU has had 2 memory errors"] if device == "1" else [
        b"rank 0: its CPUs are on NUMA node 0, its GPU on 1: copies and launches cross"]
"""


@case
def warnings_of_boards_are_those_of_the_programs(r):
    """Each sentence of results/warnings.cpp about a board or a link, and none about places."""
    text = pathlib.Path(r.given.source, "results/warnings.cpp").read_text(encoding="utf-8")
    joined = re.sub(r'"\s*\n\s*"', "", text)  # literals that go on in the next line
    said = re.findall(r'"((?:rank \{\}: |their GPUs)[^;]*?)"[,\n)]', joined)
    sick = [one for one in said if SICK.search(one)]
    assert len(sick) == 7 and len(said) == 10, (sick, said)


@case(ranks=4)
def a_sick_gpu_is_named(r):
    """Its memory errors and its rates, before anything trains; the runs are those of the host."""
    programs = r.folder / "bin"
    programs.mkdir()
    for program in pathlib.Path(r.given.bin).glob("stowage_*"):
        (programs / program.name).symlink_to(program)
    (programs / "stowage_ceilings").unlink(missing_ok=True)
    (r.folder / "ceilings.py").write_text(CEILINGS_PY, encoding="utf-8")
    (programs / "stowage_ceilings").write_text(
        CEILINGS.format(python=sys.executable, ceilings=r.folder / "ceilings.py"), encoding="utf-8")
    (programs / "stowage_ceilings").chmod(0o755)
    (r.folder / "host.toml").write_text(
        f'include = ["{r.deck}"]\n[execution]\nbackend = "host"\n', encoding="utf-8")
    said = r.accept("./here.toml", "--ranks", "4", "--bin", str(programs), "--keys",
                    "validate.finite_differences=off", "--decks", "host.toml", "--short",
                    "host.toml", "--rounds", "1", "--alone", MPIRUN + " 1", expect=1)
    assert "# health: 1: rank 0: its GPU has had 2 memory errors\n" in said, said
    assert ("# ceilings, product FLOP/s: 2 is 10.0 % less than the median: host n01, "
            "gpu_name NVIDIA H200, gpu_uuid GPU-2\n") in said, said
    assert "NUMA" not in said and "copy B/s" not in said, said
    page = (r.folder / "acceptance/acceptance.md").read_text(encoding="utf-8")
    assert "| 2 | **9e+14** | 1e+15 | 1e+15 | 1e+15 | host n01, " in page, page


@case(ranks=2)
def a_report_is_signed(r):
    """By a key of the user's; what was changed since is found. No package is needed for it."""
    subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-out", "key.pem"], check=True,
                   cwd=r.folder, capture_output=True)
    two = ("./here.toml", "--ranks", "2", "--rounds", "1")
    said = r.accept(*two, "--sign", "key.pem", python=(sys.executable, "-S"))
    command = shlex.split(said.split("# signed; verify with: ")[1].splitlines()[0])
    subprocess.run(command, check=True, cwd=r.folder)
    report = r.folder / "acceptance/acceptance.json"
    assert "not looked at: names and health of devices: no h5py" in (
        r.folder / "acceptance/acceptance.md").read_text(encoding="utf-8")
    report.write_text(report.read_text(encoding="utf-8").replace("VALID", "GREAT"))
    assert subprocess.run(command, check=False, cwd=r.folder, capture_output=True).returncode == 1
    assert "--sign none.pem: openssl cannot sign with it" in r.accept(
        *two, "--sign", "none.pem", expect=2)
    (r.folder / "few").mkdir()
    assert "--sign: openssl is not in PATH" in r.accept(*two, "--sign", "key.pem", expect=3,
                                                        path=str(r.folder / "few"))


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
