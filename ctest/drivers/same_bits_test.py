#!/usr/bin/python3
"""run.same_bits = "ranks": stowage_train has the same bits on any data and pipeline ranks.

Usage: same_bits_test.py CASE --train PROGRAM --source FOLDER; each case runs in its own folder.
The environment's STOWAGE_STEPS says how many steps `random_grids_with_restarts` does, and
STOWAGE_TEST_SEED which grids they are on.
"""
import os
import pathlib
import random
import subprocess
import sys

import h5py
import numpy

from process_cases import Cases
from train_test import EVERYTHING_LEAVES, assert_equal, losses, main, states

CASES = case = Cases()

# 24 microbatches: each of 8 data ranks has three, each of 3 has eight.
TREE = ["run.same_bits=ranks", "train.global_batch_size=24", "model.untie_embeddings=true"]
PLAIN = ["data.synthetic_tokens=200000"]
PACKED = [*PLAIN, "data.packing=best_fit", "data.synthetic_document_length=9"]
# Documents of some bytes, of which a byte in three is no target; see write_masked_text.
MASKED = ["data.source=text", "data.path=text.txt", "data.document_token=0",
          "data.packing=best_fit", "data.mask=required"]


def write_masked_text():
    draw = numpy.random.default_rng(7)
    text = draw.integers(1, 64, 200000, dtype=numpy.uint8)
    text[draw.integers(0, len(text), len(text) // 9)] = 0
    pathlib.Path("text.txt").write_bytes(text.tobytes())
    pathlib.Path("text.txt.mask").write_bytes(
        (draw.integers(0, 3, len(text), dtype=numpy.uint8) > 0).tobytes())


def compare(r, one, other):
    """The exit code of the tool that users ask."""
    return subprocess.run([sys.executable, os.path.join(r.tools, "compare.py"), "--equal-loss",
                           "--equal-state", one, other], capture_output=True, text=True,
                          timeout=60)


def assert_same(r, one, other):
    for name in ("loss", "grad_norm", "val_loss"):
        assert_equal(one, other, name)
    compared = compare(r, one, other)
    assert compared.returncode == 0, compared.stdout + compared.stderr


def grid(ranks, stages=1, *keys):
    return ranks, [f"parallel.pipeline={stages}", *keys]


@case(ranks=4)
def any_grid_is_one_rank(r):
    for packing in (PLAIN, PACKED):
        keys = [*TREE, *packing, "run.steps=3", "train.dtype=bf16",
                "validate.state_digest_interval=1", "eval.interval=1"]
        r.run("run.output=alone.h5", *keys)
        for i, (ranks, layout) in enumerate((grid(2, 1, "parallel.zero=1"), grid(3),
                                             grid(4, 2, "parallel.zero=1"), grid(4, 4),
                                             grid(3, 3, "parallel.schedule=zero_bubble"),
                                             grid(2, 1, "graphs.mode=step", *EVERYTHING_LEAVES))):
            r.run(f"run.output=grid{i}.h5", *keys, *layout, ranks=ranks)
            assert_same(r, "alone.h5", f"grid{i}.h5")
    # What the tool would say of sums by rank.
    by_rank = [key for key in keys if not key.startswith("run.same_bits")]
    r.run("run.output=by_rank.h5", *by_rank, ranks=2)
    assert compare(r, "alone.h5", "by_rank.h5").returncode == 1
    assert states("alone.h5")[3] != states("by_rank.h5")[3]


@case(ranks=4)
def it_goes_on_to_the_bit_on_other_ranks(r):
    keys = [*TREE, *PLAIN, "run.steps=6", "validate.state_digest_interval=2"]
    r.run("run.output=whole.h5", *keys)
    save = ["checkpoint.directory=ckpt", "optim.decay_steps=6"]
    for end, (ranks, layout) in {2: grid(3), 4: grid(4, 2, "parallel.zero=1"),
                                 6: grid(2, 1, "parallel.zero=1")}.items():
        r.run(f"run.output=to{end}.h5", *keys, *save, *layout, f"run.steps={end}", ranks=ranks)
        assert (losses(f"to{end}.h5") == losses("whole.h5")[end - 2:end]).all(), end
        assert states(f"to{end}.h5")[end] == states("whole.h5")[end], end
    # The tree's leaves are microbatches: others are another run.
    r.refuse(*TREE, *PLAIN, *save, "run.steps=8", "train.micro_batch_size=2",
             "run.output=tiny.h5", says=["train.micro_batch_size"])
    r.refuse(*TREE, *PLAIN, *save, "run.steps=8", "run.same_bits_leaves=8",
             "run.output=tiny.h5", says=["run.same_bits_leaves"])
    r.refuse(*TREE[1:], *PLAIN, *save, "run.steps=8", "run.output=tiny.h5", says=["run.same_bits"])


@case(ranks=2)
def what_no_tree_covers_is_refused(r):
    for keys, says in {
            ("parallel.tensor=2",): ["parallel.tensor = 2", "allowed: 1"],
            ("parallel.context=2",): ["parallel.context = 2", "allowed: 1"],
            ("parallel.expert=2",): ["parallel.expert = 2", "allowed: 1"],
            ("parallel.gradient_dtype=bf16",): ["parallel.gradient_dtype", "allowed: fp32"],
            ("parallel.pipeline=2", "model.untie_embeddings=false"):
                ["model.untie_embeddings", "allowed: 1 pipeline rank"]}.items():
        r.refuse(*TREE, *PLAIN, *keys, says=["run.same_bits = \"ranks\"", *says], ranks=2)
    for leaves, says in ((5, ["5", "24 microbatches"]), (3, ["3", "2 ranks"])):
        r.refuse(*TREE, *PLAIN, f"run.same_bits_leaves={leaves}",
                 says=["run.same_bits_leaves", *says], ranks=2)
    r.refuse("run.same_bits_leaves=8", says=["run.same_bits_leaves = 8", "run.same_bits"])
    r.refuse("run.same_bits=bits", says=["run.same_bits", "layout", "ranks"])


@case(ranks=8)
def random_grids_with_restarts(r):
    """Runs that change their grid in the middle, beside one rank: digests after every fourth part
    of the steps. Of sequences, with leaves of three microbatches, and of packed documents with a
    mask."""
    seed = os.environ.get("STOWAGE_TEST_SEED", "1234")
    draw = random.Random(None if seed == "random" else seed)
    steps = int(os.environ.get("STOWAGE_STEPS", "4"))
    quarter = steps // 4
    timeout = 240 + 2 * steps
    write_masked_text()
    for name, data in (("plain", [*PLAIN, "run.same_bits_leaves=8"]), ("masked", MASKED)):
        keys = [*TREE, *data, f"validate.state_digest_interval={quarter}",
                f"optim.decay_steps={steps}", "run.log_interval=100", "train.seq_length=16"]
        r.run(f"run.output={name}.h5", f"run.steps={steps}", *keys, timeout=timeout)
        wanted = states(f"{name}.h5")
        for end, ranks in zip(range(quarter, steps + 1, quarter), draw.sample((2, 3, 4, 8), 4)):
            stages = draw.choice([p for p in (1, 2, 3, 4)  # each rank has whole leaves
                                  if ranks % p == 0 and 8 % (ranks // p) == 0])
            ranks, layout = grid(ranks, stages, f"parallel.zero={draw.randrange(2)}")
            print(f"{name}, to step {end}: {ranks} ranks, {layout}", flush=True)
            r.run(f"run.output={name}{end}.h5", f"run.steps={end}", *keys, *layout,
                  f"checkpoint.directory={name}", ranks=ranks, timeout=timeout)
            found = states(f"{name}{end}.h5")
            assert found[end] == wanted[end], (end, found, wanted)
            with h5py.File(f"{name}{end}.h5") as file:
                assert file["/series/train/step"][-1] == end
    print(f"{steps} steps: digest {wanted[steps]}")


if __name__ == "__main__":
    sys.exit(main(CASES))
