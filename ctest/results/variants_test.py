#!/usr/bin/env python3
"""Short tables of pages: runs that differ in some keys, their width, and why a set without an
interval is not official: variants_test.py TOOLS PUBLISHED."""

import importlib.util
import pathlib
import shutil
import sys
import tempfile
import unittest

if not importlib.util.find_spec("h5py"):
    print(f"skipped: no h5py for {sys.executable}")
    sys.exit(77)

TOOLS, PUBLISHED = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path.insert(0, str(TOOLS))

import h5py  # noqa: E402
import numpy  # noqa: E402

from stowage_results.check import official  # noqa: E402
from stowage_results.result_files import Result  # noqa: E402
from stowage_results.tables import cells, variants  # noqa: E402


class Variants(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def edited(self, name, copy, edit):
        path = shutil.copy(PUBLISHED / name, self.folder / copy)
        with h5py.File(path, "r+") as file:
            edit(file)
        return Result(path)

    def test_runs_that_differ_in_some_keys(self):
        """Beside the one that is nearest to the defaults; seeds in one row."""
        def seed(file):
            file["config"].attrs.modify("run.seed", 7)
            file["metrics/train/loss"][...] = 4.0
        names = [f"h200_learning/learn_{name}_1.h5" for name in ("fp8", "bf16")]
        fp8, bf16 = (Result(PUBLISHED / name) for name in names)
        other = self.edited(names[1], "other.h5", seed)
        first, second = [line.split(" | ") for line in variants.variants([fp8, other, bf16])
                         if line.startswith("| learn |")]
        loss = float(bf16.array("metrics/train/loss"))
        self.assertEqual(first[1:5], ["8192, 1", "`learn_bf16_1` and 1 more", "", ""])
        self.assertEqual(first[-1], f"{(loss + 4) / 2:.4f} (4.0000 .. {loss:.4f}) |")
        rate = float(fp8.array("metrics/train/tokens_per_s"))
        self.assertEqual(second[2:5], ["`learn_fp8_1`", "`train.precision` fp8",
                                       f"{cells.digits(rate / 1e3)} k"])
        _, fp8_row = [line.split(" | ") for line in variants.variants([fp8, bf16])
                      if line.startswith("| learn |")]
        ratio = rate / float(bf16.array("metrics/train/tokens_per_s"))
        self.assertEqual(fp8_row[5], f"{ratio:.2f}x")

    def test_short_tables_are_narrow_and_their_captions_short(self):
        for page in sorted(PUBLISHED.glob("*/README.md")):
            short = page.read_text(encoding="utf-8").partition("\n## In short\n")[2]
            self.assertTrue(short, page)
            for line in short.partition("\n## ")[0].splitlines():
                if line.startswith("|"):
                    self.assertLessEqual(line.replace("\\|", "").count("|") - 1, 9, (page, line))
                elif "‡: " not in line:  # reasons are as long as they are many
                    self.assertLessEqual(len(line), 300, (page, line))
            self.assertNotRegex(page.with_name("sets.md").read_text(encoding="utf-8"),
                                r"\b(inf|nan) ?%")

    def test_too_few_samples_have_no_interval(self):
        said = official.too_wide("a time", numpy.array([1.0, 1.1]), 0.02)
        self.assertEqual(said, ["a time has no interval: 2 samples < 6"])
        self.assertEqual(official.too_wide("a time", numpy.array([1.0] * 9), 0.02), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
