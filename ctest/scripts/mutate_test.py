"""What a mutation run does without a build: scripts/lib/mutants.py and mutate.py."""

import contextlib
import io
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/lib"))
import mutants  # noqa: E402
import mutate  # noqa: E402
from mutants import Mutant  # noqa: E402

SOME = [Mutant(f"{folder}/a.cpp", line, "  a = b;\n", f"  a = {new};\n")
        for folder, count in (("kernels", 9), ("layers", 3))
        for line in range(1, count) for new in "xyz"]


class MutateTest(unittest.TestCase):
    def test_a_seed_repeats_a_drawing(self):
        drawn = mutants.draw(SOME, 7)
        self.assertEqual(drawn, mutants.draw(SOME[::-1], 7))
        self.assertNotEqual(drawn, mutants.draw(SOME, 8))

    def test_folders_take_turns_and_a_line_occurs_once(self):
        drawn = mutants.draw(SOME, 7)
        self.assertEqual([mutants.folder_of(mutant.path) for mutant in drawn],
                         ["kernels", "layers"] * 2 + ["kernels"] * 6)
        self.assertEqual(len({(mutant.path, mutant.line) for mutant in drawn}), 10)
        self.assertEqual(mutants.draw([], 7), [])

    def test_one_line_changes(self):
        mutant = Mutant("a.cpp", 2, "b\n", "x\n")
        self.assertEqual(mutant.applied("a\nb\nc\n"), "a\nx\nc\n")

    def test_sources_of_the_product_are_mutated(self):
        names = ["offload/bins.cpp", "ctest/offload/bins_test.cpp", "offload/bins.hpp",
                 "scripts/dev.sh", "scripts/slurm/job.sh", "results/tools/table.py",
                 "scripts/lib/mutate.py"]
        self.assertEqual([name for name in names if mutants.mutable(name)],
                         ["offload/bins.cpp", "scripts/dev.sh", "scripts/slurm/job.sh",
                          "results/tools/table.py"])

    def test_equivalents_have_a_reason(self):
        text = "# head\n\na.cpp\n- a = b;\n+ a = x;\nb is\nx here\n\nb.cpp\n- f();\n+\nno effect\n"
        judged = mutants.judged_equivalents(text)
        self.assertEqual(judged, {("a.cpp", "a = b;", "a = x;"): "b is x here",
                                  ("b.cpp", "f();", ""): "no effect"})
        self.assertIn(Mutant("a.cpp", 9, "  a = b;\n", "  a = x;\n").key(), judged)
        self.assertNotIn(Mutant("a.cpp", 9, "  a = b;\n", "  a = y;\n").key(), judged)
        with self.assertRaisesRegex(ValueError, "'a.cpp' needs"):
            mutants.judged_equivalents("a.cpp\n- a = b;\n+ a = x;\n")

    def test_the_list_of_equivalents_is_of_lines_that_stand_there(self):
        text = (mutants.ROOT / mutants.EQUIVALENTS).read_text(encoding="utf-8")
        for path, old, new in mutants.judged_equivalents(text):
            lines = (mutants.ROOT / path).read_text(encoding="utf-8").splitlines()
            self.assertIn(old, [line.strip() for line in lines], f"{path}: {new}")

    def test_layout_and_docstrings_mean_nothing(self):
        meaning = mutants.meaning("a.py", 'def f(a):\n  """Adds."""\n  return a + 1  # one\n')
        same = 'def f(a):\n  "None."\n  return (a+1)\n'
        self.assertEqual(meaning, mutants.meaning("a.py", same))
        self.assertEqual(meaning, mutants.meaning("a.py", same.replace('"None."', "pass")))
        self.assertNotEqual(meaning, mutants.meaning("a.py", same.replace("+", "-")))
        self.assertIsNone(mutants.meaning("a.py", "return 1\n"))

    def test_where_a_function_ends_its_none_is_no_mutant(self):
        for text, equal in (
                ("def f(a):\n  g(a)\n  return None\n", True),
                ("def f(a):\n  try:\n    return g(a)\n  except E:\n    return None\n", True),
                ("def f(a):\n  if a:\n    return None\n  else:\n    return 1\n", True),
                ("def f(a):\n  if a:\n    return None\n  g(a)\n", False),
                ("def f(a):\n  for b in a:\n    return None\n", False),
                ("def f(a):\n  try:\n    return None\n  finally:\n    return g(a)\n", False),
                ("def f(a):\n  return 0\n", False)):
            found = mutants.meaning("a.py", re.sub("return (None|0)", "pass", text))
            self.assertEqual(found == mutants.meaning("a.py", text), equal, text)

    def test_failed_tests_are_read_from_ctest(self):
        said = ("1/5 Test  #3: a.b ..............   Passed    0.05 sec\n"
                "2/5 Test #10: a.c.np2 ..........***Failed    1.25 sec\n"
                "3/5 Test #11: a.d ..............***Skipped   0.01 sec\n"
                "4/5 Test #12: a.e ..............***Exception: SegFault  0.30 sec\n"
                "5/5 Test #13: a.f ..............***Timeout 120.00 sec\n")
        self.assertEqual(mutate.failed_tests(said), ["a.c.np2", "a.e", "a.f"])

    def test_tools_are_tried_by_what_imports_them(self):
        modules = {"a": "", "b": "import json\nfrom a import one\n", "c": "from tools.x import b\n",
                   "d": "import ab\nfrom tools.ab import x\n"}
        self.assertEqual(mutate.importers("a", modules), {"a", "b", "c"})
        self.assertEqual(mutate.importers("c", modules), {"c"})
        for text in ('run("tools/b.py")', "import a\n", 'Ran ran = tool("a", {set});'):
            self.assertTrue(mutate.names_module({"a", "b"}, text), text)
        self.assertFalse(mutate.names_module({"a", "b"}, 'run("ab.py")\nimport json\n'))

    def test_tests_of_a_tool_run_alone_and_the_quickest_first(self):
        bench = object.__new__(mutate.Bench)
        with tempfile.TemporaryDirectory() as folder:
            bench.copy = pathlib.Path(folder)
            bench.tree = bench.copy / "build/host"
            for name, text in (("results/tools/a.py", ""), ("results/tools/b.py", "import a\n"),
                               ("ctest/results/slow_test.cpp", 'tool("a")'),
                               ("ctest/drivers/whole_test.py", 'run("a.py")\n'),
                               ("ctest/drivers/other_test.py", 'run("b.py")\n'),
                               ("build/host/Testing/Temporary/CTestCostData.txt",
                                "results.slow 2 9.5\nresults.page 1 0.5\nresults.new 0 0\n---\n")):
                (bench.copy / name).parent.mkdir(parents=True, exist_ok=True)
                (bench.copy / name).write_text(text, encoding="utf-8")
            bench.targets = {"bin/stowage_train"}
            bench.tests = {"results.slow": [""], "results.page": ["b.py"], "results.new": ["a.py"],
                           "results.none": ["c.py"], "drivers.whole.x": [""],
                           "drivers.other.x": [""]}
            bench.labels = {name: ["process"] if name.startswith("drivers") else ["unit"]
                            for name in bench.tests}
            found = bench.stages("results/tools/a.py")
        self.assertEqual([stage.choice for stage in found], [("-R", f"^{name}$") for name in (
            r"results\.page", r"results\.slow", r"results\.new", r"drivers\.whole\.x")])
        self.assertEqual([stage.targets for stage in found], [
            ("test_results_page",), ("test_results_slow",), ("test_results_new",),
            ("bin/stowage_train",)])

    def test_tools_that_need_a_gpu_are_not_tried(self):
        self.assertTrue(mutants.needs_gpu("a.py", "import os\n\ndef f():\n    import torch\n"))
        self.assertFalse(mutants.needs_gpu("a.py", "import torches\n"))

    def test_a_log_spares_what_was_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "log"
            mutants.Log(path).add(SOME[0], "survived", "", 1)
            mutants.Log(path).add(SOME[1], "equal", "", 1)
            mutants.Log(path).add(SOME[0], "noticed", "a.b", 2.06)
            log = mutants.Log(path)
            self.assertEqual([log.outcome(mutant) for mutant in SOME[:3]],
                             ["noticed", "equal", None])
            self.assertIn('"killed_by": "a.b", "seconds": 2.1', path.read_text())
        self.assertIsNone(mutants.Log(None).outcome(SOME[0]))

    def test_an_equal_object_and_a_judged_mutant_do_not_count(self):
        outcomes = ["noticed", "equal", "survived", "not compiled", "noticed"]
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            survivors = mutants.report(list(zip(SOME, outcomes)), [SOME[5]], 1)
        self.assertEqual(survivors, [SOME[2]])
        self.assertRegex(said.getvalue(), r"kernels +2 +1 +1 +1 +1 +0 +67 %")
        self.assertIn("kernels/a.cpp:1\n- a = b;\n+ a = z;\n", said.getvalue())


class CopyTest(unittest.TestCase):
    """The copy has what the user's tree has, and the user's tree stays as it is."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve() / "root"
        self.copy = self.root / "build/mutate"
        self.git("init", "--quiet", self.root)
        self.write({".gitignore": "/build/\n", "a.cpp": "a\n", "b.cpp": "b\n"})
        self.commit()

    def git(self, *arguments):
        self.root.mkdir(exist_ok=True)
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *arguments],
                       cwd=self.root, check=True)

    def commit(self):
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "a commit")

    def write(self, texts, root=None):
        for name, text in texts.items():
            ((root or self.root) / name).write_text(text, encoding="utf-8")

    def copied(self):
        mutate.refresh_copy(self.root, self.copy)
        return {path.name: path.read_text(encoding="utf-8") for path in self.copy.glob("*.cpp")}

    def test_a_copy_follows_changed_new_and_removed_files(self):
        self.assertEqual(self.copied(), {"a.cpp": "a\n", "b.cpp": "b\n"})
        self.write({"a.cpp": "a mutant\n"}, self.copy)
        self.write({"a.cpp": "changed\n", "c.cpp": "new\n"})
        (self.root / "b.cpp").unlink()
        now = {"a.cpp": "changed\n", "c.cpp": "new\n"}
        self.assertEqual(self.copied(), now)
        self.commit()
        self.assertEqual(self.copied(), now)
        shutil.rmtree(self.root / "build")
        self.assertEqual(self.copied(), now)
        self.assertEqual((self.root / "a.cpp").read_text(encoding="utf-8"), "changed\n")


class OutcomeTest(unittest.TestCase):
    """A mutant put into a small tree, with a compiler and tests that the case makes up."""

    def outcome(self, objects, failing=(), failing_anyway=()):
        bench, text = object.__new__(mutate.Bench), ["a\n"]
        bench.objects, bench.passes = {"/copy/a.cpp": "a.o"}, {}
        bench.stages = lambda path: [mutate.Stage((), ("-L", "fast"))]
        bench.build = lambda targets: True
        bench.object_bytes = mock.Mock(side_effect=objects)

        def first_failed(choice, without=()):
            tests = [*failing_anyway, *(failing if text[-1] == "b\n" else ())]
            return next((test for test in tests if test not in without
                         and choice in (("-L", "fast"), ("-R", f"^{test}$"))), "")

        bench.first_failed = first_failed
        file = mock.MagicMock(suffix=".cpp", __str__=lambda self: "/copy/a.cpp")
        file.write_text = lambda written, encoding: text.append(written)
        return bench.outcome_of(Mutant("a.cpp", 1, "a\n", "b\n"), file, "a\n")

    def test_objects_decide_whether_a_mutant_is_one(self):
        self.assertEqual(self.outcome([b"a", b"a"], ["t"]), ("equal", ""))
        self.assertEqual(self.outcome([b"a", None], ["t"]), ("not compiled", ""))
        self.assertEqual(self.outcome([b"a", b"b"], ["t"]), ("noticed", "t"))
        self.assertEqual(self.outcome([b"a", b"b"]), ("survived", ""))
        self.assertEqual(self.outcome([b"a", b"b"], ["time"]), ("noticed", "time"))

    def test_a_test_that_fails_anyway_notices_nothing(self):
        self.assertEqual(self.outcome([b"a", b"b"], [], ["s"]), ("survived", ""))
        self.assertEqual(self.outcome([b"a", b"b"], ["t"], ["s"]), ("noticed", "t"))
        self.assertEqual(self.outcome([b"a", b"b"], [], ["time"]), ("survived", ""))


if __name__ == "__main__":
    unittest.main()
