#!/usr/bin/env python3
"""The tools as a package of Python's: package_test.py TOOLS PUBLISHED. Its wheel is built of a copy
and read from a folder of its own; nothing is fetched."""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
import zipfile

if not all(importlib.util.find_spec(name) for name in ("h5py", "setuptools", "wheel")):
    print(f"skipped: no h5py, setuptools or wheel for {sys.executable}")
    sys.exit(77)

TOOLS, PUBLISHED = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
SOURCE = TOOLS.parents[1]
PROJECT = tomllib.loads((TOOLS / "pyproject.toml").read_text(encoding="utf-8"))["project"]


class Package(unittest.TestCase):
    def test_what_it_states(self):
        cmake = (SOURCE / "CMakeLists.txt").read_text(encoding="utf-8")
        version = re.search(r"project\(stowage VERSION (\S+)", cmake)
        self.assertEqual(PROJECT["version"], version[1])
        needs = (TOOLS / "requirements.txt").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"^\w+", needs, re.MULTILINE),
                         PROJECT["dependencies"] + PROJECT["optional-dependencies"]["figures"])

    def test_a_wheel_holds_all_that_its_commands_need(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            tools = folder / "tree/results/tools"
            shutil.copytree(TOOLS, tools, ignore=shutil.ignore_patterns("__pycache__", "build"))
            for name in ("results/metrics.toml", "results/schema.md", "docs/reference/deck.md"):
                path = folder / "tree" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(SOURCE / name, path)
            subprocess.run([sys.executable, "-c", "from setuptools import build_meta; "
                            f"build_meta.build_wheel({str(folder)!r})"], cwd=tools, check=True,
                           stdout=subprocess.DEVNULL)
            wheel, = folder.glob("stowage_results-*.whl")
            zipfile.ZipFile(wheel).extractall(folder / "site")
            shutil.rmtree(folder / "tree")
            entries = next((folder / "site").glob("*.dist-info/entry_points.txt")).read_text()
            self.assertEqual(dict(re.findall(r"(\S+) = (\S+)", entries)), PROJECT["scripts"])
            said = subprocess.run(
                [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder / 'site')!r}); "
                 "from stowage_results.commands import validate; validate()",
                 PUBLISHED / "h200_learning/learn_bf16_1.h5"], cwd=folder, text=True, check=True,
                stdout=subprocess.PIPE).stdout
            self.assertIn("conforms to schema", said)
            held = {path.name for path in (folder / "site/stowage_results").rglob("*")}
            self.assertLessEqual({"deck.md", "metrics.toml", "schema.md", "report.css",
                                  "report.js"}, held)

    def test_each_command_is_a_tool(self):
        sys.path.insert(0, str(TOOLS))
        for name, target in PROJECT["scripts"].items():
            tool = TOOLS / f"{name.removeprefix('stowage_')}.py"
            module = re.search(r"from (\S+) import main", tool.read_text(encoding="utf-8"))[1]
            commands = (TOOLS / "stowage_results/commands.py").read_text(encoding="utf-8")
            self.assertIn(f'{target.partition(":")[2]} = command("{module.partition(".")[2]}")',
                          commands)

    def test_help_says_whole_sentences(self):
        for path in sorted(set(TOOLS.glob("*.py")) - {TOOLS / "setup.py"}):
            ran = subprocess.run([sys.executable, path, "--help"], text=True, check=True,
                                 stdout=subprocess.PIPE)
            said = next(part for part in ran.stdout.split("\n\n") if not part.startswith("usage"))
            self.assertRegex(said, r"[.:]$", path.name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
