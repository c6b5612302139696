#!/usr/bin/python3
"""stowage_accept: its rule on recorded times of healthy machines, and acceptances on the host.

Usage: accept_test.py CASE --bin FOLDER --source FOLDER.
"""
import argparse
import contextlib
import hashlib
import io
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
import numpy

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent / "drivers"), str(HERE.parents[2] / "scripts/accept")]
from outliers import of_interval, of_samples, outliers  # noqa: E402
from process_cases import Cases  # noqa: E402
from stowage_accept import SICK  # noqa: E402
from stowage_accept import main as accept_main  # noqa: E402


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
    bases = {"all", "ranks", "deck_tiny"}
    bases |= {f"alone_{i}_{j}" for i in (0, 1) for j in range(4)}
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


# Six GPUs on two hosts. A rank of a program notes where it is and what it is shown; the first one
# leaves what the program would.
RANK = """#!/bin/sh
echo "$(basename "$0") $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES" >> {log}
[ "${{RANK:-0}}" = 0 ] || exit 0
exec {python} -S {program} "$(basename "$0")" "$@"
"""
LAUNCHER = """#!/bin/sh
rank=0 hosts=$1; shift
for host in $(echo "$hosts" | tr , ' '); do
  RANK=$rank SLURMD_NODENAME=$host.cluster "$@" || exit $?
  rank=$((rank + 1))
done
"""
LEAVES = """
import json, os, pathlib, shutil, sys
program, given = sys.argv[1], sys.argv[2:]
out = {key: given[given.index(key) + 1] for key in ("--out", "--json") if key in given}
place = os.environ.get("SLURMD_NODENAME", "")[:3] + ":" + os.environ.get("CUDA_VISIBLE_DEVICES", "")
name = pathlib.Path(out.get("--out", "")).stem
sick, lines, metrics, steps = SICK, [], {}, 0
if program == "stowage_ceilings":
    for tag in ("gemm_bf16/cube_8192/flops_per_s", "copy_kernel/bandwidth", "h2d/bandwidth",
                "d2h/bandwidth"):
        metrics["ceilings/" + tag] = 9e14 if sick and place == "n01:2" and "cube" in tag else 1e15
elif program == "stowage_bench_comm":
    time_s = 1e-3 if "n01" in name and "n02" in name else 1e-4
    if sick and name in ("pair_n01_1_n02_0", "pair_n01_0_n01_1"):
        time_s *= 2
    metrics["comm/data/exchange/stowage/out_of_place/65536_bytes/time"] = time_s
elif program == "stowage_train":
    steps = next(int(word[10:]) for word in given if word.startswith("run.steps="))
    time_s = 0.11 if sick and name.startswith("soak") and place == "n02:1" else 0.1
    metrics = {"train/step_time": time_s, "train/tokens_per_s": 1e5, "energy/j_per_token": 7e-3}
    lines = [{"event": "step", "step_time": time_s}] * steps
elif program == "stowage_plan":
    best = {"layout": "data 6", "keys": [], "step_s": 0.12, "tokens_per_s": 1e5}
    lines = [{"layouts": [best]}]
lines += [{"event": "metric", "tag": tag, "value": value, "ci95_low": 0.999 * value,
           "ci95_high": 1.001 * value, "median_of": steps - 5} for tag, value in metrics.items()]
pathlib.Path(out["--json"]).write_text("".join(json.dumps(line) + chr(10) for line in lines))
if program != "stowage_plan":
    kind = "sick" if sick and place == "n01:1" else "well"
    shutil.copy(pathlib.Path(__file__).with_name(kind + ".h5"), out["--out"])
"""


class SixGpus:
    """@param sick whether a GPU has memory errors, and another one, a rank, two pairs, and a GPU
    among busy ones are slow"""

    def __init__(self, r, sick):
        self.r, self.log, self.bin = r, r.folder / "log", r.folder / "bin"
        self.bin.mkdir()
        (r.folder / "leaves.py").write_text(LEAVES.replace("SICK", str(sick)), encoding="utf-8")
        self.script(r.folder / "on", LAUNCHER)
        for name in ("ceilings", "train", "bench_comm", "bench_scaling", "plan"):
            self.script(self.bin / f"stowage_{name}", RANK.format(
                log=self.log, python=sys.executable, program=r.folder / "leaves.py"))
        fields = [(name, "S20") for name in ("host", "gpu_name", "gpu_uuid", "gpu_pci")]
        rows = [(b"n0%d" % host, b"NVIDIA H200", b"GPU-%d%d" % (host, i), b"")
                for host in (1, 2) for i in range(3)]
        for name, warning in (
                ("sick", b"rank 0: its GPU has had 2 memory errors"),
                ("well", b"rank 0: its CPUs are on NUMA node 0, its GPU on 1: copies cross")):
            with h5py.File(r.folder / f"{name}.h5", "w") as file:
                file["provenance/system/ranks"] = numpy.array(rows, dtype=fields)
                file["provenance/system/warnings"] = [warning]
                file["series/gpu/clock"] = [1.41e9]
                point = file.create_dataset("samples/scaling/weak/d6/off", data=[[1.0] * 6])
                point.attrs["compute_s_of_ranks"] = numpy.bytes_(
                    f"0.1 0.1 0.1 0.1 {0.104 if sick else 0.1} 0.101")

    def script(self, path, text):
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def accept(self, *words, expect=0):
        devices = ",".join(f"n0{host}:{i}" for host in (1, 2) for i in range(3))
        return self.r.accept("./here.toml", "--ranks", "6", "--bin", str(self.bin), "--keys", "",
                             "--devices", devices, "--alone", "./on {host}", "--all",
                             "./on {hosts}", *words, expect=expect)

    def shown(self, program):
        """(host, devices) of each of its ranks."""
        lines = (line.split() for line in self.log.read_text(encoding="utf-8").splitlines())
        return [tuple(words[1:]) for words in lines if words[0] == program]


@case
def warnings_of_boards_are_those_of_the_programs(r):
    """Each sentence of results/warnings.cpp about a board or a link, and none about places."""
    text = pathlib.Path(r.given.source, "results/warnings.cpp").read_text(encoding="utf-8")
    joined = re.sub(r'"\s*\n\s*"', "", text)  # literals that go on in the next line
    said = re.findall(r'"((?:rank \{\}: |their GPUs)[^;]*?)"[,\n)]', joined)
    sick = [one for one in said if SICK.search(one)]
    assert len(sick) == 7 and len(said) == 10, (sick, said)


@case
def what_is_sick_is_named(r):
    """GPUs alone and when all are busy, pairs, and a rank of all."""
    gpus = SixGpus(r, sick=True)
    said = gpus.accept("--soak", "0.01s", "--rounds", "1", "--pairs", "all", expect=1)
    faults = [line[2:] for line in said.splitlines() if line.startswith("# ")]
    h200 = "host n01, gpu_name NVIDIA H200, gpu_uuid GPU-10"
    assert faults == [
        "health: n01:1: rank 0: its GPU has had 2 memory errors",
        f"ceilings, product FLOP/s: n01:2 is 10.0 % less than the median: {h200}, clock MHz 1410",
        f"soak: n02:1 is 10.0 % slower than the median: {h200}, clock MHz 1410, J/token 0.007",
        "pairs: n01:0-n01:1 is 100.0 % slower than the median",
        "pairs of hosts: n01:1-n02:0 is 100.0 % slower than the median",
        "all ranks at once: rank 4 is 4.0 % slower than the median: host n02, gpu_name NVIDIA "
        "H200, gpu_uuid GPU-21",
        "tiny: a step takes 100.0 ms, -16.7 % beside the predicted 120.0 ms, quicker than the band "
        "of 5 %: the prediction is not of this machine"], faults
    assert "STOWAGE ACCEPTANCE INVALID  digest=" in said, said
    report = r.report()
    assert report["remarks"] == faults[-1:] and report["faults"] == faults[:-1], report
    assert [row["pair"] for row in report["pairs"] if row["what"] == "hosts"] == [
        "host_n01", "host_n02"], report
    page = (r.folder / "acceptance/acceptance.md").read_text(encoding="utf-8")
    for row in ("| n01:2 | **9e+14** | 1e+15 | 1e+15 | 1e+15 | host n01, ", "| rank 4 | 104.00 ms ",
                f"- told: {faults[-1]}"):
        assert row in page, (row, page)


@case
def each_rank_is_shown_the_devices_of_its_host(r):
    """Under any launcher; what is well is VALID, and nothing was left out."""
    gpus = SixGpus(r, sick=False)
    said = gpus.accept("--rounds", "1", "--band", "20")
    assert said.startswith("STOWAGE ACCEPTANCE VALID  digest="), said
    n01, n02 = "n01.cluster", "n02.cluster"
    six = [(host, str(i)) for host in (n01, n02) for i in range(3)]
    all_ = [(n01, "0,1,2")] * 3 + [(n02, "0,1,2")] * 3
    assert gpus.shown("stowage_ceilings") == six
    assert gpus.shown("stowage_bench_scaling") == all_
    assert gpus.shown("stowage_train") == six + all_
    assert gpus.shown("stowage_bench_comm") == [
        (n01, "0,1"), (n01, "0,1"), (n01, "1,2"), (n01, "1,2"), (n01, "2"), (n02, "0"),
        (n02, "0,1"), (n02, "0,1"), (n02, "1,2"), (n02, "1,2"), *all_, *all_]
    said = gpus.accept("--alone", "./on n03 env AT={host}", "--keys", "execution.backend=host",
                       "--rounds", "1", expect=3)
    log = next((r.folder / "acceptance").glob("alone_0_n01_0.log")).read_text(encoding="utf-8")
    assert "no device ran" in said and "rank on host n03.cluster, which is none of n01" in log, log


@case
def devices_that_cannot_be(r):
    here = ("./here.toml", "--bin", r.given.bin, "--ranks", "2", "--devices")
    for words, why in (
            (("0",), "--devices names 1, --ranks is 2"),
            (("0,0",), "a device stands there twice"),
            (("n01:0,1",), "either all have a host or none"),
            (("a b,1",), "'a b' is no device, as 0 or n01:0"),
            (("n01:0,n02:0", "--alone", "mpirun -np 1"), "--alone needs {host}, as in 'srun "),
            (("n01:0,n02:0", "--alone", "x {host}"),
             "--devices names 2 hosts: --all needs {hosts}"),
            (("0,1", "--all", "x {hots}"), "may name {ranks}, {hosts}, not 'hots'")):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            assert accept_main([*here, *words]) == 2, words
        assert why in said.getvalue(), (words, said.getvalue())


@case(ranks=2)
def a_report_is_signed(r):
    """By a key of the user's; what was changed since is found. No package is needed for it."""
    subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-out", "key.pem"], check=True,
                   cwd=r.folder, capture_output=True)
    two = ("./here.toml", "--ranks", "2", "--rounds", "1")
    said = r.accept(*two, "--sign", "key.pem", python=(sys.executable, "-S"))
    command = shlex.split(said.split("# signed; verify with: ")[1].splitlines()[0])
    subprocess.run(command, check=True, cwd=r.folder)
    assert ("\nSTOWAGE ACCEPTANCE VALID (not looked at: names and health of devices: no h5py; "
            in said), said
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
