"""What JUBE, Ramble and ReFrame run is one list: scripts/sites/benchmarks.json. Nothing is run by
them here but by JUBE, where it is installed, with a stand-in for the program."""

import ast
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SITES = SOURCE / "scripts/sites"
TABLE = json.loads((SITES / "benchmarks.json").read_text(encoding="utf-8"))
ROWS = TABLE["benchmarks"]
STAND_IN = """#!/bin/sh
echo "$@"
echo "STOWAGE RESULT VALID  train/tokens_per_s=123456  units=1/s"
"""


class Sites(unittest.TestCase):
    def test_files_are_those_of_the_list(self):
        said = subprocess.run([sys.executable, SITES / "make.py", "--check"], text=True,
                              capture_output=True, check=False)
        self.assertEqual((said.returncode, said.stdout), (0, ""), said.stderr)
        for name in ROWS:
            self.assertTrue((SOURCE / f"inputs/{name}.toml").exists(), name)

    def test_jube_has_a_value_for_each_deck(self):
        """Each reference of a parameter, set or pattern leads to one."""
        root = xml.parse(SITES / "stowage.xml").getroot().find("benchmark")
        named = {node.get("name") for node in root.iter() if node.get("name")}
        for use in (*root.iter("use"), *root.iter("column")):
            self.assertLessEqual(set(use.text.split(",")), named, use.text)
        for parameter in root.iter("parameter"):
            if parameter.get("mode") == "python":
                values, _, of = parameter.text.rpartition("[")
                self.assertEqual(of, "'$deck']")
                self.assertEqual(set(ast.literal_eval(values)), set(ROWS))
        decks = {node.get("tag"): node.text for node in root.iter("parameter")
                 if node.get("name") == "deck"}
        self.assertEqual(decks, {"!gpu": "quickstart", "gpu": ",".join(ROWS)})

    def test_ramble_has_a_workload_for_each_deck(self):
        code = ast.parse((SITES / "ramble/applications/stowage/application.py").read_text())
        made, = (node for node in code.body if isinstance(node, ast.ClassDef))
        calls = [node for node in ast.walk(made) if isinstance(node, ast.Call)]

        def called(name):
            return [{key.arg: ast.literal_eval(key.value) for key in call.keywords}
                    | {"first": ast.literal_eval(call.args[0])} for call in calls
                    if call.func.id == name]
        self.assertEqual([one["first"] for one in called("workload")], list(ROWS))
        keys = {one["workloads"][0]: one["default"] for one in called("workload_variable")
                if one["first"] == "keys"}
        self.assertEqual(keys["dense-124m"], "execution.backend=cuda run.steps=400")
        band, = (one for one in called("success_criteria") if one["first"] == "in_band")
        for value, held in ((94, False), (95, True), (110, True), (111, False)):
            self.assertEqual(eval(band["formula"].format(value=value, published=100)), held)
        self.assertTrue(eval(band["formula"].format(value=1, published=0)))

    @unittest.skipUnless(importlib.util.find_spec("yaml"), "no PyYAML")
    def test_a_workspace_of_ramble_is_yaml(self):
        import yaml
        made = yaml.safe_load((SITES / "ramble/ramble.yaml").read_text())["ramble"]
        workloads = made["applications"]["stowage"]["workloads"]
        self.assertEqual({name: int(one["experiments"]["one_node"]["variables"]["n_ranks"])
                          for name, one in workloads.items()},
                         {name: one["ranks"] for name, one in ROWS.items()})
        self.assertEqual(made["software"], {"packages": {}, "environments": {}})

    @unittest.skipUnless(shutil.which("jube"), "no JUBE")
    def test_jube_reads_the_figure(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "stowage_train")
            program.write_text(STAND_IN)
            program.chmod(0o755)
            text = (SITES / "stowage.xml").read_text()
            for word, instead in (("${source}/build/host/bin", folder), ("mpirun -np ", "env A=")):
                text = text.replace(word, instead)
            pathlib.Path(folder, "stowage.xml").write_text(text)
            said = subprocess.run(["jube", "run", "stowage.xml", "-r"], cwd=folder, text=True,
                                  capture_output=True, check=True).stdout
            self.assertRegex(said, r"\| quickstart \| +2 \| +VALID \| +123456")


if __name__ == "__main__":
    unittest.main()
