"""cmake/ptxas_check.py in front of a stand-in for nvcc that prints what ptxas would."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

LAUNCHER = pathlib.Path(__file__).resolve().parents[2] / "cmake" / "ptxas_check.py"
CLEAN = """ptxas info    : Function properties for kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers
"""
SPILLS = CLEAN.replace("0 bytes spill stores", "24 bytes spill stores")
SERIALISED = CLEAN + ("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async "
                      "instructions are serialized due to insufficient register resources\n")
COMPILER = """import sys
open(sys.argv[2], 'w').close()
sys.stderr.write(sys.argv[4])
sys.exit(int(sys.argv[5]))
"""


class PtxasCheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("kernels", "wgmma", "other"):
            (self.root / name).mkdir()
            (self.root / name / "a.cu").touch()
        self.object = self.root / "a.o"

    def launch(self, source, report, code=0):
        command = [sys.executable, LAUNCHER, "--strict", self.root / "kernels",
                   "--strict", self.root / "other" / "b",
                   "--wgmma", self.root / "wgmma", "--",
                   sys.executable, "-c", COMPILER, "-o", self.object, self.root / source,
                   report, str(code)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_clean_code_passes_and_its_report_is_kept(self):
        self.assertEqual(self.launch("kernels/a.cu", CLEAN).returncode, 0)
        self.assertTrue(self.object.exists())
        self.assertEqual(pathlib.Path(f"{self.object}.ptxas").read_text(encoding="utf-8"), CLEAN)

    def test_spills_fail_under_a_strict_folder(self):
        result = self.launch("kernels/a.cu", SPILLS)
        self.assertEqual(result.returncode, 1)
        self.assertIn("kernel: 24 bytes spill stores", result.stderr)
        self.assertFalse(self.object.exists())

    def test_serialised_wgmma_fails_under_a_strict_folder(self):
        self.assertEqual(self.launch("kernels/a.cu", SERIALISED).returncode, 1)

    def test_a_wgmma_folder_may_spill_but_not_serialise(self):
        self.assertEqual(self.launch("wgmma/a.cu", SPILLS).returncode, 0)
        self.assertEqual(self.launch("wgmma/a.cu", SERIALISED).returncode, 1)

    def test_other_folders_may_spill(self):
        self.assertEqual(self.launch("other/a.cu", SPILLS).returncode, 0)

    def test_the_beginning_of_a_file_is_a_strict_path(self):
        self.assertEqual(self.launch("other/b_sm90.cu", SPILLS).returncode, 1)

    def test_spills_for_other_gpus_pass(self):
        entry = "ptxas info    : Compiling entry function 'kernel' for '{}'\n"
        self.assertEqual(self.launch("kernels/a.cu", entry.format("sm_100") + SPILLS).returncode, 0)
        self.assertEqual(self.launch("kernels/a.cu", entry.format("sm_90a") + SPILLS).returncode, 1)

    def test_failure_of_the_compiler_is_passed_on(self):
        result = self.launch("kernels/a.cu", "a.cu(1): error\n", code=2)
        self.assertEqual((result.returncode, result.stderr), (2, "a.cu(1): error\n"))


if __name__ == "__main__":
    unittest.main()
