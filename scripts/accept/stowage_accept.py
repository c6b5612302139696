#!/usr/bin/env python3
"""Accepts a machine, or says what is wrong with it: health and limits of each GPU, a training on
each device alone, exchanges of pairs, of hosts and of all ranks, a step of all ranks by rank, then
decks on the layout that is predicted to be the quickest, beside what was predicted.

  stowage_accept MACHINE.toml --ranks 8 --decks hybrid-dense-1b,hybrid-moe-2b --out acceptance
  stowage_accept MACHINE.toml --ranks 8 --pledge pledge.json       predictions alone, with a digest
  stowage_accept MACHINE.toml --ranks 8 --against pledge.json      held against these
  stowage_accept MACHINE.toml --ranks 8 --soak 2h --sign key.pem   two hours of all devices, signed
  stowage_accept MACHINE.toml --ranks 4 --devices n01:0,n01:1,n02:0,n02:1 \\
      --alone "srun --overlap -w {host} -n 1" --all "srun --overlap -w {hosts} -n {ranks}"

MACHINE.toml is what `stowage_plan --machine` takes; without rates in it nothing is predicted. OUT
gets the result set of each run, SHA256SUMS of all that was judged, acceptance.json and
acceptance.md. Ends with 0 if all is well, 1 if not, 2 for a command line or a pledge that cannot
be, 3 for what the environment lacks. Names of devices and their health need the package h5py.
"""
import argparse
import concurrent.futures
import hashlib
import json
import math
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from devices import Devices, launch  # noqa: E402
from outliers import FEWEST, of_interval, of_samples, outliers  # noqa: E402
from page import LIMITS, page, told  # noqa: E402
from readings import Run, file_digest, h5py  # noqa: E402
from signing import Signer  # noqa: E402

VALID, INVALID, USAGE, ENVIRONMENT = 0, 1, 2, 3
SECONDS = {"": 60, "s": 1, "m": 60, "h": 3600}  # without a unit: minutes
# Warnings (results/warnings.cpp) of a board or a link; those of CPUs are the launcher's doing.
SICK = re.compile(r"its GPU (may|has had)|its GPU's (clock|NVLinks)|ECC of its GPU|cannot reach")
SOAK_RUN_S = 300  # of each run of a soak: its start, of some seconds, is little beside that


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


def machine_file(given):
    """MACHINE.toml, or that of a name among inputs/machines; None if there is none."""
    here = pathlib.Path(__file__).resolve().parent
    known = [pathlib.Path(given), *(root / f"inputs/machines/{given}.toml"
                                    for root in (here.parent, here.parents[1]))]
    return next((path for path in known if path.is_file()), None)


class Acceptance:
    def __init__(self, given):
        self.given = given
        self.out = pathlib.Path(given.out)
        self.bin = programs_folder(given.bin)
        try:
            self.devices = Devices(given.devices, given.ranks)
            self.words_alone(self.devices.names[0])
            self.words_all(self.devices.names)
        except ValueError as problem:
            raise Refused(USAGE, str(problem)) from problem
        self.signer = self.prepare_signer()
        self.faults, self.remarks, self.judged, self.left_out = [], [], {}, []
        self.report = {"machine": given.machine, "ranks": given.ranks,
                       "band_percent": given.band}
        if h5py is None:
            self.left_out.append("names and health of devices: no h5py")
        if given.ranks < FEWEST:
            self.left_out.append(f"devices beside each other: fewer than {FEWEST}")

    # ---- running

    def words_alone(self, name):
        """Starts a rank on one device."""
        host = self.devices.host(name)
        if host and "{host}" not in self.given.alone:
            raise ValueError(f"--devices names the host {host}: --alone needs {{host}}, as in "
                             "'srun --overlap -w {host} -n 1' or 'mpirun -np 1 -host {host}'")
        return launch("--alone", self.given.alone, {
            "host": host or "localhost", "device": self.devices.device(name)}
        ) + self.devices.words([name])

    def words_all(self, names):
        """Starts a rank on each of these."""
        if len(self.devices.by_host()) > 1 and "{hosts}" not in self.given.all:
            raise ValueError(
                f"--devices names {len(self.devices.by_host())} hosts: --all needs {{hosts}}, as "
                "in 'srun --overlap -w {hosts} -n {ranks}' or 'mpirun -np {ranks} -host {hosts}'")
        words = launch("--all", self.given.all, {"ranks": len(names),
                                                 "hosts": self.devices.hosts(names)})
        # Without --devices all ranks take what the launcher shows them.
        whole = not self.devices.given and names == self.devices.names
        return words if whole else words + self.devices.words(names)

    def call(self, words):
        try:
            return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                                  check=False)
        except FileNotFoundError as missing:
            raise Refused(ENVIRONMENT, f"{missing.filename}: no such program") from missing

    def measure(self, name, words, program, *arguments):
        """Runs a program that leaves a set. @return what it left; None, with a fault, if not VALID
        """
        base = self.out / name
        done = self.call([*words, self.bin / program, *arguments, "--out", f"{base}.h5",
                          "--json", f"{base}.jsonl"])
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
        return self.measure(f"{label}_{name.replace(':', '_')}", self.words_alone(name), program,
                            *arguments)

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
            self.left_out.append("limits of GPUs: the backend is host")
            return
        rates, rows, facts = {what: {} for what in LIMITS}, {}, {}
        for name in self.devices.names:
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

    def train(self, name, label, steps):
        """The short deck on a device alone. @return step times and what else is known of it"""
        run = self.on_device(name, label, "stowage_train", self.given.short, *self.given.keys,
                             f"run.steps={steps}", "eval.interval=0")
        if run is None:
            return [], {}
        facts = run.facts()
        if energy := run.value("energy/j_per_token"):
            facts["J/token"] = energy
        return run.step_times(), facts

    def alone(self):
        """A short run on each device by itself, in turns, so that a drift meets all alike."""
        samples, facts = {name: [] for name in self.devices.names}, {}
        for round_ in range(self.given.rounds):
            for name in self.devices.names:
                times, facts[name] = self.train(name, f"alone_{round_}", self.given.steps)
                samples[name] += times
        if not any(samples.values()):
            raise Refused(ENVIRONMENT, f"no device ran {self.given.short}: see {self.out}/*.log")
        self.report["rounds"] = self.given.rounds
        self.report["alone"] = self.beside_each_other("alone", samples, facts)

    def beside_each_other(self, stage, samples, facts):
        samples = {name: times for name, times in samples.items() if times}
        slow = self.out_of_band(stage, {name: of_samples(times)
                                        for name, times in samples.items()}, facts)
        return [{"device": name, "step_s": statistics.median(times), "samples": len(times),
                 "slower": slow.get(name, 0), **facts[name]} for name, times in samples.items()]

    def soak(self):
        """The same on all devices at once, so that power and cooling carry all of them, for as long
        as --soak says; at least once."""
        if not self.given.soak:
            return
        names, end = self.devices.names, time.monotonic() + self.given.soak
        samples, facts, first, last = {name: [] for name in names}, {}, {}, {}
        step_s = statistics.median(row["step_s"] for row in self.report["alone"])
        known, round_ = len(self.faults), 0
        with concurrent.futures.ThreadPoolExecutor(len(names)) as at_once:
            while round_ == 0 or time.monotonic() < end:
                left = max(0, min(end - time.monotonic(), SOAK_RUN_S))
                steps, label = max(self.given.steps, math.ceil(left / step_s)), f"soak_{round_}"
                trained = at_once.map(lambda name: self.train(name, label, steps), names)
                for name, (times, told_) in zip(names, trained):
                    samples[name] += times
                    facts[name] = told_
                    if times:
                        last[name] = statistics.median(times)
                        first.setdefault(name, last[name])
                round_ += 1
        self.faults[known:] = sorted(self.faults[known:])  # those of runs at once
        rows = self.beside_each_other("soak", samples, facts)
        for row in rows:
            row["drift"] = last[row["device"]] / first[row["device"]] - 1
        self.report["soak"] = {"rounds": round_, "devices": rows}

    def links(self):
        """Pairs of devices, each host, then all ranks at once; those within a host beside each
        other, and those between hosts."""
        measured = {"pairs": {}, "pairs of hosts": {}, "hosts": {}}

        def exchange(stage, label, names):
            run = self.bench_comm(label.replace(":", "_"), names)
            if run:
                measured[stage]["-".join(names) if stage != "hosts" else label] = of_interval(
                    *run.interval(self.largest_exchange(run)))
            return run

        for one, other, same_host in self.devices.pairs(self.given.pairs):
            exchange("pairs" if same_host else "pairs of hosts", f"pair_{one}_{other}",
                     [one, other])
        by_host = self.devices.by_host()
        if len(by_host) > 1:
            for host, names in by_host.items():
                if len(names) > 2:
                    exchange("hosts", f"host_{host}", names)
        self.report["pairs"] = []
        for stage, times in measured.items():
            slow = self.out_of_band(stage, times)
            self.report["pairs"] += [{"what": stage, "pair": name, "time_s": time_s,
                                      "slower": slow.get(name, 0)}
                                     for name, (time_s, _) in times.items()]
        if self.given.ranks > 2:
            if run := self.bench_comm("all", self.devices.names):
                self.health("health of all ranks", run)

    def bench_comm(self, label, names):
        return self.measure(label, self.words_all(names), "stowage_bench_comm", "-b", "64K", "-e",
                            self.given.largest, "-f", "8", "-n", "10", "--samples", "10", "--only",
                            "all_reduce,exchange", *self.given.backend)

    def ranks(self):
        """A step of all ranks: what each computes, without what it waits for the others. Their step
        times would be those of the slowest."""
        if self.given.ranks < FEWEST or h5py is None:
            return
        run = self.measure("ranks", self.words_all(self.devices.names), "stowage_bench_scaling",
                           self.given.short, *self.given.keys, "--layouts",
                           f"d={self.given.ranks}", "--scales", "weak", "--samples", "6")
        if run is None:
            return
        computes = {f"rank {i}": time_s for i, time_s in enumerate(run.compute_of_ranks())}
        facts = {name: run.facts_of(i) for i, name in enumerate(computes)}
        slow = self.out_of_band("all ranks at once", {name: (time_s, 0.0) for name, time_s
                                                      in computes.items()}, facts)
        self.report["of_ranks"] = [
            {"rank": name, "compute_s": time_s, "slower": slow.get(name, 0), **facts[name]}
            for name, time_s in computes.items()]

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
        machine = machine_file(self.given.machine)
        made = {"machine": pathlib.Path(self.given.machine).stem, "ranks": self.given.ranks,
                "keys": self.given.keys,
                "machine_sha256": file_digest(machine) if machine else None,
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
            run = self.measure(f"deck_{name}", self.words_all(self.devices.names),
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
                row["beside"] = median / expected["step_s"] - 1
                self.hold_to_prediction(row)
            self.report["decks"].append(row)

    def hold_to_prediction(self, row):
        """Both ways, by the whole interval: slower is a fault of the machine; quicker is none, but
        the prediction does not describe it."""
        band = self.given.band / 100
        low, high = row["measured_ci95"]
        text = (f"{row['deck']}: a step takes {1e3 * row['measured_step_s']:.1f} ms, "
                f"{100 * row['beside']:+.1f} % beside the predicted {1e3 * row['step_s']:.1f} ms")
        if low > (1 + band) * row["step_s"]:
            self.faults.append(f"{text}; {self.given.band:g} % are allowed")
        elif high < (1 - band) * row["step_s"]:
            self.remarks.append(f"{text}, quicker than the band of {self.given.band:g} %: "
                                "the prediction is not of this machine")

    # ---- the end

    def finish(self):
        sums = "".join(f"{digest}  {name}\n" for name, digest in sorted(self.judged.items()))
        (self.out / "SHA256SUMS").write_text(sums, encoding="utf-8")
        self.report["verdict"] = "INVALID" if self.faults else "VALID"
        self.report["faults"], self.report["remarks"] = self.faults, self.remarks
        self.report["left_out"] = self.left_out
        self.report["files_digest"] = hashlib.sha256(sums.encode()).hexdigest()
        self.report["digest"] = digest_of(self.report)
        path = self.out / "acceptance.json"
        path.write_text(json.dumps(self.report, indent=1) + "\n", encoding="utf-8")
        (self.out / "acceptance.md").write_text(page(self.report), encoding="utf-8")
        for line in self.faults + self.remarks:
            print(f"# {line}")
        if self.signer:
            print(f"# signed; verify with: {self.signer.sign(path)}")
        unseen = f" (not looked at: {'; '.join(self.left_out)})" if self.left_out else ""
        print(f"STOWAGE ACCEPTANCE {self.report['verdict']}{unseen}  "
              f"digest={self.report['digest']}  page={self.out / 'acceptance.md'}")
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
        if not any(expected["step_s"] for expected in predictions.values()):
            self.left_out.append("decks beside predictions: the machine has no rates")
        self.ceilings()
        self.alone()
        self.soak()
        self.links()
        self.ranks()
        self.decks(predictions)
        return self.finish()


def main(words=None):
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
    parser.add_argument("--alone", default="mpirun --bind-to none -np 1", metavar="WORDS",
                        help="starts one rank; {host} and {device} are those of --devices")
    parser.add_argument("--all", default="mpirun -np {ranks}", metavar="WORDS",
                        help="starts several; {hosts} are those of --devices, one for each rank")
    parser.add_argument("--pairs", default="neighbours", choices=("neighbours", "all"),
                        help="which devices exchange in twos (neighbours in --devices)")
    parser.add_argument("--steps", type=int, default=60, metavar="N", help="of each run (60)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N",
                        help="runs of each device alone, in turns (3)")
    parser.add_argument("--soak", type=seconds_of, default=0, metavar="TIME",
                        help="keep all devices busy at once for so long: 90s, 30m, 2h")
    parser.add_argument("--sign", metavar="KEY.pem",
                        help="sign acceptance.json with this private key, by openssl")
    parser.add_argument("--largest", default="64M", metavar="BYTES", help="between ranks (64M)")
    parser.add_argument("--band", type=float, default=5, metavar="PERCENT",
                        help="by which a step may miss its prediction, either way (5)")
    made = parser.add_mutually_exclusive_group()
    made.add_argument("--pledge", metavar="FILE", help="write predictions there, measure nothing")
    made.add_argument("--against", metavar="FILE", help="a pledge to hold measurements against")
    given = parser.parse_args(words)
    given.keys = shlex.split(given.keys)
    given.backend = [key for key in given.keys if key.startswith("execution.")]
    try:
        return Acceptance(given).go()
    except Refused as refused:
        print(f"stowage_accept: error: {refused}", file=sys.stderr)
        return refused.code


if __name__ == "__main__":
    sys.exit(main())
