"""commands_test.py can fail: it finds each kind of defect and each command that fails."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import commands_test

PAGE = """# A page

```sh
stowage_train inputs/quickstart.toml run.steps=200 optim.lr=1
stowage_data stats inputs/quickstart.toml
```

```sh gpu
stowage_ceilings
```

```
what a program printed
```

```cpp quoted.hpp
int a;
```
"""


class Checker(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = pathlib.Path(folder.name)
        (self.source / "quoted.hpp").write_text("int b;\nint a;\n")

    def defects(self, *changes):
        page = PAGE
        for before, after in changes:
            self.assertIn(before, page)
            page = page.replace(before, after)
        return list(commands_test.defects(page, self.source))

    def test_a_good_page_has_none(self):
        self.assertEqual(self.defects(), [])

    def test_each_kind_is_found(self):
        for change, words in (
                (("```sh\n", "```\n"), "line 3: a command in a block that does not begin"),
                (("```sh gpu", "```sh later"), "line 8: no reason 'later': build, gpu"),
                (("int a;", "int c;"), "line 16: is not in quoted.hpp"),
                (("# A page\n", "# A page\n\n    mpirun -np 2 stowage_train\n"),
                 "mpirun -np 2 stowage_train: a command in no block")):
            found = self.defects(change)
            self.assertEqual(len(found), 1, found)
            self.assertTrue(found[0].startswith(words), found)

    def ran(self, page):
        """(exit code, lines that programs said) of a page in a checkout made for it."""
        programs, folder = self.source / "bin", self.source / "checkout"
        for one in (programs, folder):
            one.mkdir()
        for name in ("train", "data", "ceilings"):
            commands_test.executable(programs / f"stowage_{name}",
                                     f'#!/bin/sh\necho "{name} $*" >>{folder}/said\n')
        environment = commands_test.checkout(folder, self.source, programs)
        code = subprocess.run(["bash", "-c", commands_test.script(page)], cwd=folder,
                              env=environment, check=False, stdout=subprocess.PIPE).returncode
        return code, (folder / "said").read_text().splitlines()

    def test_commands_run_in_order_on_tiny_input(self):
        code, said = self.ran(PAGE)
        self.assertEqual((code, len(said)), (0, 2), said)
        self.assertRegex(said[0], r"^train inputs/quickstart.toml run.steps=200 optim.lr=1 .*"
                                  r"run.steps=4 train.seq_length=64 "
                                  r"validate.finite_differences=off$")
        self.assertEqual(said[1], "data stats inputs/quickstart.toml")

    def test_a_command_that_fails_ends_the_page(self):
        code, said = self.ran(PAGE.replace("stowage_data stats", "false #").replace(
            "```sh gpu", "```sh"))
        self.assertNotEqual(code, 0)
        self.assertEqual(len(said), 1, said)


if __name__ == "__main__":
    sys.exit(unittest.main())
