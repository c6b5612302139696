#!/usr/bin/python3
"""stowage_generate as a user meets it: what a checkpoint's model says next, and what is refused.

Usage: generate_test.py CASE --bin FOLDER --source FOLDER. Each case runs in a folder of its own.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

import h5py
import numpy

from process_cases import Cases

CASES = case = Cases()
VERSES = "".join(f"{verse} And the evening and the morning were the day {verse}.\n"
                 for verse in range(1, 200))
PROMPT = "7 And the"


class Runner:
    def __init__(self, folder, source):
        self.folder = pathlib.Path(folder)
        self.source = pathlib.Path(source)
        self.tiny = self.source / "ctest" / "drivers" / "tiny.toml"
        pathlib.Path("verses.txt").write_text(VERSES, encoding="utf-8")
        self.keys = [self.tiny, "model.vocab_size=256", "data.source=text", "data.path=verses.txt",
                     "checkpoint.directory=saved"]
        self.env = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def start(self, program, *arguments, ranks=1):
        launcher = ["mpirun", "--oversubscribe", "-np", str(ranks)] if ranks > 1 else []
        return subprocess.run([*launcher, self.folder / f"stowage_{program}", *arguments],
                              env=self.env, capture_output=True, timeout=120)

    def run(self, program, *arguments):
        done = self.start(program, *arguments)
        assert done.returncode == 0, (arguments, done.returncode, done.stdout, done.stderr)
        return done.stdout.decode("utf-8")

    def train(self, *arguments):
        self.run("train", *self.keys, "validate.finite_differences=off", *arguments)

    def generate(self, *arguments, keys=None):
        """The texts, prompts and their continuations, and the lines of JSON."""
        pathlib.Path("it.jsonl").unlink(missing_ok=True)
        said = self.run("generate", *(keys or self.keys), *arguments, "--json", "it.jsonl")
        lines = pathlib.Path("it.jsonl").read_text(encoding="utf-8").splitlines()
        return said, [json.loads(line) for line in lines]

    def refuse(self, *arguments, says, keys=None, ranks=1, code=2):
        done = self.start("generate", *(self.keys if keys is None else keys), *arguments,
                          ranks=ranks)
        message = done.stderr.decode("utf-8", errors="replace")
        assert done.returncode == code, (arguments, done.returncode, message)
        assert message.count("stowage: error:") == 1, message
        for words in says:
            assert words in message, f"'{words}' is not in: {message}"


def kept_bytes(prompts, window, size):
    """Of the tiny deck: rows of the convolution, state of the scan, keys and values, logits, each
    in whole buckets of 2048 elements."""
    parts = ((3 * 96, size), (4 * 16 * 8, 4), (2 * window * 8, size), (2 * window * 8, size),
             (256, 4))
    return sum((prompts * elements + 2047) // 2048 * 2048 * each for elements, each in parts)


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(axis=-1, keepdims=True))


@case
def log_probabilities_are_those_of_an_evaluation(r):
    for dtype, tolerance in (("fp32", 1e-4), ("bf16", 0.1)):
        keys = [f"train.dtype={dtype}", f"checkpoint.directory={dtype}"]
        r.train(*keys, "run.steps=30")
        said, (line,) = r.generate(*keys, "--prompt", PROMPT, "--tokens", "24")
        assert line["prompt"] == PROMPT and line["prompt_tokens"] == list(PROMPT.encode()), line
        assert len(line["tokens"]) == len(line["log_probabilities"]) == 24, line
        assert bytes(line["tokens"]).decode() == line["text"], line
        assert f"\n{PROMPT}{line['text']}\n" in said, said
        assert f"weights   {dtype}/step_00000030.h5, of step 30\n" in said, said
        kept = kept_bytes(1, len(PROMPT) + 24, {"fp32": 4, "bf16": 2}[dtype])
        assert f"window    {len(PROMPT) + 24} tokens\n" in said, said
        assert f"kept      {kept} bytes of states, caches and logits\n" in said, said
        assert re.search(r"^# [\d.]+ s, [\d.]+ ms a position, [\d.]+ tokens/s", said, re.M), said
        assert re.search(r"^# a position moves [\d.e-]+ GB with full caches: [\d.e-]+ GB/s$", said,
                         re.M), said
        # What was generated is held out, and evaluated by the run's own programs.
        pathlib.Path("said.txt").write_text(PROMPT + line["text"], encoding="utf-8")
        r.run("train", *r.keys, *keys, "data.validation_path=said.txt", "train.global_batch_size=1",
              "eval.steps=1", "--evaluate-only", "--logits", f"{dtype}.logits.h5",
              f"run.output={dtype}.loss.h5")
        with h5py.File(f"{dtype}.logits.h5") as file:
            tokens, logits = file["tokens"][:], file["logits"][:].astype(numpy.float64)
        made = len(PROMPT) + numpy.arange(24)
        assert list(tokens[made]) == line["tokens"], tokens
        found = log_softmax(logits)[made - 1, line["tokens"]]
        error = numpy.abs(found - line["log_probabilities"]).max()
        assert error <= tolerance, (dtype, error)
        # Each token is the likeliest, or as good as it.
        slack = log_softmax(logits)[made - 1].max(axis=-1) - found
        assert slack.max() <= tolerance, slack


@case
def a_trained_model_goes_on_as_its_text_does(r):
    r.train("run.steps=120", "optim.lr=2e-2", "train.seq_length=64", "model.pattern=M*-EM")
    said, (line,) = r.generate("train.seq_length=64", "model.pattern=M*-EM", "--prompt",
                               "25 And the evening and the ", "--tokens", "7")
    assert line["text"] == "morning", said


@case
def the_same_command_says_the_same(r):
    r.train()
    ways = collections.defaultdict(list)
    for words in ((), ("--temperature", "1"), ("--temperature", "1", "--seed", "0"),
                  ("--temperature", "1", "--seed", "5"), ("--temperature", "1", "--top-p", "0.3")):
        for _ in range(2):
            _, (line,) = r.generate("--prompt", PROMPT, "--tokens", "20", *words)
            ways[words].append((line["tokens"], line["log_probabilities"]))
    said = [ways[words][0] for words in ways if ways[words][0] == ways[words][1]]
    assert len(said) == 5, ways
    assert said[1] == said[2], "0 is the seed unless one is given"
    assert len({tuple(tokens) for tokens, _ in said}) == 4, said


@case
def prompts_of_a_file_are_a_batch(r):
    r.train()
    prompts = ["3 And", "12 And the evening and the", "1"]
    pathlib.Path("prompts.txt").write_text("\n".join(prompts[1:]) + "\n", encoding="utf-8")
    said, lines = r.generate("--prompt", prompts[0], "--prompt-file", "prompts.txt",
                             "--tokens", "9")
    assert [line["prompt"] for line in lines] == prompts, lines
    assert "# --prompt 1: 5 tokens, and 9 behind them\n" in said, said
    assert f"kept      {kept_bytes(3, len(prompts[1]) + 9, 4)} bytes" in said, said
    assert "# --prompt-file prompts.txt: line 2: 1 tokens, and 9 behind them\n" in said, said
    for prompt, together in zip(prompts, lines):
        _, (alone,) = r.generate("--prompt", prompt, "--tokens", "9")
        assert alone["tokens"] == together["tokens"], (alone, together)
        assert numpy.allclose(alone["log_probabilities"], together["log_probabilities"], atol=1e-4)


@case
def data_without_a_known_tokenizer_have_ids(r):
    keys = [r.tiny, "checkpoint.directory=ids"]
    r.run("train", *keys)
    said, (line,) = r.generate("--prompt", " 5 63  0", "--tokens", "4", keys=keys)
    assert line["prompt_tokens"] == [5, 63, 0], line
    assert line["text"] == " ".join(map(str, line["tokens"])), line
    assert f"\n5 63 0 {line['text']}\n" in said and "ids of a tokenizer" in said, said
    for prompt, word in (("5 six", "'six'"), ("64", "'64'"), ("-1", "'-1'"), ("1.5", "'1.5'"),
                         ("99999999999999999999", "'99999999999999999999'"), ("1,2", "'1,2'")):
        r.refuse(f"--prompt={prompt}", keys=keys,
                 says=[f"--prompt 1: {word}", "ids from 0 to 63", "model.vocab_size"])
    r.refuse("--prompt", "  ", keys=keys, says=["--prompt 1: is empty"])


@case
def any_byte_that_is_said_is_printed(r):
    arguments = ("--initial-weights", "--prompt", "né", "--temperature", "5", "--tokens", "30")
    said, (line,) = r.generate(*arguments, "checkpoint.directory=")
    assert "weights   initial" in said, said
    assert line["prompt_tokens"] == list("né".encode()), line
    assert not all(32 <= token < 127 for token in line["tokens"]), line
    assert "\\x" in line["text"] and f"\nné{line['text']}\n" in said, said
    assert all(character == "\n" or character >= " " for character in line["text"].replace(
        "\t", "")), line


@case
def a_published_folder_is_continued(r):
    model = r.source / "ctest" / "drivers" / "interop" / "fixtures" / "nemotron_h" / "model"
    r.run("convert", "import", model, "--out", "imported", "--deck", "it.toml")
    prompt = ("--prompt", "1 2 3", "--tokens", "6")
    said, (imported,) = r.generate(*prompt, keys=["it.toml"])
    assert "imported/step_00000000.h5\n" in said, said
    folder = f"hf:{model}"
    said, (read,) = r.generate(*prompt, keys=["it.toml", "checkpoint.directory=",
                                              f"checkpoint.resume={folder}"])
    assert folder in said and read == imported, (read, imported)


@case
def averages_are_evaluated_published_and_continued(r):
    """What a run says of its averages is what their export says of itself, to the bit."""
    model = r.source / "ctest" / "drivers" / "interop" / "fixtures" / "nemotron_h" / "model"
    r.run("convert", "import", model, "--out", "weights", "--deck", "it.toml")
    keys = ["it.toml", "train.dtype=bf16", "train.seq_length=16", "train.global_batch_size=2",
            "eval.steps=2"]
    run = [*keys, "run.steps=3", "optim.lr=1e-2", "optim.ema_decay=0.7", "eval.interval=1",
           f"checkpoint.resume=hf:{model}", "validate.finite_differences=off"]
    r.run("train", *run, "run.output=off.h5", "checkpoint.directory=off")
    said = r.run("train", *run, "eval.ema=true", "run.output=on.h5", "checkpoint.directory=ck")
    assert said.count("validation loss of averaged weights") == 3, said
    r.run("convert", "export", "ck", "--weights", "ema", "--out", "out")
    r.run("convert", "export", "ck", "--out", "trained")
    alone = [*keys, "--evaluate-only", "checkpoint.directory="]
    r.run("train", *alone, "checkpoint.resume=hf:out", "run.output=out.h5")
    r.run("train", *alone, "checkpoint.resume=hf:trained", "run.output=trained.h5")
    r.run("train", *alone, "checkpoint.resume=ck/step_00000003.h5", "optim.ema_decay=0.7",
          "eval.ema=true", "run.output=ck.h5")
    found, digests = {}, {}
    for name in ("off", "on", "out", "trained", "ck"):
        with h5py.File(f"{name}.h5") as file:
            found[name] = file["/series/train/val_loss"][-1]
            digests[name] = file["/validation/state_digest"][-1][1]
    assert found["on"] == found["out"] == found["ck"] != found["off"] == found["trained"], found
    assert digests["on"] == digests["off"] == digests["ck"], digests
    prompt = ["--prompt", "1 2 3", "--tokens", "4"]
    apart = ["checkpoint.directory="]
    (said, lines), (of_out, lines_of_out) = (
        r.generate(*prompt, *more, keys=[*keys, *apart])
        for more in (("checkpoint.resume=ck/step_00000003.h5", "--weights", "ema",
                      "checkpoint.allow_changes=true", "model.moe_aux_loss_coeff=0.5"),
                     ("checkpoint.resume=hf:out",)))
    assert lines == lines_of_out, (lines, lines_of_out)
    assert "# changed: model.moe_aux_loss_coeff = 0.5" in said and "# changed" not in of_out, said
    assert ", of step 3, averaged" in said and "averaged" not in of_out, (said, of_out)
    for name, weights in (("ema", "hf:out"), ("ema", "weights/step_00000000.h5"),
                          ("mean", "ck/step_00000003.h5")):
        r.refuse("--prompt", "1", "--tokens", "2", "--weights", name,
                 f"checkpoint.resume={weights}", keys=[*keys, *apart], says=[f"--weights {name}"])
    r.refuse("--initial-weights", "--prompt", "1", "--tokens", "2", "--weights", "ema",
             keys=[*keys, *apart], says=["initial weights have no averages"])
    done = r.start("convert", "export", "weights", "--weights", "ema", "--out", "none")
    assert done.returncode == 2 and b"ema/" in done.stderr, done.stderr


@case(ranks=2)
def one_process_takes_what_any_grid_saved(r):
    keys = ["parallel.tensor=2", "checkpoint.directory=two", "train.dtype=bf16"]
    done = r.start("train", *r.keys, "validate.finite_differences=off", *keys, ranks=2)
    assert done.returncode == 0, done.stderr
    _, (line,) = r.generate(*keys, "--prompt", PROMPT, "--tokens", "5")
    assert len(line["tokens"]) == 5, line
    r.refuse(*keys, "--prompt", PROMPT, ranks=2,
             says=["stowage_generate is one process; 2 were started"])


@case
def what_it_cannot_say_is_refused(r):
    short = ("--prompt", PROMPT, "--tokens", "5")
    r.refuse(*short, says=["checkpoint.directory", "no checkpoint", "hf:FOLDER",
                           "--initial-weights"])
    r.train()
    r.refuse(*short, "checkpoint.resume=never", says=["--initial-weights"])
    r.refuse(says=["no prompt", "--prompt TEXT", "--prompt-file FILE"])
    r.refuse("--prompt", "", says=["--prompt 1: is empty"])
    r.refuse("--prompt", "[a,b]", "--prompt", "", "--tokens=5", says=["--prompt 2: is empty"])
    one = ("--prompt", "abc")
    for option, values, allowed in (("--tokens", ("0", "-1"), "1 or more"),
                                    ("--temperature", ("-0.5", "nan", "inf"), "allowed: 0"),
                                    ("--top-p", ("0", "-1", "1.01", "nan"),
                                     "above 0 and at most 1"),
                                    ("--seed", ("-1",), "0 or more")):
        for value in values:
            r.refuse(*one, f"{option}={value}", says=[f"{option} {value}", allowed])
    r.refuse(*one, "--tokens", "5", "--tokens", "6", says=["--tokens"])
    r.refuse(*one, "--tokens", "many", says=["--tokens"])
    r.refuse(*one, "--top-p", "0.5", says=["--top-p 0.5", "--temperature above 0"])
    r.refuse(*one, "--tokens", "38", says=["--prompt 1: 3 tokens", "--tokens 38",
                                           "train.seq_length = 40", "allowed: 40 together"])
    r.refuse(*one, "--tokens", str(2**63 - 1), says=["train.seq_length = 40"])
    r.refuse("--prompt", "a" * 40, "--tokens", "1", says=["--prompt 1: 40 tokens"])
    r.generate(*one, "--tokens", "37")
    r.generate(*one, "--tokens", "80", "train.seq_length=100")
    r.refuse("--prompt", b"a\xff", says=["--prompt is not UTF-8"])
    r.refuse("--prompt", "é", "model.vocab_size=128", "--initial-weights",
             says=["--prompt 1: byte 195 at offset 0", "model.vocab_size = 128"])
    pathlib.Path("wrong.txt").write_bytes(b"right\n\xc3(\n")
    r.refuse("--prompt-file", "wrong.txt", says=["wrong.txt: line 2: is not UTF-8"])
    pathlib.Path("gap.txt").write_text("a\n\nb\n", encoding="utf-8")
    r.refuse("--prompt-file", "gap.txt", says=["gap.txt: line 2: is empty"])
    pathlib.Path("empty.txt").write_text("", encoding="utf-8")
    r.refuse("--prompt-file", "empty.txt", says=["empty.txt: is empty", "a prompt a line"])
    r.refuse("--prompt-file", "gone.txt", says=["gone.txt"])
    r.refuse("--prompt-file", ".", says=["."])
    r.refuse(*one, "--tokens", "5", "--json", "verses.txt", says=["verses.txt"])
    pathlib.Path("prompts.txt").write_text("abc\n", encoding="utf-8")
    r.refuse("--prompt-file", "prompts.txt", "--tokens", "5", "--json", "prompts.txt",
             says=["--json", "prompts.txt"])
    r.refuse(*one, "--tokens", "5", "model.pattern=M*-EM",
             says=["step_00000006.h5", "model.pattern"])
    r.refuse(*one, "data.source=auto", "data.path=gone.txt", says=["gone.txt"])
    r.refuse(*one, keys=[], says=["no deck"])


@case
def a_damaged_checkpoint_is_refused(r):
    r.train()
    path = pathlib.Path("saved/step_00000006.h5")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    r.refuse("--prompt", PROMPT, "--tokens", "5", says=["step_00000006.h5"])


if __name__ == "__main__":
    sys.exit(CASES.run(Runner, "bin", "source"))
