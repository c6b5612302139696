#!/usr/bin/env python3
"""The site of submitted sets, of copies of published ones: submissions_test.py TOOLS."""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

if not importlib.util.find_spec("h5py"):
    print(f"skipped: no h5py for {sys.executable}")
    sys.exit(77)

import h5py  # noqa: E402

TOOLS = pathlib.Path(sys.argv[1]).resolve()
PUBLISHED = TOOLS.parent / "published"


class Site(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def submit(self, name, *sets):
        made = self.folder / name
        made.mkdir()
        for one in sets:
            shutil.copy(PUBLISHED / one, made)
        return made

    def site(self, *folders, code=0):
        ran = subprocess.run(
            [sys.executable, TOOLS / "submissions.py", self.folder / "site", *folders], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(ran.returncode, code, ran.stdout)
        return ran.stdout

    def rows(self):
        page = (self.folder / "site/index.html").read_text(encoding="utf-8")
        return [[re.sub("<[^>]*>", "", cell) for cell in re.findall("<t[dh].*?</t[dh]>", row)]
                for row in re.findall("<tr>.*?</tr>", page)]

    def test_a_row_for_each_training_run(self):
        one = self.submit("left & right", "h200_pytorch/train_dense_124m.h5",
                          "h200x4/data_dense_1b.h5")
        other = self.submit("other", "h100x4/train_hybrid_dense_1b_np4.h5",
                            "h200_pytorch/train_hybrid_dense_1b.h5")
        with h5py.File(other / "train_hybrid_dense_1b.h5", "r+") as file:
            file["metrics/train/tokens_per_s"][...] *= 2  # which its samples do not say
        said = self.site(one, other)
        self.assertEqual(len(said.splitlines()), 3, said)
        head, dense, hybrid, refused = self.rows()
        self.assertEqual(head[:6], ["machine", "GPU", "ranks", "deck", "batch x tokens", "layout"])
        self.assertEqual(dense[:7], ["left &amp; right", "NVIDIA H200", "1", "dense-124m",
                                     "64 x 1024", "1 rank", "611983"])
        self.assertEqual(dense[9:12], ["1.135", "VALID", "timed for 67 s &lt; 120 s"])
        self.assertEqual(hybrid[:4] + [hybrid[5]], ["other", "NVIDIA H100 80GB HBM3", "4",
                                                    "hybrid-dense-1b", "data 4"])
        self.assertAlmostEqual(float(hybrid[8]), float(hybrid[6]) / 4, delta=1)
        self.assertEqual((refused[0], refused[10], refused[-1]),
                         ("other", "REFUSED", "train_hybrid_dense_1b"))
        self.assertIn("tokens_per_s", refused[11])
        index = (self.folder / "site/index.html").read_text(encoding="utf-8")
        self.assertIn('<a href="left%20%26%20right.html">left &amp; right</a>', index)
        page = (self.folder / "site/left & right.html").read_text(encoding="utf-8")
        self.assertIn("data_dense_1b", page)
        other_page = (self.folder / "site/other.html").read_text(encoding="utf-8")
        self.assertNotIn("train_hybrid_dense_1b<", other_page)
        self.site(one, other)  # the same again changes nothing
        self.assertEqual(len(list((self.folder / "site").iterdir())), 3)

    def test_what_cannot_be(self):
        (self.folder / "empty").mkdir()
        self.assertIn("no result set", self.site(self.folder / "empty", code=2))
        self.assertIn("is no folder", self.site(self.folder / "none", code=2))
        one = self.submit("index", "h200_pytorch/train_dense_124m.h5")
        self.assertIn("a name of its own", self.site(one, code=2))
        two = self.submit("two", "h200_pytorch/train_dense_124m.h5")
        self.assertIn("a name of its own", self.site(two, two, code=2))
        (self.folder / "site").mkdir(exist_ok=True)
        (self.folder / "site/two.html").write_text("somebody's")
        self.assertIn("is no older file of this kind", self.site(two, code=2))
        self.assertFalse((self.folder / "site/index.html").exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
