#!/usr/bin/env python3
"""The report and the site of submissions as a browser shows them, on a desk and on a phone:
browser_test.py TOOLS PUBLISHED SCREENSHOTS. Judged is what is laid out, not the text of a page.
Pictures stay in SCREENSHOTS."""

import functools
import html
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from urllib.parse import unquote

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
if not BROWSER or not all(importlib.util.find_spec(name) for name in ("h5py", "numpy")):
    print(f"skipped: no chromium, or no h5py for {sys.executable}")
    sys.exit(77)

import h5py  # noqa: E402
import numpy  # noqa: E402

TOOLS, PUBLISHED, SCREENSHOTS = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
DESK, PHONE = 1280, 390
MARKUP = "<img src=x onerror=\"document.title='live'\"><script>document.title='live'</script>"
# Appended to a copy of the page, in a frame as wide as the device: writes around it what it looks
# like. (A window without a screen is never narrower than 500 pixels.)
MEASURE = """
const box = (one) => one.getBoundingClientRect();
const all = (path) => [...document.querySelectorAll(path)];
const shown = (path) => all(path).filter((one) => one.checkVisibility() && box(one).width > 0);
const scale = (svg) => box(svg).width / svg.viewBox.baseVal.width;
const table = shown("table").find((one) => one.textContent.includes("ms a step"));
const column = [...table.tHead.rows[0].cells].findIndex((one) => one.textContent == "ms a step");
const values = () =>
    [...table.tBodies[0].rows].map((row) => parseFloat(row.cells[column].textContent));
table.tHead.rows[0].cells[column].click();
const sorted = values();
const fold = document.querySelector("details");
const folded = fold && !fold.querySelector("table").checkVisibility();
if (fold) fold.querySelector("summary").click();
const colour = (path) => shown(path).map((one) => getComputedStyle(one).color);
const found = {
  title: document.title, width: document.documentElement.scrollWidth, view: innerWidth,
  headings: shown("h2").map((one) => one.textContent), items: shown("li").length,
  raw: shown("p").filter((one) => one.textContent.startsWith("- ")).length,
  summary: shown("dl dd").map((one) => one.textContent),
  cells: shown("td:first-child").map((one) => one.textContent),
  right: colour("td.right"), wrong: colour("td.wrong"), sorted, folded,
  unfolded: fold && fold.querySelector("table").checkVisibility(),
  plots: shown("figure svg").map((one) => ({width: box(one).width, letters: 12 * scale(one)})),
  small: shown("td, p, li").map((one) => parseFloat(getComputedStyle(one).fontSize)),
  elements: shown("img, iframe, object, embed").length,
};
"""
SITE = """
const shown = (path) => [...document.querySelectorAll(path)].filter(
    (one) => one.checkVisibility() && one.getBoundingClientRect().width > 0);
const table = shown("table")[0];
const column = [...table.tHead.rows[0].cells].findIndex((one) => one.textContent == "tokens/s");
table.tHead.rows[0].cells[column].click();
const found = {
  title: document.title, width: document.documentElement.scrollWidth, view: innerWidth,
  rates: [...table.tBodies[0].rows].map((row) => parseFloat(row.cells[column].textContent)),
  links: shown("a").map((one) => [one.getAttribute("href"), one.textContent]),
  verdicts: shown("td.right, td.wrong").map((one) => one.textContent),
  small: shown("td, p, li").map((one) => parseFloat(getComputedStyle(one).fontSize)),
};
"""
KEEP = """
const kept = parent.document.createElement("pre");
kept.id = "found";
kept.textContent = JSON.stringify(found);
parent.document.body.replaceChildren(kept);
"""


def browse(page, width, *arguments):
    """Output of the browser, which has no network and a folder of its own that does not stay."""
    with tempfile.TemporaryDirectory() as profile:
        return subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--proxy-server=127.0.0.1:1", f"--user-data-dir={profile}",
             f"--window-size={width},2400", *arguments, page.as_uri()],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True,
            timeout=120).stdout


@functools.cache
def look(page, width, script):
    """What a script found in the page on a device of this width."""
    inside = html.escape(page.read_text(encoding="utf-8").replace(
        "</body>", f"<script>{{{script}{KEEP}}}</script></body>"))
    around = page.with_name(f"around_{width}.htm")
    around.write_text('<!doctype html><meta charset="utf-8"><body><iframe style="border: 0; '
                      f'width: {width}px; height: 2400px" srcdoc="{inside}"></iframe>')
    made = browse(around, width, "--dump-dom")
    return json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', made, re.S)[1]))


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        folder = pathlib.Path(cls.folder.name)
        sets = [shutil.copy(PUBLISHED / f"{name}.h5", folder) for name in
                ("ceilings", "train_hybrid_dense_1b", "train_hybrid_moe_2b", "grouped_mlp",
                 "losses_dense_124m_seed_1", "losses_dense_124m_seed_2",
                 "offload_hybrid_moe_2b")]
        with h5py.File(sets[-2], "r+") as hostile:
            hostile["config"].attrs["run.name"] = numpy.bytes_(MARKUP)
        cls.page = folder / "page.html"
        subprocess.run([sys.executable, TOOLS / "report.py", cls.page, *sets], check=True,
                       stdout=subprocess.PIPE)

        cls.site = folder / "site"
        sent = {"ours": ["train_dense_124m", "../h200_pytorch/train_hybrid_moe_2b"],
                "theirs & more": ["../h100x4/train_hybrid_dense_1b_np4"]}
        for name, of in sent.items():
            (folder / name).mkdir()
            for one in of:
                shutil.copy(PUBLISHED / f"{one}.h5", folder / name)
        subprocess.run([sys.executable, TOOLS / "submissions.py", cls.site,
                        *(folder / name for name in sent)], check=True, stdout=subprocess.PIPE)

    def found(self, width, page=None, script=MEASURE):
        return look(page or self.page, width, script)

    def test_the_page_holds_at_both_widths(self):
        for width in (DESK, PHONE):
            with self.subTest(width=width):
                found = self.found(width)
                self.assertEqual(found["view"], width)
                self.assertLessEqual(found["width"], width, "the page itself scrolls sideways")
                self.assertLessEqual({"In short", "Machine", "Training", "Kernels"},
                                     set(found["headings"]))
                self.assertEqual(found["summary"][0], "7 VALID")
                self.assertIn("NVIDIA H200", found["summary"][1])
                self.assertRegex(found["summary"][-1], r"^\d{4}-\d\d-\d\d")
                self.assertEqual(set(found["right"]), {"rgb(27, 127, 75)"})
                self.assertGreater(found["items"], 0, "no list is shown as one")
                self.assertEqual(found["raw"], 0, "a list is shown as a paragraph")
                self.assertEqual(found["sorted"], sorted(found["sorted"]))
                self.assertGreater(len(set(found["sorted"])), 1)
                self.assertTrue(found["folded"])
                self.assertTrue(found["unfolded"])
                self.assertGreater(len(found["plots"]), 3)
                for plot in found["plots"]:
                    self.assertLessEqual(plot["width"], 680)
                    self.assertTrue(9 <= plot["letters"] <= 16, plot)
                self.assertGreaterEqual(min(found["small"]), 12)

    def test_nothing_that_a_set_says_is_live(self):
        found = self.found(DESK)
        self.assertEqual(found["title"], "Stowage results")
        self.assertEqual(found["elements"], 0)
        self.assertIn(MARKUP, found["cells"])

    def test_the_site_of_submissions_holds_at_both_widths(self):
        """Its table sorts, and each machine's page lies behind a link of it."""
        for width in (DESK, PHONE):
            with self.subTest(width=width):
                found = self.found(width, self.site / "index.html", SITE)
                self.assertEqual(found["view"], width)
                self.assertLessEqual(found["width"], width, "the page itself scrolls sideways")
                self.assertEqual(len(found["rates"]), 3)
                self.assertEqual(found["rates"], sorted(found["rates"]))
                self.assertEqual(found["verdicts"], ["VALID"] * 3)
                self.assertGreaterEqual(min(found["small"]), 12)
                self.assertEqual({text for _, text in found["links"]}, {"ours", "theirs & more"})
                for target, _ in found["links"]:
                    self.assertTrue((self.site / unquote(target)).exists(), target)

    def test_pictures_are_kept(self):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        pages = {"report": self.page, "site": self.site / "index.html",
                 "machine": self.site / "theirs & more.html"}
        for name, width in (("report", DESK), ("report", PHONE), ("site", DESK), ("site", PHONE),
                            ("machine", PHONE)):
            picture = SCREENSHOTS / f"{name}_{width}.png"
            picture.unlink(missing_ok=True)
            browse(pages[name], width, f"--screenshot={picture}")
            self.assertGreater(picture.stat().st_size, 20_000, name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
