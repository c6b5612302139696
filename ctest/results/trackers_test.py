#!/usr/bin/env python3
"""Series of published sets for experiment trackers: trackers_test.py TOOLS PUBLISHED. What a
tracker's own library reads back is tried where it is installed."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
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

from stowage_results.publish import trackers  # noqa: E402
from stowage_results.result_files import Result  # noqa: E402

LOAD = PUBLISHED / "h200_fp8_states" / "m_load.h5"


class Trackers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ran(self, *words, without=None):
        """The finished command; `without`: of a Python that lacks this package."""
        command = [sys.executable, TOOLS / "trackers.py"]
        if without:
            command = [sys.executable, "-c",
                       "import importlib.util, runpy, sys\n"
                       "real = importlib.util.find_spec\n"
                       "importlib.util.find_spec = lambda name, *more: "
                       f"None if name == {without!r} else real(name, *more)\n"
                       f"sys.path.insert(0, {str(TOOLS)!r})\n"
                       f"sys.argv[0] = 'trackers.py'\n"
                       f"runpy.run_path({str(TOOLS / 'trackers.py')!r}, run_name='__main__')"]
        return subprocess.run([*map(str, command), *map(str, words)], cwd=self.folder,
                              capture_output=True, text=True, timeout=60)

    def test_series_over_steps_are_scalars(self):
        result = Result(LOAD)
        found = {tag: (steps, values) for tag, steps, values in trackers.scalars(result)}
        for name in ("loss", "lr", "grad_norm", "step_time"):
            steps, values = result.series(f"train/{name}")
            self.assertEqual(list(found[f"train/{name}"][0]), list(steps))
            self.assertEqual(list(found[f"train/{name}"][1]), list(values))
        self.assertEqual(len(found["train/val_loss"][0]), 1)
        layers = result.series("router_load/busiest")[1]
        self.assertEqual(list(found["router_load/busiest/3"][1]), list(layers[:, 3]))
        self.assertNotIn("memory/transient", found)  # over ops

    def test_the_largest_of_ranks_stands_for_all(self):
        path = self.folder / "ranks.h5"
        shutil.copy(LOAD, path)
        with h5py.File(path, "r+") as file:
            times, scale = file["series/train/step_time"][()], file["series/train/step"]
            del file["series/train/step_time"]
            made = file.create_dataset("series/train/step_time",
                                       data=numpy.stack([times, 2 * times, times / 2], axis=1))
            made.dims[0].attach_scale(scale)
        found = {tag: values for tag, _, values in trackers.scalars(Result(path))}
        self.assertEqual(list(found["train/step_time"]), list(2 * times))

    def test_steps_end_one_after_another(self):
        result = Result(LOAD)
        steps, times = result.series("train/step_time")
        at = trackers.seconds(result, steps)
        self.assertAlmostEqual(at[-1] - at[0], times[1:].sum(), places=5)

    def test_a_missing_library_is_named(self):
        for name in ("tensorboard", "wandb"):
            done = self.ran(LOAD, f"--{name}", "out", without=name)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(f"pip install {name}", done.stderr)
            self.assertFalse((self.folder / "out").exists())

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "no tensorboard")
    def test_tensorboard_reads_them(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        done = self.ran(LOAD, "--tensorboard", "out")
        self.assertEqual((done.returncode, done.stdout), (0, "out/m_load\n"), done.stderr)
        events = EventAccumulator(str(self.folder / "out" / "m_load"), {"scalars": 0}).Reload()
        for tag, steps, values in trackers.scalars(Result(LOAD)):
            read = events.Scalars(tag)
            self.assertEqual([one.step for one in read], list(steps))
            self.assertEqual([one.value for one in read], list(values.astype("f4")))
        self.assertEqual(events.Tags()["tensors"], ["deck"])
        again = self.ran(LOAD, "--tensorboard", "out")
        self.assertEqual(again.returncode, 2)
        self.assertIn("out/m_load: is there already", again.stderr)
        self.assertEqual(len(os.listdir(self.folder / "out" / "m_load")), 1)

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "no tensorboard")
    def test_sets_of_one_name_are_refused(self):
        (self.folder / "copy").mkdir()
        (self.folder / "copy" / "m_load.h5").symlink_to(LOAD)
        done = self.ran(LOAD, "copy/m_load.h5", "--tensorboard", "out")
        self.assertEqual(done.returncode, 2)
        self.assertIn("has the same name", done.stderr)
        self.assertFalse((self.folder / "out").exists())

    @unittest.skipUnless(importlib.util.find_spec("wandb"), "no wandb")
    def test_wandb_keeps_an_offline_run(self):
        done = self.ran(LOAD, "--wandb", "out")
        self.assertEqual(done.returncode, 0, done.stderr)
        run = self.folder / done.stdout.strip()
        self.assertEqual(len(list(run.glob("run-*.wandb"))), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
