#!/usr/bin/env python3
"""What compare.py compares, tells and refuses, on small sets made here: compare_test.py TOOLS."""

import contextlib
import importlib.util
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

if not importlib.util.find_spec("h5py"):
    print(f"skipped: no h5py for {sys.executable}")
    sys.exit(77)

TOOLS = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(TOOLS))

import h5py  # noqa: E402
import numpy  # noqa: E402

from stowage_results.check import compare  # noqa: E402
from stowage_results import deck_defaults  # noqa: E402
from stowage_results.result_files import Result  # noqa: E402
from stowage_results.states import contradictions  # noqa: E402

STEP = "samples/train/step_time"
AMOUNTS = {"tokens": 64.0, "bytes": 5e9, "flops": 2e12, "model_flops": 1e12}


class CompareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.count = pathlib.Path(folder.name), 0

    def set_of(self, edit=lambda file: None, steps=range(1, 41), gpu="A"):
        """A set with 40 losses and times that repeat, changed by `edit`."""
        self.count += 1
        path = self.folder / f"{self.count}.h5"
        with h5py.File(path, "w") as file:
            file.attrs.update({"schema": "stowage-result", "schema_version": "1.8",
                               "verdict": "VALID", "driver": "train"})
            file.create_group("config").attrs.update({
                "model.pattern": "M-", "train.seq_length": 64, "train.global_batch_size": 2,
                "run.seed": 1, "run.steps": 40, "machine.op_efficiency": "x" * 5000})
            file[STEP] = 1 + 0.01 * numpy.sin(numpy.arange(40.0))
            file[STEP].attrs.update(AMOUNTS)
            file["series/steps"] = numpy.array(steps)
            file["series/steps"].make_scale("step")
            file["series/train/loss"] = 5 - 0.01 * numpy.array(steps)
            file["series/train/loss"].dims[0].attach_scale(file["series/steps"])
            file["validation/state_digest"] = numpy.array(
                [(steps[-1], b"0" * 32)], dtype=[("step", "i8"), ("digest", "S32")])
            file["provenance/system/ranks"] = numpy.array(
                [(b"host", gpu.encode())], dtype=[("host", "S9"), ("gpu_name", "S90")])
            edit(file)
        return path

    def compare(self, *paths, **flags):
        """(code, output) of the tool, refusals included."""
        words = ["compare.py", *map(str, paths)]
        for name, value in flags.items():
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), \
                mock.patch.object(sys, "argv", words):
            code = compare.main()
        return code, out.getvalue()

    def with_amount(self, name, factor):
        return self.set_of(lambda file: file[STEP].attrs.modify(name, AMOUNTS[name] * factor))


class Amounts(CompareTest):
    def test_each_is_told_within_a_percent_and_refused_beyond(self):
        base = self.set_of()
        self.assertNotIn("differ", self.compare(base, self.set_of())[1])
        for name in AMOUNTS:
            for factor in (1.009, 0.991):
                code, said = self.compare(base, self.with_amount(name, factor))
                self.assertEqual(code, 0, said)
                self.assertRegex(said, rf"train/step_time +{name} differ by 0.(89|9) %")
            for factor in (1.011, 0.989, float("nan")):
                code, said = self.compare(base, self.with_amount(name, factor))
                self.assertEqual(code, 2, said)
                self.assertIn(f"{name} of samples/train/step_time is {AMOUNTS[name]:.9g}", said)

    def test_an_amount_that_one_lacks_hides_no_other(self):
        def lacks(file):
            del file[STEP].attrs["bytes"]
            file[STEP].attrs["flops"] = 2 * AMOUNTS["flops"]

        code, said = self.compare(self.set_of(), self.set_of(lacks))
        self.assertEqual((code, "flops of samples/train/step_time is" in said), (2, True), said)

    def test_questions_of_bits_ask_for_no_times(self):
        base = self.set_of()
        others = (self.with_amount("flops", 2),
                  self.set_of(lambda file: file[STEP].write_direct(numpy.full(40, numpy.nan))),
                  self.set_of(lambda file: file[STEP].write_direct(numpy.full(40, 9.0))),
                  self.set_of(lambda file: file.attrs.modify("verdict", "INVALID")))
        for other, alone in zip(others, (2, 2, 1, 2)):
            self.assertEqual(self.compare(base, other)[0], alone)
            for flag in ("equal_loss", "equal_state"):
                code, said = self.compare(base, other, **{flag: True})
                self.assertEqual(code, 0, said)
                self.assertIn("equal to the bit", said)

    def test_another_loss_or_state_is_found(self):
        def other_loss(file):
            file["series/train/loss"][30] += 1

        def other_state(file):
            file["validation/state_digest"][0] = (40, b"1" * 32)

        base = self.set_of()
        for edit, loss, state in ((other_loss, 1, 0), (other_state, 0, 1)):
            other = self.set_of(edit)
            self.assertEqual(self.compare(base, other, equal_loss=True)[0], loss)
            self.assertEqual(self.compare(base, other, equal_state=True)[0], state)


class Decks(CompareTest):
    def with_key(self, key, value):
        return self.set_of(lambda file: file["config"].attrs.modify(key, value))

    def test_other_work_is_refused(self):
        def first(path, value):
            return lambda file: file[path].write_direct(numpy.r_[value, file[path][1:]])

        base = self.set_of()
        for edit, message in (
                (lambda file: file["config"].attrs.modify("model.pattern", "M"),
                 "model.pattern is M- and M"),
                (lambda file: file["config"].attrs.modify("train.seq_length", 128),
                 "train.seq_length is 64 and 128"),
                (lambda file: file["config"].attrs.modify("train.global_batch_size", 3),
                 "train.global_batch_size is 2 and 3"),
                (lambda file: file.attrs.modify("driver", "bench_offload"), "is of train"),
                (first(STEP, numpy.nan), "samples/train/step_time holds a value"),
                (first(STEP, -1), "step_time holds a time that is not positive"),
                (first(STEP, 0), "step_time holds a time that is not positive"),
                (lambda file: file.attrs.modify("verdict", "INVALID"),
                 "is INVALID; --equal-loss or --equal-state look for where"),
                (first("series/train/loss", numpy.nan), "series/train/loss holds a value that")):
            code, said = self.compare(base, self.set_of(edit))
            self.assertEqual(code, 2, said)
            self.assertIn(message, said)

    def test_a_key_of_another_version_has_its_default(self):
        base = self.set_of()
        key = "model.moe_router_force_load"
        self.assertEqual(deck_defaults.defaults()[key], "none")
        self.assertNotIn(key, self.compare(base, self.with_key(key, "none"))[1])
        for pair in ((base, self.with_key(key, "zipf")), (self.with_key(key, "zipf"), base)):
            code, said = self.compare(*pair)
            self.assertEqual(code, 2)
            self.assertRegex(said, f"{key} is (none and zipf|zipf and none)$")
        for key, value in (("model.norm_epsilon", 1e-5), ("model.untie_embeddings", True),
                           ("model.head_dim", 0)):
            self.assertNotIn(key, self.compare(base, self.with_key(key, value))[1])
        code, said = self.compare(base, self.with_key("model.norm_epsilon", 1e-6))
        self.assertEqual((code, "model.norm_epsilon is 1e-05 and 1e-06" in said), (2, True), said)
        code, said = self.compare(base, self.with_key("model.of_no_version", 7))
        self.assertEqual(code, 0, said)
        self.assertIn("model.of_no_version: (none) -> 7", said)

    def test_other_seeds_and_lengths_are_told(self):
        base = self.set_of()
        for key, value in (("run.seed", 2), ("run.steps", 60)):
            code, said = self.compare(base, self.with_key(key, value))
            self.assertEqual(code, 0, said)
            self.assertIn(f"# {key} differ, and so may losses", said)

    def test_a_run_beside_its_continuation(self):
        begun, gone_on = self.set_of(), self.set_of(steps=range(41, 81))
        code, said = self.compare(begun, gone_on)
        self.assertEqual(code, 0, said)
        code, said = self.compare(begun, gone_on, equal_loss=True)
        self.assertEqual(code, 1)
        self.assertIn("no losses of a step in common", said)
        whole = self.set_of(steps=range(1, 81), edit=lambda file: None)
        self.assertEqual(self.compare(whole, gone_on, equal_loss=True, equal_state=True)[0], 0)

    def test_machines_stand_last_and_short(self):
        other = self.set_of(lambda file: file["config"].attrs.modify("machine.op_efficiency",
                                                                     "y" * 5000), gpu="B")
        lines = self.compare(self.set_of(), other)[1].splitlines()
        self.assertEqual(lines[-2], "  gpu_name: A -> B")
        self.assertIn("machine.op_efficiency: xxx", lines[-1])
        self.assertLess(max(map(len, lines)), 250)


class States(CompareTest):
    def test_a_set_of_which_nobody_knows_hides_no_contradiction(self):
        def of(digest, described="v1"):
            def edit(file):
                file.attrs["git_describe"] = described
                file["config/numerics_sha256"] = "a" * 64
                file["provenance/choices"] = numpy.array(
                    [(b"x", b"y")], dtype=[("what", "S9"), ("chosen", "S9")])
                del file["provenance/system/ranks"]
                file["provenance/system/ranks"] = numpy.array(
                    [(b"c", 1, b"g")], dtype=[("cpu_model", "S9"), ("threads", "i8"),
                                              ("gpu_name", "S9")])
                if digest:
                    file["validation/state_digest"][0] = (40, digest * 32)
                else:
                    del file["validation/state_digest"]
            return Result(self.set_of(edit))

        first, dirty, unsaid, same, other = (of(b"1"), of(b"2", "v1-dirty"), of(b""), of(b"1"),
                                             of(b"2"))
        self.assertEqual(contradictions([first, dirty, unsaid, same]), [])
        for between in ([dirty], [unsaid], [dirty, unsaid, same]):
            found = contradictions([first, *between, other])
            self.assertEqual(len(found), 1, between)
            self.assertTrue(found[0].startswith(f"{other.path}: after step 40 its state is not "
                                                f"that of {first.path}"), found)


class Times(CompareTest):
    def test_several_sets_have_the_largest_code(self):
        slow = self.set_of(lambda file: file[STEP].write_direct(file[STEP][()] * 1.5))
        base = self.set_of()
        self.assertEqual(self.compare(base, self.set_of(), base)[0], 0)
        code, said = self.compare(base, slow, base)
        self.assertEqual(code, 1)
        self.assertEqual(said.count("# B "), 2)
        other = self.with_amount("tokens", 2)
        code, said = self.compare(base, other, slow)  # a refusal hides no other set
        self.assertEqual((code, said.count("error: "), said.count(" slower ")), (2, 1, 1), said)

    def test_samples_that_are_not_compared_hide_no_others(self):
        def more(samples, slower):
            def edit(file):
                file["samples/a"] = numpy.ones(samples)
                file[STEP].write_direct(file[STEP][()] * slower)
            return edit

        few = [self.set_of(more(5, slower)) for slower in (1, 1.5)]
        alone = self.set_of(more(40, 1)), self.set_of(lambda file: file[STEP].write_direct(
            file[STEP][()] * 1.5))
        for pair, words in ((few, "too few samples for an interval: 5, 5"), (alone, "# A")):
            code, said = self.compare(*pair)
            self.assertEqual((code, words in said), (1, True), said)
            self.assertEqual(said.count(" B/A = "), 1, said)

    def test_six_samples_have_an_interval(self):
        paths = [self.set_of(lambda file: file.__setitem__("samples/a", numpy.ones(6)))] * 2
        self.assertEqual(self.compare(*paths)[1].count(" B/A = "), 2)
        self.assertEqual(self.compare(*paths, skip=1)[1].count(" B/A = "), 1)

    def test_every_block_is_drawn_and_none_from_outside(self):
        for count, block in ((1, 1), (4, 2), (27, 3), (28, 3), (1000, 10)):
            drawn = compare.resampled(count, numpy.random.default_rng(1))
            self.assertEqual(drawn.shape, (compare.RESAMPLES, count))
            starts = drawn[:, ::block]
            self.assertEqual(set(starts.flat), set(range(count - block + 1)), count)
            for place in range(count):
                expected = starts[:, place // block] + place % block
                self.assertTrue(numpy.array_equal(drawn[:, place], expected), (count, place))

    def test_judged_by_the_whole_interval_at_its_edge(self):
        for low, high, word in ((1.02, 1.5, "slower"), (1.01, 1.5, "same"), (0.5, 0.98, "faster"),
                                (0.5, 0.99, "same"), (0.5, 1.5, "same")):
            self.assertEqual(compare.judge(low, high, 0.01), word, (low, high))

    def test_the_interval_holds_the_ratio(self):
        times = 1 + 0.01 * numpy.sin(numpy.arange(60.0))
        ratio, low, high = compare.ratio_interval(times, 1.25 * times)
        self.assertAlmostEqual(ratio, 1.25)
        self.assertTrue(low < 1.25 < high < 1.27 and low > 1.23, (low, high))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
