#!/usr/bin/env python3
"""Published pages and plots, on copies of the published sets: page_test.py TOOLS PUBLISHED."""

import contextlib
import importlib.util
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

if not all(importlib.util.find_spec(name) for name in ("h5py", "matplotlib")):
    print(f"skipped: no h5py or no matplotlib for {sys.executable}")
    sys.exit(77)

import h5py  # noqa: E402
import numpy  # noqa: E402

TOOLS, PUBLISHED = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path.insert(0, str(TOOLS))

from stowage_results.check import official  # noqa: E402
from stowage_results.tables import beside_one  # noqa: E402
from stowage_results.tables import cells  # noqa: E402
from stowage_results.tables import headline  # noqa: E402
from stowage_results.tables import machine  # noqa: E402
from stowage_results.plots import page_plots  # noqa: E402
from stowage_results.plots.figures import pyplot  # noqa: E402
from stowage_results.tables import peer_times  # noqa: E402
from stowage_results.plots import plot  # noqa: E402
from stowage_results.publish import report  # noqa: E402
from stowage_results.tables import run_tables  # noqa: E402
from stowage_results.tables import scaling  # noqa: E402
from stowage_results.plots import scaling_plots  # noqa: E402
from stowage_results.tables import table  # noqa: E402
from stowage_results.tables import train_tables  # noqa: E402
from stowage_results.medians import quotient_interval  # noqa: E402
from stowage_results.result_files import Refused, Result, text  # noqa: E402

MARKS = "# Page\n\n<!-- made by results/tools/table.py -->\n<!-- end of what table.py made -->\n"


class PageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def copy(self, name, as_name=None):
        """Of a set beside the folder PUBLISHED, `name` is its path from there."""
        return shutil.copy(PUBLISHED / name, self.folder / (as_name or pathlib.Path(name).name))

    def edited(self, name, as_name, edit):
        """An open copy with something changed, in a folder of its own."""
        folder = tempfile.mkdtemp(dir=self.folder)
        path = self.copy(name, f"{pathlib.Path(folder).name}/{as_name}")
        with h5py.File(path, "r+") as file:
            edit(file)
        return Result(path)

    def test_keys_have_the_names_that_they_have_now(self):
        def rename(file):
            keys = file["config"].attrs
            keys["offload.gradient_memory"] = keys["offload.berths"]
            del keys["offload.berths"]
        keys = self.edited("offload_aside_dense_1b.h5", "earlier.h5", rename).config()
        self.assertIn("offload.reuse_gradient_memory", keys)
        self.assertIn("offload.keep_exposed", keys)
        for earlier in ("gradient_memory", "berths", "keep_unhidden"):
            self.assertNotIn(f"offload.{earlier}", keys)

    def test_bands_of_the_site_checks_are_of_what_is_published(self):
        table = json.loads((TOOLS / "../../scripts/sites/benchmarks.json").read_text())
        stated = {deck: one["published"]["h200"] for deck, one in table["benchmarks"].items()
                  if one["published"]}
        self.assertEqual(len(stated), 3)
        for deck, rate in stated.items():
            with h5py.File(PUBLISHED / f"train_{deck.replace('-', '_')}.h5") as file:
                measured = file["metrics/train/tokens_per_s"][()]
            self.assertLess(abs(rate / measured - 1), 1e-3, deck)

    def table(self, *words):
        """(exit code, output) of table.py."""
        before, out = sys.argv, io.StringIO()
        sys.argv = ["table.py", *map(str, words)]
        self.addCleanup(setattr, sys, "argv", before)
        with contextlib.redirect_stdout(out):
            return table.main(), out.getvalue()


class Scaling(PageTest):
    """Two ranks beside one with the same batch a rank."""

    def sets(self, edit=lambda file: None):
        def smaller(file):
            file["config"].attrs["train.global_batch_size"] = numpy.int64(2)
            edit(file)
        many = Result(self.copy("../h200x2/train_hybrid_dense_1b_np2.h5"))
        return many, self.edited("../h200x2/train_hybrid_dense_1b_batch4.h5", "one.h5", smaller)

    def row(self, many, one):
        return next(line for line in train_tables.scaling([many, one]) if "_np2`" in line)

    def test_efficiency_with_its_interval(self):
        many, one = self.sets()
        times = [train_tables.timed_steps(result) for result in (one, many)]
        value = 100 * numpy.median(times[0]) / numpy.median(times[1])
        low, high = (100 * bound for bound in quotient_interval(*times))
        self.assertLess(low, high)
        self.assertIn(f"| `one` | {value:.1f} % | {low:.1f} .. {high:.1f} |", self.row(many, one))

    def test_another_run_is_no_base(self):
        for key, value in (("git_describe", "0000000"), ("created", "2026-11-20T09:04:49.640Z")):
            def other(file, key=key, value=value):
                file.attrs.modify(key, numpy.bytes_(value))
            self.assertIn(train_tables.ALONE, self.row(*self.sets(other)), key)

    def test_another_board_or_work_is_no_base(self):
        def other_board(file):
            ranks = file["provenance/system/ranks"]
            rows = ranks[()]
            rows["gpu_name"] = b"another"
            ranks[...] = rows
        for edit in (other_board,
                     lambda file: file["config"].attrs.modify("graphs.mode", b"elsewhere"),
                     lambda file: file["config"].attrs.modify("train.seq_length", 4096)):
            self.assertIn(train_tables.ALONE, self.row(*self.sets(edit)))


TWO = "../h100x2/"  # sets of two ranks


class Curves(PageTest):
    """Several ranks beside one, in the long table and in the short one."""

    def test_overlap_is_the_part_of_exchanges_that_is_not_exposed(self):
        result = Result(self.copy(TWO + "shared_dense_1b.h5"))
        found = {point["path"]: point for point in scaling.points(result)}
        lines = scaling.scaling_tables([result])
        column = next(line for line in lines if line.startswith("| set |")).split(" | ")
        column = column.index("overlap")
        for path, layout, mode in (("strong/t2/off", "t2", "off"), ("strong/c2/step", "c2", "step"),
                                   ("strong/d1/off", "d1", "off")):
            point = found[path]
            row = next(line for line in lines if f"| {layout} | {mode} |" in line).split(" | ")
            whole, exposed = point["communication_s"], point["exposed_communication_s"]
            wanted = f"{100 * (1 - exposed / whole):.1f} %" if layout != "d1" else ""
            self.assertEqual(row[column], wanted, path)

    def test_speed_up_with_its_interval(self):
        result = Result(self.copy(TWO + "shared_dense_1b.h5"))
        times = {point["path"]: point["time_s"] for point in scaling.points(result)}
        one, many = times["strong/d1/off"], times["strong/t2/off"]
        low, high = quotient_interval(one, many)
        row = next(line for line in beside_one.beside_one([result]) if "| tensor 2 |" in line)
        value = numpy.median(one) / numpy.median(many)
        self.assertIn(f"| {value:.2f} ({low:.3f} .. {high:.3f}) |", row)

    def test_one_rank_of_another_set_is_of_the_same_work(self):
        names = ["../h200x2/pipeline_zero_bubble_dense_1b.h5",
                 "../h200x2/pipeline_1f1b_dense_1b.h5"]
        zero_bubble, base = (Result(self.copy(name)) for name in names)
        words = " ".join(beside_one.beside_one([zero_bubble, base]))
        alone, shared = (numpy.median(next(point["time_s"] for point in scaling.points(result)
                                           if point["layout"] == layout))
                         for result, layout in ((base, "d1"), (zero_bubble, "p2")))
        self.assertIn(f"| {alone / shared:.2f} (", words)
        self.assertIn("beside `pipeline_1f1b_dense_1b`", words)
        for edit in (lambda file: file["config"].attrs.modify("train.seq_length", 4096),
                     lambda file: file.attrs.modify("git_describe", numpy.bytes_("0000000"))):
            other = self.edited(names[1], "other.h5", edit)
            self.assertNotIn("zero bubble", " ".join(beside_one.beside_one([zero_bubble, other])))

    def test_a_plot_of_layouts(self):
        result = Result(self.copy(TWO + "data_dense_1b.h5"))
        figure, = page_plots.figures([result], [])
        self.assertEqual((figure.name, len(figure.rows)), ("scaling.png", 2))
        page_plots.draw(figure, self.folder / figure.name)
        self.assertTrue(figure.is_at(self.folder / figure.name))


class Machines(PageTest):
    """Sets of two kinds of GPU under one name, beside each other."""

    def both(self, name):
        def other(file):
            ranks = file["provenance/system/ranks"]
            rows = ranks[()]
            rows["gpu_name"] = b"NVIDIA H100"
            ranks[...] = rows
        results = [self.edited(name, pathlib.Path(name).name, edit)
                   for edit in (lambda file: None, other)]
        cells.tell_apart(results)
        return results, [cells.name_of(result) for result in results]

    def test_curves_have_rows_and_a_legend_of_their_own(self):
        results, names = self.both("../h200x4/data_dense_1b.h5")
        self.assertEqual(len(set(names)), 2, names)
        lines = beside_one.beside_one(results) + scaling.scaling_tables(results)
        for name, gpu in zip(names, ("NVIDIA H200", "NVIDIA H100")):
            short = [line for line in lines if f"`{name}`" in line]
            self.assertGreaterEqual(len(short), 4, name)
            self.assertTrue(all(line.startswith(f"| {gpu} | ") for line in short), short)
        labels = [label for label, _ in scaling_plots.curves(results)]
        self.assertEqual(len(set(labels)), len(labels))
        axes = pyplot().figure().subplots()
        scaling_plots.draw_rates(axes, results)
        lines = axes.get_lines()
        self.assertEqual(len(lines), 2 * len(labels))
        for measured, whole in zip(lines[::2], lines[1::2]):
            (first, *_, last), rates = measured.get_xdata(), measured.get_ydata()
            self.assertEqual(whole.get_ydata()[-1], rates[0] * last / first)
            self.assertLess(rates[-1], whole.get_ydata()[-1])
        for name, first in zip(names, ("H200 ", "H100 ")):
            self.assertTrue(any(label.startswith(f"{first}{name}, ") for label in labels), labels)
            self.assertTrue(any(plot.legend_of(one).startswith(first) for one in results))

    def test_each_gpu_has_its_row_in_the_short_tables(self):
        results, _ = self.both("train_dense_124m.h5")
        peer = {"operator": "train_step", "implementation": "a|b", "deck": "dense-124m.toml",
                "tokens": 65536, "parameters": int(results[0].array("metrics/train/parameters")),
                "tokens_per_s": 1e5, "peak_bytes": 1, "device": "NVIDIA H200"}
        runs = headline.training_runs(results, [peer])
        self.assertEqual([run.board for run in runs], ["NVIDIA H100", "NVIDIA H200"])
        self.assertEqual([run.peer is None for run in runs], [True, False])
        lines = headline.training(runs)
        self.assertIn("| GPU | deck |", "\n".join(lines))
        self.assertIn(r"- PyTorch: a\|b;", lines)
        kernels, names = self.both("conv1d.h5")
        found = headline.operators(kernels, [])
        self.assertEqual({cells.name_of(one.result) for one in found}, set(names))

    def test_each_gpu_has_its_column_in_the_table_of_machines(self):
        results, _ = self.both("train_dense_124m.h5")
        of = {line.split(" | ")[0]: line for line in machine.machine(results)}
        self.assertIn("| NVIDIA H100 | NVIDIA H200 |", of["| "])
        self.assertEqual(of["| driver"].count("CUDA 13.0"), 2)

    def test_of_several_values_the_most_frequent_comes_first(self):
        def told(name, driver, commit):
            def edit(file):
                ranks = file["provenance/system/ranks"]
                rows = ranks[()]
                rows["gpu_driver"] = driver
                ranks[...] = rows
                file.attrs.modify("git_describe", commit)
            return self.edited("train_dense_124m.h5", name, edit)
        results = [told("a.h5", b"2|", b"bb"), told("b.h5", b"1", b"aa"), told("c.h5", b"1", b"aa")]
        cells.tell_apart(results)
        lines = machine.machine(results)
        self.assertIn("| driver | 1, 2\\| |", lines)
        self.assertIn("| commit (sets) | `aa` (2), `bb` (1) |", lines)


class Runs(PageTest):
    """Tables of training runs that belong together."""

    def test_seeds_of_one_deck(self):
        names = [f"losses_dense_124m_seed_{seed}.h5" for seed in (1, 2, 1234)]
        results = [Result(self.copy(name)) for name in names]
        values = [float(one.array("metrics/train/loss")) for one in results]
        row = next(line for line in run_tables.seeds(results) if "dense-124m" in line)
        self.assertIn(f"| 1, 2, 1234 | {', '.join(f'{value:.4f}' for value in values)} |", row)
        self.assertIn(f"| {max(values) - min(values):.4f} |", row)
        self.assertEqual(run_tables.seeds(results[:1]), [])

    def test_states_along_a_sequence(self):
        result = Result(self.copy(TWO + "ops_context_dense_1b.h5"))
        row = run_tables.exchanged_states([result])[-2]
        self.assertIn("| 2 | 8192 | 46.14 | 1.71 % | 0.39 % | 2.10 % |", row)
        self.assertEqual(run_tables.exchanged_states(
            [Result(self.copy(TWO + "ops_data_dense_1b.h5"))]), [])

    def test_every_save_has_its_row(self):
        saved, unsaved = (Result(self.copy(f"{TWO}{name}_moe_2b.h5"))
                          for name in ("saved", "unsaved"))
        rows = run_tables.saving([saved, unsaved])
        self.assertEqual(sum("`saved_moe_2b`" in row for row in rows), 2)
        self.assertIn("-0.08 % (`unsaved_moe_2b`)", " ".join(rows))
        self.assertNotIn("(`unsaved", " ".join(run_tables.saving([saved])))

    def test_ops_above_the_limits_of_their_run_are_errors(self):
        result, limits = (Result(self.copy(TWO + name))
                          for name in ("ops_context_dense_1b.h5", "ceilings.h5"))
        words = " ".join(train_tables.training([result], [limits, result]))
        self.assertEqual(re.findall(r"\| (\S+) \|(?:[^|]*\|){6} ERROR", words), ["mlp/fc2"])
        # Of another run they are no limits of this one.
        other = self.edited(TWO + "ceilings.h5", "ceilings.h5", lambda file: file.attrs.modify(
            "git_describe", numpy.bytes_("0000000")))
        self.assertNotIn("| ERROR", " ".join(train_tables.training([result], [other])))


class Report(PageTest):
    def test_limits_exchanges_and_curves_are_drawn(self):
        results = [Result(self.copy(TWO + name)) for name in
                   ("ceilings.h5", "comm_np2.h5", "shared_dense_1b.h5")]
        for plots, result, count, words in (
                (report.ceiling_plots, results[0], 1, ("h2d", "device_copy")),
                (report.exchange_plots, results[1], 6, ("all_gather, data", "nccl_unpinned")),
                (report.scaling_plots, results[2], 1, ("t2 graphs step", "85 %"))):
            made = plots([result])
            self.assertEqual(len(made), count)
            for word in words:
                self.assertIn(word, " ".join(made))
        self.assertEqual({driver for driver, _ in report.PLOTS.values()},
                         {text(one.file.attrs["driver"]) for one in results}
                         | {"train", "bench_kernels", "bench_offload"})


class Bands(PageTest):
    """What a page states holds, or its check fails."""

    def test_pages_that_name_one_commit_have_no_other(self):
        named = set()
        for page in sorted(PUBLISHED.parent.glob("*/README.md")):
            intro = page.read_text().partition("<!--")[0]
            said = re.search(r"\b(?:of one commit,|all of)\s`(\w+)`", intro)
            for path in sorted(page.parent.glob("*.h5")) if said else ():
                with h5py.File(path) as file:
                    self.assertEqual(text(file.attrs["git_describe"]), said[1], path)
                named.add(page.parent.name)
        self.assertLessEqual({"h100x2", "h100x4", "h200"}, named)

    def sets(self, by, dtype="fp32", run="gpu_a"):
        def change(file):
            file["series/train/loss"][50] += by
        names = [f"quickstart_{dtype}_{one}.h5" for one in ("host", "gpu_a", "gpu_b")]
        return [self.edited(name, name, change if run in name else lambda file: None)
                for name in names]

    def test_published_losses_are_within(self):
        for dtype in ("fp32", "bf16"):
            self.assertEqual(train_tables.beyond_bands(self.sets(0.0, dtype)), [])

    def test_a_loss_beyond_its_band(self):
        for dtype, by in (("fp32", 7e-3), ("bf16", 3e-2), ("fp32", float("nan"))):
            said = train_tables.beyond_bands(self.sets(by, dtype))
            self.assertTrue(any("the band of quickstart" in line for line in said), said)

    def test_other_bits_of_one_seed(self):
        said = train_tables.beyond_bands(self.sets(1e-6))
        self.assertEqual(len(said), 1)
        self.assertIn("to the bit", said[0])

    def test_the_check_of_a_page_fails(self):
        page = self.folder / "README.md"
        page.write_text(MARKS, encoding="utf-8")
        paths = [result.path for result in self.sets(7e-3)]
        self.assertEqual(self.table("--into", page, *paths)[0], 0)
        code, said = self.table("--check", "--into", page, *paths)
        self.assertEqual(code, 1, said)
        self.assertIn("the band of quickstart in fp32 is 0.005", said)
        self.assertNotIn("what the sets hold", said)


class Pages(PageTest):
    def setUp(self):
        super().setUp()
        self.page = self.folder / "README.md"
        self.page.write_text(MARKS, encoding="utf-8")
        self.paths = [self.copy(name) for name in ("ceilings.h5", "ssd.h5")]
        self.copy("ssd_triton.jsonl")
        self.words = ["--into", self.page, *self.paths]

    def test_what_is_written_is_accepted(self):
        self.assertEqual(self.table(*self.words)[0], 0)
        made = self.page.read_text(encoding="utf-8")
        ours = float(Result(self.paths[1]).array(
            "metrics/kernels/ssd_forward/B2_T8192_H64_P64_G8_N128/ours/time"))
        theirs = json.loads((PUBLISHED / "ssd_triton.jsonl").read_text().splitlines()[0])
        self.assertEqual((theirs["operator"], theirs["shape"]["H"]), ("ssd_forward", 64))
        self.assertIn(f"chunk 128 † | {theirs['median_s'] / ours:.2f}x |", made)
        self.assertIn("(kernels_scan_and_convolution.md)", made)
        self.assertIn("![Operators", made)
        self.assertIn("(roofline.png)", made)
        long = (self.folder / "kernels_scan_and_convolution.md").read_text(encoding="utf-8")
        self.assertTrue(long.startswith("# Kernels: scan and convolution\n"))
        code, said = self.table("--check", *self.words)
        self.assertEqual(code, 0, said)

    def test_each_part_of_a_page_is_checked(self):
        self.table(*self.words)

        def reduced(path):
            path.write_bytes(re.sub(rb"\d(\.\d\dx)", rb"9\1", path.read_bytes()))

        def other_plot(path):
            path.write_bytes((PUBLISHED / path.name).read_bytes())
        for name, change in (("README.md", reduced), ("operators.png", pathlib.Path.unlink),
                             ("operators.png", other_plot), ("ceilings.md", pathlib.Path.unlink),
                             ("kernels_scan_and_convolution.md", reduced)):
            change(self.folder / name)
            code, said = self.table("--check", *self.words)
            self.assertEqual((code, said.count("\n")), (1, 1), (name, said))
            self.assertIn(name, said)
            self.assertEqual(self.table(*self.words)[0], 0)

    def test_a_table_of_no_set_is_found_and_removed(self):
        self.table(*self.words)
        words = ["--into", self.page, self.paths[0]]
        code, said = self.table("--check", *words)
        self.assertEqual(code, 1)
        self.assertIn("kernels_scan_and_convolution.md: no set has what it shows", said)
        self.table(*words)
        self.assertFalse((self.folder / "kernels_scan_and_convolution.md").exists())

    def test_what_is_not_official_is_marked_with_the_reason(self):
        uuid = text(Result(self.paths[0]).file.attrs["uuid"])
        why = f"its ceilings ({uuid}) are not among the files"
        self.assertEqual(self.table(*self.words)[0], 0)
        self.assertIn("| `ssd` |\n", self.page.read_text(encoding="utf-8"))
        self.table("--into", self.page, self.paths[1])
        made = self.page.read_text(encoding="utf-8")
        self.assertNotIn("| `ssd` |", made)
        self.assertIn("| `ssd` ‡ |\n", made)
        self.assertIn(f"\n- `ssd` ‡: {why}\n", made)
        long = (self.folder / "kernels_scan_and_convolution.md").read_text(encoding="utf-8")
        self.assertIn("| `ssd` ‡ | ", long)
        self.assertIn(table.WHY, long)
        self.assertIn(f"| {why} |", (self.folder / "sets.md").read_text(encoding="utf-8"))

    def test_a_file_of_somebody_else_stays(self):
        (self.folder / "sets.md").write_text("mine\n", encoding="utf-8")
        with self.assertRaisesRegex(Refused, "sets.md: exists and is no older file"):
            self.table(*self.words)

    def test_the_short_table_elsewhere(self):
        other = self.folder / "deep" / "OTHER.md"
        other.parent.mkdir()
        other.write_text(MARKS, encoding="utf-8")
        words = [*self.words, self.copy("train_hybrid_dense_1b.h5"), "--short-into", other]
        self.copy("step_torch.jsonl")
        self.assertEqual(self.table(*words)[0], 0)
        made = other.read_text(encoding="utf-8")
        self.assertNotIn("not official", made)
        metrics = Result(self.folder / "train_hybrid_dense_1b.h5")
        rate, flops, peak, joules = (float(metrics.array(f"metrics/{name}")) for name in (
            "train/tokens_per_s", "train/model_flops_per_s_gpu", "train/peak_device_bytes",
            "energy/j_per_token"))
        rows = map(json.loads, (PUBLISHED / "step_torch.jsonl").read_text().splitlines())
        peer = next(row for row in rows if row["deck"] == "hybrid-dense-1b.toml")
        ours, theirs = rate / 1e3, peer["tokens_per_s"] / 1e3
        ratio = f"{ours / theirs:.2f}x"
        self.assertIn(f"| hybrid-dense-1b | {ours:#.4g} k | {theirs:#.4g} k | {ratio} | "
                      f"{flops / 989.4e10:.1f} % | {1e3 * joules:.2f} mJ |", made)
        short = self.copy("../h200_pytorch/train_dense_124m.h5")
        self.assertEqual(self.table("--short-into", other, *words[:-2], short)[0], 0)
        made = other.read_text(encoding="utf-8")
        self.assertIn("| dense-124m ‡ |", made)
        self.assertIn("\n- `train_dense_124m` ‡: timed for 67 s < 120 s\n", made)
        self.assertNotIn("tokens.png", made)  # the page that it is put into draws more
        long = (self.folder / "training.md").read_text(encoding="utf-8")
        self.assertIn(f"| {ours:#.4g} | {theirs:#.4g} | `step_torch.jsonl` | {ratio} | "
                      f"{peak / 2**30:.1f} | {peer['peak_bytes'] / 2**30:.1f} |", long)


class Headline(PageTest):
    def test_peers_are_of_the_same_work(self):
        timed = [{"operator": "scan", "implementation": "a", "median_s": 1.0,
                  "shape": {"B": 2, "T": 64}},
                 {"operator": "packed", "implementation": "b", "median_s": 1.0, "flops": 10,
                  "shape": {"tokens": 7, "H": 4}}]
        found = [len(peer_times.of_case(timed, *case)) for case in
                 (("scan", "B2_T64_H4", 1), ("scan", "B2_T128_H4", 1), ("scan", "B2_H4", 1),
                  ("other", "B2_T64", 1), ("scan", "B2_T64_accumulate1", 1),
                  ("packed", "H4_K4", 10), ("packed", "H4_K4", 11), ("packed", "H8_K4", 10))]
        self.assertEqual(found, [1, 0, 0, 0, 0, 1, 0, 0])

    def test_model_rate_of_the_peak_and_of_products(self):
        results = [Result(self.copy(name)) for name in ("ceilings.h5", "train_hybrid_dense_1b.h5")]
        run, = headline.training_runs(results, [])
        rate = float(results[1].array("metrics/train/model_flops_per_s_gpu"))
        self.assertAlmostEqual(run.mfu, rate / 989.4e12)
        best = max(float(results[0].array(f"metrics/ceilings/{tag}"))
                   for tag in results[0].datasets("metrics/ceilings") if "gemm" in tag)
        self.assertAlmostEqual(run.of_products, rate / best)
        # Products of another run say nothing of this one.
        other = self.edited("ceilings.h5", "c.h5", lambda file: file.attrs.modify(
            "git_describe", numpy.bytes_("0000000")))
        run, = headline.training_runs([other, results[1]], [])
        self.assertTrue(numpy.isnan(run.of_products))

    def test_a_run_of_8_bits_says_so_and_is_none_of_bf16(self):
        run = self.edited("train_hybrid_dense_1b.h5", "longer.h5", lambda file: file[
            "config"].attrs.create("train.precision", numpy.bytes_("fp8")))
        self.assertEqual(headline.training_runs([run], []), [])
        self.assertIn("| bf16, fp8 |", "\n".join(train_tables.training([run])))


class Plots(PageTest):
    """Sets without steps are not drawn as runs."""

    def panels(self, name, edit=lambda file: None):
        result = self.edited(name, pathlib.Path(name).name, edit)
        plot.draw([result], self.folder / "drawn.png")
        self.assertTrue(page_plots.text_chunks(self.folder / "drawn.png"))
        return [function.__name__ for function, _ in plot.panels_of([result])[0]]

    def test_panels_of_each_kind(self):
        self.assertEqual(self.panels("ceilings.h5"),
                         ["draw_copies", "draw_products", "draw_slowdowns"])
        self.assertEqual(self.panels("conv1d.h5"), ["draw_shares", "draw_roofline"])
        self.assertEqual(self.panels(TWO + "comm_np2.h5"), ["draw_bus", "draw_times"])
        self.assertEqual(self.panels("quickstart_fp32_host.h5"),
                         ["draw_loss", "draw_rate", "draw_step_time", "draw_memory"])

    def test_a_run_shows_the_balance_of_experts_and_sets_by_name(self):
        def add(file):
            for group, shape in (("router_load/busiest", (3, 2)), ("router_load/dead", (3, 2)),
                                 ("val_loss/verses", (3,)), ("router/aux_loss", (3,)),
                                 ("weight_norms/layers", (3, 2)),
                                 ("update_norms/layers", (3, 2))):
                folder = file.require_group("series/" + group.split("/")[0])
                if "step" not in folder:
                    folder["step"] = numpy.array([1, 2, 3])
                    folder["step"].make_scale("step")
                file["series/" + group] = numpy.ones(shape)
                file["series/" + group].dims[0].attach_scale(folder["step"])
            file["series/train/tokens"] = numpy.arange(1., 1 + len(file["series/train/step"]))
            file["series/train/tokens"].dims[0].attach_scale(file["series/train/step"])
        self.assertEqual(self.panels("quickstart_fp32_host.h5", add), [
            "draw_loss", "draw_rate", "draw_updates", "draw_weights", "draw_balance",
            "draw_further_losses", "draw_step_time", "draw_memory"])
        result = self.edited("quickstart_fp32_host.h5", "tokens.h5", add)
        by_tokens = plot.AlongTokens(result)
        for path in ("router_load/dead", "update_norms/layers"):
            self.assertEqual(by_tokens.series(path)[0].tolist(), [1, 2, 3])
        self.assertEqual(by_tokens.series("train/loss")[0][-1],
                         result.series("train/tokens")[1][-1])
        plot.draw([result], self.folder / "tokens.png", "tokens")
        self.assertTrue((self.folder / "tokens.png").stat().st_size > 0)

    def test_kernels_without_limits_show_times(self):
        def without(file):
            for operator in file["metrics/kernels"].values():
                for shape in operator.values():
                    for one in shape.values():
                        one.pop("pct_ceiling", None)
        self.assertEqual(self.panels("conv1d.h5", without), ["draw_case_times", "draw_roofline"])


class Installed(PageTest):
    def test_installed_tools_have_all_they_import(self):
        source = TOOLS.parent
        listed = re.findall(r"tools/([a-z_]+(?:\.py)?)\b",
                            (source / "CMakeLists.txt").read_text(encoding="utf-8"))
        tools = self.folder / "tools"
        tools.mkdir()
        for name in listed:
            if (TOOLS / name).is_dir():
                shutil.copytree(TOOLS / name, tools / name)
            else:
                shutil.copy(TOOLS / name, tools)
        for name in ("schema.md", "metrics.toml"):
            shutil.copy(source / name, self.folder)
        shutil.copy(source.parent / "docs" / "reference" / "deck.md", self.folder)
        ceilings = self.copy("ceilings.h5")
        for words in (["compare.py", ceilings, ceilings], ["plot.py", ceilings],
                      ["report.py", self.folder / "page.html", ceilings], ["table.py", ceilings],
                      ["validate.py", ceilings]):
            ran = subprocess.run([sys.executable, tools / words[0], *words[1:]], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            self.assertEqual(ran.returncode, 0, ran.stdout)

    def test_how_ranks_differ_is_said(self):
        def differ(file):
            del file["provenance/system/differences"]
            said = numpy.array([b"they\nshare \x1b[2J", b"b"], "S20")
            file["provenance/system/differences"] = said
        result = self.edited("../h100x2/shared_dense_1b.h5", "a.h5", differ)
        self.assertEqual(official.not_official(result)[0],
                         r"the ranks differ: they share \x1b[2J, and 1 more")

    def test_a_folder_may_hold_dumps_of_its_runs(self):
        with h5py.File(self.folder / "a_dump.h5", "w") as file:
            file.attrs["schema"] = numpy.bytes_(b"stowage-dump")
        self.assertEqual([self.copy("ceilings.h5")], report.sets_in([self.folder]))

    def test_verdicts_have_a_colour(self):
        row = report.row_of("| `a` | VALID | INVALID | STOPPED | VALIDA |", "td")
        for kind in ("right", "wrong", "stopped"):
            self.assertEqual(row.count(f'<td class="{kind}">'), 1, row)

    def test_a_title_is_no_formula(self):
        named = self.edited("train_dense_124m.h5", "a.h5", lambda file: file["config"].attrs.modify(
            "run.name", numpy.bytes_(r"$\no{")))
        cells.tell_apart([named])
        plot.draw([named], self.folder / "drawn.png")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
