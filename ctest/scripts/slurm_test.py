#!/usr/bin/python3
"""The batch scripts of scripts/slurm on a real Slurm of one node (scripts/slurm_node.sh).

Usage: slurm_test.py CASE --bin FOLDER --source FOLDER. Each case has a node and a folder of its
own. Exit code 77: skipped, since there is no Slurm here, it does not start, or this is not root.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import h5py
import numpy

CASES = {}
PATIENCE_S = 60
ENVIRONMENT, SKIPPED = 3, 77  # of scripts; of tests
NEEDED = ("sbatch", "srun", "scontrol", "slurmctld", "slurmd", "munged")
# A run of seconds that no evaluation interrupts.
RUN = ("execution.backend=host", "run.steps=3000", "eval.interval=0")
TWO_RANKS = ("--time=5", "--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-task=1")
ONE_RANK = ("--time=5", "--cpus-per-task=1")


def case(function):
    CASES[function.__name__] = function
    return function


class Site:
    """A batch system, and a folder in which jobs are submitted."""

    def __init__(self, given, folder):
        self.source, self.bin, self.folder = given.source, given.bin, folder
        self.deck = os.path.join(given.source, "ctest/drivers/tiny.toml")
        self.node = os.path.join(folder, "node")
        self.env = dict(os.environ, STOWAGE_SOURCE=given.source, STOWAGE_BIN=given.bin,
                        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                        OMP_NUM_THREADS="1")

    def __enter__(self):
        script = os.path.join(self.source, "scripts/slurm_node.sh")
        done = subprocess.run((script, "start", self.node), env=self.env, capture_output=True,
                              text=True, timeout=60)
        if done.returncode == ENVIRONMENT:
            subprocess.run((script, "stop", self.node), env=self.env, check=False)
            print(f"skipped: {done.stderr.strip()}")
            sys.exit(SKIPPED)
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        self.env["SLURM_CONF"] = done.stdout.strip()
        return self

    def __exit__(self, *problem):
        if problem[0] is not None:
            for name in sorted(os.listdir(self.folder)):
                if name.endswith(".out"):
                    print(f"== {name}\n{self.said(name)}", file=sys.stderr)
            for name in ("slurmctld.log", "slurmd.log"):
                print(f"== {name}\n{self.said(os.path.join(self.node, name))[-3000:]}",
                      file=sys.stderr)
            subprocess.run(("scontrol", "show", "job"), env=self.env, check=False)
        for words in (("scancel", "--user=root"),
                      (os.path.join(self.source, "scripts/slurm_node.sh"), "stop", self.node)):
            subprocess.run(words, env=self.env, check=False)

    def call(self, *words, expect=0):
        if words[0].startswith("scripts/"):
            words = (os.path.join(self.source, words[0]), *words[1:])
        done = subprocess.run(words, cwd=self.folder, env=self.env, capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == expect, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def submit(self, name, script, *arguments, options=TWO_RANKS):
        return self.call("sbatch", "--parsable", f"--job-name={name}", *options,
                         os.path.join(self.source, "scripts/slurm", script), *arguments).strip()

    def said(self, name):
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read()

    def facts(self, job):
        return dict(word.partition("=")[::2]
                    for word in self.call("scontrol", "-o", "show", "job", job).split())

    def wait(self, what, ready):
        end = time.monotonic() + PATIENCE_S
        while not ready():
            assert time.monotonic() < end, f"{what}: not after {PATIENCE_S} s"
            time.sleep(0.05)

    def wait_for(self, job, states, restarts=0):
        def ready():
            facts = self.facts(job)
            return facts["JobState"] in states and int(facts["Restarts"]) >= restarts
        self.wait(f"job {job} {states}", ready)

    def finished(self, job, restarts=0):
        """Waits for the end of a job that must succeed."""
        self.wait_for(job, ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"), restarts)
        facts = self.facts(job)
        assert facts["JobState"] == "COMPLETED" and facts["ExitCode"] == "0:0", facts

    def trains(self, name, job):
        """Waits until a run is under way."""
        self.wait(f"steps of job {job}",
                  lambda: re.search(r"^step \d+/", self.said(f"{name}.{job}.out"), re.M))

    def whole_run(self, ranks):
        """The same run without Slurm, all at once; made once."""
        if os.path.exists(os.path.join(self.folder, "whole.h5")):
            return
        self.call("mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks),
                  os.path.join(self.bin, "stowage_train"), self.deck, *RUN, "--quiet",
                  "run.output=whole.h5")

    def continued(self, name):
        """The sets of a run in parts, in the order of their steps."""
        parts = [one for one in os.listdir(self.folder)
                 if re.fullmatch(rf"{name}(\.from_\d+)?\.h5", one)]
        return sorted(parts, key=lambda one: int("".join(re.findall(r"from_(\d+)", one)) or 0))

    def same_as_whole(self, name, ranks=2):
        """Every loss of every part, and the state at the end."""
        self.whole_run(ranks)
        losses, digests = [], []
        for part in self.continued(name):
            with h5py.File(os.path.join(self.folder, part)) as file:
                losses.append(file["series/train/loss"][()])
                digests.append(file["validation/state_digest"][-1])
        with h5py.File(os.path.join(self.folder, "whole.h5")) as file:
            assert (numpy.concatenate(losses) == file["series/train/loss"][()]).all(), name
            assert digests[-1] == file["validation/state_digest"][-1], digests
        return len(losses)


@case
def a_signalled_run_continues_to_the_bit(site):
    """SIGUSR1 to the batch script, as --signal=B:USR1@... sends before the time is over: saved,
    exit 75, back into the queue, continued; by srun and by mpirun."""
    jobs = {}
    for launcher in ("srun", "mpirun"):  # one runs while the other waits to start again
        site.env["STOWAGE_LAUNCHER"] = launcher
        jobs[launcher] = site.submit(launcher, "one_node.sbatch", site.deck, *RUN)
        site.trains(launcher, jobs[launcher])
        site.call("scancel", "--signal=USR1", "--batch", jobs[launcher])
    for launcher, job in jobs.items():
        site.finished(job, restarts=1)
        said = site.said(f"{launcher}.{job}.out")
        assert "restart 0: " + launcher in said and "restart 1: " + launcher in said, said
        assert "stopped after saving, goes back into the queue" in said, said
        assert os.cpu_count() == 1 or "share CPUs" not in said, said  # ranks are bound apart
        assert site.same_as_whole(launcher) == 2


@case
def a_run_on_one_gpu_continues_to_the_bit(site):
    """One rank, with one of the node's two GPUs."""
    job = site.submit("alone", "one_gpu.sbatch", site.deck, *RUN, options=ONE_RANK)
    site.trains("alone", job)
    facts = site.facts(job)
    assert facts["TresPerNode"].endswith("gpu:1") and facts["NumTasks"] == "1", facts
    site.call("scancel", "--signal=USR1", "--batch", job)
    site.finished(job, restarts=1)
    said = site.said(f"alone.{job}.out")
    assert "stopped after saving, goes back into the queue" in said, said
    assert site.same_as_whole("alone", ranks=1) == 2


@case
def a_preempted_run_continues_to_the_bit(site):
    """A job of a partition with a higher priority takes the node: SIGTERM, saved, back into the
    queue, continued when the other one has ended."""
    job = site.submit("low", "one_node.sbatch", site.deck, *RUN)
    site.trains("low", job)
    urgent = site.call("sbatch", "--parsable", "--partition=urgent", "--exclusive", "--time=1",
                       "--output=urgent.txt", "--wrap=hostname").strip()
    site.finished(urgent)
    assert site.facts(job)["JobState"] != "COMPLETED"
    site.finished(job, restarts=1)
    assert site.same_as_whole("low") == 2


@case
def a_curve_goes_on_in_the_next_job(site):
    """Stopped while it measures, the job measures the rest when it starts again."""
    layouts = ("--layouts", "d=1, d=2, t=2", "--modes", "off,step", "--samples", "150")
    job = site.submit("curve", "scaling.sbatch", site.deck, RUN[0], *layouts)
    site.wait("the first point", lambda: "strong/d1/off" in site.said(f"curve.{job}.out"))
    site.call("scancel", "--signal=USR1", "--batch", job)
    site.finished(job, restarts=1)
    with h5py.File(os.path.join(site.folder, "curve.older_1.h5")) as file:
        first = {f"{layout}/{mode}": file[f"samples/scaling/strong/{layout}/{mode}"][()]
                 for layout in file["samples/scaling/strong"]
                 for mode in file[f"samples/scaling/strong/{layout}"]}
    assert "d1/off" in first and len(first) < 6, first.keys()
    with h5py.File(os.path.join(site.folder, "curve.h5")) as file:
        assert file.attrs["verdict"] == b"VALID", file.attrs["verdict"]
        whole = file["samples/scaling/strong"]
        assert sum(len(whole[layout]) for layout in whole) == 6
        assert all((whole[path][()] == times).all() for path, times in first.items())


@case
def a_chain_ends_with_the_run(site):
    """Three jobs for a run that needs two: the second goes on, the third is cancelled."""
    jobs = site.call("scripts/slurm/chain.sh", "3", "part", *TWO_RANKS,
                     os.path.join(site.source, "scripts/slurm/one_node.sbatch"), site.deck,
                     *RUN).split()
    assert len(jobs) == 3, jobs
    site.trains("part", jobs[0])
    site.call("scancel", "--signal=USR1", "--batch", jobs[0])
    site.finished(jobs[1])
    facts = site.facts(jobs[0])
    assert facts["JobState"] == "FAILED" and facts["ExitCode"] == "75:0", facts
    assert facts["Restarts"] == "0", facts
    site.wait_for(jobs[2], ("CANCELLED",))
    assert site.same_as_whole("part") == 2
    said = subprocess.run([os.path.join(site.source, "scripts/slurm/chain.sh"), "0", "x", "y"],
                          capture_output=True, text=True, timeout=10)
    assert said.returncode == 2 and "usage" in said.stderr, said


@case
def an_array_measures_line_by_line(site):
    """Every task of an array takes its line of the sweep; one that fails fails alone."""
    site.env["STOWAGE_PROGRAM"] = "stowage_bench_scaling"
    with open(os.path.join(site.folder, "sweep"), "w", encoding="utf-8") as file:
        for more in ("--samples 1", "--samples 2", "--samples none"):
            file.write(f"{site.deck} {RUN[0]} {more}\n")
    job = site.submit("sweep", "kernels.sbatch", "sweep",
                      options=("--array=1-3", "--time=5", "--cpus-per-task=1"))
    for task, state in ((1, "COMPLETED"), (2, "COMPLETED"), (3, "FAILED")):
        site.wait_for(f"{job}_{task}", ("COMPLETED", "FAILED"))
        assert site.facts(f"{job}_{task}")["JobState"] == state, (task, state)
    for task in (1, 2):
        with h5py.File(os.path.join(site.folder, f"sweep.{task}.h5")) as file:
            assert file["samples/scaling/strong/d1/off"].shape == (task,)
    assert not os.path.exists(os.path.join(site.folder, "sweep.3.h5"))


@case
def what_cannot_run_is_told(site):
    """Exit codes of the program and of the scripts are the job's; nothing of it is requeued."""
    jobs = {site.submit("wrong", "one_node.sbatch", site.deck, "no.key=1"): ("2:0", "no.key"),
            site.submit("none", "one_node.sbatch"): ("3:0", "which deck?")}
    site.env["STOWAGE_LAUNCHER"] = "yod"
    jobs[site.submit("launcher", "one_node.sbatch", site.deck)] = ("3:0", "STOWAGE_LAUNCHER=yod")
    site.env["STOWAGE_BIN"] = "/nowhere"
    jobs[site.submit("bin", "one_node.sbatch", site.deck)] = ("3:0", "set STOWAGE_BIN")
    for job, (code, words) in jobs.items():
        site.wait_for(job, ("FAILED",))
        facts = site.facts(job)
        assert facts["ExitCode"] == code and facts["Restarts"] == "0", facts
        assert words in site.said(os.path.basename(facts["StdOut"])), (job, words)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    for name in ("bin", "source"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    missing = [one for one in NEEDED if shutil.which(one, path=os.environ["PATH"] + ":/usr/sbin")
               is None]
    if missing or os.geteuid() != 0:
        print(f"skipped: {', '.join(missing)} not installed (apt-get install slurm-wlm munge)"
              if missing else "skipped: a batch system is started by root")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder, Site(given, folder) as site:
        CASES[given.case](site)
    return 0


if __name__ == "__main__":
    sys.exit(main())
