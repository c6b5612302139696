"""tidy.py is shown small trees with a defect, and what it hands to clang."""

import contextlib
import io
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

import includes
import tidy
import tidy_batches

# Without <string>, which takes clang seconds.
MOVED_TWICE = """#include <utility>
using Pair = std::pair<int*, int*>;
{}Pair twice(Pair a) {{
  Pair b = std::move(a);
  return b < a ? b : Pair();
}}
"""


class TidyTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name).resolve()
        self.tree = self.root / "build" / "host"
        self.entries = []

    def write(self, name, text, options="-std=c++20"):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".cpp":
            self.entries.append({"directory": str(self.root), "file": str(path),
                                 "command": f"c++ -I{self.root} {options} -c {path}"})
            self.tree.mkdir(parents=True, exist_ok=True)
            (self.tree / "compile_commands.json").write_text(json.dumps(self.entries))

    def run_tidy(self):
        said = io.StringIO()
        arguments = ["tidy.py", "--tree", str(self.tree), "--root", str(self.root)]
        with mock.patch("sys.argv", arguments), contextlib.redirect_stdout(said):
            code = tidy.main()
        return code, said.getvalue().splitlines()[:-1]

    @unittest.skipIf(shutil.which(tidy.CLANG_TIDY) is None, f"no {tidy.CLANG_TIDY}")
    def test_findings(self):
        self.write("kernels/a.cpp", "int sum(int a, int b) { return a + b; }\n",
                   "-std=c++20 -Werror -Wno-of-another-compiler")
        self.assertEqual(self.run_tidy(), (0, []))
        self.write("kernels/a.hpp", "#pragma once\n" + MOVED_TWICE.format("inline "))
        self.write("kernels/b.cpp", '#include "kernels/a.hpp"\n')
        self.write("kernels/c.cpp", '#include "kernels/a.hpp"\n')
        code, findings = self.run_tidy()
        self.assertEqual(code, 1)
        self.assertEqual(len(findings), 1)
        self.assertIn("kernels/a.hpp:6:14: 'a' used after it was moved", findings[0])
        self.write("kernels/d.cpp", MOVED_TWICE.format("static "))
        self.assertIn("kernels/d.cpp:5:14: 'a' used after it was moved", self.run_tidy()[1][-1])
        self.write("kernels/e.cpp", "int broken(\n")
        self.assertIn("kernels/e.cpp:1:12: expected", self.run_tidy()[1][-1])

    @unittest.skipIf(shutil.which(tidy.CLANG_TIDY) is None, f"no {tidy.CLANG_TIDY}")
    def test_sources_that_do_not_go_together_are_read_one_by_one(self):
        for name in ("a", "b"):
            self.write(f"kernels/{name}.cpp", f"enum {{ kOne }};\n{MOVED_TWICE.format('static ')}")
        findings = self.run_tidy()[1]
        self.assertEqual([line.split(":")[0] for line in findings],
                         ["kernels/a.cpp", "kernels/b.cpp"])

    def test_batches(self):
        texts = {"a": "namespace {\nint sum(int a) {\n  return a;\n}\n}  // namespace\n",
                 "b": "namespace {\nint sum(int b) { return b; }\n}  // namespace\n",
                 "c": "namespace {\nint sum(float b) { return b; }\n}  // namespace\n",
                 "d": "using A = int;\n", "e": "using A = char;\n", "f": "using A = int;\n"}
        for name, text in texts.items():
            self.write(f"{name}.cpp", text)
        self.write("g.cpp", "", "-std=c++20 -DOTHER")
        together = tidy_batches.batches([tidy.for_clang(entry) for entry in self.entries], 3)
        self.assertEqual([[pathlib.Path(entry["file"]).stem for entry in members]
                          for members in together], [["a", "c", "d"], ["b", "e"], ["f"], ["g"]])

    def test_what_a_change_touches(self):
        self.write("a/a.hpp", "")
        self.write("a/b.hpp", '#include "a/a.hpp"\n')
        for name, text in (("b", '#include "a/b.hpp"\n'), ("c", '#include "c.hpp"\n'), ("d", "")):
            self.write(f"a/{name}.cpp", text)
        self.write("a/c.hpp", "")
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.assertEqual(includes.touched_sources(self.root, ["a/a.hpp"]), ["a/b.cpp"])
        self.assertEqual(includes.touched_sources(self.root, ["a/c.hpp", "a/d.cpp"]),
                         ["a/c.cpp", "a/d.cpp"])

    def test_what_is_checked(self):
        for name in ("kernels/a.cpp", "kernels/a.cpp", "ctest/a.cpp", "build/host/a.cpp"):
            self.write(name, "")
        self.assertEqual(list(tidy.commands(self.tree, self.root)), [self.root / "kernels/a.cpp"])

    def test_commands_for_clang(self):
        entry = {"directory": "d", "file": "f", "command":
                 'c++ -DWHAT="\\"a b\\"" -Wall -include x/cmake_pch.hxx -include y -c f'}
        self.assertEqual(tidy.for_clang(entry)["arguments"],
                         ["c++", '-DWHAT="a b"', "-include", "y", "-c", "f", "-idirafter",
                          tidy.own_headers("c++"), "-D__malloc__(...)=__malloc__"])


if __name__ == "__main__":
    unittest.main()
