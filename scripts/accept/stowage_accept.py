#!/usr/bin/env python3
"""Accepts a machine, or says what is wrong with it: each device alone, then pairs, then all ranks,
then decks on the layout that is predicted to be the quickest, beside what was predicted.

  stowage_accept MACHINE.toml --ranks 8 --decks hybrid-dense-1b,hybrid-moe-2b --out acceptance
  stowage_accept MACHINE.toml --ranks 8 --pledge pledge.json       predictions alone, with a digest
  stowage_accept MACHINE.toml --ranks 8 --against pledge.json      held against these

MACHINE.toml is what `stowage_plan --machine` takes; without rates in it nothing is predicted. OUT
gets the result set of each run, acceptance.json and acceptance.md. Ends with 0 if all is well, 1 if
not, 2 for a command line or a pledge that cannot be, 3 for what the environment lacks.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from outliers import outliers  # noqa: E402

VALID, INVALID, USAGE, ENVIRONMENT = 0, 1, 2, 3


class Refused(Exception):
    """What cannot be done, with its exit code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def digest_of(things):
    """SHA-256 of a pledge or a report without its own digest: the same in any order of keys."""
    rest = {key: value for key, value in things.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def file_digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def programs_folder(given):
    """--bin, or where stowage_train lies: in a build of the checkout, or beside share/."""
    here = pathlib.Path(__file__).resolve().parent
    known = [pathlib.Path(given)] if given else [
        here.parents[1] / "build/cuda/bin", here.parents[1] / "build/host/bin",
        here.parents[2] / "bin"]
    for folder in known:
        if (folder / "stowage_train").exists():
            return folder.resolve()
    raise Refused(ENVIRONMENT, f"no stowage_train in {known[0]}: give --bin FOLDER")


def device_facts(path):
    """Of a run on one device: what names it, and how it ran."""
    import h5py  # the one package that is needed, and not for a pledge
    with h5py.File(path) as file:
        row = file["provenance/system/ranks"][0]
        facts = {"host": row["host"].decode()}
        for name in ("gpu_name", "gpu_uuid", "gpu_pci"):
            if row[name]:
                facts[name] = row[name].decode()
        for name, unit in (("clock", "MHz"), ("power", "W"), ("temperature", "C")):
            if f"series/gpu/{name}" in file:
                value = statistics.median(file[f"series/gpu/{name}"][()])
                facts[f"{name} {unit}"] = float(value / (1e6 if unit == "MHz" else 1))
        return facts, [float(one) for one in file["samples/train/step_time"][()]]


def measured_step(path):
    import h5py
    with h5py.File(path) as file:
        metric = file["metrics/train/step_time"]
        found = {"step_s": float(metric[()]),
                 "ci95": [float(metric.attrs[f"ci95_{end}"]) for end in ("low", "high")]}
        if "metrics/energy/j_per_token" in file:
            found["j_per_token"] = float(file["metrics/energy/j_per_token"][()])
        return found


class Acceptance:
    def __init__(self, given):
        self.given = given
        self.out = pathlib.Path(given.out)
        self.bin = programs_folder(given.bin)
        self.devices = given.devices.split(",") if given.devices else [
            str(i) for i in range(given.ranks)]
        self.faults, self.sets = [], {}
        self.report = {"machine": given.machine, "ranks": given.ranks}

    # ---- running

    def words(self, template, **names):
        return shlex.split(template.format(**names))

    def call(self, words, env=None):
        try:
            return subprocess.run([str(word) for word in words], env={**os.environ, **(env or {})},
                                  capture_output=True, text=True, check=False)
        except FileNotFoundError as missing:
            raise Refused(ENVIRONMENT, f"{missing.filename}: no such program") from missing

    def measure(self, name, launch, program, *arguments, env=None):
        """Runs a program that leaves a set. @return its path; None, with a fault, if not VALID"""
        path = self.out / f"{name}.h5"
        done = self.call([*launch, self.bin / program, *arguments, "--out", path], env)
        (self.out / f"{name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode == USAGE:
            why = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise Refused(USAGE, f"{program}: {why} (see {name}.log)")
        if path.exists():
            self.sets[path.name] = file_digest(path)
        if done.returncode != 0:
            self.faults.append(f"{name}: {program} ended with {done.returncode}, see {name}.log")
            return None
        return path

    def out_of_band(self, stage, samples, facts=None):
        found = outliers(samples)
        for name, part in found.items():
            about = ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                              for key, value in (facts or {}).get(name, {}).items())
            self.faults.append(f"{stage}: {name} is {100 * part:.1f} % slower than the median"
                               + (f": {about}" if about else ""))
        return found

    # ---- stages

    def alone(self):
        """A short run on each device by itself, in turns, so that a drift meets all alike."""
        samples, facts = {name: [] for name in self.devices}, {}
        end = time.monotonic() + 60 * self.given.soak
        round_ = 0
        while round_ < self.given.rounds or time.monotonic() < end:
            for name in self.devices:
                host, _, device = name.rpartition(":")
                path = self.measure(
                    f"alone_{name.replace(':', '_')}_{round_}",
                    self.words(self.given.alone, host=host or "localhost", device=device),
                    "stowage_train", self.given.short, *self.given.keys,
                    f"run.steps={self.given.steps}", "eval.interval=0",
                    env={"CUDA_VISIBLE_DEVICES": device, "STOWAGE_ACCEPT_DEVICE": device})
                if path:
                    facts[name], times = device_facts(path)
                    samples[name] += times
            round_ += 1
        samples = {name: times for name, times in samples.items() if times}
        if not samples:
            raise Refused(ENVIRONMENT, f"no device ran {self.given.short}: see {self.out}/*.log")
        slow = self.out_of_band("alone", samples, facts)
        self.report["alone"] = [
            {"device": name, "step_s": statistics.median(times), "samples": len(times),
             "slower": slow.get(name, 0), **facts[name]} for name, times in samples.items()]

    def links(self):
        """Neighbouring pairs of devices, then all ranks at once."""
        common = ("-b", "64K", "-e", self.given.largest, "-f", "8", "-n", "10", "--samples", "10",
                  "--only", "all_reduce,exchange", *self.given.backend)
        samples = {}
        for one, other in zip(self.devices, self.devices[1:]):
            path = self.measure(f"pair_{one}_{other}".replace(":", "_"),
                                self.words(self.given.all, ranks=2), "stowage_bench_comm", *common,
                                env={"CUDA_VISIBLE_DEVICES": f"{one},{other}"})
            if path:
                samples[f"{one}-{other}"] = self.largest_exchange(path)
        slow = self.out_of_band("pairs", samples)
        self.report["pairs"] = [{"pair": name, "time_s": statistics.median(times),
                                 "slower": slow.get(name, 0)} for name, times in samples.items()]
        if self.given.ranks > 2:
            self.measure("all", self.words(self.given.all, ranks=self.given.ranks),
                         "stowage_bench_comm", *common)

    @staticmethod
    def largest_exchange(path):
        import h5py
        with h5py.File(path) as file:
            ways = file["samples/comm/data/exchange/stowage/out_of_place"]
            largest = max(ways, key=lambda name: int(name.split("_")[0]))
            return [float(max(row)) for row in ways[largest][()]]

    def predict(self):
        """The quickest layout of each deck, and its time; none where the machine has no rates."""
        predictions = {}
        for deck in self.given.decks.split(","):
            path = self.out / f"plan_{pathlib.Path(deck).stem}.jsonl"
            path.unlink(missing_ok=True)
            done = self.call([self.bin / "stowage_plan", deck, *self.given.keys, "--machine",
                              self.given.machine, "--ranks", self.given.ranks, "--best", 1,
                              "--quick", "--json", path])
            if done.returncode == 0:
                plan = json.loads(path.read_text(encoding="utf-8"))
                best = plan["layouts"][0]
                predictions[deck] = {"layout": best["layout"], "keys": best["keys"],
                                     "step_s": best["step_s"],
                                     "tokens_per_s": best["tokens_per_s"]}
            elif "machine." in done.stderr:
                predictions[deck] = {"layout": "the deck's", "keys": [], "step_s": None}
            else:
                raise Refused(USAGE, f"{deck}: {done.stderr.strip()}")
        return predictions

    def pledge(self, predictions):
        machine = pathlib.Path(self.given.machine)
        made = {"machine": machine.stem, "ranks": self.given.ranks, "keys": self.given.keys,
                "machine_sha256": file_digest(machine) if machine.exists() else None,
                "version": self.call([self.bin / "stowage_plan", "--version"]).stdout.strip(),
                "decks": predictions}
        return {**made, "digest": digest_of(made)}

    def pledged(self):
        """The predictions of --against, which nobody has changed since."""
        option = f"--against {self.given.against}"
        try:
            pledge = json.loads(pathlib.Path(self.given.against).read_text(encoding="utf-8"))
            decks, digest, ranks = (pledge[key] for key in ("decks", "digest", "ranks"))
        except (OSError, ValueError, KeyError) as problem:
            raise Refused(USAGE, f"{option}: is no pledge: {problem}") from problem
        if digest_of(pledge) != digest:
            raise Refused(USAGE, f"{option}: its digest is another: it was changed since")
        if ranks != self.given.ranks:
            raise Refused(USAGE, f"{option}: is of {ranks} ranks, not {self.given.ranks}")
        return decks, digest

    def decks(self, predictions):
        self.report["decks"] = []
        for deck, expected in predictions.items():
            name = pathlib.Path(deck).stem
            path = self.measure(f"deck_{name}", self.words(self.given.all, ranks=self.given.ranks),
                                "stowage_train", deck, *self.given.keys, *expected["keys"],
                                f"run.steps={self.given.steps}", "eval.interval=0")
            if path is None:
                continue
            row = {"deck": name, **expected, **{f"measured_{key}": value for key, value in
                                                measured_step(path).items()}}
            if expected["step_s"]:
                row["beside"] = row["measured_step_s"] / expected["step_s"] - 1
                # Quicker than predicted is no fault of a machine.
                if row["measured_ci95"][0] > (1 + self.given.band / 100) * expected["step_s"]:
                    self.faults.append(
                        f"{name}: a step takes {1e3 * row['measured_step_s']:.1f} ms, "
                        f"{100 * row['beside']:+.1f} % beside the predicted "
                        f"{1e3 * expected['step_s']:.1f} ms; {self.given.band:g} % are allowed")
            self.report["decks"].append(row)

    # ---- the end

    def page(self):
        report = self.report
        lines = [f"# Acceptance of {pathlib.Path(report['machine']).stem}: {report['verdict']}", "",
                 f"{report['ranks']} ranks; digest `{report['digest']}`.", ""]
        lines += [f"- {fault}" for fault in self.faults] or ["Nothing is out of band."]
        lines += ["", "| device alone | step | beside the median | facts |", "|---|---|---|---|"]
        for row in report["alone"]:
            facts = ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                              for key, value in row.items()
                              if key not in ("device", "step_s", "samples", "slower"))
            slower = f"**+{100 * row['slower']:.1f} %**" if row["slower"] else "in band"
            lines.append(f"| {row['device']} | {1e3 * row['step_s']:.2f} ms | {slower} | {facts} |")
        if report["pairs"]:
            lines += ["", "| pair | exchange | beside the median |", "|---|---|---|"]
        for row in report["pairs"]:
            slower = f"**+{100 * row['slower']:.1f} %**" if row["slower"] else "in band"
            lines.append(f"| {row['pair']} | {1e6 * row['time_s']:.1f} us | {slower} |")
        lines += ["", "| deck | layout | predicted | measured | 95 % interval | beside | J/token |",
                  "|---|---|---|---|---|---|---|"]
        for row in report["decks"]:
            low, high = (1e3 * end for end in row["measured_ci95"])
            lines.append(
                f"| {row['deck']} | {row['layout']} | "
                + (f"{1e3 * row['step_s']:.1f} ms" if row["step_s"] else "-")
                + f" | {1e3 * row['measured_step_s']:.1f} ms | {low:.1f} .. {high:.1f} ms | "
                + (f"{100 * row['beside']:+.1f} %" if row["step_s"] else "-") + " | "
                + (f"{row['measured_j_per_token']:.3g}" if "measured_j_per_token" in row else "-")
                + " |")
        return "\n".join(lines) + "\n"

    def finish(self):
        self.report["verdict"] = "INVALID" if self.faults else "VALID"
        self.report["faults"] = self.faults
        self.report["sets_sha256"] = self.sets
        self.report["digest"] = digest_of(self.report)
        (self.out / "acceptance.json").write_text(json.dumps(self.report, indent=1) + "\n",
                                                  encoding="utf-8")
        (self.out / "acceptance.md").write_text(self.page(), encoding="utf-8")
        for fault in self.faults:
            print(f"# {fault}")
        print(f"STOWAGE ACCEPTANCE {self.report['verdict']}  digest={self.report['digest']}  "
              f"page={self.out / 'acceptance.md'}")
        return INVALID if self.faults else VALID

    def go(self):
        if self.given.against:
            predictions, self.report["pledge"] = self.pledged()
        self.out.mkdir(parents=True, exist_ok=True)
        if not self.given.against:
            predictions = self.predict()
        if self.given.pledge:
            pledge = self.pledge(predictions)
            pathlib.Path(self.given.pledge).write_text(json.dumps(pledge, indent=1) + "\n",
                                                       encoding="utf-8")
            print(f"STOWAGE PLEDGE digest={pledge['digest']}  {self.given.pledge}")
            return VALID
        self.alone()
        self.links()
        self.decks(predictions)
        return self.finish()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machine", metavar="MACHINE.toml")
    parser.add_argument("--ranks", type=int, required=True, help="devices, each with one rank")
    parser.add_argument("--decks", default="hybrid-dense-1b,hybrid-moe-2b", metavar="LIST")
    parser.add_argument("--short", default="hybrid-dense-1b", metavar="DECK",
                        help="what a device runs alone (hybrid-dense-1b)")
    parser.add_argument("--keys", default="", metavar="LIST",
                        help="overrides of all decks, between blanks")
    parser.add_argument("--out", default="acceptance", metavar="FOLDER")
    parser.add_argument("--bin", metavar="FOLDER", help="the programs")
    parser.add_argument("--devices", metavar="LIST", help="[host:]device of each rank (0,1,...)")
    parser.add_argument("--alone", default="mpirun -np 1", metavar="WORDS",
                        help="starts one rank; {host} and {device} are those of --devices")
    parser.add_argument("--all", default="mpirun -np {ranks}", metavar="WORDS")
    parser.add_argument("--steps", type=int, default=60, metavar="N", help="of each run (60)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N",
                        help="runs of each device alone, in turns (3)")
    parser.add_argument("--soak", type=float, default=0, metavar="MINUTES",
                        help="go on with these for so long")
    parser.add_argument("--largest", default="64M", metavar="BYTES", help="between ranks (64M)")
    parser.add_argument("--band", type=float, default=5, metavar="PERCENT",
                        help="by which a step may miss its prediction (5)")
    made = parser.add_mutually_exclusive_group()
    made.add_argument("--pledge", metavar="FILE", help="write predictions there, measure nothing")
    made.add_argument("--against", metavar="FILE", help="a pledge to hold measurements against")
    given = parser.parse_args()
    given.keys = shlex.split(given.keys)
    given.backend = [key for key in given.keys if key.startswith("execution.")]
    try:
        return Acceptance(given).go()
    except Refused as refused:
        print(f"stowage_accept: error: {refused}", file=sys.stderr)
        return refused.code


if __name__ == "__main__":
    sys.exit(main())
