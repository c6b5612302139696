"""Each rule of lint.py is shown a small tree with one defect, and the same tree without it."""

import pathlib
import shutil
import tempfile
import unittest

import lint


class LintTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def defects(self, rule):
        return [what for _, _, what in lint.RULES[rule](self.root)]

    def test_upward_include(self):
        self.write("execution/a.cpp", '#include "kernels/norm.hpp"\n')
        self.assertEqual(len(self.defects("include_direction")), 1)

    def test_include_of_the_same_level(self):
        self.write("results/a.cpp", '#include "layers/model.hpp"\n')
        self.assertEqual(len(self.defects("include_direction")), 1)
        self.write("results/a.cpp",
                   '#include "layers/model.hpp"\n#include "parallel/groups/grid.hpp"\n')
        self.assertEqual(len(self.defects("include_direction")), 1)

    def test_folders_kept_apart(self):
        self.write("layers/step/a.cpp", '#include "offload/planner.hpp"\n')
        self.write("forecast/b.cpp", '#include "offload/planner.hpp"\n')
        self.assertEqual(self.defects("include_direction"),
                         ['include "offload/planner.hpp": layers knows nothing of offload'])

    def test_levels_inside_inputs(self):
        self.write("inputs/deck/a.cpp", '#include "inputs/data/loader.hpp"\n')
        self.write("inputs/data/b.cpp", '#include "inputs/deck/deck.hpp"\n')
        self.assertEqual(len(self.defects("include_direction")), 1)

    def test_rooms_of_a_folder(self):
        self.write("layers/mixers/a.cpp", '#include "layers/model/model.hpp"\n')
        self.write("layers/state/b.cpp", '#include "layers/step/step.hpp"\n')
        self.assertEqual(len(self.defects("include_direction")), 2)
        self.write("layers/mixers/a.cpp", '#include "layers/recording/recorder.hpp"\n'
                                          '#include "layers/mixers/layer.hpp"\n')
        self.write("layers/state/b.cpp", '#include "layers/model/model.hpp"\n')
        self.write("layers/all.cpp", '#include "layers/step/step.hpp"\n')
        self.assertEqual(self.defects("include_direction"), [])

    def test_relative_include(self):
        self.write("kernels/norm/a.cpp", '#include "../support.hpp"\n')
        self.assertEqual(len(self.defects("include_direction")), 1)

    def test_downward_include(self):
        self.write("drivers/a.cpp", '#include "layers/model.hpp"\n#include <vector>\n')
        self.assertEqual(self.defects("include_direction"), [])

    def test_file_length(self):
        self.write("kernels/a.cpp", "//\n" * lint.MAX_LINES)
        self.assertEqual(self.defects("file_length"), [])
        self.write("kernels/a.cpp", "//\n" * (lint.MAX_LINES + 1))
        self.assertEqual(len(self.defects("file_length")), 1)

    def test_line_length(self):
        self.write("kernels/a.cpp", "x" * lint.MAX_COLUMNS + "\n")
        self.assertEqual(self.defects("line_length"), [])
        self.write("kernels/a.cpp", "x" * (lint.MAX_COLUMNS + 1) + "\n")
        self.assertEqual(len(self.defects("line_length")), 1)

    def test_formatting(self):
        if lint.find_clang_format() is None:
            self.skipTest("no clang-format of the right version")
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.write("kernels/a.cpp", "int  a ;\n")
        self.assertEqual(len(self.defects("formatting")), 1)
        self.write("kernels/a.cpp", "int a;\n")
        self.assertEqual(self.defects("formatting"), [])

    def test_shell(self):
        if shutil.which("shellcheck") is None:
            self.skipTest("no shellcheck")
        self.write("scripts/a.sh", "#!/usr/bin/env bash\nset -e\nrm \"$HOME/x\"\n")
        self.write("notes", "no script: unquoted $x\n")
        self.assertEqual(self.defects("shell"), [])
        self.write("tool", "#!/usr/bin/env bash\ncd $1\nunused=1\n")
        self.assertEqual(len(self.defects("shell")), 2)

    def test_readme(self):
        self.write("kernels/a.cpp", "")
        self.assertEqual(self.defects("readme"), ["no README.md"])
        self.write("kernels/README.md", "")
        self.assertEqual(self.defects("readme"), [])

    def test_notes(self):
        self.write("kernels/a.cpp", "// TODO(#12): later\n")
        self.assertEqual(self.defects("notes"), [])
        self.write("kernels/a.cpp", "// TODO: later\n")
        self.assertEqual(len(self.defects("notes")), 1)
        self.write("a.cpp", "// Limit: memory. Ne" + "xt: less of it\n")
        self.assertEqual(len(self.defects("notes")), 2)

    def test_paths(self):
        self.write("kernels/a.cpp", "// /usr/bin/python3 and ${x}/work/ and a/work/b\n")
        self.assertEqual(self.defects("paths"), [])
        self.write("kernels/a.cpp", '"/home/somebody/data"\n')
        self.assertEqual(len(self.defects("paths")), 1)

    def test_gpu_tests(self):
        self.write("ctest/a/CMakeLists.txt", """foreach(unit IN ITEMS x y)
  stowage_test(NAME a.${unit} SOURCES ${unit}.cpp LIBS gpu
    LABELS unit gpu NP 1 2)
endforeach()
stowage_test(NAME a.${other} SOURCES z.cpp LIBS gpu LABELS unit)
""")
        self.write("ctest/a/b.cmake", "stowage_test(NAME a.b.c LABELS regression gpu TIMEOUT 9)\n")
        self.write("ctest/README.md", "| `test_a_x`, `test_a_y` |\n| `test_a_b_c` |\n")
        self.assertEqual(self.defects("gpu_tests"), [])
        self.write("ctest/README.md", "| `test_a_y` |\n| `test_a_z` |\n")
        self.assertEqual(sorted(self.defects("gpu_tests")), [
            "test_a_b_c is not in ctest/README.md, which lists what GPUs test",
            "test_a_x is not in ctest/README.md, which lists what GPUs test",
            "test_a_z is no test program with the label gpu"])

    def test_prose_lines(self):
        self.write("docs/a.md", "word " * 19 + "word \n" + "| cell " * 30 + "|\n\n"
                   "```\n" + "x" * 120 + "\n```\n\n[link]: https://" + "x" * 120 + "\n")
        self.assertEqual(self.defects("prose"), [])
        self.write("docs/a.md", "- " + "word " * 20 + "\n")
        self.assertEqual(self.defects("prose"), ["102 columns of prose, 100 at most"])

    def test_prose_paragraphs(self):
        self.write("docs/a.md", "word\n" * 80 + "\n" + "word\n" * 80 + "- " + "word\n  " * 80)
        self.assertEqual(self.defects("prose"), [])
        self.write("docs/a.md", "word\n\n" + "    a\n" * 81 + "\n- word\n\n" + "      a\n" * 81)
        self.assertEqual(self.defects("prose"), [])
        self.write("docs/a.md", "word\n" * 81)
        self.assertEqual(self.defects("prose"), ["paragraph of 81 words, 80 at most"])

    def test_prose_numbers(self):
        self.write("docs/a.md", "It takes 3 to 4.5 us. Tiles of 64 x 192 take 9 us.\n\n"
                   "| 1 | 2 | 3 |\n\n"
                   "<!-- made by a tool -->\n1, 2, 3\n<!-- end of what it made -->\n"
                   "Mamba-2 in bf16 on 1 H100 (sm_90a, CUDA 12.4, step 3, 64-bit), `1 2 3`.\n")
        self.assertEqual(self.defects("prose"), [])
        self.write("docs/a.md", "It takes 3 %, 4.5 us and\n1,024 bytes.\n")
        self.assertEqual(self.defects("prose"), [
            "3 numbers in a sentence, 2 at most, more are a table: 3, 4.5, 1,024"])

    def test_prose_of_pages_that_programs_write(self):
        self.write("docs/reference/deck.md", "1, 2, 3\n")
        self.write("results/predicted/README.md", "1, 2, 3\n")
        self.assertEqual(self.defects("prose"), [])

    def test_links(self):
        self.write("docs/b.md", "# Of `x`, and [y](a.md)\n\n```\n# No heading\n```\n")
        self.write("docs/a.md", "[b](b.md#of-x-and-y) [root](..) [web](https://x.y/z) `[c](c)`\n"
                   "```\n[c](c.md)\n```\n")
        self.assertEqual(self.defects("links"), [])
        self.write("docs/a.md", "![c](c.svg) [b](b.md#no-heading)\n")
        self.assertEqual(self.defects("links"), [
            "links to c.svg, which is not there",
            "links to b.md#no-heading, a heading that is not there"])


if __name__ == "__main__":
    unittest.main()
