#!/usr/bin/env python3
"""Text for monitoring systems, of published sets and of lines: openmetrics_test.py TOOLS PUBLISHED.
prometheus_client reads it where it is installed."""

import importlib.util
import json
import math
import pathlib
import re
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

from stowage_results.plain_files import Refused  # noqa: E402
from stowage_results.publish import openmetrics  # noqa: E402

TRAIN, CURVE = (PUBLISHED / "h200x4" / f"{name}.h5" for name in ("train_hybrid_dense_1b_np4",
                                                                "data_dense_1b"))
LABEL = r'[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"'
ROW = re.compile(rf"([a-z_][a-z0-9_]*)\{{({LABEL}(?:,{LABEL})*)\}} (-?[0-9.e+-]+)")
META = re.compile(r"# (TYPE|UNIT|HELP) ([a-z_][a-z0-9_]*) (.+)")


def made(*paths):
    """The text of files."""
    families = openmetrics.Families()
    for path in map(str, paths):
        (openmetrics.add_lines if path.endswith(".jsonl") else openmetrics.add_set)(families, path)
    return families.text()


def read(text):
    """Values by (family, labels); the text has the form of OpenMetrics 1.0."""
    *lines, end = text.splitlines()
    assert end == "# EOF", end
    family, values = None, {}
    for line in lines:
        if meta := META.fullmatch(line):
            kind, name, words = meta.groups()
            assert kind == "TYPE" or name == family, line
            assert kind != "TYPE" or words == "gauge", line
            assert kind != "UNIT" or name.endswith("_" + words), line
            family = name
            continue
        name, labels, value = ROW.fullmatch(line).groups()
        assert name == family and (name, labels) not in values, line
        values[name, labels] = float(value)
    return values


class OpenMetrics(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_each_metric_of_a_set_is_a_gauge(self):
        values = read(made(TRAIN, CURVE))
        run, curve = 'run="train_hybrid_dense_1b_np4"', 'run="data_dense_1b"'
        with h5py.File(TRAIN) as file:
            step = file["metrics/train/step_time"]
            for end, value in (("", step[()]), ("_ci95_low", step.attrs["ci95_low"]),
                               ("_ci95_high", step.attrs["ci95_high"])):
                self.assertEqual(values[f"stowage_train_step_time{end}_seconds", run], value)
            self.assertNotIn(("stowage_train_val_loss_ci95_low", run), values)  # which is NaN
        with h5py.File(CURVE) as file:
            self.assertEqual(
                values["stowage_scaling_efficiency", f'{curve},of="weak/d4_zero/off"'],
                file["metrics/scaling/weak/d4_zero/off/efficiency"][()])
        self.assertEqual(values["stowage_valid", run], 1)
        info, = (labels for name, labels in values if name == "stowage_run_info" and run in labels)
        self.assertIn('driver="train"', info)
        self.assertIn('gpu="NVIDIA H200",ranks="4"', info)

    def lines(self, *told, name="live"):
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"time": "2031-05-04T12:00:00.000Z", **one}) + "\n"
                                for one in told) + '{"event": "st', encoding="utf-8")
        return path

    def test_lines_of_a_run_under_way(self):
        step = {"event": "step", "step": 7, "loss": 2.5, "grad_norm": None, "ok": True}
        path = self.lines({"event": "start", "run": "a"}, {**step, "step": 6, "loss": 9}, step)
        values = read(made(path))
        self.assertEqual(values, {("stowage_start_time_seconds", 'run="live"'): 1935662400.0,
                                  ("stowage_run_info", 'run="live"'): 1,
                                  ("stowage_step_step", 'run="live"'): 7,
                                  ("stowage_step_loss", 'run="live"'): 2.5})
        metric = {"event": "metric", "tag": "train/loss", "value": 2.0, "ci95_low": None,
                  "ci95_high": None}
        ended = self.lines({"event": "start"}, metric, {"event": "verdict", "result": "INVALID"})
        values = read(made(ended))
        self.assertEqual(values["stowage_train_loss", 'run="live"'], 2.0)
        self.assertEqual(values["stowage_valid", 'run="live"'], 0)

    def test_what_cannot_be(self):
        path = self.folder / "other.jsonl"
        for told in ({"event": 1}, [1, 2]):
            path.write_text(json.dumps(told) + "\n", encoding="utf-8")
            with self.assertRaisesRegex(Refused, "other.jsonl:1: is no line of a run"):
                made(path)
        with self.assertRaisesRegex(Refused, "two files say it"):
            made(TRAIN, TRAIN)
        with self.assertRaisesRegex(Refused, "has no whole line"):
            made(self.lines())

    def test_names_move_no_quote(self):
        values = read(made(self.lines({"event": "start"}, name='a"} 1\\')))
        self.assertIn(("stowage_run_info", r'run="a\"} 1\\"'), values)

    def ran(self, *words):
        return subprocess.run([sys.executable, TOOLS / "openmetrics.py", *words], text=True,
                              capture_output=True, check=False)

    def test_a_file_for_a_collector(self):
        out = self.folder / "stowage.prom"
        for _ in range(2):  # the second replaces the first, and keeps no older one
            self.assertEqual(self.ran(TRAIN, "--out", out).returncode, 0)
        self.assertEqual(list(self.folder.iterdir()), [out])
        values = read(out.read_text(encoding="utf-8"))
        self.assertTrue(all(map(math.isfinite, values.values())))
        out.write_text("# somebody else's\n", encoding="utf-8")
        done = self.ran(TRAIN, "--out", out)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is no older file of this kind", done.stderr)

    @unittest.skipUnless(importlib.util.find_spec("prometheus_client"), "no prometheus_client")
    def test_their_own_reader_takes_it(self):
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed
        text = made(TRAIN, CURVE, self.lines({"event": "start"}))
        found = {(row.name, *sorted(row.labels.items())): row.value
                 for family in parsed(text) for row in family.samples}
        self.assertEqual(len(found), len(read(text)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
