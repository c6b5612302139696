#!/usr/bin/python3
"""The batch scripts of scripts/slurm on a real Slurm of one node (scripts/slurm_node.sh).

Usage: slurm_test.py CASE --bin FOLDER --source FOLDER. Each case has a node and a folder of its
own. Exit code 77: skipped, since there is no Slurm here, it does not start, or this is not root.
"""
import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import h5py
import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "drivers"))
from process_cases import Cases  # noqa: E402

CASES = case = Cases()
PATIENCE_S = 120
ENVIRONMENT, SKIPPED = 3, 77  # of scripts; of tests
NEEDED = ("sbatch", "srun", "scontrol", "slurmctld", "slurmd", "munged")
# A run that no evaluation interrupts. In a job its ops wait for random times, which changes no bit:
# it takes some seconds, so that signals arrive before its end, and leaves the cores to others.
RUN = ("execution.backend=host", "run.steps=70", "eval.interval=0")
TWICE_AS_LONG = (RUN[0], "run.steps=130", RUN[2])
SLOWLY = "execution.delay_seed=1"
TWO_RANKS = ("--time=5", "--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-task=1")
ONE_RANK = ("--time=5", "--cpus-per-task=1")


class Site:
    """A batch system, and a folder in which jobs are submitted."""

    def __init__(self, given, folder):
        self.source, self.bin, self.folder = given.source, given.bin, folder
        self.deck = os.path.join(given.source, "ctest/drivers/tiny.toml")
        self.node = os.path.join(folder, "node")
        self.stub = os.path.join(folder, "stowage_train")  # where a case has one of its own
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
        # Ranks fill the node: a signal must reach them before they have finished.
        return self.call("nice", "sbatch", "--parsable", f"--job-name={name}", *options,
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

    def wait(self, what, ready, every_s=0.05):
        end = time.monotonic() + PATIENCE_S
        while not ready():
            assert time.monotonic() < end, f"{what}: not after {PATIENCE_S} s"
            time.sleep(every_s)

    def wait_for(self, job, states, restarts=0):
        def ready():
            facts = self.facts(job)
            return facts["JobState"] in states and int(facts["Restarts"]) >= restarts
        self.wait(f"job {job} {states}", ready, every_s=0.2)  # each asks by a process

    def finished(self, job, restarts=0):
        """Waits for the end of a job that must succeed."""
        self.wait_for(job, ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"), restarts)
        facts = self.facts(job)
        assert facts["JobState"] == "COMPLETED" and facts["ExitCode"] == "0:0", facts

    def trains(self, name, job, restart=0):
        """Waits until a run is under way, after so many restarts."""
        def ready():
            _, _, said = self.said(f"{name}.out").partition(f"# job {job}, restart {restart}:")
            return re.search(r"^step \d+/", said, re.M)
        self.wait(f"steps of job {job}", ready)

    def whole_run(self, ranks, run):
        """The same run without Slurm, all at once; made once."""
        if os.path.exists(os.path.join(self.folder, "whole.h5")):
            return
        self.call("mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks),
                  os.path.join(self.bin, "stowage_train"), self.deck, *run, "--quiet",
                  "run.output=whole.h5")

    def continued(self, name):
        """The sets of a run in parts, in the order of their steps."""
        older = [one for one in os.listdir(self.folder)
                 if re.fullmatch(rf"{name}\.older_\d+\.h5", one)]
        return sorted(older) + [f"{name}.h5"]

    def same_as_whole(self, name, ranks=2, run=RUN):
        """Every loss of every part, and the state at the end. The set of the name is the last part,
        and finished; the older ones were stopped."""
        self.whole_run(ranks, run)
        losses, digests = [], []
        for part in self.continued(name):
            with h5py.File(os.path.join(self.folder, part)) as file:
                wanted = b"VALID" if part == f"{name}.h5" else b"STOPPED"
                assert file.attrs["verdict"] == wanted, (part, file.attrs["verdict"])
                losses.append(file["series/train/loss"][()])
                digests.append(file["validation/state_digest"][-1])
        with h5py.File(os.path.join(self.folder, "whole.h5")) as file:
            assert (numpy.concatenate(losses) == file["series/train/loss"][()]).all(), name
            assert digests[-1] == file["validation/state_digest"][-1], digests
        return len(losses)


@case(ranks=2)
def a_signalled_run_continues_to_the_bit(site):
    """SIGUSR1 to the batch script, as --signal=B:USR1@... sends before the time is over: saved,
    exit 75, back into the queue, continued; by srun and by mpirun."""
    jobs = {}
    for launcher in ("srun", "mpirun"):  # one runs while the other waits to start again
        site.env["STOWAGE_LAUNCHER"] = launcher
        jobs[launcher] = site.submit(launcher, "one_node.sbatch", site.deck, *RUN, SLOWLY)
        site.trains(launcher, jobs[launcher])
        site.call("scancel", "--signal=USR1", "--batch", jobs[launcher])
    for launcher, job in jobs.items():
        site.finished(job, restarts=1)
        said = site.said(f"{launcher}.out")
        assert "restart 0: " + launcher in said and "restart 1: " + launcher in said, said
        assert "stopped after saving, goes back into the queue" in said, said
        assert os.cpu_count() == 1 or "share CPUs" not in said, said  # ranks are bound apart
        assert site.same_as_whole(launcher) == 2


@case(ranks=2)
def a_cancelled_job_stays_ended(site):
    """scancel of a running job: saved, and not put back into the queue."""
    job = site.submit("unwanted", "one_node.sbatch", site.deck, *RUN, SLOWLY)
    site.trains("unwanted", job)
    site.call("scancel", job)
    site.wait_for(job, ("CANCELLED", "COMPLETED", "FAILED", "PENDING"))
    said = site.said("unwanted.out")
    assert "stopped after saving, ended by Slurm" in said, said
    assert "back into the queue" not in said, said
    facts = site.facts(job)
    assert facts["JobState"] == "CANCELLED" and facts["Restarts"] == "0", facts
    assert os.path.exists(os.path.join(site.folder, "unwanted.checkpoints/latest"))


@case(ranks=2)
def a_run_that_was_stopped_twice_has_one_name(site):
    """By SIGTERM to the batch script and by SIGUSR1: the set of the name is the finished one, the
    stopped parts lie beside it, and the JSON lines are those of all parts."""
    job = site.submit("twice", "one_node.sbatch", site.deck, *TWICE_AS_LONG, SLOWLY)
    for restart, signal in enumerate(("TERM", "USR1")):
        site.wait_for(job, ("RUNNING",), restart)
        site.trains("twice", job, restart)
        site.call("scancel", f"--signal={signal}", "--batch", job)
    site.finished(job, restarts=2)
    assert site.facts(job)["Restarts"] == "2"
    said = site.said("twice.out")
    assert said.count("stopped after saving, goes back into the queue") == 2, said
    assert "the stopped part before this one: twice.older_2.h5" in said, said
    assert site.same_as_whole("twice", run=TWICE_AS_LONG) == 3
    with open(os.path.join(site.folder, "twice.jsonl"), encoding="utf-8") as file:
        assert sum('"step_time"' in line for line in file) == 130


@case(ranks=2)
def a_run_on_one_gpu_continues_to_the_bit(site):
    """One rank, with one of the node's two GPUs."""
    job = site.submit("alone", "one_gpu.sbatch", site.deck, *RUN, SLOWLY,
                      options=ONE_RANK)
    site.trains("alone", job)
    facts = site.facts(job)
    assert facts["TresPerNode"].endswith("gpu:1") and facts["NumTasks"] == "1", facts
    site.call("scancel", "--signal=USR1", "--batch", job)
    site.finished(job, restarts=1)
    said = site.said("alone.out")
    assert "stopped after saving, goes back into the queue" in said, said
    assert site.same_as_whole("alone", ranks=1) == 2


@case(ranks=2)
def a_preempted_run_continues_to_the_bit(site):
    """A job of a partition with a higher priority takes the node: SIGTERM, saved, back into the
    queue, continued when the other one has ended."""
    job = site.submit("low", "one_node.sbatch", site.deck, *RUN, SLOWLY)
    site.trains("low", job)
    urgent = site.call("sbatch", "--parsable", "--partition=urgent", "--exclusive", "--time=1",
                       "--output=urgent.txt", "--wrap=hostname").strip()
    site.finished(urgent)
    assert site.facts(job)["JobState"] != "COMPLETED"
    site.finished(job, restarts=1)
    assert "stopped after saving, goes back into the queue" in site.said("low.out")
    assert site.same_as_whole("low") == 2


@case
def a_curve_goes_on_in_the_next_job(site):
    """Stopped while it measures, the job measures the rest when it starts again. Its two ranks wait
    for each other in every sample, so nothing runs beside them."""
    layouts = ("--layouts", "d=1, d=2, t=2", "--modes", "off,step", "--samples", "75")
    job = site.submit("curve", "scaling.sbatch", site.deck, RUN[0], *layouts)
    site.wait("the first point", lambda: "strong/d1/off" in site.said("curve.out"))
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


@case(ranks=2)
def a_chain_ends_with_the_run(site):
    """Three jobs for a run that needs two: the second goes on, the third is cancelled."""
    jobs = site.call("scripts/slurm/chain.sh", "3", "part", *TWO_RANKS,
                     os.path.join(site.source, "scripts/slurm/one_node.sbatch"), site.deck,
                     *RUN, SLOWLY).split()
    assert len(jobs) == 3, jobs
    site.trains("part", jobs[0])
    site.call("scancel", "--signal=USR1", "--batch", jobs[0])
    site.finished(jobs[1])
    facts = site.facts(jobs[0])
    assert facts["JobState"] == "FAILED" and facts["ExitCode"] == "75:0", facts
    assert facts["Restarts"] == "0", facts
    site.wait_for(jobs[2], ("CANCELLED",))
    assert site.same_as_whole("part") == 2
    said = site.said("part.out")  # one log, as there is one result
    assert all(f"# job {job}, restart 0:" in said for job in jobs[:2]), said
    said = subprocess.run([os.path.join(site.source, "scripts/slurm/chain.sh"), "0", "x", "y"],
                          capture_output=True, text=True, timeout=10)
    assert said.returncode == 2 and "usage" in said.stderr, said


@case(ranks=2)
def a_chain_ends_with_a_wrong_deck(site):
    """The jobs behind one that fails for good end as it did, and start no program."""
    jobs = site.call("scripts/slurm/chain.sh", "3", "wrong", *TWO_RANKS, "one_node.sbatch",
                     site.deck, "no.key=1").split()
    for job in jobs:
        site.wait_for(job, ("FAILED",))
        assert site.facts(job)["ExitCode"] == "2:0", site.facts(job)
    said = site.said("wrong.out")
    assert said.count("# job ") == 1 and f"job {jobs[1]} ended with 2" in said, said


@case(ranks=2)
def what_a_job_would_refuse_is_refused_at_once(site):
    """submit.sh from a folder that is no checkout: no job is left behind."""
    del site.env["STOWAGE_SOURCE"]
    job = site.call("scripts/slurm/submit.sh", "-J", "ok", *TWO_RANKS, "one_node.sbatch", site.deck,
                    RUN[0], "run.steps=2").strip()
    site.finished(job)

    def refused(*words, code=ENVIRONMENT):
        done = subprocess.run((os.path.join(site.source, "scripts/slurm/submit.sh"), *words),
                              cwd=site.folder, env=site.env, capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == code and done.stdout == "", done
        return done.stderr

    late = ("--time=3", "--cpus-per-task=1", "one_gpu.sbatch", site.deck)
    assert "time limit 00:03:00" in refused(*late)
    assert "save 240 s before" in refused("--signal=B:USR1@240", "--time=4", *late[1:])
    assert "usage" in refused("--time=5", site.deck, code=2)
    site.env["STOWAGE_BIN"] = "/nowhere"
    assert "set STOWAGE_BIN" in refused("--time=5", *late[1:])
    assert site.call("squeue", "-h", "-t", "PENDING,RUNNING") == ""


@case(ranks=2)
def every_rank_has_a_log_if_asked(site):
    """By srun and by mpirun: what each rank says, in both streams; the exit code is the program's,
    and the job's own log has all of it without labels."""
    with open(site.stub, "w", encoding="utf-8") as file:
        file.write('#!/bin/sh\nrank=${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}\n'
                   'echo "  indented 7: $rank"\necho "error of $rank" >&2\nsleep 1\nexit 1\n')
    os.chmod(site.stub, 0o755)
    site.env.update(STOWAGE_BIN=site.folder, STOWAGE_RANK_LOGS="yes")
    for launcher in ("srun", "mpirun"):
        site.env["STOWAGE_LAUNCHER"] = launcher
        job = site.submit(launcher, "one_node.sbatch", site.deck)
        site.wait_for(job, ("FAILED",))
        assert site.facts(job)["ExitCode"] == "1:0", site.facts(job)
        lines = site.said(f"{launcher}.out").splitlines()
        for rank in (0, 1):
            said = site.said(f"{launcher}.ranks/{rank}.log").splitlines()
            mine = [f"  indented 7: {rank}", f"error of {rank}"]
            assert sorted(said) == mine and set(mine) <= set(lines), (launcher, said, lines)


@case(ranks=2)
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


@case(ranks=2)
def what_cannot_run_is_told(site):
    """Exit codes of the program and of the scripts are the job's; nothing of it is requeued."""
    jobs = {site.submit("wrong", "one_node.sbatch", site.deck, "no.key=1"): ("2:0", "no.key"),
            site.submit("none", "one_node.sbatch"): ("3:0", "which deck?")}
    site.env["STOWAGE_LAUNCHER"] = "yod"
    jobs[site.submit("launcher", "one_node.sbatch", site.deck)] = ("3:0", "STOWAGE_LAUNCHER=yod")
    del site.env["STOWAGE_LAUNCHER"]
    jobs[site.submit("late", "one_gpu.sbatch", site.deck, options=("--time=3", *ONE_RANK[1:]))] = (
        "3:0", "time limit 00:03:00")
    with open(site.stub, "w", encoding="utf-8") as file:  # its ranks end one by one
        file.write('#!/bin/sh\nsleep "$((2 * SLURM_PROCID))"\necho bad input\nexit 2\n')
    os.chmod(site.stub, 0o755)
    site.env["STOWAGE_BIN"] = site.folder
    jobs[site.submit("apart", "one_node.sbatch", site.deck)] = ("2:0", "bad input")
    site.env["STOWAGE_BIN"] = "/nowhere"
    jobs[site.submit("bin", "one_node.sbatch", site.deck)] = ("3:0", "set STOWAGE_BIN")
    site.env["STOWAGE_ENV"] = "/nowhere/modules"
    jobs[site.submit("env", "one_node.sbatch", site.deck)] = ("3:0", "STOWAGE_ENV=/nowhere")
    site.env["STOWAGE_SOURCE"] = "/nowhere"
    jobs[site.submit("source", "one_node.sbatch", site.deck)] = ("3:0", "set STOWAGE_SOURCE")
    for job, (code, words) in jobs.items():
        site.wait_for(job, ("FAILED",))
        facts = site.facts(job)
        assert facts["ExitCode"] == code and facts["Restarts"] == "0", facts
        said = site.said(os.path.basename(facts["StdOut"]))
        assert words in said and (code == "2:0" or "# job " not in said), (job, words, said)


@case(ranks=2)
def what_the_page_says_works(site):
    """Commands of the tutorials of a site that need no GPU, but for paths and with less work."""
    page = ""
    for name in ("benchmark_your_machine", "on_slurm"):
        path = os.path.join(site.source, f"docs/tutorials/{name}.md")
        with open(path, encoding="utf-8") as file:
            page += file.read().replace("\\\n", " ")
    links, = re.findall(r"^(mpirun -np 2 stowage_bench_comm .*?)(?: #.*)?$", page, re.M)
    plan, = re.findall(r"^(stowage_plan .*)$", page, re.M)
    job, = re.findall(r"^STOWAGE_BIN=\S+ (sbatch .* inputs/quickstart.toml .*)$", page, re.M)

    def words(command, *changes):
        for before, after in changes:
            assert before in command, (before, command)
            command = command.replace(before, after)
        return shlex.split(command)

    programs = (" stowage_", f" {site.bin}/stowage_")
    anywhere = ("-np 2", "--oversubscribe --bind-to none -np 2")
    site.call(*words(links, programs, anywhere, ("DECK", site.deck)), RUN[0], "-e", "64K",
              "--samples", "2")
    left_out = " --ceilings ceilings.h5", " --ops ops.h5,ops_t.h5", ",links_8.h5"
    # Two samples beside other tests may be of no link; the page's plan says so then.
    done = subprocess.run(
        words(" " + plan, programs, ("DECK", site.deck), *((one, "") for one in left_out)),
        cwd=site.folder, env=site.env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 or "--links links_2.h5: " in done.stderr, done.stderr
    number = site.call(*words(job, (" scripts/", f" {site.source}/scripts/"),
                              (" inputs/", f" {site.source}/inputs/")), RUN[0], "--samples", "1")
    site.finished(re.search(r"\d+", number).group())


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
