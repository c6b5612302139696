#!/usr/bin/env python3
"""Marks of plots stand where the numbers say: drawings_test.py TOOLS."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

if not all(importlib.util.find_spec(name) for name in ("h5py", "matplotlib")):
    print(f"skipped: no h5py or no matplotlib for {sys.executable}")
    sys.exit(77)

TOOLS = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(TOOLS))

import numpy  # noqa: E402

from stowage_results.plots import page_plots, plot, plot_timeline, rate_plots  # noqa: E402
from stowage_results.plots.figures import pyplot  # noqa: E402


class Drawings(unittest.TestCase):
    def setUp(self):
        self.axes = pyplot().figure().subplots()

    def test_rates_are_bars_in_thousands(self):
        for peer, heights, title in ((1000.0, [2.5, 1.0], "MFU 40.0 %, 2.50x"),
                                     (None, [2.5], "MFU 40.0 %, PyTorch not timed")):
            self.axes.clear()
            page_plots.draw_rates([self.axes], [("deck", 2500.0, peer, 0.4)])
            self.assertEqual([bar.get_height() for bar in self.axes.patches], heights)
            self.assertEqual(self.axes.get_title(), f"deck\n{title}")

    def test_shares_are_pairs_of_bars_from_the_top(self):
        page_plots.draw_shares([self.axes], [("a", 0.5, 1.2, "peer"), ("b", 0.8, None, ""),
                                             ("c", 0.9, 0.5, "peer")])
        bars = [(round(bar.get_y() + bar.get_height() / 2, 9), round(bar.get_width(), 9))
                for bar in self.axes.patches]
        self.assertEqual(sorted(bars), [(-0.2, 45.0), (0.2, 90.0), (1.2, 80.0), (1.8, 60.0),
                                        (2.2, 50.0)])
        self.assertEqual(len({bar.get_facecolor() for bar in self.axes.patches}), 2)
        names = dict(zip(self.axes.get_yticks(), self.axes.get_yticklabels()))
        self.assertEqual([names[place].get_text() for place in (2, 1, 0)], ["a", "b", "c"])
        self.assertEqual([text.get_text() for text in self.axes.texts],
                         ["0.83x", "peer", "2.00x", "peer"])

    def test_a_roofline_tells_ours_from_libraries(self):
        found = [(10.0, 2e12, True), (20.0, 3e12, False), (40.0, 4e12, True)]
        with mock.patch.multiple(rate_plots, roof_points=lambda _: found, prefix=lambda *_: "",
                                 limits_of=lambda _: (8e12, 2e11)):
            rate_plots.draw_roofline(self.axes, [None])
        libraries, ours, roof = self.axes.get_lines()
        for line, marker, points in ((libraries, "x", [(20, 3)]), (ours, "o", [(10, 2), (40, 4)])):
            self.assertEqual((line.get_marker(), line.get_linestyle()), (marker, "None"))
            self.assertTrue(numpy.allclose(line.get_xydata(), points), line)
        self.assertNotEqual(libraries.get_color(), ours.get_color())
        # Flat from the ridge on, which is at 40 FLOP a byte.
        self.assertTrue(numpy.allclose(roof.get_xydata(), [(5, 1), (40, 8), (80, 8)]))

    def test_experts_are_drawn_layer_by_layer(self):
        busiest, dead = numpy.array([[1.0, 2.0], [3.0, 4.0]]), numpy.array([[0, 1], [2, 3]])
        series = {"router_load/busiest": (numpy.array([1, 2]), busiest),
                  "router_load/dead": (numpy.array([1, 2]), dead)}
        balanced = types.SimpleNamespace(series=series.get)
        plain = types.SimpleNamespace(series=lambda name: None)
        flat = types.SimpleNamespace(series=lambda name: (numpy.array([1]), numpy.ones(1)))
        with mock.patch.multiple(plot, legend_of=lambda _: "set", smoothed=lambda values: values):
            plot.draw_balance(self.axes, [plain, flat, balanced])
        self.assertEqual([line.get_ydata().tolist() for line in self.axes.get_lines()],
                         [[1, 3], [2, 4], [1, 5]])

    def test_a_timeline_has_passes_waits_and_queues_of_each_rank(self):
        def bar(rank, queue, name, begin, time):
            return {"ph": "X", "pid": rank, "tid": queue, "name": name, "ts": 1e3 * begin,
                    "dur": 1e3 * time}
        events = [{"ph": "M", "pid": rank, "tid": queue, "args": {"name": name}}
                  for rank in (0, 1) for queue, name in ((0, "compute"), (1, "d2h"))]
        events += [bar(0, 0, "forward of microbatch 0", 0, 2),
                   bar(0, 0, "backward of microbatch 0", 6, 4), bar(0, 1, "mlp", 2, 1),
                   bar(1, 0, "forward of microbatch 0", 2, 4)]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "plan.json"
            path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
            rows = plot_timeline.rows([path])
        with mock.patch.object(plot_timeline, "saved") as saved:
            plot_timeline.draw(rows, None)
        (figure, _), _ = saved.call_args
        axes, = figure.axes
        self.assertEqual([text.get_text() for text in axes.texts], ["F0", "B0", "F0"])
        self.assertEqual([label.get_text() for label in axes.get_yticklabels()],
                         ["rank 0 planned, plan\nwaits 40.0 %", "d2h",
                          "rank 1 planned, plan\nwaits 60.0 %"])
        spans = [[tuple(path.get_extents().intervalx) for path in bars.get_paths()]
                 for bars in axes.collections]
        self.assertEqual(spans, [[(0, 10)], [(0, 2)], [(6, 10)], [(2, 3)], [(0, 10)], [(2, 6)]])
        self.assertAlmostEqual(figure.get_figheight(), 0.8 + 0.7 * (1 + 0.35 + 1 + 0.6))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
