#!/usr/bin/python3
"""stowage_data and training on what it makes: whole processes, their files and exit codes.

Usage: data_test.py CASE --data PROGRAM --train PROGRAM --source FOLDER. Each case runs in a folder
of its own.
"""
import argparse
import gzip
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

import h5py
import numpy

from process_cases import Cases

CASES = case = Cases()
VALIDATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "results", "tools",
                        "validate.py")
PACKINGS = ("documents", "first_fit", "best_fit")


class Runner:
    def __init__(self, options):
        self.options = options
        self.deck = os.path.join(options.source, "ctest", "drivers", "tiny.toml")
        self.env = dict(os.environ, OMP_NUM_THREADS="1", OMP_PROC_BIND="false",
                        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def run(self, *command, expect=0, given=None):
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=240,
                              input=given)
        assert done.returncode == expect, (done.returncode, command, done.stdout, done.stderr)
        return done.stdout if expect == 0 else done.stderr

    def data(self, *arguments, expect=0, given=None):
        return self.run(self.options.data, *arguments, expect=expect, given=given)

    def train(self, *arguments, ranks=1, expect=0):
        """The small deck on the files train.* and held_out.*, which hold bytes."""
        start = ["mpirun", "--oversubscribe", "-np", str(ranks)] if ranks > 1 else []
        return self.run(*start, self.options.train, self.deck, "model.vocab_size=256",
                        "data.source=auto", "data.path=train", "data.validation_path=held_out",
                        *arguments, expect=expect)


def words(source, shortest, longest):
    return "".join(source.choice("abcdefgh ") for _ in range(source.randint(shortest, longest)))


def make_files(r, documents=300, longest=40, pairs=True, seed=None):
    """Prepares train.* and held_out.* from random lines; prints the seed."""
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    print("seed", seed)
    source = random.Random(seed)
    for name in ("train", "held_out"):
        lines = []
        for _ in range(documents):
            line = {"text": words(source, 1, longest)}
            if pairs:
                line = {"prompt": words(source, 0, longest // 2),
                        "response": words(source, 1, longest - longest // 2)}
            lines.append(json.dumps(line))
        pathlib.Path(f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        r.data("prepare", f"{name}.jsonl", "--out", name)


def series(path, name="train/loss"):
    with h5py.File(path) as file:
        return file[f"/series/{name}"][:]


@case
def lines_become_tokens_and_masks(r):
    given = [{"prompt": "ab", "response": "c"}, {"prompt": "", "response": ""},
             {"prompt": "é", "response": "xyz"}]
    said = r.data("prepare", "-", "--out", "qa", "--vocab-size", "257", "--append-token", "256",
                  given="\n".join(map(json.dumps, given)))
    assert "2 documents, 10 tokens, 6 of them predicted; 1 lines without" in said, said
    tokens = numpy.fromfile("qa.bin", numpy.uint16)
    assert tokens.tolist() == [97, 98, 99, 256, *"éxyz".encode(), 256], tokens
    assert numpy.fromfile("qa.mask", numpy.uint8).tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 1, 1]
    said = r.data("check", "qa.idx")
    assert "masked: 2 documents, 10 tokens, the largest 256" in said and "60.00 %" in said, said
    turns = [{"turns": ["a", "bc", "d", "e"]}, {"turns": ["x", "y", "z"]}, {"turns": []},
             {"prompt": "p", "response": "r"}]
    said = r.data("prepare", "-", "--out", "turns", "--vocab-size", "257", "--append-token", "256",
                  given="\n".join(map(json.dumps, turns)))
    assert "3 documents, 13 tokens, 7 of them predicted; 1 lines without" in said, said
    assert numpy.fromfile("turns.bin", numpy.uint16).tolist() == [
        *b"abcde", 256, *b"xyz", 256, *b"pr", 256]
    assert numpy.fromfile("turns.mask", numpy.uint8).tolist() == [
        0, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0, 1, 1]
    r.data("prepare", "-", "--out", "ids", "--tokenizer", "ids", "--vocab-size", "70000",
           given='{"text": [1, 69999]}\n{"text": [5]}\n')
    assert numpy.fromfile("ids.bin", numpy.int32).tolist() == [1, 69999, 5]
    assert not pathlib.Path("ids.mask").exists()


@case
def bad_lines_leave_nothing_behind(r):
    good = '{"text": "ab"}\n'
    for given, says in ((good + "[1]", ("-:2", "not an object")),
                        (good + '{"text": "a', ("-:2", "not an object")),
                        (good + '{"prompt": "a"}', ("-:2", '"prompt" and "response"')),
                        (good + '{"prompt": "a", "response": "b"}', ("-:2", "do not mix")),
                        (good + '{"prompt": "a", "text": "b"}', ("-:2", '"text", or "prompt"')),
                        (good + '{"text": 1}', ("-:2", "strings")),
                        (good + '{"text": NaN}', ("-:2", "strings")),
                        (good + '{"turns": ["a", "b"]}', ("-:2", "do not mix")),
                        ('{"turns": ["a", 1]}', ("-:1", "strings")),
                        ('{"turns": "a"}', ("-:1", "no list")),
                        ('{"turns": ["a"], "text": "b"}', ("-:1", 'or "turns"')),
                        ('{"messages": []}', ("-:1", "encode_bpe.py")),
                        ('{"text": ""}\n', ("no line holds a token",))):
        said = r.data("prepare", "-", "--out", "folder/x", expect=2, given=given)
        assert all(part in said for part in says), said
        assert not list(pathlib.Path("folder").glob("*")), list(pathlib.Path("folder").glob("*"))
    said = r.data("prepare", "-", "--out", "x", "--tokenizer", "ids", expect=2,
                  given='{"text": [256]}')
    assert "256 is not a token below --vocab-size 256" in said, said
    r.data("prepare", "-", "--out", "x", given=good)
    assert "x.bin exists already" in r.data("prepare", "-", "--out", "x", expect=2, given=good)
    assert "allowed: prepare, check, stats" in r.data("pack", expect=2)
    assert "allowed: bytes, ids" in r.data("prepare", "-", "--out", "y", "--tokenizer", "bpe",
                                           expect=2, given=good)


@case
def inputs_are_named_for_what_they_are(r):
    assert "no command; allowed: prepare, check" in r.data(expect=2)
    good = '{"text": "ab", "score": NaN}\n'
    pathlib.Path("c.gz").write_bytes(gzip.compress(good.encode()))
    pathlib.Path("latin1.jsonl").write_bytes(good.encode() + b'{"text": "caf\xe9"}')
    pathlib.Path("deep.jsonl").write_text('{"text":[' + 100000 * "[" + 100000 * "]" + "]}")
    pathlib.Path("long.jsonl").write_text(good)
    os.truncate("long.jsonl", 64 << 30)
    pathlib.Path("screen.jsonl").write_bytes(b'{"\x1b[2J')
    pathlib.Path("twice.gz").write_bytes(gzip.compress(gzip.compress(good.encode())))
    for name, says in (("twice.gz", ("'twice.gz'", "gzip data in gzip data")),
                       ("latin1.jsonl", ("latin1.jsonl:2", "column 15", "UTF-8")),
                       ("deep.jsonl", ("deep.jsonl:1", "type array is not a token")),
                       ("screen.jsonl", ("screen.jsonl:1", "column 3")),
                       ("\x1b[2J", ("'\\x1b[2J'", "No such file")),
                       ("long.jsonl", ("long.jsonl:2", "more than 64 MiB")),
                       ("/dev/zero", ("'/dev/zero' is a device", "files, FIFOs and -")),
                       (".", ("'.' is a directory",))):
        said = r.data("prepare", name, "--out", "x", "--tokenizer",
                      "ids" if name == "deep.jsonl" else "bytes", expect=2)
        assert all(part in said for part in says), said
        assert said.isprintable() or said.rstrip("\n").isprintable(), said
    for length in ((64 << 20) - 11, (64 << 20) - 12):  # 12 bytes are no text of the document
        long = '\n\r\n{"text": "' + length * "a" + '"}'
        said = r.data("prepare", "-", "--out", "x", given=long,
                      expect=2 if length + 12 > 64 << 20 else 0)
        assert (f"1 documents, {length} tokens" in said) == (length + 12 == 64 << 20), said
        assert (said.count("-:3: a line of more than") == 1) == (length + 12 > 64 << 20), said
    for name in ("x.bin", "x.idx"):
        os.remove(name)
    assert "name of the files" in r.data("prepare", "-", "--out", "", expect=2, given=good)
    os.mkfifo("fifo")
    reader = subprocess.Popen([r.options.data, "prepare", "fifo", "--out", "x"], env=r.env,
                              stderr=subprocess.PIPE, text=True)
    assert "'fifo' is a FIFO: waits" in reader.stderr.readline()
    pathlib.Path("fifo").write_text(good)
    assert reader.wait(60) == 0 and pathlib.Path("x.bin").read_bytes() == b"ab"


@case
def compressed_lines_are_those_of_the_file(r):
    """A cut file is an error that names it, and leaves nothing behind; so is a missing program."""
    lines = "".join(json.dumps({"text": f"document {i}"}) + "\n" for i in range(40000))
    pathlib.Path("plain.jsonl").write_text(lines)
    r.data("prepare", "plain.jsonl", "--out", "plain")
    for program in ("gzip", "bzip2", "xz", "zstd"):
        if not shutil.which(program):
            print(f"{program} is not here")
            continue
        packed = subprocess.run([program, "-1c"], input=lines.encode(), capture_output=True,
                                check=True).stdout
        pathlib.Path(f"{program}.jsonl").write_bytes(packed)
        r.data("prepare", f"{program}.jsonl", "--out", program)
        for suffix in ("bin", "idx"):
            one, other = (pathlib.Path(f"{name}.{suffix}").read_bytes()
                          for name in ("plain", program))
            assert one == other, (program, suffix)
        for cut in (packed[:len(packed) // 2], packed + packed[:-3]):
            pathlib.Path("cut.jsonl").write_bytes(cut)
            said = r.data("prepare", "cut.jsonl", "--out", "cut", expect=2)
            assert f"'cut.jsonl': {program} data that cannot be unpacked" in said, said
            assert said.count("\n") == 1, said  # gzip says several lines
            assert not list(pathlib.Path().glob("cut.[bi]*")), os.listdir()
    with open("gzip.jsonl", "rb") as file:
        done = subprocess.run([r.options.data, "prepare", "-", "--out", "x"], env=r.env,
                              stdin=file, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2, done
    assert "gzip -dc | stowage_data prepare - --out PREFIX" in done.stderr, done.stderr
    os.mkdir("empty")
    done = subprocess.run([r.options.data, "prepare", "gzip.jsonl", "--out", "x"],
                          env={**r.env, "PATH": "empty"}, capture_output=True, text=True,
                          timeout=100)
    assert done.returncode == 3, done
    assert "the program gzip unpacks: it cannot be run" in done.stderr, done.stderr
    done = subprocess.run([r.options.data, "prepare", "gzip.jsonl", "--out", "x"], env=r.env,
                          preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == 4 and "how gzip ended is not known" in done.stderr, done
    assert not list(pathlib.Path().glob("x.*")), os.listdir()


@case
def a_full_disk_leaves_nothing_behind(r):
    """Beyond `ulimit -f` writes fail; MPI's own files are smaller than this."""
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))
    line = json.dumps({"prompt": "a" * 1000, "response": "b" * 1000}) + "\n"
    done = subprocess.run([r.options.data, "prepare", "-", "--out", "folder/x"], env=r.env,
                          capture_output=True, text=True, timeout=100, input=5000 * line,
                          preexec_fn=limited)
    assert done.returncode == 4, (done.returncode, done.stderr)
    assert "folder/x.bin" in done.stderr and "File too large" in done.stderr, done.stderr
    assert not os.listdir("folder"), os.listdir("folder")


@case
def a_tokenizer_file_makes_ids(r):
    """With the package tokenizers its ids arrive whole; without it the script says what to do."""
    encode = os.path.join(r.options.source, "drivers", "data", "encode_bpe.py")
    lines = ["In the beginning", "the heaven and the earth", "and the earth was without form"]
    pathlib.Path("in.jsonl").write_text("\n".join(
        json.dumps({"prompt": lines[0], "response": line}) for line in lines) + "\n")
    try:
        import tokenizers
    except ImportError:
        assert "pip install tokenizers" in r.run(sys.executable, encode, "t.json", "in.jsonl",
                                                 expect=3)
        return
    model = tokenizers.ByteLevelBPETokenizer()
    model.train_from_iterator(lines, vocab_size=300, min_frequency=1, show_progress=False)
    model.save("t.json")
    ids = r.run(sys.executable, encode, "t.json", "in.jsonl")
    r.data("prepare", "-", "--out", "bpe", "--tokenizer", "ids", "--vocab-size", "301",
           "--append-token", "300", given=ids)
    tokens = numpy.fromfile("bpe.bin", numpy.uint16).tolist()
    mask = numpy.fromfile("bpe.mask", numpy.uint8).tolist()
    prompt, response = model.encode(lines[0]).ids, model.encode(lines[1]).ids
    second = 2 * len(prompt) + 1
    assert tokens[second:second + len(prompt) + len(response) + 1] == [*prompt, *response, 300]
    assert mask[second:second + len(prompt) + len(response) + 1] == (
        [0] * len(prompt) + [1] * (len(response) + 1))
    pathlib.Path("bad.jsonl").write_text('{"text": 1}\n')
    assert "bad.jsonl:1" in r.run(sys.executable, encode, "t.json", "bad.jsonl", expect=2)
    assert "none.json" in r.run(sys.executable, encode, "none.json", "in.jsonl", expect=2)


@case
def packed_loss_is_that_of_single_documents(r):
    """Padded to a whole sequence each, documents lie alone; the loss of all is the same."""
    make_files(r, longest=36)  # none fills a sequence of 40: whichever is timed has fewer pairs
    exact = ("train.dtype=fp64", "optim.lr=0", "optim.min_lr=0", "run.steps=1", "eval.steps=0",
             "model.moe_expert_bias_update_rate=0",
             "train.global_batch_size=1")
    found, filled, flops = {}, {}, {}
    for name, more in (("alone", ("data.packing=first_fit", "data.document_multiple=40")),
                       ("first_fit", ("data.packing=first_fit",)),
                       ("best_fit", ("data.packing=best_fit", "execution.audit=true")),
                       ("multiple", ("data.packing=best_fit", "data.document_multiple=8"))):
        said = r.train(*exact, *more, "--time-ops", "1", f"run.output={name}.h5")
        assert "% of positions hold a token" in said, said
        found[name] = series(f"{name}.h5", "train/val_loss")[-1]
        with h5py.File(f"{name}.h5") as file:
            filled[name] = file["/metrics/data/packing_efficiency"][()]
            flops[name] = file["/samples/ops/attn/core"].attrs["flops"]
    assert 0.3 < filled["alone"] < filled["multiple"] < filled["best_fit"] <= 1, filled
    assert filled["best_fit"] > 0.9, filled
    assert all(abs(loss / found["alone"] - 1) < 1e-10 for loss in found.values()), found
    assert 0 < flops["best_fit"] < 0.9 * flops["alone"], flops  # pairs within documents alone
    r.train(*exact, "data.packing=best_fit", "data.mask=none", "run.output=unmasked.h5")
    assert abs(series("unmasked.h5", "train/val_loss")[-1] / found["alone"] - 1) > 1e-6


@case(ranks=2)
def ranks_and_restarts_keep_the_order(r):
    make_files(r, pairs=False, longest=90)
    for packing in PACKINGS:
        chosen = (f"data.packing={packing}", "train.micro_batch_size=2")
        r.train(*chosen, "run.output=one.h5")
        r.train(*chosen, "run.output=two.h5", ranks=2)
        one = series("one.h5")
        assert numpy.allclose(one, series("two.h5"), rtol=2e-5), packing
        saved = (f"checkpoint.directory={packing}", "optim.decay_steps=6")
        r.train(*chosen, *saved, "run.steps=2", "run.output=first.h5")
        r.train(*chosen, *saved, "run.output=second.h5")
        assert (series("second.h5") == one[2:]).all(), packing
        checked = subprocess.run([sys.executable, VALIDATE, "one.h5"], capture_output=True,
                                 text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        for name in ("one.h5", "two.h5", "first.h5", "second.h5"):
            os.remove(name)


@case(ranks=2)
def losses_of_sources_are_parts_of_the_loss(r):
    make_files(r, pairs=False, longest=60)
    for suffix in (".bin", ".idx"):
        os.rename("held_out" + suffix, "other" + suffix)
    mixed = ("data.path=", "data.validation_path=", "data.mix=some=train,more=other",
             "data.mix_weights=[1,3]", "data.packing=best_fit", "eval.steps=1")
    told = (*mixed, "run.source_losses=true", "run.log_interval=1")
    r.train(*mixed, "run.output=off.h5")
    r.train(*told, "run.output=on.h5")
    r.train(*told, "run.output=two.h5", "parallel.pipeline=2", ranks=2)
    r.train(*told, "run.log_interval=4", "run.output=four.h5")
    assert (series("on.h5") == series("off.h5")).all()
    lines = [json.loads(line) for line in open("on.jsonl")]
    steps = [line for line in lines if line["event"] == "step"]
    names = ("some", "more")
    losses, targets = (numpy.array([[step[f"{what}.{name}"] for name in names] for step in steps])
                       for what in ("loss", "targets"))
    assert (targets > 0).all() and targets[:, 0].sum() < targets[:, 1].sum(), targets
    means = (losses * targets).sum(axis=1) / targets.sum(axis=1)
    assert numpy.allclose(means, series("on.h5"), rtol=1e-6), (means, series("on.h5"))
    for i, name in enumerate(names):
        assert (series("on.h5", f"source_loss/{name}") == losses[:, i]).all()
        assert numpy.allclose(series("two.h5", f"source_loss/{name}"), losses[:, i], rtol=2e-5)
        parts = [numpy.average(losses[part, i], weights=targets[part, i])
                 for part in (slice(0, 4), slice(4, 6))]
        assert numpy.allclose(series("four.h5", f"source_loss/{name}"), parts, rtol=1e-6), parts
    with h5py.File("off.h5") as off:
        assert "source_loss" not in off["series"]
    checked = subprocess.run([sys.executable, VALIDATE, "on.h5", "four.h5"], capture_output=True,
                             text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    said = r.train("run.source_losses=true", expect=2)
    assert "run.source_losses = true" in said and "data.mix" in said, said


@case(ranks=2)
def a_mixture_goes_on_in_the_middle_of_a_pass(r):
    make_files(r, pairs=False, longest=60)
    for suffix in (".bin", ".idx"):
        os.rename("held_out" + suffix, "other" + suffix)
    mixed = ("data.path=", "data.validation_path=", "data.mix=some=train,more=other",
             "data.mix_weights=[1,3]", "data.held_out_fraction=0.1", "eval.steps=0",
             "data.packing=best_fit", "train.micro_batch_size=2")
    said = r.train(*mixed, "run.output=one.h5")
    assert " some 25 % Megatron train.bin: 270 documents" in said, said
    assert "; more 75 % Megatron other.bin: 270 documents" in said, said
    assert " some its end: 30 documents" in said and "; more its end: 30 documents" in said, said
    r.train(*mixed, "run.output=two.h5", ranks=2)
    assert numpy.allclose(series("one.h5"), series("two.h5"), rtol=2e-5)
    saved = ("checkpoint.directory=saved", "optim.decay_steps=6")
    r.train(*mixed, *saved, "run.steps=2", "run.output=first.h5", ranks=2)
    r.train(*mixed, *saved, "run.output=second.h5")
    assert numpy.allclose(series("second.h5"), series("one.h5")[2:], rtol=2e-5)
    os.rename("saved", "of_two")
    r.train(*mixed, *saved, "run.steps=2", "run.output=third.h5")
    r.train(*mixed, *saved, "run.output=fourth.h5")
    assert (series("fourth.h5") == series("one.h5")[2:]).all()
    said = r.train(*mixed, "data.mix_weights=[1,2]", "checkpoint.directory=of_two", "run.steps=9",
                   "run.output=fifth.h5", expect=2)
    assert "data.mix_weights = [1.0, 2.0]" in said, said
    some, more, all_of_it, targets = (series("one.h5", name)[-1] for name in (
        "val_loss/some", "val_loss/more", "train/val_loss", "train/val_targets"))
    lines = [json.loads(line) for line in open("one.jsonl")]
    found = [line for line in lines if line["event"] == "evaluation"][-1]
    assert found["val_loss.some"] == some and found["val_loss.more"] == more, found
    counts = found["val_targets.some"], found["val_targets.more"]
    assert sum(counts) == targets, (counts, targets)
    assert abs(numpy.dot(counts, (some, more)) / targets - all_of_it) < 1e-9
    checked = subprocess.run([sys.executable, VALIDATE, "one.h5"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    r.data("stats", r.deck, "model.vocab_size=256", "data.source=auto", "data.path=", *mixed)
    pathlib.Path("short.txt").write_text("a")
    said = r.train(*mixed, "data.validation=some=other,none=short.txt", "run.output=sixth.h5",
                   expect=2)
    assert "data.validation" in said and "none has too few tokens to predict one" in said, said


@case
def long_documents_are_counted(r):
    make_files(r, pairs=False, longest=90)
    split = r.train("data.packing=best_fit", "run.output=split.h5")
    assert "documents split" in split and "tokens dropped" not in split, split
    drop = r.train("data.packing=best_fit", "data.long_documents=drop", "run.output=drop.h5")
    assert "documents above the sequence length" in drop and "documents split" not in drop, drop
    with h5py.File("drop.h5") as file:
        assert file["/metrics/data/dropped_tokens"][()] > 0
        assert file["/metrics/data/split_documents"][()] == 0


@case
def statistics_propose_capacities(r):
    make_files(r)
    trained = ("model.vocab_size=256", "data.source=auto", "data.path=train",
               "data.packing=best_fit", "train.micro_batch_size=2")
    said = r.data("stats", r.deck, *trained, "--json", "stats.json")
    assert "none is not possible" in said and "graphs.max_packed_seqs = [" in said, said
    stats = json.loads(pathlib.Path("stats.json").read_text())
    assert stats["documents"] == 300 and stats["length_quantiles"][100] <= 40
    found = {packing["packing"]: packing for packing in stats["packings"]}
    assert "Mamba" in found["none"]["refused"]
    assert found["best_fit"]["efficiency"] >= found["first_fit"]["efficiency"] > 0.7
    assert found["documents"]["split_documents"] > found["best_fit"]["split_documents"] == 0
    proposed = found["best_fit"]["max_packed_seqs"]
    assert stats["packing"] == "best_fit" and proposed[0]["share"] >= 0.5, stats
    assert proposed[-1]["share"] == 1, proposed
    for one in proposed:
        row = f"= [{one['documents']}]{100 * one['share']:>9.2f} % of steps replay a graph"
        assert row in said, (row, said)
    assert " ms each" in said and all(one["step_time_s"] > 0 for one in proposed), said
    assert "op_by_op_time_s" not in proposed[-1], proposed
    image = os.path.join(r.options.source, "results", "tools", "plot_documents.py")
    r.run(sys.executable, image, "stats.json")
    assert os.path.getsize("stats.png") > 10000
    pathlib.Path("other.json").write_text("{}")
    assert "stowage-documents" in r.run(sys.executable, image, "other.json", expect=2)
    # What is proposed runs, and training is told the same efficiency.
    capacities = [proposal["documents"] for proposal in proposed]
    r.train(*trained, f"graphs.max_packed_seqs={capacities}", "graphs.mode=step",
            "data.validation_path=", "run.output=run.h5")
    with h5py.File("run.h5") as file:
        filled = file["/metrics/data/packing_efficiency"][()]
        rates = [file["/metrics/train/" + name][()]
                 for name in ("model_flops_per_s", "tokens_per_s")]
    assert abs(filled - found["best_fit"]["efficiency"]) < 1e-12
    flops = found["best_fit"]["flop_per_token"]  # of a whole pass, the run had a few steps of it
    assert 0.9 < flops * rates[1] / rates[0] < 1.1, (flops, rates)


@case
def documents_are_those_of_training(r):
    make_files(r)
    trained = ("model.vocab_size=256", "data.source=auto", "data.path=train",
               "data.packing=best_fit", "train.micro_batch_size=2")
    r.train(*trained, "data.validation_path=", "run.steps=6", "run.output=run.h5")
    tokens = series("run.h5", "packing/tokens")
    for words in ((r.deck, *trained), ("--from", "run.h5")):
        said = r.data("documents", *words, "--first-step", "3", "--steps", "2")
        rows = [json.loads(line) for line in said.splitlines()]
        for step in (3, 4):
            of_step = [row for row in rows if row["step"] == step]
            assert of_step and [row["microbatch"] for row in of_step] == list(range(len(of_step)))
            assert sum(sum(row["lengths"]) for row in of_step) == tokens[step - 1], (step, rows)
        assert {row["step"] for row in rows} == {3, 4}, rows
        assert rows[0]["lengths"] != rows[-1]["lengths"], rows
    for option in ("--first-step", "--steps"):
        for value in ("0", "9223372036854775806"):
            said = r.data("documents", r.deck, *trained, option, value, expect=2)
            assert f"{option} = {value}" in said and "1 to 2147483647" in said, said


def figures(path, group):
    with h5py.File(path) as file:
        return {name: value[()] for name, value in file[f"/metrics/{group}"].items()
                if isinstance(value, h5py.Dataset)}


def is_valid(r, path):
    return "VALID" in r.run(sys.executable, VALIDATE, path)


@case
def steps_of_each_capacity_are_counted(r):
    # With these lines some steps have more than seven documents in a microbatch, some have fewer.
    make_files(r, pairs=False, longest=12, seed=2)
    # A short window packs short documents loosely: steps have different numbers of tokens.
    packed = ("data.packing=best_fit", "data.packing_window=8", "run.steps=12", "graphs.mode=step",
              "graphs.max_packed_seqs=[5, 7]", "validate.replayed_step=false")
    said = r.train(*packed, "run.output=run.h5", "--json", "run.jsonl")
    capacities = series("run.h5", "packing/capacity")
    above = series("run.h5", "packing/op_by_op")
    assert (above == (capacities > 7)).all() and len(above) == 12, (capacities, above)
    assert 0 < above.sum() == figures("run.h5", "packing")["op_by_op_steps"], above
    assert f"op by op: {int(above.sum())}" in said, said
    lines = [json.loads(line) for line in pathlib.Path("run.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["event"] == "step"]
    assert [line["capacity"] for line in steps] == capacities.tolist()
    assert [line["op_by_op"] for line in steps] == (above == 1).tolist()
    tokens = series("run.h5", "packing/tokens")
    assert len(set(tokens)) > 1, tokens
    timed = numpy.arange(len(tokens)) >= 2  # a tenth of the steps and one are not
    for capacity in set(capacities.astype(int)):
        of_one = figures("run.h5", f"packing/{capacity}")
        assert of_one["steps"] == (capacities == capacity).sum(), (capacity, of_one)
        if "tokens_per_s" in of_one:
            mean = tokens[timed & (capacities == capacity)].mean()
            assert abs(of_one["tokens_per_s"] * of_one["step_time"] / mean - 1) < 1e-12, of_one
    assert is_valid(r, "run.h5")
    # Tokens that no step had are told.
    with h5py.File("run.h5", "r+") as file:
        file["series/packing/tokens"][...] += 1
    told = subprocess.run([sys.executable, VALIDATE, "run.h5"], capture_output=True, text=True,
                          check=False)
    assert told.returncode == 1 and "their steps of" in told.stdout, told
    r.train(*packed, "graphs.max_packed_seqs=[40]", "run.output=one.h5")
    assert figures("one.h5", "packing") == {"op_by_op_steps": 0, "passed_batches": 0}


@case(ranks=2)
def batches_without_a_target_are_passed_over(r):
    make_files(r, pairs=False)
    mask = numpy.zeros(os.path.getsize("train.bin"), numpy.uint8)
    mask[numpy.random.default_rng(1).choice(len(mask), len(mask) // 300, replace=False)] = 1
    pathlib.Path("train.mask").write_bytes(mask.tobytes())
    few = ("train.global_batch_size=2", "run.steps=8")
    said = r.train(*few, "run.output=one.h5")
    passed = series("one.h5", "packing/passed_batches")
    assert said.count("none of their tokens is a target") == (passed > 0).sum() > 0, said
    assert (series("one.h5") > 0).all() and (series("one.h5", "train/grad_norm") > 0).all()
    assert figures("one.h5", "packing")["passed_batches"] == passed.sum()
    assert is_valid(r, "one.h5")
    # Ranks and restarts pass over the same ones.
    r.train(*few, "run.output=two.h5", ranks=2)
    assert (series("two.h5", "packing/passed_batches") == passed).all()
    saved = (*few, "checkpoint.directory=kept", "optim.decay_steps=8")
    r.train(*saved, "run.steps=3", "run.output=first.h5")
    r.train(*saved, "run.output=second.h5")
    assert (series("second.h5", "packing/passed_batches") == passed[3:]).all()
    # What is evaluated must have one: nothing predicts the first token.
    pathlib.Path("held_out.mask").write_bytes(
        b"\1" + bytes(os.path.getsize("held_out.bin") - 1))
    said = r.train("run.output=none.h5", "eval.steps=0", expect=2)
    assert "held_out" in said and "counts as a target" in said, said
    assert not os.path.exists("none.h5")


@case
def what_cannot_be_trained_is_refused(r):
    make_files(r)
    for overrides, says in (
            (("data.packing=none",), ("data.packing", "model.pattern", "300 documents")),
            (("data.packing=tight",), ("data.packing", "best_fit")),
            (("data.document_multiple=8",), ("data.document_multiple", "first_fit")),
            (("data.packing=best_fit", "data.document_multiple=7"), ("train.seq_length",)),
            (("data.packing=best_fit", "data.max_documents=1", "train.micro_batch_size=2"),
             ("data.max_documents", "train.micro_batch_size")),
            (("graphs.max_packed_seqs=[41]",), ("graphs.max_packed_seqs", "40 tokens"))):
        said = r.train(*overrides, expect=2)
        assert all(part in said for part in says), said
    header = numpy.zeros(256, numpy.int32)
    header[:3] = 20240520, 1, 999
    with open("shard.bin", "wb") as file:
        file.write(header.tobytes() + numpy.ones(999, numpy.uint16).tobytes())
    shard = ("data.path=shard.bin", "data.validation_path=")
    said = r.train(*shard, expect=2)
    assert "data.document_token" in said and "Mamba" in said, said
    said = r.train(*shard, "model.pattern=*-", "data.packing=best_fit", expect=2)
    assert "whole documents cannot be packed" in said, said
    with open("train.mask", "ab") as file:
        file.write(b"\1")
    assert "a mask is one byte a token" in r.train(expect=2)
    os.remove("train.mask")
    assert 'data.mask = "required"' in r.train("data.mask=required", expect=2)
    assert not list(pathlib.Path(".").glob("*.h5*"))


@case
def a_tail_without_a_target_is_not_evaluated(r):
    """Held out is the end of the data: documents of one token there stop no training."""
    with open("tail.jsonl", "w", encoding="utf-8") as file:
        for text in 100 * ["abcdefghijklmnopqrst"] + 30 * ["a"]:
            file.write(json.dumps({"text": text}) + "\n")
    r.data("prepare", "tail.jsonl", "--out", "tail")
    out = r.run(r.options.train, r.deck, "model.vocab_size=256", "data.source=auto",
                "data.path=tail", "data.held_out_fraction=0.01", "run.steps=1", "run.output=o.h5")
    assert "too little data is held out" in out and "RESULT VALID" in out, out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=sorted(CASES))
    for name in ("--data", "--train", "--source"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        CASES[options.case](Runner(options))
    print("passed")


if __name__ == "__main__":
    sys.exit(main())
