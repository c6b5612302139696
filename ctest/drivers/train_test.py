#!/usr/bin/python3
"""stowage_train as a user meets it: whole processes, their files and exit codes.

Usage: train_test.py CASE --train PROGRAM --source FOLDER. Each case runs in a folder of its own.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import h5py
import numpy

from process_cases import Cases

SECRET = "s3cr3t-of-a-user"
# Ops wait for random times, which changes no bit: steps take longer and leave the cores to others.
SLOWLY = "execution.delay_seed=1"
CASES = case = Cases()


class Runner:
    def __init__(self, train, source):
        self.train = train
        self.tools = os.path.join(source, "results", "tools")
        self.deck = os.path.join(source, "ctest", "drivers", "tiny.toml")
        self.by_rank = os.path.join(source, "ctest", "support", "by_rank.sh")
        self.env = dict(os.environ, OMP_NUM_THREADS="1", OMP_PROC_BIND="false",
                        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                        NCCL_AUTH=SECRET, OMPI_MCA_user_key=SECRET, OMP_TOKEN=SECRET,
                        UCX_NET_DEVICES=f"user:{SECRET}@host")

    def command(self, *arguments, ranks=1):
        program = [self.train, *arguments]
        if ranks == 1:
            return program
        return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *program]

    def run_apart(self, first, command, other, timeout=60):
        """`command` on `first` ranks, `other` on one more."""
        return subprocess.run(
            ["mpirun", "--oversubscribe", "-np", str(first + 1), self.by_rank, str(first),
             *command, "else", *other],
            env=self.env, capture_output=True, text=True, timeout=timeout)

    def run(self, *arguments, ranks=1, expect=0, timeout=240):
        done = subprocess.run(self.command(self.deck, *arguments, ranks=ranks), env=self.env,
                              capture_output=True, text=True, timeout=timeout)
        if done.returncode != expect:
            print(done.stdout, done.stderr)
            raise AssertionError(f"exit code {done.returncode}, expected {expect}: {arguments}")
        return done

    def refuse(self, *arguments, says, ranks=1, deck=None):
        """A usage error: exit code 2, one message that contains all of `says`, no result set."""
        done = subprocess.run(self.command(deck or self.deck, *arguments, ranks=ranks),
                              env=self.env, capture_output=True, text=True, timeout=120)
        message = done.stderr
        assert done.returncode == 2, (done.returncode, message)
        assert message.count("stowage: error:") == 1, message
        for words in says:
            assert words in message, f"'{words}' is not in: {message}"
        assert not pathlib.Path("tiny.h5").exists() and not pathlib.Path("tiny.h5.part").exists()


def validate(r, *paths):
    return subprocess.run([sys.executable, os.path.join(r.tools, "validate.py"), *paths],
                          capture_output=True, text=True, timeout=60)


def losses(path, name="loss"):
    with h5py.File(path) as file:
        return file[f"/series/train/{name}"][:]


def states(path):
    """Digests of the state by step."""
    with h5py.File(path) as file:
        return {int(step): digest.decode() for step, digest in file["/validation/state_digest"]}


def assert_equal(a, b, name="loss"):
    x, y = losses(a, name), losses(b, name)
    assert x.shape == y.shape and (x == y).all(), f"{name} differs: {x} {y}"
    assert states(a) == states(b), f"the states differ: {states(a)} {states(b)}"


@case
def result_set_is_complete(r):
    said = r.run().stdout
    assert re.search(r"# +data +synthetic, seed 7: \d+ documents, \d+ tokens\n"
                     r"# +held out +its end: \d+ documents, \d+ tokens \([\d.]+ % of all\), "
                     r"of which 2 of", said), said
    with h5py.File("tiny.h5") as file:
        assert file["/metrics/train/val_targets"][()] == file["/series/train/val_targets"][-1] > 0
        assert file.attrs["verdict"] in ("VALID", b"VALID"), file.attrs["verdict"]
        assert len(file["/series/train/loss"]) == 6
        assert file["/series/loader/sample"][-1] == 6 * 8  # steps x global batch
        assert numpy.isfinite(file["/series/train/loss"][:]).all()
        assert file["/series/train/val_loss"][-1] > 0
        for group in ("config", "provenance", "metrics", "validation", "samples"):
            assert group in file, group
    checked = validate(r, "tiny.h5")
    assert checked.returncode == 0 and "conforms" in checked.stdout, checked.stdout
    line = r"step 6/6 100.0 % \| loss [\d.]+ \| lr 0.001\d* \| norm [\d.]+ \| "
    assert re.search(line, said), said
    quiet = r.run("--quiet", "run.output=quiet.h5").stdout.splitlines()
    assert len(quiet) == 1 and quiet[0].startswith("STOWAGE RESULT VALID"), quiet
    assert "  train/tokens_per_s=" in quiet[0], quiet
    failed = r.run("--quiet", "run.output=failed.h5", "validate.val_loss_below=0.1", expect=1)
    assert re.search(r"val_loss +4\.\d+ +<= 0.1 +FAILED\n", failed.stdout), failed.stdout
    assert failed.stdout.splitlines()[-1].startswith("STOWAGE RESULT INVALID"), failed.stdout
    for path in ("tiny.h5", "tiny.jsonl"):
        assert SECRET.encode() not in pathlib.Path(path).read_bytes(), path
    events = [json.loads(line)["event"] for line in open("tiny.jsonl")]
    assert events.count("step") == 6 and "evaluation" in events and "verdict" in events, events


@case
def same_seed_twice_is_bitwise_equal(r):
    for dtype in ("fp32", "bf16"):
        r.run(f"train.dtype={dtype}", "run.output=a.h5")
        r.run(f"train.dtype={dtype}", "run.output=b.h5")
        assert_equal("a.h5", "b.h5")
        assert_equal("a.h5", "b.h5", "grad_norm")
    r.run("run.seed=8", "run.output=c.h5")
    assert not (losses("a.h5") == losses("c.h5")).all()
    assert states("a.h5") != states("c.h5")


@case
def mlperf_lines_say_what_happened(r):
    r.run("run.mllog=ml.log", "run.log_interval=2", "eval.interval=3")
    lines = open("ml.log").read().splitlines()
    assert all(line.startswith(":::MLLOG {") for line in lines), lines
    lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
    assert all(line.keys() == {"namespace", "time_ms", "event_type", "key", "value", "metadata"}
               for line in lines), lines
    assert [line["time_ms"] for line in lines] == sorted(line["time_ms"] for line in lines)
    assert [line["key"] for line in lines if line["event_type"] != "POINT_IN_TIME"] == [
        "init_start", "init_stop", "run_start", "run_stop"]
    points = {}
    for line in lines:
        points.setdefault(line["key"], []).append(line)
    assert points["global_batch_size"][0]["value"] == 8
    assert points["gradient_accumulation_steps"][0]["value"] == 8
    assert [line["value"] for line in points["train_loss"]] == list(losses("tiny.h5")[1::2])
    assert [line["metadata"]["step_num"] for line in points["train_loss"]] == [2, 4, 6]
    evaluations = points["eval_accuracy"]
    assert [line["value"] for line in evaluations] == list(losses("tiny.h5", "val_loss"))
    assert [line["metadata"]["samples_count"] for line in evaluations] == [24, 48]
    assert points["run_stop"][0]["metadata"]["status"] == "success"


@case(ranks=2)
def evaluation_alone_is_that_of_the_run(r):
    """Of a run that has done all its steps, on other ranks, without a trace in its checkpoints."""
    r.run("checkpoint.directory=ckpt")
    held = sorted((path.name, path.stat().st_mtime_ns) for path in pathlib.Path("ckpt").iterdir())
    for ranks in (1, 2):
        path = f"evaluation{ranks}.h5"
        said = r.run("checkpoint.directory=ckpt", "--evaluate-only", f"run.output={path}",
                     ranks=ranks).stdout
        assert "VALID  train/val_loss=" in said and "train/val_perplexity" in said, said
        one, other = losses("tiny.h5", "val_loss")[-1], losses(path, "val_loss")
        assert len(other) == 1 and abs(one - other[0]) <= 1e-6 * one, (ranks, one, other)
        checked = validate(r, path)
        assert checked.returncode == 0, checked.stdout
    assert held == sorted((path.name, path.stat().st_mtime_ns)
                          for path in pathlib.Path("ckpt").iterdir())
    os.remove("tiny.h5")
    r.run("checkpoint.directory=ckpt", "--evaluate-only", "validate.val_loss_below=0.1", expect=1)
    os.remove("tiny.h5")
    r.refuse("--evaluate-only", "data.held_out_fraction=0", says=["held_out_fraction", "two"])
    r.refuse("--evaluate-only", "checkpoint.directory=typo",
             says=["--evaluate-only", 'checkpoint.directory = "typo"', "never"])
    r.refuse("--logits", "l.h5", says=["--logits l.h5", "--evaluate-only"])
    r.refuse("--evaluate-only", "--logits", "l.h5", says=["--logits l.h5", "microbatches"])


MODULES = ["attn_norm", "mlp_norm", "mamba_norm", "qkv_linear", "mlp_fc1", "mamba_in_proj",
           "core_attn", "attn_proj", "mlp_act", "shared_expert", "group_mlp", "mamba_conv",
           "mamba_ssm", "mamba_out_proj"]
EVERYTHING_LEAVES = ["offload.policy=manual", f"offload.modules={json.dumps(MODULES)}",
                     "offload.min_tensor_bytes=0", "offload.keep_exposed=false"]


@case(ranks=2)
def moved_or_computed_again_is_bitwise_equal(r):
    again = [name for name in MODULES if not name.endswith("_norm") and name != "group_mlp"]
    for ranks in (1, 2):
        r.run(f"run.output=keep{ranks}.h5", ranks=ranks)
        for name, overrides in {
                "all": EVERYTHING_LEAVES,
                "again": [f"recompute.modules={json.dumps(again)}", "offload.min_tensor_bytes=0"],
                "both": EVERYTHING_LEAVES + ['recompute.modules=["mlp_act", "mamba_ssm"]'],
                "free": ["offload.policy=auto", "offload.min_tensor_bytes=0"]}.items():
            r.run(*overrides, f"run.output={name}{ranks}.h5", ranks=ranks)
            assert_equal(f"keep{ranks}.h5", f"{name}{ranks}.h5")
            assert_equal(f"keep{ranks}.h5", f"{name}{ranks}.h5", "grad_norm")
            with h5py.File(f"keep{ranks}.h5") as a, h5py.File(f"{name}{ranks}.h5") as b:
                tag = "/metrics/train/transient_bytes"
                assert b[tag][()] < a[tag][()], (name, b[tag][()], a[tag][()])
                pinned = [file["/metrics/train/pinned_bytes"][()] for file in (a, b)]
                assert pinned[0] == 0 and (pinned[1] > 0) == (name in ("all", "both", "free")), (
                    name, pinned)


@case(ranks=2)
def graphs_are_bitwise_equal(r):
    """The whole step and single layers as graphs, with copies and collectives in them."""
    r.run("run.output=plain.h5", ranks=2)
    layer = ["graphs.mode=scopes", 'graphs.scopes=["layer"]']
    for name, keys in {
            "step": ["graphs.mode=step"], "layer": layer,
            "mixers": ["graphs.mode=scopes", 'graphs.scopes=["attn","mamba","moe_router"]'],
            "warm": ["graphs.mode=step", "graphs.warmup_steps=2"],
            "moved": ["graphs.mode=step", *EVERYTHING_LEAVES],
            "delayed": [*layer, *EVERYTHING_LEAVES, "offload.delay_until_graph=true",
                        "execution.delay_seed=4"],
            "packed": ["graphs.mode=step", "graphs.max_packed_seqs=[3]"]}.items():
        r.run(f"run.output={name}.h5", *keys, ranks=2)
        assert_equal("plain.h5", f"{name}.h5")
        assert_equal("plain.h5", f"{name}.h5", "grad_norm")


@case
def ops_are_timed_and_drawn(r):
    r.run("run.output=plain.h5")
    done = r.run("run.output=timed.h5", "--time-ops", "3", "--trace", "trace.json")
    assert_equal("plain.h5", "timed.h5")
    assert "mamba/scan_backward" in done.stdout and "queue compute" in done.stdout, done.stdout
    with h5py.File("timed.h5") as file:
        scan = file["/samples/ops/mamba/scan"]
        assert scan.shape == (3,) and (scan[:] > 0).all() and scan.attrs["calls"] == 8
        step = file["/samples/train/timed_step"][:]
        ops = []
        file["/samples/ops"].visititems(
            lambda _, o: ops.append(o[:]) if isinstance(o, h5py.Dataset)
            and o.attrs["queue"] in ("compute", b"compute") else None)
        assert (numpy.sum(ops, axis=0) <= step).all(), "one queue is busy for longer than the step"
    events = [e for e in json.load(open("trace.json"))["traceEvents"] if e["ph"] == "X"]
    assert sum(e["name"].endswith("mamba/scan") for e in events) == 8
    for queue in {e["tid"] for e in events}:  # the ops of one queue follow one another
        own = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["tid"] == queue)
        assert all(a[1] <= b[0] + 1e-3 for a, b in zip(own, own[1:]))
    # Graphs launch compute on several queues: a kind of op is one row and one data set anyway.
    r.run("run.output=graphs.h5", "--time-ops", "2", "graphs.mode=scopes",
          'graphs.scopes=["layer"]', *EVERYTHING_LEAVES)
    assert_equal("plain.h5", "graphs.h5")
    with h5py.File("graphs.h5") as file:
        assert file["/samples/ops/mamba/scan"].attrs["calls"] == 8


@case(ranks=2)
def dumped_step_can_be_checked(r):
    r.run("run.output=plain.h5")
    r.run("run.output=dumped.h5", "--dump-step", "3", "--dump", "step.h5")
    assert_equal("plain.h5", "dumped.h5")
    with h5py.File("step.h5") as file:
        assert file.attrs["step"] == 3 and file.attrs["loss"] == losses("plain.h5")[2]
        gradients = file["gradient"]
        norm = numpy.sqrt(sum((g[:].astype("f8") ** 2).sum() for g in gradients.values()))
        assert abs(norm / file.attrs["grad_norm"] - 1) < 1e-6
        assert set(gradients) == set(file["parameter"]) == set(file["updated"])
        changed = [n for n in gradients if (file["parameter"][n][:] != file["updated"][n][:]).any()]
        assert len(changed) == len(gradients), set(gradients) - set(changed)
        # The head's bias-free softmax: its rows' gradients add up to zero over the vocabulary.
        total = gradients["output.weight"][:].astype("f8").sum(axis=0)
        assert numpy.abs(total).max() < 1e-5 * numpy.abs(gradients["output.weight"][:]).max()
        assert file["inputs/tokens"].shape == file["inputs/targets"].shape == (8, 40)
        targets = file["inputs/targets"][:]
        assert (targets[:, :-1] == file["inputs/tokens"][:, 1:])[targets[:, :-1] >= 0].all()
    r.run("run.output=two.h5", "--dump-step", "3", "--dump", "two_step.h5", ranks=2)
    with h5py.File("step.h5") as one, h5py.File("two_step.h5") as two:  # of all ranks
        assert all((one["inputs"][n][:] == two["inputs"][n][:]).all() for n in one["inputs"])


@case
def cuda_that_is_not_there_is_refused(r):
    env = dict(r.env, CUDA_VISIBLE_DEVICES="")
    done = subprocess.run(r.command(r.deck, "execution.backend=cuda"), env=env,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, (done.returncode, done.stderr)
    assert done.stderr.count("stowage: error:") == 1, done.stderr
    assert not pathlib.Path("tiny.h5").exists()
    for key in ("train.dtype=fp64", "execution.audit=true", "execution.delay_seed=3"):
        r.refuse("execution.backend=cuda", key, says=[key.split("=")[0], "execution.backend"])


@case(ranks=2)
def random_delays_change_no_bit(r):
    r.run("run.output=a.h5", ranks=2)
    r.run("run.output=b.h5", "execution.delay_seed=5", ranks=2)
    assert_equal("a.h5", "b.h5")
    assert_equal("a.h5", "b.h5", "grad_norm")


@case
def stopped_and_resumed_is_bitwise_equal(r):
    r.run("run.output=whole.h5")
    r.run("run.output=first.h5", "checkpoint.directory=ckpt", "checkpoint.interval=3",
          "run.steps=3", "optim.decay_steps=6")
    r.run("run.output=second.h5", "checkpoint.directory=ckpt", "optim.decay_steps=6")
    whole = losses("whole.h5")
    assert (losses("first.h5") == whole[:3]).all()
    assert (losses("second.h5") == whole[3:]).all(), (losses("second.h5"), whole)
    with h5py.File("whole.h5") as a, h5py.File("second.h5") as b:
        assert a["/series/train/val_loss"][-1] == b["/series/train/val_loss"][-1]
        seen = a["/series/train/tokens"][:]
        assert seen[0] == 8 * 40 and seen[5] == 6 * seen[0] == a["/metrics/train/tokens"][()]
        assert (b["/series/train/tokens"][:] == seen[3:]).all()
    steps = [line for line in map(json.loads, open("second.jsonl")) if line["event"] == "step"]
    assert [step["tokens"] for step in steps] == seen[3:].tolist()


@case(ranks=2)
def a_resumed_run_points_to_the_legs_before(r):
    schedule = ["optim.decay_steps=6", "checkpoint.directory=ckpt", "checkpoint.keep_last=9"]
    for steps in (2, 4, 6):
        r.run(f"run.steps={steps}", f"run.output=leg{steps}.h5", *schedule,
              ranks=2 if steps == 4 else 1)
    r.run("run.output=look.h5", "--evaluate-only", "run.steps=6", *schedule)
    written = {}
    for steps, before in ((2, None), (4, 2), (6, 4), ("look", 6)):
        path = "look.h5" if steps == "look" else f"leg{steps}.h5"
        with h5py.File(path) as file:
            written[steps] = file.attrs["uuid"]
            assert ("resumed" in file["provenance"]) == (before is not None), path
            if before is None:
                continue
            named = file["provenance/resumed"].attrs
            assert named["checkpoint"].decode() == f"ckpt/step_{before:08}.h5", dict(named)
            assert named["step"] == before and named["run"] == written[before], dict(named)
            seal = pathlib.Path(f"ckpt/step_{before:08}.h5").read_bytes().split(b"\n")[1]
            assert seal == b"seal " + named["seal"], (seal, dict(named))
            wall, setup = (file[f"metrics/train/{name}_time"][()] for name in ("wall", "setup"))
            steps = file["series/train/step_time"][()].sum()
            assert setup + steps <= wall, (path, setup, steps, wall)  # what is read is no step
    sets = ["leg2.h5", "leg4.h5", "leg6.h5", "look.h5"]
    assert validate(r, *sets).returncode == 0, validate(r, *sets).stdout
    for edit, says in ((lambda group: group["resumed"].attrs.modify("step", 3), "begin at 5"),
                       (lambda group: group.pop("resumed"), "/provenance/resumed: is missing")):
        with h5py.File("leg6.h5", "r+") as file:
            edit(file["provenance"])
        done = validate(r, "leg6.h5")
        assert done.returncode == 1 and says in done.stdout, (done.returncode, done.stdout)


def ranks_with(argument):
    """Process ids of the trainers that were started with this argument."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:  # it has ended meanwhile
            continue
        if words[0].endswith("stowage_train") and argument in words:
            found.append(int(folder.name))
    return found


def start(r, name, *arguments, ranks=1):
    """A run of many steps, once it has done one, with its ranks' process ids."""
    output = f"run.output={name}.h5"
    process = subprocess.Popen(
        r.command(r.deck, "run.steps=100000", "optim.decay_steps=100000", output, *arguments,
                  ranks=ranks),
        env=r.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = pathlib.Path(f"{name}.jsonl")
    deadline = time.time() + 100
    while not (log.exists() and '"step"' in log.read_text()):
        if process.poll() is not None or time.time() > deadline:
            process.kill()
            raise AssertionError(f"no step was done: {process.communicate()}")
        time.sleep(0.1)
    return process, ranks_with(output)


@case(ranks=4)
def signal_saves_and_exits_75(r):
    # With an interval of 1 the step that it stops after has its checkpoint already.
    for number, ranks, interval in ((signal.SIGTERM, 1, 1), (signal.SIGUSR1, 2, 0),
                                    (signal.SIGINT, 1, 0), (signal.SIGHUP, 4, 1)):
        folder = f"ckpt{int(number)}"
        process, pids = start(r, folder, f"checkpoint.directory={folder}",
                              f"checkpoint.interval={interval}", ranks=ranks)
        assert len(pids) == ranks, pids
        os.kill(pids[-1], number)  # one rank hears it: mpirun may pass it on to all, or to none
        out, err = process.communicate(timeout=100)
        assert process.returncode == 75, (process.returncode, out[-2000:], err[-2000:])
        with h5py.File(f"{folder}.h5") as file:
            assert file.attrs["verdict"] in ("STOPPED", b"STOPPED")
            stopped_at = len(file["/series/train/loss"])
        r.run(f"run.steps={stopped_at + 2}", f"run.output=more_{folder}.h5",
              "optim.decay_steps=100000", f"checkpoint.directory={folder}", ranks=ranks)
        assert len(losses(f"more_{folder}.h5")) == 2


@case
def a_missing_value_fails_its_check(r):
    r.run("data.held_out_fraction=0", "validate.val_loss_below=9", expect=1)
    r.run("data.held_out_fraction=0", "run.output=b.h5")
    r.run("run.steps=1", "optim.lr=1e30", "optim.clip_grad=0", "run.output=c.h5", expect=1)
    with h5py.File("c.h5") as file:
        assert file.attrs["verdict"] in ("INVALID", b"INVALID")


@case
def a_stopped_run_is_judged_by_what_it_did(r):
    process, _ = start(r, "stopped", "checkpoint.directory=ckpt", "validate.val_loss_falling=true")
    process.send_signal(signal.SIGUSR1)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 75, (process.returncode, out, err)
    # Without a checkpoint there is nothing to come back to.
    process, _ = start(r, "lost")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 1 and "nothing was saved" in out, (process.returncode, out, err)


@case(ranks=2)
def resume_refuses_what_does_not_fit(r):
    r.run("run.steps=3", "optim.decay_steps=6", "checkpoint.directory=ckpt", "run.output=a.h5")
    again = ["checkpoint.directory=ckpt", "optim.decay_steps=6"]
    for change in ("run.seed=9", "train.seq_length=20", "optim.adam_beta2=0.5",
                   'optim.lr_factors=["embedding.weight 0"]'):
        r.refuse(*again, change, says=[change.split("=")[0], "checkpoint.allow_changes"])
    r.refuse(*again, "run.steps=2", says=["run.steps = 2", "3 steps already"])
    done = r.run(*again, "run.steps=3", "run.output=done.h5").stdout
    assert "run.steps = 3" in done and "nothing is left to do" in done, done
    assert not pathlib.Path("done.h5").exists()
    said = r.run(*again, "optim.adam_beta2=0.5", "checkpoint.allow_changes=true",
                 "run.output=b.h5").stdout
    changed = "# changed: optim.adam_beta2 = 0.5 (command line), the checkpoint has 0.95"
    assert changed in said and said.count("# changed") == 1, said
    for steps in (1, 2):  # optim.decay_steps follows, and nothing reads it
        r.run("optim.schedule=constant", f"run.steps={steps}", "checkpoint.directory=flat",
              f"run.output=flat{steps}.h5")
    for file in pathlib.Path("ckpt").glob("step_*.h5"):
        file.write_bytes(file.read_bytes()[:1000])
    r.refuse(*again, says=["ckpt", "checkpoint.resume=never"])
    for file in pathlib.Path("ckpt").glob("step_*.h5"):
        file.unlink()  # `latest` leads nowhere: that is no beginning
    for ranks in (1, 2):
        r.refuse(*again, says=["latest", "leads to", "checkpoint.resume=never"], ranks=ranks)


@case
def a_result_is_never_replaced_by_its_continuation(r):
    r.run("run.steps=3", "optim.decay_steps=6", "checkpoint.directory=ckpt")
    r.run("optim.decay_steps=6", "checkpoint.directory=ckpt")
    assert len(losses("tiny.h5")) == 3 and len(losses("tiny.from_3.h5")) == 3
    done = subprocess.run(r.command("--from", "tiny.h5", "checkpoint.resume=never"), env=r.env,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "run.output" in done.stderr, done.stderr
    pathlib.Path("tiny.h5").unlink()
    r.refuse("run.output=results/", says=["run.output"])
    r.refuse("run.output=x.jsonl", says=["x.jsonl"])


@case(ranks=2)
def from_result_repeats_a_run(r):
    r.run("run.output=a.h5", "optim.lr=0.005", ranks=2)
    done = subprocess.run(r.command("--from", "a.h5", "run.output=b.h5", ranks=2), env=r.env,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert_equal("a.h5", "b.h5")


@case
def printed_config_is_a_deck(r):
    text = r.run("--print-config", "optim.lr=0.004").stdout
    pathlib.Path("again.toml").write_text(text)
    again = subprocess.run(r.command("again.toml", "--print-config"), env=r.env,
                           capture_output=True, text=True, timeout=60)
    assert again.returncode == 0 and again.stdout == text, again.stderr


@case(ranks=2)
def audit_and_delays_together(r):
    r.run("run.output=a.h5", "run.steps=2")
    r.run("run.output=b.h5", "run.steps=2", "execution.audit=true", "execution.delay_seed=3")
    assert_equal("a.h5", "b.h5")
    r.run("run.output=c.h5", "run.steps=2", ranks=2)
    r.run("run.output=d.h5", "run.steps=2", "execution.audit=true", ranks=2)
    assert_equal("c.h5", "d.h5")


@case(ranks=2)
def bad_input_is_refused(r):
    r.refuse("optim.weight_dcay=1", says=["optim.weight_dcay", "optim.weight_decay"])
    r.refuse("optim.lr=fast", says=["optim.lr", "fast"])
    r.refuse('optim.lr_factors=["layers.* half"]',
             says=["optim.lr_factors", "layers.* half", "from 0 to 1000"])
    r.refuse('optim.decay_factors=["layers.9.* 1"]',
             says=["optim.decay_factors", "layers.9.* 1", "embedding.weight"])
    r.refuse("optim.state_dtype=bf16", "optim.adam_beta2=0.999",
             says=["optim.state_dtype", "optim.adam_beta2 = 0.999", "0.992"])
    r.refuse('optim.lr_factors=["* 0"]', says=["optim.lr_factors", "no parameter to train"])
    r.refuse("data.held_out_fraction=2", says=["data.held_out_fraction", "2"])
    r.refuse("model.pattern=M*Q", says=["model.pattern", "Q"])
    r.refuse("model.num_query_groups=3", says=["num_query_groups", "3"])
    r.refuse("train.global_batch_size=9", ranks=2, says=["global_batch_size", "9", "2"])
    r.refuse("parallel.context=3", ranks=2, says=["parallel.context", "multiple of 3"])
    r.refuse('offload.modules=["mlp_fc3"]', says=["offload.modules", "mlp_fc3", "mlp_fc1"])
    r.refuse('recompute.modules=["mamba_norm"]', says=["recompute.modules", "mamba_norm"])
    r.refuse("offload.fraction=1.5", says=["offload.fraction"])
    r.refuse("offload.policy=auto", "offload.device_budget_bytes=1000",
             says=["offload.device_budget_bytes", "alone need"])
    r.refuse("offload.policy=auto", "offload.device_budget_bytes=950000",
             says=["offload.device_budget_bytes", "missing", "the rest is"])
    r.refuse(*EVERYTHING_LEAVES, "offload.host_budget_bytes=2000",
             says=["offload.host_budget_bytes = 2000"])
    r.refuse("run.output=/proc/none/tiny.h5", says=["/proc/none"])
    r.refuse("checkpoint.directory=/proc/none", says=["/proc/none"])
    r.refuse("data.source=text", "data.path=missing.txt", says=["missing.txt"])
    r.refuse(deck="missing.toml", says=["missing.toml"])


@case
def bad_files_are_refused(r):
    text = ["data.source=auto", "data.path=data.bin"]
    pathlib.Path("data.bin").write_bytes(b"")
    r.refuse(*text, says=["data.bin"])
    pathlib.Path("data.txt").write_bytes(b"In the beginning God created the heaven\n" * 200)
    r.refuse("data.source=text", "data.path=data.txt", says=["data.txt", "vocab_size"])
    header = numpy.zeros(256, dtype="<i4")
    header[:3] = [20240520, 1, 5000]
    pathlib.Path("data.bin").write_bytes(header.tobytes() + b"\x01\x00" * 100)
    r.refuse(*text, says=["data.bin", "truncated"])
    r.refuse("data.source=llmc", "data.path=magic.bin", says=["magic.bin"])
    pathlib.Path("magic.bin").write_bytes(b"\x07" * 4096)
    r.refuse("data.source=llmc", "data.path=magic.bin", says=["magic"])
    pathlib.Path("not_ours.h5").write_bytes(b"\x89HDF nothing" * 50)
    done = subprocess.run(r.command("--from", "not_ours.h5"), env=r.env, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 2 and "not_ours.h5" in done.stderr, done.stderr
    r.refuse("checkpoint.resume=not_ours.h5", says=["not_ours.h5"])
    r.run("run.steps=1", "checkpoint.directory=ckpt", "run.output=x.h5")
    whole = next(pathlib.Path("ckpt").glob("step_*.h5"))
    cut = whole.read_bytes()
    pathlib.Path("cut.h5").write_bytes(cut[:len(cut) // 2])
    r.refuse("checkpoint.resume=cut.h5", says=["cut.h5"])
    r.refuse(f"checkpoint.resume={whole}", "model.hidden_size=40", says=[str(whole)])


def memory_rows(text):
    """Bytes by name, of a table of memory."""
    return {name: int(size) for name, size in re.findall(r"^  ([a-z][a-z ]*?) +(\d+) B ", text,
                                                         re.M)}


@case(ranks=2)
def dry_run_plans_what_the_deck_asks_for(r):
    """The reductions between ranks and the largest capacity count, as in stowage_plan."""
    def ops_and_transient(*keys, ranks=1):
        text = r.run("--dry-run", *keys, ranks=ranks).stdout
        return int(text.split("one step: ")[1].split()[0]), memory_rows(text)["transient"]

    alone = ops_and_transient()
    # Data that are not there have as many documents as the deck says.
    absent = ["data.source=llmc", "data.path=absent.bin", "data.document_token=1"]
    few, many = (ops_and_transient(*absent, *keys)
                 for keys in ([], ["graphs.max_packed_seqs=[4, 40]"]))
    assert many[1] > few[1], (few, many)
    assert "absent.bin" in r.run("--dry-run", *absent).stdout
    # Half the batch on each of two ranks is the batch of one, and the sums between them.
    half = ops_and_transient("train.global_batch_size=4")
    asked = ops_and_transient("parallel.data=2")
    launched = ops_and_transient(ranks=2)
    assert asked[0] > half[0], (half, asked)
    assert launched == asked, (launched, asked)


@case
def standard_decks_dry_run(r):
    source = os.path.dirname(os.path.dirname(os.path.dirname(r.deck)))
    parameters = {"dense-124m": 162, "hybrid-dense-1b": 990, "hybrid-moe-2b": 2050,
                  "nemotron-nano-30b": 31600, "quickstart": 1}
    for name, millions in parameters.items():
        deck = os.path.join(source, "inputs", name + ".toml")
        done = subprocess.run(r.command(deck, "--dry-run"), env=r.env, capture_output=True,
                              text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        found = float(done.stdout.split(" M parameters")[0].split()[-1])
        assert abs(found - millions) < 0.02 * millions + 1, (name, found)
        assert "optimizer states" in done.stdout and "TFLOP" in done.stdout, done.stdout


def main(cases):
    return cases.run(Runner, "train", "source")


if __name__ == "__main__":
    sys.exit(main(CASES))
