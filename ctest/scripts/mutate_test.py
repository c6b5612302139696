"""What a mutation run does without a build: scripts/lib/mutants.py, noticing.py and mutate.py."""

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
import noticing  # noqa: E402
from mutants import Mutant  # noqa: E402

SOME = [Mutant(f"{folder}/a.cpp", line, f"  a{line} = b;\n", f"  a{line} = {new};\n")
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
        equal = [Mutant("a.cpp", line, "f();\n", new)
                 for line in (4, 9) for new in ("\n", "g();\n")]
        self.assertEqual([mutant.line for mutant in mutants.draw(equal, 7)], [4])

    def test_what_else_changes_leaves_the_order(self):
        drawn = mutants.draw(SOME, 7)
        fewer = [mutant for mutant in SOME if mutant.line not in (2, 3)]
        moved = [Mutant(mutant.path, mutant.line + 5, mutant.old, mutant.new) for mutant in fewer]
        kept = [mutant.key() for mutant in drawn if mutant in fewer]
        self.assertEqual([mutant.key() for mutant in mutants.draw(moved, 7)], kept)
        one_folder = [mutant for mutant in SOME if mutant.path.startswith("kernels")]
        self.assertEqual(mutants.draw(one_folder, 7),
                         [mutant for mutant in drawn if mutant in one_folder])

    def test_what_can_compile_is_told_by_brackets_and_spaces(self):
        for old, new in (("a < b;", "a <= b;"), ("a & b;", "a | b;"), ("a * b;", "a / b;"),
                         ("f(2);", "f(3);"), ("++i", "--i"), ("f(a, b)", "f(b, a)"),
                         ("return a;", "/*return a;*/"), ('f("(");', 'f("");'),
                         ("a && b", "a || b"), ("a = 10;", "a = 1;")):
            self.assertTrue(mutants.plausible(old, new), new)
        for old, new in (("set<int> a;", "set<=int> a;"), ("set<int> a;", "set<int< a;"),
                         ("int8_t a;", "int1_t a;"), ("f(a,", "/*f(a,*/"), ("A& a", "A| a"),
                         ("[&] {", "[|] {"), ("f(*a)", "f(/a)"), ("if (a) b;", "if (a b;")):
            self.assertFalse(mutants.plausible(old, new), new)

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
            for name, text in (("results/tools/a.py", ""), ("results/tools/b.py", "import a\n"),
                               ("ctest/results/slow_test.cpp", 'tool("a")'),
                               ("ctest/drivers/whole_test.py", 'run("a.py")\n'),
                               ("ctest/drivers/other_test.py", 'run("b.py")\n')):
                (bench.copy / name).parent.mkdir(parents=True, exist_ok=True)
                (bench.copy / name).write_text(text, encoding="utf-8")
            bench.times = {"results.slow": 9.5, "results.page": 0.5}
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

    def test_a_log_has_the_first_and_the_latest_outcome(self):
        with tempfile.TemporaryDirectory() as folder:
            root, path = pathlib.Path(folder), pathlib.Path(folder) / "log"
            mutants.Log(path).add(SOME[0], "survived", "", seconds=1)
            mutants.Log(path).add(SOME[1], "equal", "", seconds=1)
            mutants.Log(path).add(SOME[0], "noticed", "a.b", seconds=2.1)
            for mutant in SOME[3:5]:
                mutants.Log(path).add(mutant, "survived", "", seconds=1)
            log = mutants.Log(path)
            self.assertEqual([log.outcome(mutant) for mutant in SOME[:4]],
                             ["noticed", "equal", None, "survived"])
            self.assertIn('"killed_by": "a.b", "seconds": 2.1', path.read_text())
            self.assertEqual(log.table({SOME[4].key(): "why"}).splitlines()[2:], [
                "| `kernels` | 2 | 2 | 0 | 1 |", "| all | 2 | 2 | 0 | 1 |"])
            (root / "kernels").mkdir()
            (root / "kernels/a.cpp").write_text("\n" + SOME[3].old, encoding="utf-8")
            self.assertEqual(log.survivors(root, {SOME[4].key(): "why"}),
                             [Mutant(SOME[3].path, 2, SOME[3].old, SOME[3].new)])
        self.assertIsNone(mutants.Log(None).outcome(SOME[0]))

    def test_an_equal_object_and_a_judged_mutant_do_not_count(self):
        outcomes = ["noticed", "equal", "survived", "not compiled", "noticed"]
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            survivors = mutants.report(list(zip(SOME, outcomes)), [SOME[5]], 1)
        self.assertEqual(survivors, [SOME[2]])
        self.assertRegex(said.getvalue(), r"kernels +2 +1 +1 +1 +1 +0 +67 %")
        self.assertIn("kernels/a.cpp:1\n- a1 = b;\n+ a1 = z;\n", said.getvalue())


class NoticingTest(unittest.TestCase):
    """The order of tests, by the graph of includes and their times."""

    GRAPH = {"a/one.hpp": {"a/one.cpp", "a/two.cpp", "ctest/a/small_test.cpp"},
             "a/two.hpp": {"a/two.cpp", "a/half.cpp", "ctest/b/far_test.cpp"},
             "b/tool.hpp": {"a/one.cpp", "ctest/b/tool_test.cpp"}}

    def test_includes_are_counted_by_module(self):
        away = noticing.distances(self.GRAPH, "a/one.cpp")
        self.assertEqual(away, {"a/one": 0, "ctest/a/small_test": 1, "a/two": 1, "a/half": 2,
                                "ctest/b/far_test": 2})
        away = noticing.distances(self.GRAPH, "a/half.cpp")  # two.hpp declares what it defines
        self.assertEqual(away["ctest/b/far_test"], 1)

    def test_near_and_quick_tests_come_first(self):
        tests = [noticing.Test(name, frozenset(labels), (name.replace(".", "_"),))
                 for name, labels in (("b.far", ["unit"]), ("a.small", ["unit"]),
                                      ("a.one", ["unit"]), ("a.other", ["unit"]),
                                      ("a.gpu", ["gpu"]), ("docs.x", []))]
        sources = {name.replace(".", "_"): [f"ctest/{name.replace('.', '/')}_test.cpp"]
                   for name in ("b.far", "a.small", "a.one")}

        def order(measured, linked=lambda program: True):
            return [test.name for test in noticing.in_order("a/one.cpp", tests, sources, self.GRAPH,
                                                            measured, linked)]

        self.assertEqual(order({}), ["a.one", "a.small", "b.far", "a.other"])
        self.assertEqual(order({"a.one": 90}), ["a.small", "b.far", "a.other", "a.one"])
        self.assertEqual(order({}, lambda program: program != "a_one"),
                         ["a.small", "b.far", "a.other"])

    def test_all_programs_of_a_test_are_built(self):
        tests = [noticing.Test("a.both", frozenset(), ("with", "without"))]
        chosen = noticing.in_order("a/one.cpp", tests, {}, self.GRAPH, {"a.both": 2},
                                   lambda program: program == "with")
        self.assertEqual([(test.programs, test.time_s()) for test in chosen],
                         [(("with", "without"), 2.5)])

    def test_groups_grow_and_end_at_the_limit(self):
        tests = [noticing.Test(f"a.{at}", frozenset(), (), 100 if at == 1 else 1)
                 for at in range(9)]
        groups = noticing.batches(tests, limit_s=7)
        self.assertEqual([[test.name for test in group] for group in groups], [
            ["a.0"], ["a.2", "a.3"], ["a.4", "a.5", "a.6", "a.7"]])


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

        def first_failed(choice, without=(), time_s=0):
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
