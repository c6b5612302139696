#!/usr/bin/python3
"""stowage_convert, and runs that start from published weights: whole processes, files, exit codes.

Usage: convert_test.py CASE --bin FOLDER. Each case runs in a folder of its own. The
published folders are those that interop/make_reference.py wrote with transformers.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).parent / "interop"))
import agreement
import published
from agreement import assert_same_tensors

from process_cases import Cases

FIXTURES = pathlib.Path(__file__).parent / "interop" / "fixtures"

CASES = case = Cases()


def fresh(name, family="nemotron_h"):
    """A copy of a published folder that a case may spoil."""
    shutil.copytree(FIXTURES / family / "model", name)
    return pathlib.Path(name)


def set_keys(folder, **keys):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(keys)
    path.write_text(json.dumps(config))


@case
def nemotron_h_is_that_of_transformers(p):
    agreement.compare("nemotron_h", p, FIXTURES / "nemotron_h")


@case
def nemotron_h_with_latent_experts_and_further_tokens_is_that_of_transformers(p):
    agreement.compare("nemotron_h_mtp", p, FIXTURES / "nemotron_h_mtp")


@case
def further_tokens_of_packed_documents_are_those_of_each_alone(p):
    """Two documents in one sequence have the loss, the gradients and the two updates of two
    sequences."""
    folder = FIXTURES / "nemotron_h_mtp"
    outputs = published.read_safetensors(folder / "reference" / "outputs.safetensors")
    gradients = published.read_safetensors(folder / "reference" / "gradient.safetensors")
    rows, tokens = outputs["tokens"].shape
    keys = agreement.write_tokens(p, outputs["tokens"]) + [
        f"train.seq_length={rows * tokens}", "train.micro_batch_size=1",
        "train.global_batch_size=1", "data.packing=first_fit"]
    p.run("convert", "import", folder / "model", "--out", "weights", "--deck", "it.toml")
    with h5py.File(agreement.dumped(p, "it.toml", keys, 1, "weights/step_00000000.h5")) as file:
        assert abs(file.attrs["loss"] - outputs["loss"][0]) < 1e-5 * outputs["loss"][0]
        for name, values in agreement.tensors_below(file["gradient"]).items():
            theirs = published.tensor_of("nemotron_h_mtp", name, gradients)
            assert agreement.relative_error(values, theirs) < 1e-5, name
    agreement.check_two_steps("nemotron_h_mtp", p, keys, folder)


@case
def a_block_of_further_tokens_is_shared_or_left_out_by_the_deck(p):
    """Files say how many blocks there are, not at how many depths they are used."""
    folder = fresh("one", "nemotron_h_mtp")
    tensors = published.read_folder(folder)
    kept = {name: values for name, values in tensors.items()
            if not name.startswith(("mtp.layers.2.", "mtp.layers.3."))}
    published.write_safetensors(folder / "model.safetensors", kept)
    set_keys(folder, num_nextn_predict_layers=1)
    outputs = published.read_safetensors(
        FIXTURES / "nemotron_h_mtp" / "reference" / "outputs.safetensors")
    keys = agreement.write_tokens(p, outputs["tokens"])
    p.run("convert", "import", folder, "--out", "weights", "--deck", "it.toml")
    shared = ["model.mtp_num_layers=3", "model.mtp_use_repeated_layer=true"]
    p.run("train", "it.toml", *keys, *shared, "run.steps=1", "run.output=shared.h5",
          f"checkpoint.resume=hf:{folder}", "checkpoint.directory=ck")
    with h5py.File("shared.h5") as file:
        losses = file["/series/mtp/loss"][0]
        assert losses.shape == (3,), losses
        assert abs(losses[0] - outputs["mtp_losses"][0]) < 1e-5 * losses[0], losses
    p.run("convert", "export", "ck/step_00000001.h5", "--out", "out")
    assert json.loads(pathlib.Path("out/config.json").read_text())["num_nextn_predict_layers"] == 1
    assert published.read_folder("out").keys() == kept.keys()
    without = ["model.mtp_num_layers=0", "model.mtp_pattern="]
    says = ["model.mtp_num_layers", "allow_changes"]
    p.refuse("train", "it.toml", *keys, *without, f"checkpoint.resume=hf:{folder}", says=says)
    p.run("train", "it.toml", *keys, *without, "checkpoint.allow_changes=true", "run.steps=1",
          f"checkpoint.resume=hf:{folder}", "run.output=without.h5", "checkpoint.directory=")


@case
def llama_is_that_of_transformers(p):
    agreement.compare("llama", p, FIXTURES / "llama")


@case
def llama3_is_that_of_transformers(p):
    agreement.compare("llama3", p, FIXTURES / "llama3")


@case
def qwen3_is_that_of_transformers(p):
    agreement.compare("qwen3", p, FIXTURES / "qwen3")


@case
def qwen3_moe_is_that_of_transformers(p):
    agreement.compare("qwen3_moe", p, FIXTURES / "qwen3_moe")


@case
def qwen3_next_is_that_of_transformers(p):
    agreement.compare("qwen3_next", p, FIXTURES / "qwen3_next")


@case
def qwen3_5_text_is_that_of_transformers(p):
    agreement.compare("qwen3_5_text", p, FIXTURES / "qwen3_5_text")


@case
def qwen3_5_moe_text_is_that_of_transformers(p):
    agreement.compare("qwen3_5_moe_text", p, FIXTURES / "qwen3_5_moe_text")


@case
def mamba2_is_that_of_transformers(p):
    agreement.compare("mamba2", p, FIXTURES / "mamba2")


@case
def the_quick_start_can_be_exported(p):
    deck = pathlib.Path(__file__).parents[2] / "inputs" / "quickstart.toml"
    pathlib.Path("book.txt").write_text("And the evening and the morning were a day.\n" * 200)
    small = ["model.pattern=ME*-", "model.hidden_size=32", "model.ffn_hidden_size=32",
             "train.seq_length=32", "train.global_batch_size=4", "eval.steps=1", "run.steps=2",
             "optim.warmup_steps=1", "validate.finite_differences=off",
             "validate.val_loss_below=100", "validate.val_loss_falling=false"]
    p.run("train", deck, *small, "data.path=book.txt", "checkpoint.directory=ck")
    p.run("convert", "export", "ck", "--out", "out")
    config = json.loads(pathlib.Path("out/config.json").read_text())
    assert config["model_type"] == "nemotron_h", config
    assert config["hybrid_override_pattern"] == "ME*-", config
    p.run("convert", "import", "out", "--out", "again", "--deck", "again.toml")
    p.run("convert", "export", "again", "--out", "twice")
    assert_same_tensors("out", "twice")


@case
def import_then_export_is_identical(p):
    for family in published.FAMILIES:
        model = FIXTURES / family / "model"
        p.run("convert", "import", model, "--out", f"{family}.ck", "--deck", f"{family}.toml")
        p.run("convert", "export", f"{family}.ck", "--out", f"{family}.out")
        assert_same_tensors(model, f"{family}.out")
        made = pathlib.Path(f"{family}.out")
        assert (made / "tokenizer.json").read_text() == (model / "tokenizer.json").read_text()
        one = json.loads((model / "config.json").read_text())
        other = json.loads((made / "config.json").read_text())
        assert one == other, (one, other)
        p.run("convert", "import", made, "--out", f"{family}.again", "--deck", "again.toml")
        p.run("convert", "export", f"{family}.again/step_00000000.h5", "--out", "twice")
        assert_same_tensors(model, "twice")
        shutil.rmtree("twice")
        os.remove("again.toml")


@case
def a_head_of_its_own_is_kept(p):
    """config.json ties the head to the embedding: the bytes of the files decide."""
    for name in ("other", "copy"):
        folder = fresh(name, "qwen3")
        set_keys(folder, tie_word_embeddings=True)
        tensors = published.read_folder(folder)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
        if name == "other":
            tensors["lm_head.weight"][-1, -1] += 1
        published.write_safetensors(folder / "model.safetensors", tensors)
        done = p.run("convert", "import", folder, "--out", f"{name}.ck", "--deck",
                     f"{name}.toml")
        deck = pathlib.Path(f"{name}.toml").read_text()
        untied = name == "other"
        assert f"untie_embeddings = {str(untied).lower()}" in deck, deck
        assert ("the files have another head" in done.stdout) == untied, done.stdout
        p.run("convert", "export", f"{name}.ck", "--out", f"{name}.out")
        config = json.loads(pathlib.Path(f"{name}.out/config.json").read_text())
        assert config["tie_word_embeddings"] is not untied, config
        if not untied:
            del tensors["lm_head.weight"]
            published.write_safetensors(folder / "model.safetensors", tensors)
        assert_same_tensors(folder, f"{name}.out")
    keys = ["checkpoint.directory=", "run.steps=1", "train.seq_length=8",
            "data.held_out_fraction=0", "checkpoint.resume=hf:other"]
    losses = []
    for resume in ("other.ck/step_00000000.h5", "hf:other"):
        p.run("train", "other.toml", *keys[:-1], f"checkpoint.resume={resume}")
        with h5py.File("other.h5") as file:
            losses.append(file["/series/train/loss"][0])
    assert losses[0] == losses[1], losses
    p.refuse("train", "copy.toml", *keys, says=["model.untie_embeddings = false", "has true"])
    p.refuse("train", "copy.toml", *keys, "checkpoint.allow_changes=true",
             says=["lm_head.weight", "model.untie_embeddings=true"])


@case
def layers_that_predict_further_tokens_are_left_out(p):
    folder = fresh("model", "qwen3_next")
    tensors = dict(published.read_folder(folder))
    tensors["mtp.norm.weight"] = tensors["model.norm.weight"]
    published.write_safetensors(folder / "model.safetensors", tensors)
    said = p.run("convert", "import", folder, "--out", "ck", "--deck", "it.toml").stdout
    assert "not exported again: 'mtp.norm.weight' and its like, 1 in all" in said, said
    p.run("convert", "export", "ck", "--out", "out")
    assert_same_tensors(FIXTURES / "qwen3_next" / "model", "out")


@case
def types_are_those_of_the_files(p):
    folder = fresh("plain")
    tensors = published.read_folder(folder)
    config = json.loads((folder / "config.json").read_text())
    del config["dtype"]
    (folder / "config.json").write_text(json.dumps(config))
    assert all(values.dtype == numpy.float32 for values in tensors.values())
    said = p.run("convert", "import", folder, "--out", "ck", "--deck", "plain.toml").stdout
    assert 'dtype = "fp32"' in pathlib.Path("plain.toml").read_text() and "no dtype" in said, said
    assert "files have" not in said, said
    set_keys(folder, dtype="bfloat16")
    said = p.run("convert", "import", folder, "--out", "bf16.ck", "--deck", "bf16.toml").stdout
    assert "of F32; a run stores them as train.dtype = \"bf16\"" in said, said
    assert "no dtype" not in said, said
    # Of more than one type: that of most bytes, and a line.
    mixed = fresh("mixed", "qwen3")
    tensors = published.read_folder(mixed)
    norm = {name: values.view("<u4") >> 16 for name, values in tensors.items()
            if name == "model.norm.weight"}
    rest = {name: values for name, values in tensors.items() if name not in norm}
    published.write_safetensors(mixed / "one.safetensors", norm, "BF16")
    published.write_safetensors(mixed / "two.safetensors", rest)
    os.remove(mixed / "model.safetensors")
    places = {**dict.fromkeys(norm, "one.safetensors"), **dict.fromkeys(rest, "two.safetensors")}
    (mixed / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    set_keys(mixed, dtype="auto")
    said = p.run("convert", "import", mixed, "--out", "mixed.ck", "--deck", "m.toml").stdout
    assert 'dtype = "fp32"' in pathlib.Path("m.toml").read_text(), said
    assert "files have 1 of BF16; a run stores them as train.dtype = \"fp32\"" in said, said
    p.run("convert", "export", "mixed.ck", "--out", "mixed.out")
    assert_same_tensors(mixed, "mixed.out")


@case
def hostile_folders_harm_nobody(p):
    """Links out of the folder, names that would be lines of the deck, keys that nobody knows."""
    pathlib.Path("secret").write_text("of somebody")
    folder = fresh("model\n[optim]\nlr = 99.0\n#")
    os.symlink("../secret", folder / "tokenizer_config.json")

    def refused(*says):
        p.refuse("convert", "import", folder, "--out", "ck", "--deck", "it.toml", says=says)
        assert not pathlib.Path("it.toml").exists() and not pathlib.Path("ck").exists()
    refused("tokenizer_config.json is a link to", "secret", "outside of its folder")
    os.remove(folder / "tokenizer_config.json")
    os.mkfifo(folder / "tokenizer_config.json")
    refused("tokenizer_config.json", "not a plain file")
    os.remove(folder / "tokenizer_config.json")
    (folder / "tokenizer_config.json").touch()
    os.truncate(folder / "tokenizer_config.json", 20 << 30)
    refused("tokenizer_config.json", "21474836480 bytes")
    (folder / "tokenizer_config.json").write_text("{}")
    set_keys(folder, **{"new\x1b[2J": 1})
    refused("new\\x1b[2J = 1", "not known", "--ignore-key")
    set_keys(folder, new=1)
    config = json.loads((folder / "config.json").read_text())
    del config["new\x1b[2J"]
    (folder / "config.json").write_text(json.dumps(config))
    refused("new = 1", "--ignore-key new")
    p.refuse("convert", "import", folder, "--out", "ck", "--deck", "it.toml", "--ignore-key",
             "new", "--ignore-key", "newer", says=["--ignore-key newer"])
    done = p.run("convert", "import", folder, "--out", "ck", "--deck", "it.toml",
                 "--ignore-key", "new")
    assert "left out: " in done.stdout and "new" in done.stdout.splitlines()[0], done.stdout
    lines = pathlib.Path("it.toml").read_text().splitlines()
    assert not any(line.startswith("lr") for line in lines), lines
    p.run("convert", "export", "ck", "--out", "out")  # its config.json has the key again
    assert json.loads(pathlib.Path("out/config.json").read_text())["new"] == 1
    keys = ["it.toml", "checkpoint.directory=", f"checkpoint.resume=hf:{folder}", "run.steps=1",
            "train.seq_length=16"]
    p.refuse("train", *keys, says=["new = 1", "checkpoint.allow_changes=true"])
    said = p.run("train", *keys, "checkpoint.allow_changes=true",
                 "data.held_out_fraction=0").stdout
    assert f"\n# changed: new of {folder} is not known and passed over\n" in said, said
    assert "zero" not in said, said  # null: it changes nothing


@case
def shards_are_bounded_and_indexed(p):
    model = FIXTURES / "nemotron_h" / "model"
    p.run("convert", "import", model, "--out", "ck", "--deck", "it.toml")
    p.run("convert", "export", "ck", "--out", "out", "--shard-size", "8 KiB")
    shards = sorted(pathlib.Path("out").glob("*.safetensors"))
    assert len(shards) > 3, shards
    for number, path in enumerate(shards, start=1):
        assert path.name == f"model-{number:05}-of-{len(shards):05}.safetensors", path
        tensors = published.read_safetensors(path)
        size = sum(values.nbytes for values in tensors.values())
        assert size <= 8192 or len(tensors) == 1, (path, size)
    index = json.loads(pathlib.Path("out/model.safetensors.index.json").read_text())
    whole = published.read_folder("out")
    assert index["metadata"]["total_size"] == sum(v.nbytes for v in whole.values())
    for name, shard in index["weight_map"].items():
        assert name in published.read_safetensors(pathlib.Path("out") / shard), name
    assert index["weight_map"].keys() == whole.keys()
    assert_same_tensors(model, "out")
    p.run("convert", "import", "out", "--out", "again", "--deck", "again.toml")
    p.run("convert", "export", "again", "--out", "one/")  # as a shell completes it
    assert_same_tensors(model, "one")


@case
def a_folder_of_random_weights_has_the_layers_of_its_deck(p):
    """Experts too, so that make_folder.py measures import and export of a 30B at full size."""
    here = pathlib.Path(__file__).parent
    deck = (here / "tiny.toml").read_text()
    pathlib.Path("small.toml").write_text(
        deck.replace("hidden_size = 32", 'hidden_size = 32\nhead_dim = 8', 1))
    subprocess.run([sys.executable, here / "interop" / "make_folder.py", "small.toml", "made",
                    "--layers", "4", "--shard-bytes", "20000"], check=True)
    p.run("convert", "import", "made", "--out", "ck", "--deck", "it.toml")
    p.run("convert", "export", "ck", "--out", "out")
    assert len(list(pathlib.Path("made").glob("*.safetensors"))) > 1
    assert_same_tensors("made", "out")


@case
def bf16_stays_bf16_and_ranks_agree(p):
    folder = fresh("model")
    tensors = published.read_folder(folder)
    halves = {name: (values.view("<u4") >> 16) for name, values in tensors.items()}
    published.write_safetensors(folder / "model.safetensors", halves, "BF16")
    set_keys(folder, dtype="bfloat16")
    p.run("convert", "import", folder, "--out", "ck", "--deck", "it.toml")
    p.run("convert", "export", "ck", "--out", "out")
    assert_same_tensors(folder, "out")
    assert 'dtype = "bf16"' in pathlib.Path("it.toml").read_text()
    # The masters of a bf16 run are the weights in full, on ranks that share them out as well.
    keys = ["train.seq_length=16", "train.global_batch_size=2", "run.steps=2", "optim.lr=1e-3",
            "data.held_out_fraction=0", "checkpoint.directory="]
    losses = {}
    for ranks, resume in ((1, "ck/step_00000000.h5"), (2, "hf:model")):
        p.run("train", "it.toml", *keys, f"checkpoint.resume={resume}", "parallel.zero=1",
              f"run.output=run{ranks}.h5", ranks=ranks)
        with h5py.File(f"run{ranks}.h5") as file:
            losses[ranks] = file["/series/train/loss"][:]
    error = numpy.abs(losses[1] - losses[2]).max()
    assert error < 2.0 ** -8, losses  # one unit of bf16: the order of sums
    p.run("train", "it.toml", *keys, "checkpoint.resume=never", "run.output=random.h5")
    with h5py.File("random.h5") as file:
        assert numpy.abs(file["/series/train/loss"][:] - losses[1]).max() > 2.0 ** -8


@case
def a_run_goes_on_from_weights_and_back(p):
    model = FIXTURES / "nemotron_h" / "model"
    p.run("convert", "import", model, "--out", "ck", "--deck", "it.toml")
    keys = ["train.seq_length=16", "train.global_batch_size=1", "data.held_out_fraction=0",
            "checkpoint.interval=1", "checkpoint.keep_last=1", "optim.decay_steps=3"]
    p.run("train", "it.toml", *keys, "run.steps=2", "run.output=a.h5")
    # What the run started from stays.
    assert sorted(path.name for path in pathlib.Path("ck").glob("step_*")) == [
        "step_00000000.h5", "step_00000002.h5"]
    p.run("train", "it.toml", *keys, "run.steps=3", "run.output=b.h5")
    with h5py.File("b.h5") as file:
        assert len(file["/series/train/loss"]) == 1
    p.run("convert", "export", "ck", "--out", "out")
    before, after = published.read_folder(model), published.read_folder("out")
    assert before.keys() == after.keys()
    moved = sum(not (before[name] == after[name]).all() for name in before)
    assert moved == len(before), (moved, len(before))
    with h5py.File("ck/step_00000003.h5") as file:
        for name, values in agreement.tensors_below(file["tensors"]).items():
            if "/" not in name:
                theirs = published.tensor_of("nemotron_h", name, after)
                assert values.tobytes() == theirs.tobytes(), name


@case
def a_run_publishes_its_checkpoints(p):
    """The first checkpoint of each three steps, as stowage_convert writes it. What has the name of
    a folder gets another; what a run that was killed has left goes."""
    model = FIXTURES / "nemotron_h" / "model"
    p.run("convert", "import", model, "--out", "ck", "--deck", "it.toml")
    keys = ["train.seq_length=16", "train.global_batch_size=2", "data.held_out_fraction=0",
            "checkpoint.interval=2", "checkpoint.export_interval=3", "checkpoint.keep_last=9",
            "optim.decay_steps=9"]
    pathlib.Path("ck/published/step_00000004").mkdir(parents=True)
    pathlib.Path("ck/published/step_00000004/mine").write_text("mine")
    pathlib.Path("ck/published/step_00000004.part").mkdir()
    said = p.run("train", "it.toml", *keys, "run.steps=5", "run.output=a.h5", ranks=2).stdout
    assert "ck/published/step_00000004: " in said and said.count("# published: ") == 1, said
    p.run("train", "it.toml", *keys, "run.steps=6", "run.output=b.h5")
    made = sorted(path.name for path in pathlib.Path("ck/published").iterdir())
    assert made == ["step_00000004", "step_00000004.older_1", "step_00000006"], made
    assert pathlib.Path("ck/published", made.pop(1), "mine").read_text() == "mine"
    for name in made:
        p.run("convert", "export", f"ck/{name}.h5", "--out", f"{name}.alone")
        folder = pathlib.Path(f"{name}.alone")
        for file in folder.iterdir():
            theirs = pathlib.Path("ck/published", name, file.name)
            assert file.read_bytes() == theirs.read_bytes(), theirs
        assert len(list(folder.iterdir())) == len(list((folder.parent / "ck/published" /
                                                        name).iterdir()))
    pathlib.Path("file").mkdir()
    pathlib.Path("file/published").write_text("")
    p.refuse("train", "it.toml", *keys, "checkpoint.directory=file",
             says=["checkpoint.export_interval = 3", "file/published"])
    p.refuse("train", "it.toml", "checkpoint.export_interval=2", "checkpoint.directory=",
             says=["checkpoint.export_interval", "checkpoint.directory"])
    p.refuse("train", "it.toml", *keys, "checkpoint.directory=new", "model.pattern=MG",
             "model.delta_num_key_heads=2", "model.delta_num_value_heads=2",
             "model.delta_key_head_dim=8", "model.delta_value_head_dim=8",
             says=["checkpoint.export_interval = 3"])


@case
def bad_folders_are_refused(p):
    def refused(folder, *says):
        p.refuse("convert", "import", folder, "--out", "ck", "--deck", "it.toml", says=says)
        assert not pathlib.Path("it.toml").exists() and not list(pathlib.Path().glob("ck/step*"))

    refused("nothing", "nothing/config.json")
    os.remove((folder := fresh("no_weights")) / "model.safetensors")
    refused(folder, "neither", "model.safetensors")
    published.write_safetensors(folder / "model.safetensors", {"lm_head.weight": numpy.zeros(3)})
    refused(folder, "no tensor's name begins with backbone. or model.: no model of")
    for keys, says in (({"moe_latent_size": 64}, ["moe_latent_size", "64"]),
                       ({"num_nextn_predict_layers": 1}, ["no tensor 'mtp.layers."]),
                       ({"mtp_layers_block_type": ["moe", "rwkv"], "num_nextn_predict_layers": 1},
                        ["mtp_layers_block_type", "rwkv", "full_attention"]),
                       ({"model_type": "bamba"}, ["bamba", "a table of its names", "qwen3"]),
                       ({"new_thing": True}, ["new_thing", "not known"]),
                       ({"hidden_size": 24}, ["lm_head.weight", "F32 (32, 16)", "(32, 24)"]),
                       ({"n_routed_experts": 5}, ["experts.4.down_proj"]),
                       ({"conv_kernel": 5}, ["mamba_conv_width", "5", "[2, 4]"])):
        folder = fresh("other_" + next(iter(keys)))
        set_keys(folder, **keys)
        refused(folder, *says)
    for change, says in (("mtp.layers.0.norm.weight", ["mtp.layers.0.norm.weight", "none of"]),
                         ("-lm_head.weight", ["lm_head.weight", "output.weight"])):
        folder = fresh("changed" + change)
        tensors = dict(published.read_folder(folder))
        if change.startswith("-"):
            del tensors[change[1:]]
        else:
            tensors[change] = numpy.zeros(3, "f4")
        published.write_safetensors(folder / "model.safetensors", tensors)
        refused(folder, *says)
    model = (folder := fresh("whole_numbers")) / "model.safetensors"
    model.write_bytes(model.read_bytes().replace(b'"F32"', b'"I32"'))
    refused(folder, "is I32", "allowed: BF16, F32, F64")
    model = (folder := fresh("cut_off")) / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1])
    refused(folder, "truncated", "model.safetensors")
    pathlib.Path("it.toml").write_text("mine")
    p.refuse("convert", "import", FIXTURES / "llama" / "model", "--out", "ck", "--deck",
             "it.toml", says=["the deck", "it.toml", "no older file of this kind"])
    assert pathlib.Path("it.toml").read_text() == "mine"


@case
def files_of_others_are_kept(p):
    """What is beside the checkpoint already is the user's, and nothing is left of an import."""
    model = FIXTURES / "nemotron_h" / "model"
    own = pathlib.Path("ck/huggingface/tokenizer.json")
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    p.refuse("convert", "import", model, "--out", "ck", "--deck", "it.toml",
             says=["the model's file", str(own), "no older file of this kind"])
    assert own.read_text() == "mine" and not pathlib.Path("it.toml").exists()
    assert [path.name for path in own.parent.iterdir()] == [own.name]
    own.unlink()
    p.refuse("convert", "import", model, "--out", "ck", "--deck", own,
             says=["two outputs need two files"])
    folder = fresh("model")
    os.symlink(folder / "config.json", "link.toml")
    p.refuse("convert", "import", folder, "--out", "ck", "--deck", "link.toml",
             says=["--deck link.toml", "would replace", "config.json"])
    pathlib.Path("it.toml.part").write_text("mine")
    p.refuse("convert", "import", model, "--out", "ck", "--deck", "it.toml",
             says=["it.toml.part", "not of ours"])
    assert [str(path) for path in pathlib.Path("ck").rglob("*")] == ["ck/huggingface"]
    shutil.rmtree("ck")
    p.refuse("convert", "import", model, "--out", "ck", "--deck", "it.toml", says=["of ours"])
    assert not os.path.exists("ck")
    pathlib.Path("ck").mkdir()
    pathlib.Path("ck/latest").write_text("mine")
    p.refuse("convert", "import", model, "--out", "ck", "--deck", "b.toml",
             says=["ck/latest", "no link to a checkpoint"])
    assert os.listdir("ck") == ["latest"]
    shutil.rmtree("ck")
    os.remove("it.toml.part")
    p.run("convert", "import", model, "--out", "ck", "--deck", "it.toml")
    assert not list(pathlib.Path().rglob("*.part"))


def grown(name, vocabulary):
    """A folder with many more tokens, all of whose weights are 0."""
    folder = fresh(name)
    set_keys(folder, vocab_size=vocabulary)
    tensors = dict(published.read_folder(folder))
    for key in ("backbone.embeddings.weight", "lm_head.weight"):
        tensors[key] = numpy.zeros((vocabulary, tensors[key].shape[1]), "f4")
    published.write_safetensors(folder / "model.safetensors", tensors)
    return folder


@case
def a_full_disk_leaves_nothing_behind(p):
    """Beyond `ulimit -f` writes fail: in a side file, in the weights, in what is exported."""
    limit = 8 << 20  # MPI's own files are smaller than this
    small, large = fresh("small"), grown("large", limit // 32)  # 16 columns of fp32
    (small / "tokenizer.json").write_text("x" * 2 * limit)
    for folder, says in ((small, "tokenizer.json"), (large, "step_00000000.h5")):
        done = p.limited(limit, "convert", "import", folder, "--out", "ck", "--deck", "it.toml")
        assert done.returncode == 4 and says in done.stderr, (done.returncode, done.stderr)
        assert "File too large" in done.stderr, done.stderr
        assert not os.path.exists("ck") and not list(pathlib.Path().glob("it.toml*"))
    p.run("convert", "import", large, "--out", "ck", "--deck", "it.toml")
    done = p.limited(limit, "convert", "export", "ck", "--out", "out")
    assert done.returncode == 4 and "File too large" in done.stderr, done
    assert not list(pathlib.Path().glob("out*"))


@case
def what_cannot_be_exported_or_started_is_refused(p):
    model = FIXTURES / "nemotron_h" / "model"
    p.run("convert", "import", model, "--out", "ck", "--deck", "it.toml")
    p.refuse("convert", "import", model, "--out", "ck", "--deck", "b.toml", says=["already"])
    p.refuse("convert", "export", "nothing.h5", "--out", "out", says=["nothing.h5"])
    pathlib.Path("empty").mkdir()
    p.refuse("convert", "export", "empty", "--out", "out", says=["empty", "no checkpoint"])
    p.refuse("convert", "export", "ck", "--out", "empty", says=["--out empty", "already"])
    p.refuse("convert", "export", "ck", "--out", "out", "--family", "llama",
             says=["llama", "model.pattern"])
    p.refuse("convert", "export", "ck", "--out", "out", "--family", "gpt2",
             says=["gpt2", "nemotron_h"])
    p.refuse("convert", "export", "ck", "--out", "out", "--shard-size", "none",
             says=["--shard-size none"])
    p.refuse("convert", "export", "ck", "--out", "", says=["--out", "names no folder"])
    os.symlink("nothing", "dangling")
    p.refuse("convert", "export", "ck", "--out", "dangling", says=["dangling", "already"])
    for out, deck, says in (("", "b.toml", "--out"), ("new", "", "--deck"),
                            ("new", "new/step_00000000.h5", "two outputs need two files")):
        p.refuse("convert", "import", model, "--out", out, "--deck", deck, says=[says])
    p.refuse("convert", "turn", says=["'turn'", "import, export"])
    assert not pathlib.Path("out").exists() and not pathlib.Path("out.part").exists()
    for key, says in (("model.mamba_dt_min=0.1", ["mamba_dt_min", "allow_changes"]),
                      ("model.moe_router_force_load=zipf", ["force_load", "allow_changes"]),
                      ("model.pattern=MM*-", ["model.pattern", "ME*-"])):
        for resume in ("ck/step_00000000.h5", f"hf:{model}"):
            p.refuse("train", "it.toml", key, f"checkpoint.resume={resume}", "run.steps=1",
                     "checkpoint.directory=", says=says)
    p.refuse("train", "it.toml", "data.path=tokens", "run.steps=1",
             says=['data.path = "tokens"', 'data.source = "synthetic"', '"auto"'])
    p.refuse("train", "it.toml", "checkpoint.resume=hf:nowhere", "run.steps=1",
             "checkpoint.directory=", says=["nowhere"])
    for resume in ("ck/step_00000000.h5", f"hf:{model}"):
        said = p.run("train", "it.toml", "model.mamba_dt_min=0.1", "optim.lr=1e-4",
                     "checkpoint.allow_changes=true", "run.steps=1", "train.seq_length=16",
                     "checkpoint.directory=", "data.held_out_fraction=0",
                     f"checkpoint.resume={resume}").stdout
        changes = [line for line in said.splitlines() if line.startswith("# changed: ")]
        assert len(changes) == 1 and "model.mamba_dt_min = 0.1" in changes[0], said


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--bin", required=True)
    arguments = parser.parse_args()
    programs = agreement.Programs(pathlib.Path(arguments.bin).absolute())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        CASES[arguments.case](programs)


if __name__ == "__main__":
    main()
