#!/usr/bin/env python3
"""Cells of tables, names of sets, and JSON beside them: tables_test.py TOOLS."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

if not importlib.util.find_spec("h5py"):
    print(f"skipped: no h5py for {sys.executable}")
    sys.exit(77)

TOOLS = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(TOOLS))

import h5py  # noqa: E402
import numpy  # noqa: E402

from stowage_results.tables import cells  # noqa: E402
from stowage_results.tables import communication  # noqa: E402
from stowage_results.tables import peer_times  # noqa: E402
from stowage_results.tables import table  # noqa: E402
from stowage_results.plots import plot_documents  # noqa: E402
from stowage_results.plots import plot_timeline  # noqa: E402
from stowage_results.result_files import Refused, Result  # noqa: E402


def made_up(path, gpu="NVIDIA H200"):
    ranks = numpy.array([(gpu.encode(),)], dtype=[("gpu_name", "S40")])
    made = types.SimpleNamespace(path=path, array=lambda _: ranks)
    made.once = lambda _, function: function(made)
    return made


class Cells(unittest.TestCase):
    def test_words_are_no_markdown_of_their_own(self):
        for words, shown in (
                ("a|b\n## Heading\n| x | y |", r"a\|b ## Heading \| x \| y \|"),
                ("<script>x</script>", r"\<script>x\</script>"), ("<!-- x", r"\<!-- x"),
                ("![x](http://e/p.png) [k] (a)", r"![x\](http://e/p.png) [k] (a)"),
                ("10 samples < 20", "10 samples < 20"), ("`a|<b>`", r"`a\|<b>`"),
                ("a`<b>", r"a`\<b>"), ("`a` `<b>", r"`a` `\<b>"),
                ("\x1b[2J\ra\tb\x85", " [2J a b "),
                ("97.5 .. 98.1", "97.5 .. 98.1"), (7, "7")):
            self.assertEqual(cells.plain(words), shown)
        line = cells.table(("a", "b"), [("x|y\nz", "<i>")])[2]
        self.assertEqual(line, r"| x\|y z | \<i> |")
        self.assertEqual(cells.code("a`b\n|"), "`a'b |`")
        self.assertEqual(cells.name_of(made_up("x/a`b\x1b.h5")), "a'b ")

    def test_a_column_of_gpus_where_one_has_something(self):
        header = (cells.GPU, "set")
        self.assertEqual(cells.table(header, [("", "a"), ("", "b")])[0], "| set |")
        self.assertEqual(cells.table(header, [("", "a"), ("A", "b")])[0], "| GPU | set |")
        self.assertEqual(cells.table(header, [("", "a")])[2], "| a |")


class Names(unittest.TestCase):
    def named(self, *results):
        cells.tell_apart(results)
        return [cells.name_of(result) for result in results]

    def test_equal_names_have_as_many_folders_as_that_takes(self):
        self.assertEqual(self.named(made_up("a/x.h5"), made_up("a/y.h5")), ["x", "y"])
        self.assertEqual(self.named(made_up("a/x.h5"), made_up("b/x.h5"), made_up("b/y.h5")),
                         ["a/x", "b/x", "y"])
        self.assertEqual(self.named(made_up("p/a/x.h5"), made_up("q/a/x.h5"), made_up("b/x.h5")),
                         ["p/a/x", "q/a/x", "b/x"])

    def test_gpus_are_told_where_there_are_several(self):
        one, same, host = (made_up(f"{name}.h5", gpu) for name, gpu in
                           (("a", "NVIDIA H200"), ("b", "NVIDIA H200"), ("c", "")))
        self.named(one, same, host)
        self.assertEqual([cells.gpu_of(each) for each in (one, same, host)], ["", "", ""])
        self.assertEqual((cells.label_of(one), cells.caption(one)), ("a", "`a`"))
        other = made_up("d.h5", "NVIDIA H100 80GB HBM3")
        self.named(one, other, host)
        self.assertEqual([cells.gpu_of(each) for each in (one, other, host)],
                         ["NVIDIA H200", "NVIDIA H100 80GB HBM3", "none"])
        self.assertEqual(cells.label_of(other), "H100 80GB HBM3 d")
        self.assertEqual(cells.caption(one), "`a` on NVIDIA H200")

    def test_peers_of_another_gpu_are_no_peers(self):
        timed = [{"device": "NVIDIA H200"}, {"device": "NVIDIA H100"}, {}]
        self.assertEqual(peer_times.of_board(timed, made_up("a.h5")), [timed[0], timed[2]])


class Tables(unittest.TestCase):
    def test_exchanges_of_one_group_have_a_row_each(self):
        """Of sets whose ranks were all one group: samples without the kind of exchange."""
        with tempfile.TemporaryDirectory() as folder:
            with h5py.File(pathlib.Path(folder) / "old.h5", "w") as file:
                file.attrs.update(schema="stowage-result", schema_version="1.0", verdict="VALID",
                                  driver="bench_comm")
                file["samples/comm/all_reduce"] = numpy.ones(6)
                file["metrics/comm/all_reduce/busbw"] = 3e9
                file["metrics/comm/all_reduce/busbw"].attrs.update(
                    median_of=6, ci95_low=2e9, ci95_high=4e9)
                file["provenance/system/ranks"] = numpy.array(
                    [(b"",)] * 2, dtype=[("gpu_name", "S9")])
            result = Result(pathlib.Path(folder) / "old.h5")
            cells.tell_apart([result])
            self.assertIn("| all_reduce | 2 | 3.000 | 2.000 .. 4.000 |",
                          communication.communication([result]))

    def test_headings_stand_alone(self):
        kernels = table.Chapter("kernels_norm.md", "Kernels: norm",
                                ["## Kernels: norm", "", table.ABOUT, "", "| x |", ""])
        other = table.Chapter("sets.md", "Sets", ["## Sets", "", "| y |", ""])
        with mock.patch.multiple(table, prepare=mock.DEFAULT, headline=lambda *_: [],
                                 machine=lambda _: [], peer_times=mock.DEFAULT,
                                 chapters=lambda *_: [other, kernels, kernels]):
            lines = table.tables([]).splitlines()
        self.assertEqual([line for line in lines if line.startswith("#")],
                         ["## Sets", "## Kernels", "### Kernels: norm", "### Kernels: norm"])
        for before, line, behind in zip(["", *lines], lines, lines[1:]):
            if line.startswith("#"):
                self.assertEqual((before, behind), ("", ""), line)


class Json(unittest.TestCase):
    def test_what_is_no_trace_is_refused(self):
        bar = {"ph": "X", "pid": 0, "tid": 1, "name": "x", "ts": 0, "dur": 1}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace.json"
            for events, says in ((3, "not a trace"), ([{}], "not a trace"), ([bar], "not a trace"),
                                 ([], "a trace of nothing")):
                path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
                with self.assertRaisesRegex(Refused, f"trace.json: {says}"):
                    plot_timeline.read(path)

    def test_brackets_without_end_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "deep.jsonl"
            path.write_text("[" * 100000, encoding="utf-8")
            for read, what in ((peer_times.read, [made_up(pathlib.Path(folder) / "a.h5")]),
                               (plot_timeline.read, path), (plot_documents.read, path)):
                with self.assertRaisesRegex(Refused, "deep.jsonl"):
                    read(what)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
