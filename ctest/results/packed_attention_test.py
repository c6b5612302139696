#!/usr/bin/env python3
"""packed_attention.py finds what made-up documents need: packed_attention_test.py TOOLS."""

import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

if not importlib.util.find_spec("h5py"):
    print(f"skipped: no h5py for {sys.executable}")
    sys.exit(77)

import h5py  # noqa: E402

TOOL = pathlib.Path(sys.argv[1]).resolve() / "packed_attention.py"
HEADS = "H16_K4_P128_causal1_large0"
# Microseconds of a document by its blocks of 64 rows; 3 blocks lie between two lengths.
NEEDS = {1: 1.0, 2: 2.0, 4: 6.0}
DOCUMENTS = [5, 64, 65, 129, 250]
NEEDED = 1 + 1 + 2 + 4 + 6


def make(path, samples, keys=()):
    with h5py.File(path, "w") as file:
        file.attrs.update(schema="stowage-result", schema_version="1.0", verdict="VALID")
        for name, microseconds in samples.items():
            file[f"samples/{name}"] = [1e-6 * value for value in microseconds]
        file.create_group("config").attrs.update(dict(keys))


class Tool(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        make(self.folder / "lengths.h5",
             {f"kernels/attention_{direction}/B{8 // blocks}_T{64 * blocks}_{HEADS}{more}/ours":
              [times * 8 // blocks * need] * 3
              for direction, times, more in (("forward", 1, ""), ("backward", 3, "_way0"))
              for blocks, need in NEEDS.items()})
        (self.folder / "documents.toml").write_text(f"[data]\nsynthetic_lengths = {DOCUMENTS}\n")

    def run_tool(self, *words, expect=0):
        done = subprocess.run([sys.executable, TOOL, "lengths.h5", *words], cwd=self.folder,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return (done.stdout if expect == 0 else done.stderr).splitlines()

    def test_kernels(self):
        make(self.folder / "packed.h5", {
            f"kernels/attention_packed_forward/{HEADS}/ours": [1.5 * NEEDED] * 3,
            f"kernels/attention_packed_backward/{HEADS}_way0/ours": [3.0 * NEEDED] * 3})
        lines = self.run_tool("packed.h5", "--lengths", "documents.toml")
        self.assertEqual([line.split()[0] for line in lines], ["forward", "backward", "both"])
        self.assertEqual([line.split()[-3] for line in lines], ["1.500", "1.000", "1.125"])

    def test_steps_by_the_rate_of_equal_documents(self):
        keys = {"model.num_attention_heads": 16, "model.num_query_groups": 4,
                "model.head_dim": 128, "train.seq_length": 128, "train.global_batch_size": 4,
                "run.steps": 9, "data.source": "synthetic", "data.synthetic_lengths": "[]"}
        # Four equal documents of two blocks need 8: a step of equal ones takes twice that.
        make(self.folder / "equal.h5",
             {"ops/attn/core": [16], "ops/attn/core_backward": [48]}, keys)
        make(self.folder / "step.h5",
             {"ops/attn/core": [2.2 * NEEDED] * 2,
              "ops/attn/core_backward": [6 * NEEDED] * 2}, keys)
        (self.folder / "documents.jsonl").write_text("".join(
            json.dumps({"step": step, "microbatch": 0, "lengths": DOCUMENTS}) + "\n"
            for step in (8, 9)))
        words = ("step.h5", "--equal", "equal.h5", "--documents", "documents.jsonl")
        self.assertEqual([line.split()[-3] for line in self.run_tool(*words)],
                         ["1.100", "1.000", "1.025"])
        for lacks in ("step.h5", "equal.h5"):
            shutil.copy(self.folder / lacks, self.folder / "whole.h5")
            with h5py.File(self.folder / lacks, "r+") as file:
                del file["samples/ops/attn/core_backward"]
            self.assertIn("no timed op attn/core_backward", self.run_tool(*words, expect=2)[-1])
            shutil.move(self.folder / "whole.h5", self.folder / lacks)
        (self.folder / "documents.jsonl").write_text(
            json.dumps({"step": 9, "microbatch": 0, "lengths": DOCUMENTS}) + "\n")
        self.assertIn("timed are steps 8 to 9", self.run_tool(*words, expect=2)[-1])
        for line in ("[1]", '{"step": 8, "lengths": 5}', '{"step": 8, "lengths": [0]}'):
            (self.folder / "documents.jsonl").write_text(line)
            self.assertIn("not lines of stowage_data documents",
                          self.run_tool(*words, expect=2)[-1])
        keys["data.synthetic_lengths"] = "[5]"
        make(self.folder / "equal.h5", {"ops/attn/core": [16]}, keys)
        (self.folder / "documents.jsonl").write_text('{"step": 9, "lengths": [5]}')
        self.assertIn("not of train.seq_length = 128", self.run_tool(*words, expect=2)[-1])

    def test_refused(self):
        make(self.folder / "packed.h5", {
            f"kernels/attention_packed_forward/{HEADS.replace('H16_K4', 'H32_K32')}/ours": [1.0]})
        self.assertIn("no attention_forward of 32/32 heads of 128", self.run_tool(
            "packed.h5", "--lengths", "documents.toml", expect=2)[-1])
        self.assertIn("--equal and --documents", self.run_tool(
            "packed.h5", "--equal", "packed.h5", expect=2)[-1])
        for text in ("", "[data]\nsynthetic_lengths = []", "data = 3", "]"):
            (self.folder / "wrong.toml").write_text(text)
            self.assertIn("wrong.toml", self.run_tool(
                "packed.h5", "--lengths", "wrong.toml", expect=2)[-1])
        make(self.folder / "packed.h5", {f"kernels/attention_packed_forward/{HEADS}/ours": [1.0]})
        (self.folder / "long.toml").write_text("[data]\nsynthetic_lengths = [5, 257]\n")
        self.assertIn("5 to 257 tokens, equal ones 64 to 256", self.run_tool(
            "packed.h5", "--lengths", "long.toml", expect=2)[-1])
        make(self.folder / "other.h5", {"kernels/norm/x/ours": [1.0]})
        self.assertIn("no attention_packed", self.run_tool("other.h5", expect=2)[-1])


unittest.main(argv=sys.argv[:1])
