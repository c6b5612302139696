#!/usr/bin/env python3
"""Accepts a machine, or says what is wrong with it: health and limits of each GPU, a training on
each device alone, exchanges of pairs and of all ranks, then decks on the layout that is predicted
to be the quickest, beside what was predicted.

  stowage_accept MACHINE.toml --ranks 8 --decks hybrid-dense-1b,hybrid-moe-2b --out acceptance
  stowage_accept MACHINE.toml --ranks 8 --pledge pledge.json       predictions alone, with a digest
  stowage_accept MACHINE.toml --ranks 8 --against pledge.json      held against these
  stowage_accept MACHINE.toml --ranks 8 --soak 2h --sign key.pem   two hours, signed

MACHINE.toml is what `stowage_plan --machine` takes; without rates in it nothing is predicted. OUT
gets the result set of each run, SHA256SUMS of all that was judged, acceptance.json and
acceptance.md. Ends with 0 if all is well, 1 if not, 2 for a command line or a pledge that cannot
be, 3 for what the environment lacks. Names of devices and their health need the package h5py.
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
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from outliers import of_interval, of_samples, outliers  # noqa: E402
from readings import Run, file_digest, h5py  # noqa: E402
from signing import Signer  # noqa: E402

VALID, INVALID, USAGE, ENVIRONMENT = 0, 1, 2, 3
SECONDS = {"": 60, "s": 1, "m": 60, "h": 3600}  # without a unit: minutes
# Warnings (results/warnings.cpp) of a board or a link; those of CPUs are the launcher's doing.
SICK = re.compile(r"its GPU (may|has had)|its GPU's (clock|NVLinks)|ECC of its GPU|cannot reach")
LIMITS = {  # of stowage_ceilings: what a device's own rate is called, and its metric
    "product FLOP/s": "ceilings/gemm_bf16/cube_8192/flops_per_s",
    "copy B/s": "ceilings/copy_kernel/bandwidth",
    "from host B/s": "ceilings/h2d/bandwidth",
    "to host B/s": "ceilings/d2h/bandwidth",
}


class Refused(Exception):
    """What cannot be done, with its exit code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def digest_of(things):
    """SHA-256 of a pledge or a report without its own digest: the same in any order of keys."""
    rest = {key: value for key, value in things.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def seconds_of(text):
    """Seconds of "90s", "30m", "2h" or "30", which is minutes."""
    found = re.fullmatch(r"([0-9.]+)([smh]?)", text)
    try:
        return float(found[1]) * SECONDS[found[2]]
    except (TypeError, ValueError):
        raise argparse.ArgumentTypeError(f"'{text}': is no time, as 90s, 30m or 2h") from None


def told(facts):
    """Facts of a device in a sentence."""
    return ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                     for key, value in facts.items())


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


class Acceptance:
    def __init__(self, given):
        self.given = given
        self.out = pathlib.Path(given.out)
        self.bin = programs_folder(given.bin)
        self.devices = given.devices.split(",") if given.devices else [
            str(i) for i in range(given.ranks)]
        self.signer = self.prepare_signer()
        self.faults, self.judged = [], {}
        self.report = {"machine": given.machine, "ranks": given.ranks}
        if h5py is None:
            self.report["left_out"] = ["names and health of devices: no h5py"]

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
        """Runs a program that leaves a set. @return what it left; None, with a fault, if not VALID
        """
        base = self.out / name
        done = self.call([*launch, self.bin / program, *arguments, "--out", f"{base}.h5",
                          "--json", f"{base}.jsonl"], env)
        (self.out / f"{name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode == USAGE:
            why = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise Refused(USAGE, f"{program}: {why} (see {name}.log)")
        for path in (self.out / f"{name}.h5", self.out / f"{name}.jsonl"):
            if path.exists():
                self.judged[path.name] = file_digest(path)
        if done.returncode != 0:
            self.faults.append(f"{name}: {program} ended with {done.returncode}, see {name}.log")
            return None
        return Run(base)

    def on_device(self, name, label, program, *arguments):
        """The same on one of the devices alone."""
        host, _, device = name.rpartition(":")
        return self.measure(
            f"{label}_{name.replace(':', '_')}",
            self.words(self.given.alone, host=host or "localhost", device=device), program,
            *arguments, env={"CUDA_VISIBLE_DEVICES": device, "STOWAGE_ACCEPT_DEVICE": device})

    def out_of_band(self, stage, measured, facts=None, what="slower", higher_is_worse=True):
        found = outliers(measured, higher_is_worse)
        for name, part in found.items():
            about = told((facts or {}).get(name, {}))
            self.faults.append(f"{stage}: {name} is {100 * part:.1f} % {what} than the median"
                               + (f": {about}" if about else ""))
        return found

    def health(self, stage, run):
        """What a set warns of a board's memory, clocks, power or links is a fault."""
        self.faults += [f"{stage}: {row}" for row in run.warnings() if SICK.search(row)]

    # ---- stages

    def ceilings(self):
        """Each GPU's own products and copies, and its health, before anything trains."""
        if "execution.backend=host" in self.given.keys:
            return
        rates, rows, facts = {what: {} for what in LIMITS}, {}, {}
        for name in self.devices:
            run = self.on_device(name, "ceilings", "stowage_ceilings", "--samples", "30")
            if run is None:
                continue
            self.health(f"health: {name}", run)
            rows[name], facts[name] = {}, run.facts()
            for what, metric in LIMITS.items():
                rates[what][name] = of_interval(*run.interval(metric))
                rows[name][what] = rates[what][name][0]
        for what, measured in rates.items():
            for name in self.out_of_band(f"ceilings, {what}", measured, facts, "less", False):
                rows[name].setdefault("less", []).append(what)
        self.report["ceilings"] = [{"device": name, **row, **facts[name]}
                                   for name, row in rows.items()]

    def alone(self):
        """A short run on each device by itself, in turns, so that a drift meets all alike."""
        samples, facts = {name: [] for name in self.devices}, {}
        end = time.monotonic() + self.given.soak
        round_ = 0
        while round_ < self.given.rounds or time.monotonic() < end:
            for name in self.devices:
                run = self.on_device(name, f"alone_{round_}", "stowage_train", self.given.short,
                                     *self.given.keys, f"run.steps={self.given.steps}",
                                     "eval.interval=0")
                if run:
                    facts[name] = run.facts()
                    if energy := run.value("energy/j_per_token"):
                        facts[name]["J/token"] = energy
                    samples[name] += run.step_times()
            round_ += 1
        samples = {name: times for name, times in samples.items() if times}
        if not samples:
            raise Refused(ENVIRONMENT, f"no device ran {self.given.short}: see {self.out}/*.log")
        slow = self.out_of_band("alone", {name: of_samples(times)
                                          for name, times in samples.items()}, facts)
        self.report["rounds"] = round_
        self.report["alone"] = [
            {"device": name, "step_s": statistics.median(times), "samples": len(times),
             "slower": slow.get(name, 0), **facts[name]} for name, times in samples.items()]

    def links(self):
        """Neighbouring pairs of devices, then all ranks at once."""
        common = ("-b", "64K", "-e", self.given.largest, "-f", "8", "-n", "10", "--samples", "10",
                  "--only", "all_reduce,exchange", *self.given.backend)
        measured = {}
        for one, other in zip(self.devices, self.devices[1:]):
            run = self.measure(f"pair_{one}_{other}".replace(":", "_"),
                               self.words(self.given.all, ranks=2), "stowage_bench_comm", *common,
                               env={"CUDA_VISIBLE_DEVICES": f"{one},{other}"})
            if run:
                measured[f"{one}-{other}"] = of_interval(*run.interval(self.largest_exchange(run)))
        slow = self.out_of_band("pairs", measured)
        self.report["pairs"] = [{"pair": name, "time_s": time_s, "slower": slow.get(name, 0)}
                                for name, (time_s, _) in measured.items()]
        if self.given.ranks > 2:
            if run := self.measure("all", self.words(self.given.all, ranks=self.given.ranks),
                                   "stowage_bench_comm", *common):
                self.health("health of all ranks", run)

    @staticmethod
    def largest_exchange(run):
        """The metric that has its time."""
        way = re.compile(r"comm/data/exchange/stowage/out_of_place/(\d+)_bytes/time")
        found = {int(match[1]): tag for tag in run.metrics if (match := way.fullmatch(tag))}
        return found[max(found)]

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
            run = self.measure(f"deck_{name}", self.words(self.given.all, ranks=self.given.ranks),
                               "stowage_train", deck, *self.given.keys, *expected["keys"],
                               f"run.steps={self.given.steps}", "eval.interval=0")
            if run is None:
                continue
            self.health(name, run)
            median, *interval = run.interval("train/step_time")
            if interval[0] is None:  # fewer than 6 timed steps
                interval = [median, median]
            row = {"deck": name, **expected, "measured_step_s": median, "measured_ci95": interval,
                   "measured_tokens_per_s": run.value("train/tokens_per_s")}
            if energy := run.value("energy/j_per_token"):
                row["measured_j_per_token"] = energy
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
                 f"{report['ranks']} ranks, {report['rounds']} rounds of each device alone; "
                 f"digest `{report['digest']}`, of its files `{report['files_digest']}`.", ""]
        lines += [f"- {fault}" for fault in self.faults] or ["Nothing is out of band."]
        lines += [f"- not looked at: {what}" for what in report.get("left_out", [])]
        if report.get("ceilings"):
            lines += ["", "| GPU | " + " | ".join(LIMITS) + " | facts |",
                      "|---|" + "---|" * (len(LIMITS) + 1)]
        for row in report.get("ceilings", []):
            cells = [f"**{row[what]:.4g}**" if what in row.get("less", []) else f"{row[what]:.4g}"
                     for what in LIMITS]
            facts = told({key: value for key, value in row.items()
                          if key not in ("device", "less", *LIMITS)})
            lines.append(f"| {row['device']} | {' | '.join(cells)} | {facts} |")
        lines += ["", "| device alone | step | beside the median | facts |", "|---|---|---|---|"]
        for row in report["alone"]:
            facts = told({key: value for key, value in row.items()
                          if key not in ("device", "step_s", "samples", "slower")})
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
        sums = "".join(f"{digest}  {name}\n" for name, digest in sorted(self.judged.items()))
        (self.out / "SHA256SUMS").write_text(sums, encoding="utf-8")
        self.report["verdict"] = "INVALID" if self.faults else "VALID"
        self.report["faults"] = self.faults
        self.report["files_digest"] = hashlib.sha256(sums.encode()).hexdigest()
        self.report["digest"] = digest_of(self.report)
        path = self.out / "acceptance.json"
        path.write_text(json.dumps(self.report, indent=1) + "\n", encoding="utf-8")
        (self.out / "acceptance.md").write_text(self.page(), encoding="utf-8")
        for fault in self.faults:
            print(f"# {fault}")
        if self.signer:
            print(f"# signed; verify with: {self.signer.sign(path)}")
        print(f"STOWAGE ACCEPTANCE {self.report['verdict']}  digest={self.report['digest']}  "
              f"page={self.out / 'acceptance.md'}")
        return INVALID if self.faults else VALID

    def prepare_signer(self):
        """Before anything is measured."""
        try:
            return Signer(self.given.sign) if self.given.sign else None
        except FileNotFoundError as missing:
            raise Refused(ENVIRONMENT, str(missing)) from missing
        except ValueError as problem:
            raise Refused(USAGE, str(problem)) from problem

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
        self.ceilings()
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
    parser.add_argument("--soak", type=seconds_of, default=0, metavar="TIME",
                        help="go on with these for so long: 90s, 30m, 2h")
    parser.add_argument("--sign", metavar="KEY.pem",
                        help="sign acceptance.json with this private key, by openssl")
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
