#!/usr/bin/env python3
"""The file of metrics, its page, and what it is refused for: metrics_test.py TOOLS."""

import importlib.util
import math
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

if not importlib.util.find_spec("h5py"):
    print(f"skipped: no h5py for {sys.executable}")
    sys.exit(77)

TOOLS = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(TOOLS))

import numpy  # noqa: E402

from stowage_results.check import checks, complete, metrics, recompute  # noqa: E402

RESULTS = TOOLS.parent
ROW = {"unit": '"s"', "better": '"lower"', "from": '"median"', "due": '"samples"', "help": '"x"'}


def printed(kind, *files):
    return subprocess.run([sys.executable, RESULTS / "metric_registry.py", kind, *files],
                          text=True, capture_output=True, check=False)


class Metrics(unittest.TestCase):
    def refused(self, text, *words):
        """What the configuration says of a file of metrics."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "odd.toml"
            path.write_text(text, encoding="utf-8")
            ran = printed("cpp", path)
        self.assertEqual(ran.returncode, 1, ran)
        self.assertNotIn("Traceback", ran.stderr)
        for word in ("odd.toml: ", *words):
            self.assertIn(word, ran.stderr)

    def test_page_is_that_of_the_file(self):
        page = RESULTS.parent / "docs" / "reference" / "metrics.md"
        self.assertEqual(page.read_text(encoding="utf-8"),
                         printed("page", RESULTS / "metrics.toml").stdout)

    def test_functions_that_rows_name_are_there(self):
        for row in metrics.metrics():
            for module, (form, words) in ((recompute, row.rule), (complete, row.when)):
                if form == "function":
                    self.assertTrue(callable(getattr(module, words[0], None)), (row.tag, words))

    def test_few_samples_have_no_interval_but_a_range_before_1_2(self):
        figure = recompute.of_times(numpy.array([1.0, 2.0, 3.0]))
        for minor, bounds, said in ((2, (math.nan, math.nan), ""), (2, (1.0, 3.0), "has the int"),
                                    (1, (1.0, 3.0), "")):
            found = recompute.differs(figure, 2.0, bounds, 3,
                                      types.SimpleNamespace(minor_version=minor))
            self.assertEqual(found[:11], said, (minor, bounds))

    def test_the_least_is_of_what_is_finite(self):
        """A run of which no evaluation is finite has none."""
        row, = (row for row in metrics.metrics() if row.tag == "train/best_val_loss")
        (condition,) = row.when[1]
        for losses, least in (([3.0, math.nan, 2.0, math.inf], 2.0), ([math.nan, math.inf], None)):
            found = numpy.arange(len(losses)), numpy.array(losses)
            result = types.SimpleNamespace(series={"train/val_loss": found}.get)
            self.assertEqual(complete.holds(result, condition), least is not None)
            value = recompute.SERIES["least"](found[1])
            self.assertEqual(value, math.inf if least is None else least)

    def test_stalls_are_a_part_of_the_time_of_steps(self):
        """Of checkpoints that were written beside training, where the set says which were."""
        series = {"checkpoint/stall": [1.0, 2.0, 3.0], "train/step_time": [4.0] * 4}
        for beside, stalled in ((None, 6.0), ([0, 0, 0], 6.0), ([1, 0, 1], 4.0)):
            found = {name: (numpy.arange(len(values)), numpy.array(values))
                     for name, values in {**series, "checkpoint/beside": beside}.items()
                     if values is not None}
            figure = recompute.stalled_part(types.SimpleNamespace(series=found.get))
            self.assertAlmostEqual(figure.value, stalled / (stalled + 16.0))

    def test_bands_are_of_a_step_or_of_the_last_that_counted(self):
        steps, losses = numpy.array([5, 6, 7]), numpy.array([3.0, 2.0, 9.0])
        whole, good = {"loss": (steps, losses)}, {"loss": (steps[:2], losses[:2])}
        for name, value in (("loss_at_7", 9.0), ("loss_at_5", 3.0), ("final_loss", 2.0)):
            self.assertEqual(checks.value_in_band(name, whole, good), {name: value})
        self.assertTrue(math.isnan(checks.value_in_band("loss_at_8", whole, good)["loss_at_8"]))
        self.assertEqual(checks.value_in_band("loss", whole, good), {})
        none = {"loss": (steps[:0], losses[:0])}
        self.assertTrue(math.isnan(checks.value_in_band("final_loss", whole, none)["final_loss"]))

    def test_wrong_rows_are_named_with_their_key(self):
        for key, value, says in (
                ("unit", None, "unit is missing"), ("help", None, "help is missing"),
                ("unit", '"ms"', "unit is 'ms', wanted one of s, B, "),
                ("unit", "1", "unit is 1, wanted one of s"),
                ("better", '"more"', "better is 'more', wanted one of higher"),
                ("help", '""', "help is '', wanted words"),
                ("from", '"mean"', "from is 'mean', wanted reading, median"),
                ("from", '"flops / median"', "from is 'flops / median', wanted"),
                ("from", '"its x / "', "from is 'its x / ', wanted"),
                ("from", '"median of a/*/*"', "from reads a/*/*, which has more stars than odd/*"),
                ("due", '"often"', "due is 'often', wanted always, samples"),
                ("due", '"run and often"', "due is 'run and often', wanted always"),
                ("samples", '"a/"', "samples is 'a/', wanted a path"),
                ("samples", '"a/b"', "samples are a/b, which has fewer stars than odd/*/one"),
                ("shown", '"x: ms"', "shown is 'x: ms', wanted HEADING: FORM of a metric without"),
                ("signed", '"yes"', "signed is 'yes', wanted one of True, False"),
                ("units", '"s"', "units is no key of a metric, these are: unit, ")):
            fields = {name: words for name, words in {**ROW, key: value}.items() if words}
            row = ", ".join(f"{name} = {words}" for name, words in fields.items())
            with self.subTest(key=key, value=value):
                self.refused(f'["odd/*"]\none = {{{row}}}\n', f"odd/*/one: {says}")

    def test_wrong_files_are_named(self):
        row = "{" + ", ".join(f"{name} = {words}" for name, words in ROW.items()) + "}"
        for text, says in (
                (f"[odd]\none = {row}\none = {row}\n", "line 3"),
                (f'["odd/*"]\none = {row}\n[odd]\n"*/one" = {row}\n',
                 "odd/*/one: stands there twice"),
                (f"[odd]\none = {row}, 1\n", "line 2"), ("one = 1\n", "one stands in no table"),
                ("[odd]\none = 1\n", "odd/one: is no row {unit = "),
                (f'["odd one"]\none = {row}\n', "odd one/one: is no row")):
            with self.subTest(text=text):
                self.refused(text, says)
        self.assertIn("none.toml: no such file", printed("cpp", "none.toml").stderr)

    def test_stars_stand_for_parts(self):
        for tag, parts in (("kernels/a/b/c/time", ("a/b", "c")), ("packing/8/steps", ("8",)),
                           ("comm/data/link/latency", ("data",)), ("train/loss", ())):
            row, found = metrics.row_of(tag)
            self.assertEqual((metrics.filled(row.tag, found), found), (tag, parts))
        for tag in ("kernels/a/time", "packing/8/9/steps", "train/new", "comm/data/latency"):
            self.assertEqual(metrics.row_of(tag), (None, ()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
