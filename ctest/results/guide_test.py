#!/usr/bin/env python3
"""Figures of the guide are what their sets and definitions draw: guide_test.py TOOLS."""

import importlib.util
import pathlib
import sys
import unittest
from unittest import mock
from xml.etree import ElementTree

if not importlib.util.find_spec("h5py"):
    print(f"skipped: no h5py for {sys.executable}")
    sys.exit(77)

TOOLS = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(TOOLS))

from stowage_results.plots import draw_guide, guide_ideas  # noqa: E402
from stowage_results.plots.svg import Drawing  # noqa: E402


class Guide(unittest.TestCase):
    def check(self):
        with mock.patch.object(sys, "argv", ["draw_guide.py", "--check"]), \
                mock.patch("builtins.print"):
            return draw_guide.main()

    def test_figures_are_those_of_the_sets(self):
        drawn = {name: draw() for name, draw in draw_guide.FIGURES.items()}
        with mock.patch.dict(draw_guide.FIGURES, {name: lambda name=name: drawn[name]
                                                  for name in drawn}):
            self.assertEqual(self.check(), 0, "run results/tools/draw_guide.py")
            for name in drawn:
                with mock.patch.dict(drawn, {name: drawn[name] + "\n"}):
                    self.assertEqual(self.check(), 1, name)
            del draw_guide.FIGURES["grid"]
            self.assertEqual(self.check(), 1)

    def test_texts_stand_within_figures(self):
        for path in draw_guide.FOLDER.glob("*.svg"):
            root = ElementTree.parse(path).getroot()
            width, height = float(root.get("width")), float(root.get("height"))
            for node in root.iter("{http://www.w3.org/2000/svg}text"):
                size, x, y = (float(node.get(key)) for key in ("font-size", "x", "y"))
                long = 0.6 * size * len(node.text)  # wider than letters are on average
                left = x - long * {"start": 0, "middle": 0.5, "end": 1}[node.get("text-anchor")]
                self.assertTrue(0 <= left and left + long <= width + 0.15 * long, node.text)
                self.assertTrue(size <= y <= height - 2, node.text)

    def test_schedules_wait_as_the_page_says(self):
        for ranks, microbatches in ((2, 8), (3, 5), (4, 8), (4, 16)):
            for zero_bubble, waits in ((False, 3 * (ranks - 1)), (True, ranks - 1)):
                passes = guide_ideas.schedule(ranks, microbatches, zero_bubble)
                self.assertEqual(max(begin for *_, begin in passes) + 1, 3 * microbatches + waits)
                self.assertEqual(len({(rank, begin) for rank, _, _, begin in passes}),
                                 3 * ranks * microbatches)

    def test_markup_of_texts_is_not_live(self):
        drawing = Drawing(10, 10, "<script>")
        drawing.text(1, 1, "<b> & c")
        self.assertIn("&lt;b&gt; &amp; c", drawing.svg())
        self.assertNotIn("<script>", drawing.svg())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
