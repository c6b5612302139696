#!/usr/bin/python3
"""What stowage_train keeps from step to step, and what it believes of its own gradients.

Usage: state_test.py CASE --train PROGRAM --source FOLDER. Each case runs in a folder of its own.
"""
import os
import pathlib
import shutil
import subprocess
import sys

import h5py
import numpy

from process_cases import Cases
import train_test
from train_test import assert_equal, states

CASES = case = Cases()


def digest_of_checkpoint(path):
    """The digest of kernels/digest/digest.hpp, of the tensors of a checkpoint, by its formula."""
    mask = (1 << 64) - 1
    numbers = {"float64": 0, "float32": 1, "bf16": 2, "int32": 3, "int64": 4}

    def mix(z):
        z = numpy.asarray(z, dtype=numpy.uint64)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
        return z ^ (z >> numpy.uint64(31))

    def stream_of(name):
        value = 0xcbf29ce484222325
        for byte in name.encode():
            value = (value ^ byte) * 0x100000001b3 & mask
        return value

    sums = numpy.zeros(2, dtype=numpy.uint64)
    with h5py.File(path) as file, numpy.errstate(over="ignore"):
        tensors = []
        file["tensors"].visititems(
            lambda name, node: tensors.append((name, node))
            if isinstance(node, h5py.Dataset) else None)
        assert len(tensors) > 50, len(tensors)
        for name, node in tensors:
            kind = "bf16" if "dtype" in node.attrs else str(node.dtype)
            size = min(node.dtype.itemsize, 4)
            bits = node[()].reshape(-1).view(f"<u{size}").astype(numpy.uint64)
            at = numpy.arange(len(bits), dtype=numpy.uint64)
            for half in range(2):
                key = mix(numpy.uint64(stream_of(name))
                          ^ mix(numpy.uint64(2 * numbers[kind] + half + 1)))
                lanes = mix(at % numpy.uint64(8) + numpy.uint64(8 * half + 1)) | numpy.uint64(1)
                blocks = mix(key + at // numpy.uint64(8) * numpy.uint64(0x9e3779b97f4a7c15))
                sums[half] += ((bits + numpy.uint64(1)) * lanes
                               * (blocks | numpy.uint64(1))).sum(dtype=numpy.uint64)
    return f"{sums[1]:016x}{sums[0]:016x}"


@case(ranks=2)
def the_digest_is_that_of_the_checkpoint(r):
    for dtype, ranks, zero in (("fp32", 1, 0), ("bf16", 2, 1)):
        folder = f"ckpt_{dtype}"
        r.run(f"train.dtype={dtype}", f"parallel.zero={zero}", f"checkpoint.directory={folder}",
              f"run.output={folder}.h5", ranks=ranks)
        assert states(f"{folder}.h5") == {6: digest_of_checkpoint(f"{folder}/step_00000006.h5")}


@case(ranks=2)
def a_run_killed_behind_its_last_checkpoint_gets_its_result(r):
    """As a run that was killed in its last evaluation left it."""
    arguments = ["run.steps=3", "checkpoint.directory=ckpt", "run.output=a.h5"]
    for ranks in (1, 2):
        shutil.rmtree("ckpt", ignore_errors=True)
        r.run(*arguments, ranks=ranks)
        with h5py.File("a.h5") as file:
            loss = file["metrics/train/val_loss"][()]
        assert "nothing is left to do" in r.run(*arguments, ranks=ranks).stdout
        os.rename("a.h5", "a.h5.part")
        said = r.run(*arguments, ranks=ranks).stdout
        assert "the result set was left unfinished, and is made now" in said, said
        with h5py.File("a.h5") as file:
            assert file["metrics/train/val_loss"][()] == loss
            assert file.attrs["verdict"] in ("VALID", b"VALID")
            assert "finite_loss" not in file["validation"]  # no step was done
        assert sorted(path.name for path in pathlib.Path("ckpt").glob("step*")) == [
            "step_00000003.h5"]
        os.remove("a.h5")


@case(ranks=2)
def the_digest_does_not_depend_on_shards(r):
    for dtype in ("fp32", "bf16"):
        for zero in (0, 1):
            r.run(f"train.dtype={dtype}", "validate.state_digest_interval=4",
                  f"parallel.zero={zero}", f"run.output={dtype}{zero}.h5", ranks=2)
        assert_equal(f"{dtype}0.h5", f"{dtype}1.h5")
        found = states(f"{dtype}0.h5")
        assert list(found) == [4, 6] and found[4] != found[6], found
        with h5py.File(f"{dtype}0.h5") as file:
            assert file["/validation/copies_that_differ"].attrs["value"] == 0
    assert states("fp320.h5") != states("bf160.h5")


def checks(path):
    with h5py.File(path) as file:
        return {name: float(node.attrs["value"]) for name, node in file["validation"].items()
                if isinstance(node, h5py.Group)}


@case(ranks=2)
def the_first_step_repeats_itself(r):
    for ranks, more in ((1, ()), (2, ("parallel.zero=1", "graphs.mode=step"))):
        r.run(*more, "run.output=twice.h5", ranks=ranks)
        r.run(*more, "run.output=once.h5", "validate.replayed_step=false", ranks=ranks)
        assert_equal("twice.h5", "once.h5")  # and the run is none the wiser
        assert checks("twice.h5")["replayed_step"] == 0
        assert "replayed_step" not in checks("once.h5")
    r.run("run.output=first.h5", "run.steps=3", "checkpoint.directory=ckpt", "optim.decay_steps=6")
    r.run("run.output=more.h5", "checkpoint.directory=ckpt", "optim.decay_steps=6")
    assert "replayed_step" not in checks("more.h5")  # it has no first step


def tensors(path, state):
    with h5py.File(path) as file:
        return {name: node[:] for name, node in file[f"tensors/{state}"].items()}


@case(ranks=2)
def averages_are_a_state_like_others(r):
    keys = ["train.dtype=bf16", "parallel.bucket_elements=1024", "optim.decay_steps=6",
            "validate.finite_differences=off", "validate.replayed_step=false"]
    averaged = "optim.ema_decay=0.75"
    r.run(*keys, averaged, "run.output=whole.h5", ranks=2)
    away = [*keys, averaged, "parallel.zero=1", "offload.states=ema", "eval.ema=true",
            "eval.interval=2", "eval.steps=1", "checkpoint.directory=ckpt"]
    r.run(*away, "run.steps=3", "run.output=first.h5", ranks=2)
    r.run(*away, "run.output=rest.h5")  # on one rank
    r.run(*away, "run.output=again.h5", "checkpoint.resume=ckpt/step_00000003.h5",
          "checkpoint.directory=other", ranks=2)
    assert states("again.h5")[6] == states("whole.h5")[6]
    assert states("rest.h5")[6] == digest_of_checkpoint("ckpt/step_00000006.h5")
    # One that begins in the middle begins at the weights; one that ends is dropped.
    r.run(*keys, "run.steps=2", "checkpoint.directory=none", "run.output=none.h5")
    r.refuse(*keys, averaged, "checkpoint.directory=none", says=["optim.ema_decay = 0.75"])
    r.refuse(*keys, averaged, "eval.ema=true", "--evaluate-only",
             "checkpoint.resume=none/step_00000002.h5", says=["no averages of weights", "eval.ema"])
    said = r.run(*keys, averaged, "run.steps=3", "checkpoint.directory=none",
                 "checkpoint.allow_changes=true", "run.output=begun.h5").stdout
    assert "# the checkpoint has no average of weights: it begins at its weights" in said, said
    before, after = (tensors(f"none/step_0000000{step}.h5", "master") for step in (2, 3))
    for name, average in tensors("none/step_00000003.h5", "ema").items():
        wanted = 0.75 * before[name] + 0.25 * after[name]
        assert numpy.allclose(average, wanted, rtol=1e-6, atol=1e-8), name
    said = r.run(*keys, "run.steps=4", "checkpoint.directory=none",
                 "checkpoint.allow_changes=true", "run.output=ended.h5").stdout
    assert "# the checkpoint's average of weights is dropped" in said, said
    r.refuse(*keys, "eval.ema=true", says=["eval.ema = true", "optim.ema_decay = 0", "0.999"])
    r.refuse(*keys, averaged, "eval.ema=true", "optim.state_dtype=fp8",
             says=["eval.ema = true", 'optim.state_dtype = "fp8"', '"fp32", "bf16"'])


# Models that other cases train without this check.
MODELS = {
    "further": ["model.moe_latent_size=32", "model.moe_latent_norm=true", "model.mtp_num_layers=2",
                "model.mtp_pattern=*E", "model.mtp_use_repeated_layer=true"],
    "eight_bits": ["train.precision=fp8", "train.fp8_first_layers=0", "train.fp8_last_layers=0",
                   "train.seq_length=48", "model.mamba_num_heads=16", "model.mamba_head_dim=4",
                   "model.moe_shared_expert_hidden_size=32"],
    "routers": ["model.pattern=E-|*E", "model.moe_expert_bias_update_rate=0.01"],
    "tied": ["model.pattern=M|-*E", "model.untie_embeddings=false"]}


@case(ranks=4)
def gradients_are_compared_with_differences(r):
    compared = "validate.finite_differences=auto"
    r.run("run.output=off.h5")
    assert "gradients" not in checks("off.h5")
    for ranks in (1, 2, 4):
        r.run(f"run.output=auto{ranks}.h5", compared, ranks=ranks)
        assert 0 < checks(f"auto{ranks}.h5")["gradients"] < 1
    assert_equal("auto1.h5", "off.h5")
    for name, keys in MODELS.items():
        r.run(f"run.output={name}.h5", compared, "run.steps=1", *keys)
        assert 0 < checks(f"{name}.h5")["gradients"] < 1, name


@case
def bands_of_a_deck_are_checked(r):
    text = open(r.deck, encoding="utf-8").read()
    losses = train_test.losses
    r.run("run.output=plain.h5")
    third = losses("plain.h5")[2]
    r.deck = "banded.toml"
    for name, low, high, expect in (("good", third - 1e-6, third + 1e-6, 0),
                                    ("bad", third + 0.01, third + 0.02, 1)):
        with open(r.deck, "w", encoding="utf-8") as file:
            file.write(f"{text}\n[expects]\nloss_at_3 = [{low}, {high}]\n")
        r.run(f"run.output={name}.h5", expect=expect)
        assert checks(f"{name}.h5")["loss_at_3"] == third
    with h5py.File("bad.h5") as file:
        assert file.attrs["verdict"] in ("INVALID", b"INVALID")
    r.run("run.output=other.h5", "optim.lr=2e-2")  # another computation: no band holds for it
    assert "loss_at_3" not in checks("other.h5")
    r.run("run.output=short.h5", "run.steps=2")
    assert "loss_at_3" not in checks("short.h5")
    done = subprocess.run([sys.executable, os.path.join(r.tools, "validate.py"), "good.h5"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    with h5py.File("good.h5", "r+") as file:
        file["series/train/loss"][2] += 1e-7
    done = subprocess.run([sys.executable, os.path.join(r.tools, "validate.py"), "good.h5"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "/validation/loss_at_3: value is" in done.stdout, done.stdout


if __name__ == "__main__":
    sys.exit(train_test.main(CASES))
