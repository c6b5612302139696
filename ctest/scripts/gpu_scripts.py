"""Cases of commands_test.py: the scripts that run programs on GPUs."""

import hashlib
import shutil

from stubs import Tree


class Gpu(Tree):
    def setUp(self):
        super().setUp()
        self.programs = self.folder / "programs"
        passed = "[  PASSED  ] {} tests."
        for name, lines, code in (
                ("good", passed.format(5) + "\n[  SKIPPED ] 2 tests, listed below:", 0),
                ("bad", passed.format(1) + "\n[  FAILED  ] 1 test", 1),
                ("dead", "", 139), ("none", "", 77), ("peer", passed.format(2), 0)):
            self.stub(name, f"printf '%b\\n' '{lines}'; exit {code}", folder=self.programs)
        (self.programs / "gpu_tests.txt").write_text("good\n\npeer 1 2 4\nnone\n")
        self.stub("nvidia-smi", "printf 'GPU 0: H\\nGPU 1: H\\n'", unless="-L")
        self.stub("mpirun", 'echo "root: $OMPI_ALLOW_RUN_AS_ROOT $OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"; '
                            'shift 4; "$@"')
        (self.folder / "tmp").mkdir()
        self.environment["TMPDIR"] = f"{self.folder}/tmp"
        self.stub("python3", "exit 1")

    def test_programs_on_as_many_ranks_as_there_are_gpus(self):
        said = self.bash("scripts/gpu_tests.sh", self.programs)
        self.assertTrue(said.endswith("== the trainer's cases: left out\n"
                                      "9 passed, 0 failed, 4 skipped\n"), said)
        self.assertIn("== peer on 4 ranks: skipped, 2 GPUs", said)
        self.assertIn("\nroot:  \n", said)
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])
        self.assertEqual(self.calls[:4], ["good ", "peer ",
                         f"mpirun --bind-to none -np 2 {self.programs}/peer", "peer "])

    def test_ranks_by_root(self):
        self.stub("id", "echo 0", unless="-u")
        self.assertIn("\nroot: 1 1\n", self.bash("scripts/gpu_tests.sh", self.programs))

    def test_failures_are_named(self):
        (self.programs / "gpu_tests.txt").write_text("bad\ndead\ngood\n")
        said = self.bash("scripts/gpu_tests.sh", self.programs, "--gtest_filter=a", code=1)
        end = "6 passed, 2 failed, 2 skipped\nfailed: bad\nfailed: dead\n"
        self.assertTrue(said.endswith(end), said)
        self.assertEqual(self.calls[0], "bad --gtest_filter=a")
        self.assertIn("no gpu_tests.txt in", self.bash("scripts/gpu_tests.sh", "none", code=3))

    def test_the_trainers_cases(self):
        bin_folder = self.folder / "b/c/ctest/bin"
        shutil.copytree(self.programs, bin_folder)
        self.stub("stowage_train", folder=self.folder / "b/c/bin")
        self.stub("python3", 'case "$2" in --list) printf "case one\\ncase two\\n" ;; one) '
                             'echo passed ;; two) exit 77 ;; esac')
        said = self.bash("scripts/gpu_tests.sh", bin_folder)
        self.assertTrue(said.endswith("10 passed, 0 failed, 5 skipped\n"), said)
        self.assertIn(f"one --train {bin_folder}/../../bin/stowage_train --source . --old-driver "
                      f"{bin_folder}/old_driver", "\n".join(self.calls))
        self.assertIn("cases: left out", self.bash("scripts/gpu_tests.sh", bin_folder, "-x"))


class Sanitize(Tree):
    def setUp(self):
        super().setUp()
        self.programs = self.folder / "programs"
        listing = "printf 'norm.\\n  one\\n  two\\nRunning main\\n  x\\n'"
        self.stub("test_kernels_norm_gpu", listing, folder=self.programs)
        self.stub("test_kernels_linear_gpu", folder=self.programs)
        self.stub("compute-sanitizer", 'case "$*" in *racecheck*two*) echo "SUMMARY: 1 hazard"; '
                  'exit 9 ;; *synccheck*linear*) ;; *) echo "[  PASSED  ] 1 test." ;; esac')
        self.words = ["scripts/gpu_sanitize.sh", "--bin", self.programs, "--only", "norm|linear"]

    def test_runs_and_what_is_left_out(self):
        said = self.bash(*self.words, "--list").splitlines()
        self.assertEqual(said, [f"{tool} norm norm.{case}"
                                for tool in ("racecheck", "memcheck", "synccheck", "initcheck")
                                for case in ("one", "two")]
                         + ["memcheck linear -*long*:*far*", "synccheck linear -*long*:*far*"])
        self.assertIn("no run is named zzz", self.bash(*self.words[:4], "zzz", "--list", code=2))
        self.assertIn("no " + str(self.programs), self.bash(*self.words[:3], "--list", code=3))
        self.assertIn("--only needs a value", self.bash(self.words[0], "--only", code=2))
        self.assertIn("no test programs in", self.bash(self.words[0], "--bin", "none", code=3))

    def test_what_is_not_clean_is_told(self):
        said = self.bash(*self.words, "--jobs", "2", "--logs", self.folder / "logs", code=1)
        self.assertRegex(said, r"(?m)^norm +reports \d+ s( +clean \d+ s){3} *$")
        self.assertRegex(said, r"(?m)^linear +- +clean \d+ s +skipped \d+ s +- *$")
        self.assertIn("racecheck norm norm.two: code 9; racecheck.norm.2.log; SUMMARY: 1 hazard",
                      said)
        self.assertRegex(said, r"(?m)^10 runs, 2 not clean, \d+ s$")
        call = next(call for call in self.calls if "racecheck" in call and "one" in call)
        self.assertEqual(call, "compute-sanitizer --tool racecheck --error-exitcode 9 "
                         "--print-limit 20 --kernel-name-exclude kernel_substring=backward_kernel "
                         f"{self.programs}/test_kernels_norm_gpu --gtest_filter=norm.one")
        said = self.bash(*self.words, "--seconds", "0", code=1)
        self.assertRegex(said, r"(?m)^linear +- +left \d+ s")
        self.assertFalse(any("compute-sanitizer" in call for call in self.calls))


class Publish(Tree):
    def setUp(self):
        super().setUp()
        self.list = self.folder / "commands.txt"
        self.list.write_text("# GPUs, name, command\n\n"
                             "1 one stowage_train {decks}/a.toml --out {set}\n"
                             "1 bad stowage_bench x\n2 two stowage_train y\n")
        self.programs, self.out = self.folder / "programs", self.folder / "out"
        self.stub("stowage_train", "pwd; echo trained", folder=self.programs)
        self.stub("stowage_bench", "echo broke; exit 4", folder=self.programs)
        self.words = ["scripts/publish_gpu.sh", self.out, "--list", self.list, "--bin",
                      self.programs]

    def test_commands_are_shown(self):
        said = self.bash(*self.words, "--dry-run", "--with", "b=1")
        shown = (f"stowage_train {self.root}/inputs/a.toml --out one.h5 b=1\n"
                 "stowage_bench x b=1\n0 failed, 0 left out, ")
        self.assertTrue(said.startswith(shown), said)
        self.assertEqual(self.calls, [])

    def test_commands_run(self):
        said = self.bash(*self.words, code=1)
        self.assertRegex(said, r"^one: code 0, \d+ s; trained\nbad: code 4, \d+ s; broke\n"
                               r"1 failed, 0 left out, \d+ s in all\n$")
        self.assertEqual(self.calls, [f"stowage_train {self.root}/inputs/a.toml --out one.h5",
                                      "stowage_bench x"])
        self.assertEqual((self.out / "one.log").read_text(), f"{self.out}\ntrained\n")
        self.bash(*self.words, "--only", "one")
        self.stub("id", "echo 0", unless="-u")
        self.stub("mpirun", '[ "$OMPI_ALLOW_RUN_AS_ROOT$OMPI_ALLOW_RUN_AS_ROOT_CONFIRM" = 11 ]')
        self.bash(*self.words, "--ranks", "2")
        self.assertEqual(self.calls, ["mpirun -np 2 --map-by slot:PE=1 --bind-to core "
                                      f"{self.programs}/stowage_train y"])
        said = self.bash(*self.words, "--seconds", "0", code=1)
        self.assertIn("one: left out, 0 s are over", said)
        self.assertIn("0 failed, 2 left out", said)

    def test_wrong_words(self):
        for words, code, message in ((("--ranks",), 2, "--ranks needs a value"),
                                     (("--none",), 2, "unknown option --none"),
                                     (("--list", "none"), 2, "no list none"),
                                     (("--bin", "none"), 3, "no programs in none")):
            self.assertIn(message, self.bash(*self.words, *words, code=code))
        self.assertIn("where to?", self.bash(self.words[0], code=2))


class Digest(Tree):
    """A digest is that of the encodings: names of files, addresses and order have no part in it."""

    def setUp(self):
        super().setUp()
        for name in ("nvdisasm", "c++filt"):
            self.stub(name, "cat")
        self.stub("cuobjdump", 'cat "$2"')

    def function(self, name, *codes):
        lines = [f"        /*00{address}0*/   IADD R{address} ;   /* {code} */"
                 for address, code in enumerate(codes)]
        return "\n".join([f"\t\tFunction : {name}", *lines, ""])

    def digests(self, build, *objects):
        for index, functions in enumerate(objects):
            path = self.folder / build / f"{index}.cu.o"
            path.parent.mkdir(exist_ok=True)
            path.write_text("\nFatbin elf code:\narch = sm_90a\n" + "".join(functions))
        return self.bash("scripts/sass_digest.sh", self.folder / build)

    def test_equal_code_has_equal_digests(self):
        one, two = "0x000000010a017a02", "0x00ff00010a017a02"
        first, second = self.function("first", one, two), self.function("second", two)
        said = self.digests("a", [first, second])
        self.assertEqual(said, "".join(
            f"sm_90a {name}\t{hashlib.sha256(codes.encode()).hexdigest()}\n"
            for name, codes in (("first", one + two), ("second", two))))
        self.assertEqual(self.digests("b", [second], [first], [second]), said)
        self.assertNotEqual(self.digests("c", [self.function("first", two, one), second]), said)

    def test_what_is_lacking_is_told(self):
        script = "scripts/sass_digest.sh"
        self.assertIn("none: no build tree", self.bash(script, "none", code=3))
        (self.root / "build").mkdir()
        self.assertIn("build: no object of a .cu file", self.bash(script, "build", code=3))
        (self.bin / "nvdisasm").unlink()
        if not shutil.which("nvdisasm", path=self.environment["PATH"]):
            self.assertIn("no nvdisasm in PATH", self.bash(script, code=3))
