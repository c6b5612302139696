#!/usr/bin/python3
"""What a run of stowage_train says of its layers: losses of routers and of further tokens, the load
of experts, norms of gradients, activations and weights.

Usage: routers_test.py CASE --train PROGRAM --source FOLDER. Each case runs in a folder of its own.
"""
import json
import pathlib
import sys

import h5py
import numpy

from process_cases import Cases
import train_test
from train_test import assert_equal, validate

CASES = case = Cases()


@case(ranks=2)
def losses_of_routers_are_reported(r):
    coefficients = ["model.moe_aux_loss_coeff=0.01", "model.moe_z_loss_coeff=0.001"]
    for ranks in (1, 2):
        r.run(*coefficients, f"run.output=np{ranks}.h5", ranks=ranks)
    with h5py.File("np1.h5") as one, h5py.File("np2.h5") as two:
        for name in ("aux_loss", "z_loss"):
            a, b = one[f"/series/router/{name}"][:], two[f"/series/router/{name}"][:]
            # Means over the tokens of a microbatch, then over microbatches: those stay the same.
            assert a.shape == (6,) and numpy.allclose(a, b, rtol=1e-3), (a, b)
        # E sum_e f_e P_e is 1 for a balanced router and near it for a fresh one.
        assert 0.009 < one["/series/router/aux_loss"][0] < 0.02
        assert "router/aux_loss" in one["metrics"] and validate(r, "np1.h5").returncode == 0
        # The logits of a fresh router are near 0: logsumexp is near log(4) for 4 experts.
        assert abs(one["/series/router/z_loss"][0] / (0.001 * numpy.log(4) ** 2) - 1) < 0.2
    r.run("run.output=none.h5")
    with h5py.File("none.h5") as file:
        assert "router" not in file["/series"]


@case(ranks=2)
def a_z_loss_is_a_series_of_its_own(r):
    coefficient = "train.z_loss_coeff=0.01"
    r.run("run.output=off.h5")
    r.run(coefficient, "run.output=on.h5")
    r.run(coefficient, "parallel.tensor=2", "run.output=two.h5", ranks=2)
    with h5py.File("off.h5") as off, h5py.File("on.h5") as on, h5py.File("two.h5") as two:
        assert "head" not in off["series"]
        a, b = on["series/head/z_loss"][:], two["series/head/z_loss"][:]
        assert a.shape == (6,) and numpy.allclose(a, b, rtol=1e-3), (a, b)
        # Logits of a fresh model are near 0: logsumexp is near log V.
        vocabulary = on["config"].attrs["model.vocab_size"]
        assert abs(a[0] / (0.01 * numpy.log(vocabulary) ** 2) - 1) < 0.1, a
        losses = [file["series/train/loss"][:] for file in (off, on)]
        # The loss stays the cross-entropy; only the second step finds other parameters.
        assert losses[0][0] == losses[1][0] and losses[0][1] != losses[1][1], losses
    steps = [line for line in map(json.loads, open("on.jsonl")) if line["event"] == "step"]
    assert [step["head_z_loss"] for step in steps] == a.tolist()
    said = validate(r, "on.h5")
    assert said.returncode == 0, said.stdout
    said = r.run("train.z_loss_coeff=-1", expect=2).stderr
    assert "train.z_loss_coeff" in said, said


@case
def a_depth_without_targets_has_no_loss(r):
    r.run("model.mtp_num_layers=3", "model.mtp_pattern=*", "data.synthetic_document_length=2",
          "run.steps=2", "eval.mtp_loss=true")
    lines = [json.loads(line) for line in pathlib.Path("tiny.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "mtp_loss_1" in line]
    assert steps and all(line["mtp_loss_1"] > 0 and line["mtp_loss_3"] is None for line in steps)
    assert [line["val_mtp_loss_3"] for line in lines if "val_mtp_loss_3" in line] == [None]
    assert "conforms" in validate(r, "tiny.h5").stdout


@case(ranks=2)
def load_of_routers_is_kept_under_every_balancing(r):
    tokens, topk, experts = 8 * 40, 2, 4  # of a step, and of the deck
    for rate in ("0", "0.01"):
        bias = (f"model.moe_expert_bias_update_rate={rate}", "model.pattern=E-|*E", "eval.steps=1")
        r.run(*bias, "run.output=off.h5")
        r.run(*bias, "run.router_load=true", "run.output=on.h5")
        assert_equal("off.h5", "on.h5")
        for ranks in ("parallel.data=2", "parallel.expert=2", "parallel.pipeline=2",
                      "parallel.tensor=2"):
            r.run(*bias, "run.router_load=true", ranks, "run.output=two.h5", ranks=2)
            with h5py.File("on.h5") as one, h5py.File("two.h5") as two:
                for name in ("busiest", "entropy", "dead"):
                    a, b = (file[f"series/router_load/{name}"][0] for file in (one, two))
                    # A fresh router may choose otherwise where two scores are nearly the same.
                    assert a.shape == (2,) and numpy.allclose(a, b, atol=0.03), (ranks, name, a, b)
        with h5py.File("off.h5") as off, h5py.File("on.h5") as on:
            assert "router_load" not in off["series"]
            busiest = on["series/router_load/busiest"][:]
            counts = busiest * tokens * topk / experts  # whole tokens
            assert numpy.abs(counts - counts.round()).max() < 1e-9, counts
            assert busiest.min() >= 1 and on["series/router_load/entropy"][:].min() > 0.2
        assert validate(r, "off.h5", "on.h5").returncode == 0
        steps = [line for line in map(json.loads, open("on.jsonl")) if line["event"] == "step"]
        assert [step["busiest_expert"] for step in steps] == busiest.max(axis=1).tolist()
        assert all(step["dead_experts"] >= 0 < step["router_entropy"] <= 1 for step in steps)


@case(ranks=2)
def norms_of_parts_add_up_to_the_norm(r):
    r.run("model.pattern=M|-*E", "run.output=off.h5")
    for keys in ([], ["parallel.zero=1"], ["parallel.tensor=2"], ["parallel.pipeline=2"],
                 ["model.untie_embeddings=false", "parallel.pipeline=2"],
                 ['optim.lr_factors=["layers.1.* 0", "embedding.weight 0"]']):
        r.run("model.pattern=M|-*E", "run.gradient_norms=true", *keys, "run.output=on.h5",
              ranks=1 if not keys else 2)
        with h5py.File("on.h5") as file:
            parts = numpy.column_stack([file[f"series/gradient_norms/{name}"]
                                        for name in ("embedding", "layers", "head")])
            norms = file["series/train/grad_norm"][:]
        assert parts.shape == (6, 6), parts.shape
        together = (parts ** 2).sum(axis=1) ** 0.5
        assert numpy.allclose(together, norms, rtol=1e-6), (keys, parts, norms)
        frozen = {0, 2} if "lr_factors" in str(keys) else set()
        assert all((parts[:, i] == 0).all() == (i in frozen) for i in range(6)), (keys, parts)
        if not keys:
            assert_equal("off.h5", "on.h5")
    assert validate(r, "on.h5").returncode == 0
    # Parts may be unfinite where the whole norm may.
    r.run("run.gradient_norms=true", "optim.lr=1e30", "optim.clip_grad=0", "run.output=bad.h5",
          expect=1)
    with h5py.File("bad.h5") as file:
        assert not numpy.isfinite(file["series/gradient_norms/layers"][:]).all()
    assert "gradient_norms" not in validate(r, "bad.h5").stdout


@case(ranks=2)
def norms_of_activations_are_those_of_the_stream(r):
    r.run("model.pattern=M|-*E", "run.output=off.h5")
    for keys in ([], ["parallel.tensor=2"], ["parallel.pipeline=2"], ["parallel.data=2"]):
        r.run("model.pattern=M|-*E", "run.activation_norms=true", *keys, "run.output=on.h5",
              ranks=1 if not keys else 2)
        with h5py.File("on.h5") as file:
            norms = numpy.column_stack([file[f"series/activation_norms/{name}"]
                                        for name in ("layers", "head")])
            std = file["config"].attrs["model.init_std"]
        assert norms.shape == (6, 5), norms.shape
        if not keys:
            wanted = norms
            assert_equal("off.h5", "on.h5")
            # The first layer reads rows of the fresh embedding, to which layers add.
            assert abs(norms[0, 0] / std - 1) < 0.1, (norms, std)
            assert (norms[0, 1:] > norms[0, 0]).all(), norms
        assert numpy.allclose(norms, wanted, rtol=1e-2), (keys, norms, wanted)
    assert validate(r, "on.h5").returncode == 0


def part_of(name):
    """Of a parameter: embedding, layers or head."""
    layer = name.split(".")[1] if name.startswith("layers.") else ""
    return 1 + int(layer) if layer else 0 if name == "embedding.weight" else -1


def masters_of(path):
    with h5py.File(path) as file:
        return {name: values[:].astype(float)
                for name, values in file["tensors/master"].items()}


def norms_of(values):
    """By part."""
    squares = numpy.zeros(6)
    for name, value in values.items():
        squares[part_of(name)] += (value ** 2).sum()
    return squares ** 0.5


def norms_kept(path, what):
    with h5py.File(path) as file:
        series = file[f"series/{what}"]
        assert series["step"][:].tolist() == [3, 6], series["step"][:]
        return numpy.column_stack([series[name] for name in ("embedding", "layers", "head")])


@case(ranks=2)
def norms_of_weights_and_updates_are_those_of_the_masters(r):
    keys = ["model.pattern=M|-*E", "train.dtype=bf16", "eval.steps=1",
            "validate.finite_differences=off", "parallel.bucket_elements=1024"]
    r.run(*keys, "run.output=off.h5")
    for i, more in enumerate(([], ["parallel.zero=1", "offload.states=master"],
                              ["parallel.tensor=2"],
                              ["optim.optimizer=muon", "parallel.zero=1"],
                              ["model.untie_embeddings=false", "parallel.pipeline=2"])):
        r.run(*keys, *more, "run.weight_norms=3", "run.update_norms=3",
              f"checkpoint.directory=saved{i}", "checkpoint.interval=5",
              'optim.lr_factors=["layers.1.* 0"]' if i == 1 else "optim.lr_factors=[]",
              "run.output=on.h5", ranks=2 if more else 1)
        before, after = (masters_of(f"saved{i}/step_0000000{step}.h5") for step in (5, 6))
        wanted = {"weight_norms": norms_of(after),
                  "update_norms": norms_of({name: after[name] - before[name] for name in after})}
        for what, norms in wanted.items():
            parts = norms_kept("on.h5", what)
            assert parts.shape == (2, 6), parts.shape
            assert numpy.allclose(parts[1], norms, rtol=1e-6), (more, what, parts[1], norms)
        assert (wanted["update_norms"] == 0).sum() == (i == 1), wanted  # of what is frozen
        if not more:
            assert_equal("off.h5", "on.h5")
            assert validate(r, "on.h5").returncode == 0
            for what, norms in wanted.items():
                lines = [line for line in map(json.loads, open("on.jsonl"))
                         if line["event"] == what]
                assert [line["step"] for line in lines] == [3, 6], lines
                of_all = lines[1][what.removesuffix("s")]
                assert abs(of_all / (norms ** 2).sum() ** 0.5 - 1) < 1e-6, lines
    with h5py.File("off.h5") as file:
        assert not {"weight_norms", "update_norms"} & set(file["series"])


if __name__ == "__main__":
    sys.exit(train_test.main(CASES))
