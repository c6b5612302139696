#!/usr/bin/env python3
"""Tools with hostile sets and files of somebody else: hostile_sets_test.py TOOLS PUBLISHED.

Tools run inside this process; what a set could do to them happens in the child that they look at
it with."""

import argparse
import contextlib
import importlib.util
import io
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

if not all(importlib.util.find_spec(name) for name in ("h5py", "matplotlib")):
    print(f"skipped: no h5py or no matplotlib for {sys.executable}")
    sys.exit(77)

import h5py  # noqa: E402
import numpy  # noqa: E402

TOOLS, PUBLISHED = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path.insert(0, str(TOOLS))

from stowage_results.check import compare  # noqa: E402
from stowage_results import inspection  # noqa: E402
from stowage_results import outputs  # noqa: E402
from stowage_results.publish import pages  # noqa: E402
from stowage_results.plots import plot  # noqa: E402
from stowage_results.plots import plot_documents  # noqa: E402
from stowage_results.plots import plot_timeline  # noqa: E402
from stowage_results.publish import publish  # noqa: E402
from stowage_results.publish import report  # noqa: E402
from stowage_results import result_files  # noqa: E402
from stowage_results.tables import table  # noqa: E402
from stowage_results.check import validate  # noqa: E402

GOOD = PUBLISHED / "train_dense_124m.h5"
LINES = "provenance/system/warnings"
WAYS = {"validate": (validate, []), "table": (table, []), "plot": (plot, ["--out", "new.png"]),
        "publish": (publish, ["--to", "public"]), "compare": (compare, [GOOD]),
        "report": (report, [])}


def ran(tool, *words):
    """(exit code, what was said) of a tool's main function."""
    said, before = io.StringIO(), sys.argv
    sys.argv = [tool.__name__, *map(str, words)]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            result_files.run(tool.main)
    except SystemExit as end:
        return end.code, said.getvalue()
    finally:
        sys.argv = before
    raise AssertionError("run() returned")


def text_like(path):
    """A type that holds all of a file."""
    return f"S{os.path.getsize(path)}"


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)

    def set_with(self, name, edit, good=GOOD):
        path = pathlib.Path(shutil.copy(good, self.folder / name))
        with h5py.File(path, "r+") as file:
            edit(file)
        return path

    def refused(self, path, *words, by=("validate",)):
        """Tools end with 2 and one line that has the words."""
        for name in by:
            tool, more = WAYS[name]
            first = ["new.html"] if name == "report" else []
            code, said = ran(tool, *first, path, *more)
            self.assertEqual((code, said.count("\n")), (2, 1), (name, said))
            for word in (str(path), *words):
                self.assertIn(word, said, name)
        for made in ("new.png", "new.html", "public/" + path.name):
            self.assertFalse(pathlib.Path(made).exists(), made)


class Sets(Folder):
    def test_a_good_one_passes(self):
        for name, (tool, more) in WAYS.items():
            first = ["new.html"] if name == "report" else []
            code, said = ran(tool, *first, GOOD, *more)
            self.assertEqual(code, 0, (name, said))
        self.assertEqual(ran(validate, "public/" + GOOD.name)[0], 0)

    def test_values_in_other_files(self):
        secret = self.folder / "secret"
        secret.write_text("PRIVATE KEY of somebody")

        def reads(file):
            del file[LINES]
            file.create_dataset(LINES, (1,), text_like(secret), external=[(str(secret), 0, 23)])

        def sees(file):
            layout = h5py.VirtualLayout((1,), "f8")
            layout[:] = h5py.VirtualSource(str(GOOD), "series/train/loss", (1,))
            file.create_virtual_dataset("samples/more", layout)
        self.refused(self.set_with("external.h5", reads), "/" + LINES, "in another file", by=WAYS)
        self.refused(self.set_with("virtual.h5", sees), "/samples/more", "a view")
        self.assertEqual(secret.read_text(), "PRIVATE KEY of somebody")

    def test_links(self):
        for name, link in (("soft", h5py.SoftLink("/config")),
                           ("external", h5py.ExternalLink(str(GOOD), "/config"))):
            self.refused(self.set_with(f"{name}.h5", lambda file, to=link:
                                       file.__setitem__("provenance/x", to)), "/provenance/x",
                         "link")
        self.refused(self.set_with("hard.h5", lambda file: file.__setitem__(
            "provenance/x", file["config"])), "under two names")
        self.refused(self.set_with("circle.h5", lambda file: file.__setitem__(
            "provenance/x", file["provenance"])), "under two names")

    def test_more_than_any_set_has(self):
        def unwritten(file):
            file.create_dataset("series/train/x", (5_000_000_000,), "f8", chunks=(4096,))

        def zeros(file):
            data = file.create_dataset("series/train/x", (1 << 28,), "f8", chunks=(1 << 20,),
                                       compression="gzip")
            data[:1 << 20] = 0

        def chunks(file):
            file.create_dataset("series/train/x", (1,), "f8", chunks=(1 << 28,), maxshape=(None,))

        def many(file):
            for one in range(3):
                file.create_dataset(f"series/train/x{one}", (1 << 25,), "f8", chunks=(4096,))

        def deep(file):
            file.create_group("/".join("x" * 2000))
        self.refused(self.set_with("unwritten.h5", unwritten), "40000000000 bytes")
        self.refused(self.set_with("zeros.h5", zeros), "2147483648 bytes")
        self.refused(self.set_with("chunks.h5", chunks), "chunks of 2147483648 bytes")
        self.refused(self.set_with("many.h5", many), f"more than {inspection.LARGEST_FILE} bytes")
        self.refused(self.set_with("deep.h5", deep), "deep")

    def test_what_our_writer_does_not_write(self):
        def stored(**how):
            return lambda file: file.create_dataset("samples/more", data=[1.0] * 999, **how)

        def attribute(name, value, kind=None):
            return lambda file: file["config"].attrs.create(name, value, dtype=kind)
        self.refused(self.set_with("lzf.h5", stored(compression="lzf")), "filter 32000")
        self.refused(self.set_with("name.h5", attribute("a\n/: b", 1)), "no text")
        self.refused(self.set_with("enum.h5", attribute("e", 1, h5py.enum_dtype({"/x/y": 1}))),
                     "/config@e")
        self.refused(self.set_with("opaque.h5", attribute("e", numpy.void(b"abc"))), "/config@e")
        self.refused(self.set_with("type.h5", lambda file: file.__setitem__(
            "samples/more", numpy.dtype("f8"))), "/samples/more")

    def test_what_crashes_or_stalls_the_library(self):
        for status, words in ((signal.SIGSEGV, "SIGSEGV"), (signal.SIGABRT, "SIGABRT"),
                              (signal.SIGXCPU, "takes more than")):
            look = inspection.look
            inspection.look = lambda *_, of=status: os.kill(os.getpid(), of)
            try:
                self.refused(self.folder / shutil.copy(GOOD, "crash.h5"), words, by=WAYS)
            finally:
                inspection.look = look

    def test_a_list_of_scales_in_another_form(self):
        for value in ("", 1.5, [1, 2], [b"a", b"b"], numpy.zeros((1, 1, 1))):
            def edit(file, as_is=value):
                file["series/train/loss"].attrs["DIMENSION_LIST"] = as_is
            code, said = ran(validate, self.set_with("scales.h5", edit))
            self.assertIn(code, (1, 2), (value, said))

    def test_memory_and_depth_are_sentences(self):
        for problem, words in ((MemoryError(), "memory"), (RecursionError(), "nests"),
                               (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "form")):
            def main(of=problem):
                raise of
            tool = type("tool", (), {"main": staticmethod(main), "__name__": "tool"})
            code, said = ran(tool)
            self.assertEqual((code, said.count("\n")), (2, 1), said)
            self.assertIn(words, said)


class Faults(Folder):
    def test_damage_that_shows_behind_the_inspection(self):
        damage = RuntimeError("Object visitation failed (incorrect metadata checksum)")
        with unittest.mock.patch.object(h5py.Group, "visititems", side_effect=damage):
            self.assertEqual(ran(publish, GOOD, "--to", "public"),
                             (2, f"error: {GOOD}: cannot be cleared: {damage}\n"))

    def test_what_need_not_be_a_number_hides_no_fault(self):
        def edit(file):
            for name in [name for name in file["series/gpu"] if name != "step"]:
                file[f"series/gpu/{name}"][...] = numpy.nan
            file["series/train/lr"][3] = -1
            file["samples/train/step_time"].attrs["tokens"] = -1.0
        code, said = ran(validate, self.set_with("a.h5", edit))
        self.assertEqual(code, 1, said)
        for words in ("/series/train/lr: holds a value that is negative",
                      "/samples/train/step_time: tokens is -1.0"):
            self.assertIn(words, said)
        self.assertNotIn("/series/gpu", said)


    def test_checks_of_a_sweep_are_of_its_plans(self):
        sweep = PUBLISHED / "offload_all_dense_1b.h5"
        for edit, says in (
                (lambda checks: checks["plans"].attrs.modify("value", 99.0),
                 "plans: value is 99, the samples and series say "),
                (lambda checks: checks["other_states"].attrs.modify("value", -0.5),
                 "other_states: value is -0.5, the samples and series say 0"),
                (lambda checks: checks.__delitem__("plans"), "plans: is missing")):
            path = self.set_with("sweep.h5", lambda file, of=edit: of(file["validation"]), sweep)
            code, said = ran(validate, path)
            self.assertEqual(code, 1, said)
            self.assertIn(f"/validation/{says}", said)


class NoFiles(Folder):
    def test_fifos_devices_and_folders(self):
        os.mkfifo("fifo")
        os.mkdir("folder")
        signal.alarm(60)  # a tool that waits for a FIFO ends the test
        for path, words in (("fifo", "a FIFO"), ("folder", "a folder"), ("/dev/zero", "a device"),
                            ("none", "no such file")):
            for tool in (validate, table, plot, compare, publish, plot_documents, plot_timeline):
                more = {compare: [path], publish: ["--to", "."],
                        plot: ["--out", "p.png"]}.get(tool, [])
                if path == "/dev/zero" and tool in (plot_documents, plot_timeline):
                    more = ["--out", "p.png"]
                code, said = ran(tool, path, *more)
                self.assertEqual(code, 2, (tool, said))
                self.assertIn(f"{path}: {'is ' * (path != 'none')}{words}", said, tool)
        code, said = ran(report, "p.html", "fifo")
        self.assertEqual(code, 2, said)
        signal.alarm(0)

    def test_deep_and_broken_json(self):
        shutil.copy(GOOD, self.folder)
        for content, words in ((b"[" * 100_000 + b"]" * 100_000, "nests deeper"),
                               (b'{"a": 1, \xff}', "no UTF-8"), (b'{"a": ', "no JSON")):
            pathlib.Path("f.json").write_bytes(content)
            pathlib.Path("f.jsonl").write_bytes(content)
            for tool, path in ((plot_documents, "f.json"), (plot_timeline, "f.json"),
                               (table, GOOD.name)):  # reads the peers beside the set
                code, said = ran(tool, path)
                self.assertEqual((code, said.count("\n")), (2, 1), (tool, said))
                self.assertIn(words, said)


class Outputs(Folder):
    """A file of somebody else is refused; an older one of ours is kept."""

    def writers(self):
        """(tool, words, path of the output) for each tool that writes a file."""
        return ((publish, [GOOD, "--to", "."], GOOD.name), (report, ["a.html", GOOD], "a.html"),
                (plot, [GOOD, "--out", "a.png"], "a.png"),
                (plot, [GOOD, "--out", "a.svg"], "a.svg"),
                (plot, [GOOD, "--out", "a.svgz"], "a.svgz"),
                (plot, [GOOD, "--out", "a.pdf"], "a.pdf"))

    def test_files_of_somebody_else_stay(self):
        for tool, words, out in self.writers():
            theirs = pathlib.Path(out)
            theirs.write_text("theirs")
            code, said = ran(tool, *words)
            self.assertEqual((code, theirs.read_text()), (2, "theirs"), said)
            self.assertIn(f"{out}: exists and is no older file", said)
            theirs.unlink()
            theirs.symlink_to("nowhere")
            code, said = ran(tool, *words)
            self.assertEqual((code, theirs.is_symlink()), (2, True), said)
            theirs.unlink()
            theirs.mkdir()
            self.assertEqual(ran(tool, *words)[0], 2)
            theirs.rmdir()
            self.assertEqual(os.listdir(), [])

    def test_no_link_is_followed(self):
        for tool, words, out in self.writers():
            victim = self.folder / "victim"
            victim.write_text("theirs")
            part = pathlib.Path(out + ".part")
            part.symlink_to(victim)
            self.assertEqual(ran(tool, *words)[0], 0)
            self.assertEqual((victim.read_text(), part.is_symlink()), ("theirs", True))
            self.assertFalse(pathlib.Path(out).is_symlink())
            part.unlink()

    def test_an_older_one_of_ours_is_kept(self):
        for tool, words, out in self.writers():
            made = pathlib.Path(out)
            self.assertEqual(ran(tool, *words)[0], 0)
            other = made.read_bytes() + b"\n<!-- other -->"  # no reader minds what follows the end
            made.write_bytes(other)
            code, said = ran(tool, *words)
            kept = made.with_name(f"{made.stem}.older_1{made.suffix}")
            self.assertEqual((code, kept.read_bytes() == other), (0, True), said)
            self.assertIn(f"kept as {kept.name}", said)
            self.assertNotEqual(made.read_bytes(), other)
            self.assertEqual(made.stat().st_mode & 0o777, 0o666 & ~umask())

    def test_lines_of_peers(self):
        mine = pathlib.Path("mine.jsonl")
        for content in ('{"text": "a"}\n', "[" * 100000, '{"shape": 1}\n', "\x00"):
            mine.write_text(content)
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "mine.jsonl: exists and is no"):
                outputs.timings("mine.jsonl")
            with self.assertRaises(result_files.Refused):
                outputs.opened(mine)
            self.assertEqual(mine.read_text(), content)
        os.symlink("nowhere", "link.jsonl")
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "a link that leads nowhere"):
            outputs.timings("link.jsonl")
        kinds = [path for path in PUBLISHED.parent.glob("*/*.jsonl") if path.name != "made.jsonl"]
        self.assertGreater(len(kinds), 4)
        for path in kinds:
            with path.open() as lines:
                pathlib.Path("ours.jsonl").write_text(lines.readline())
            self.assertTrue(outputs.is_timings("ours.jsonl"), path)
        before = pathlib.Path("ours.jsonl").read_text()
        pathlib.Path("empty.jsonl").touch()
        for name in ("ours.jsonl", "empty.jsonl", "new.jsonl"):
            with outputs.opened(outputs.timings(name)) as out:
                out.write("{}\n")
            self.assertEqual(pathlib.Path(name).read_text(), "{}\n")
        self.assertEqual(pathlib.Path("ours.older_1.jsonl").read_text(), before)
        self.assertFalse(os.path.exists("empty.older_1.jsonl"))

    def test_every_peer_writes_such_lines(self):
        texts = [path.read_text(encoding="utf-8") for path in TOOLS.glob("peers/*.py")]
        peers = [text for text in texts if "import needs_torch" in text and '"--out"' in text]
        self.assertGreater(len(peers), 7)
        for text in peers:
            self.assertIn('"--out", type=outputs.timings', text)
            self.assertIn("with outputs.opened(", text)
            self.assertNotRegex(text, r"out\.(open|write_text)\(")

    def test_the_same_again_leaves_one_file(self):
        for tool, words, out in self.writers()[:3]:
            self.assertEqual([ran(tool, *words)[0] for _ in range(2)], [0, 0])
        self.assertEqual(sorted(os.listdir()), sorted(["a.html", "a.png", GOOD.name]))

    def test_a_page_leaves_what_it_did_not_make(self):
        page = self.folder / "README.md"
        words = ["--into", page, GOOD]
        marked = f"# Page\n\n{pages.BEGIN}\n{pages.END}\n"
        for name in ("training.md", "tokens.png"):
            page.write_text(marked)
            theirs = self.folder / name
            theirs.write_text(f"# Mine, which quotes\n{pages.BEGIN}\n")
            code, said = ran(table, *words)
            self.assertEqual((code, page.read_text()), (2, marked), said)
            self.assertIn(name, said)
            theirs.unlink()
        theirs = self.folder / "notes.md"
        theirs.write_text(f"# Mine, which quotes\n{pages.BEGIN}\n")
        self.assertEqual(ran(table, *words)[0], 0)
        self.assertTrue(theirs.exists())


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


class Published(Folder):
    def test_paths_in_names_and_rows_are_found(self):
        def value(file):
            file["config"].attrs["run.name"] = "in /someone/x"

        def name(file):
            file["config"].attrs["/someone/x"] = 1

        def rows(file):
            file["config"].attrs["rows"] = numpy.array([b"a", b"/someone/x"])
        for edit in (name, rows, value):
            code, said = ran(publish, self.set_with("a.h5", edit), "--to", "public")
            self.assertEqual((code, os.listdir("public")), (2, []), said)
            self.assertIn("/someone/x", said)

    def test_of_the_output_and_the_data_the_name_alone_is_published(self):
        def edit(file):
            file["config"].attrs["run.output"] = numpy.bytes_(b"/lustre/someone/b.h5")
            file["config"].attrs["data.path"] = numpy.bytes_(b"/lustre/someone/text.bin")
            for deck in ("deck_given", "deck_resolved"):
                said = file["config"][deck][()]
                del file["config"][deck]
                paths = b"run.output=/lustre/someone/b.h5 data.path=/lustre/someone/text.bin"
                file["config"][deck] = numpy.bytes_(said + b"\n# " + paths)
        code, said = ran(publish, self.set_with("a.h5", edit), "--to", "public")
        self.assertEqual((code, os.listdir("public")), (0, ["a.h5"]), said)
        with h5py.File("public/a.h5") as file:
            self.assertEqual(file["config"].attrs["run.output"], b"b.h5")
            self.assertEqual(file["config"].attrs["data.path"], b"text.bin")
            for deck in ("deck_given", "deck_resolved"):
                self.assertIn(b"# run.output=b.h5 data.path=text.bin",
                              file["config"][deck][()])
        self.assertEqual(ran(validate, "public/a.h5")[0], 0)


    def test_what_cannot_be_cleared_says_why(self):
        with unittest.mock.patch.object(publish, "clear", side_effect=OSError("no room")):
            self.assertEqual(ran(publish, GOOD, "--to", "public"),
                             (2, f"error: {GOOD}: cannot be cleared: no room\n"))
        self.assertEqual(os.listdir("public"), [])


class Pages(Folder):
    def test_markup_and_control_bytes_stay_text(self):
        def edit(file):
            file["config"].attrs["run.name"] = "<script>alert(1)</script>\x1b[2J"
            for path in ("/", "provenance/software"):
                file[path].attrs["git_describe"] = "<img src=x>\r\x07`</code><b>"
        path = self.set_with("a<i>.h5", edit)
        code, said = ran(report, "a.html", path)
        self.assertEqual(code, 0, said)
        made = pathlib.Path("a.html").read_text(encoding="utf-8")
        for markup in ("<script>alert", "<img", "<b>", "a<i>", "\x1b", "\x07", "\r"):
            self.assertNotIn(markup, made)
        self.assertIn("&lt;img src=x&gt;", made)


class Packages(Folder):
    def test_a_missing_one_is_named(self):
        for package, tools in (("h5py", WAYS), ("matplotlib", ["plot"])):
            for tool in tools:
                start = ("import importlib.util as u, runpy, sys; find = u.find_spec\n"
                         f"u.find_spec = lambda n: None if n == '{package}' else find(n)\n"
                         f"sys.path.insert(0, {str(TOOLS)!r}); sys.argv = {[tool, str(GOOD)]!r}\n"
                         f"sys.argv += ['--out', 'a.png'] * (sys.argv[0] == 'plot')\n"
                         f"runpy.run_path({str(TOOLS / tool) + '.py'!r}, run_name='__main__')\n")
                done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True,
                                      check=False)
                self.assertEqual(done.returncode, 3, (tool, done.stderr))
                self.assertIn(f"has no package {package}", done.stderr)

    def test_every_tool_says_so_before_it_imports_one(self):
        """-S: a Python that has the standard library alone."""
        tools = [path for path in sorted([*TOOLS.glob("*.py"), *TOOLS.glob("peers/*.py")])
                 if path.read_bytes()[:2] == b"#!"]
        self.assertGreater(len(tools), 10)
        for path in tools:
            done = subprocess.run([sys.executable, "-S", path, "--help"], capture_output=True,
                                  text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (3, ""), (path, done.stderr))
            self.assertRegex(done.stderr, r"^error: \S+ has no package (\w+)(, h5py)?: "
                                          r"\S+ -m pip install \1[^\n]*\n$", path)

    def test_tools_take_the_python_of_the_path(self):
        for path in [*TOOLS.rglob("*.py"), *TOOLS.parents[1].glob("drivers/*/*.py")]:
            first = path.read_text(encoding="utf-8").splitlines()[0]
            self.assertIn(first[:2] == "#!", (False, first == "#!/usr/bin/env python3"), path)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
