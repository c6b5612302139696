"""What the shell scripts call, print and refuse. Nothing is built, installed or trained."""

import pathlib
import re
import tarfile
import unittest

from gpu_scripts import Digest, Gpu, Publish, Sanitize  # noqa: F401  # their cases are run here
from stubs import LAUNCHERS, SOURCE, Tree


class Test(Tree):
    def test_the_plain_run(self):
        said = self.bash("scripts/test.sh")
        self.assertEqual(self.calls, [
            "bible gen1:1-rev22:21",
            f"cmake --preset host -DSTOWAGE_TESTS=ON -DSTOWAGE_UNIT_TESTS=ON "
            f"-DSTOWAGE_WERROR=OFF {LAUNCHERS}",
            "cmake --build --preset host --parallel 3",
            "ctest --preset host --parallel 6 --output-junit ctest.xml"])
        self.assertEqual(self.phases(said), [("set-up and configure", 300, "ok"),
                                                  ("host build", 480, "ok"), ("tests", 600, "ok")])
        for line in ("CUDA compile           not run: preset host",
                     "clang-tidy             not run: only with --all",
                     "sanitizers             not run: only with --all"):
            self.assertIn(line, said)
        self.assertNotIn("Tests that failed", said)
        self.assertEqual((self.root / "data/kjv.txt").read_text(), "Genesis\n")

    def test_all_that_there_is(self):
        self.stub("python3")
        self.write_plot()
        self.stub("stowage_generate", folder=self.root / "build/host/bin")
        said = self.bash("scripts/test.sh", "--plain", "--all", "--", "-L", "unit")
        def configured(preset, tests="ON", unit="ON", werror="ON"):
            return (f"cmake --preset {preset} -DSTOWAGE_TESTS={tests} "
                    f"-DSTOWAGE_UNIT_TESTS={unit} -DSTOWAGE_WERROR={werror} {LAUNCHERS}")
        train = ("build/host/bin/stowage_train inputs/quickstart.toml "
                 "run.output=runs/quickstart/quickstart.h5 "
                 "checkpoint.directory=runs/quickstart/checkpoint checkpoint.resume=never")
        self.assertEqual(self.calls[1:], [
            configured("host", unit="OFF"), "cmake --build --preset host --parallel 3",
            "ctest --preset host --parallel 6 --output-junit ctest.xml -L unit",
            "python3 ctest/lint/tidy.py --tree build/host --jobs 3",
            configured("asan"), "cmake --build --preset asan --parallel 3",
            "ctest --preset asan --parallel 2", configured("host", "OFF", "OFF", "OFF"),
            "cmake --build --preset host --parallel 3 --target stowage_train stowage_generate",
            f"mpirun --oversubscribe --bind-to none -np 2 {train}",
            "stowage_generate inputs/quickstart.toml "
            "checkpoint.directory=runs/quickstart/checkpoint train.seq_length=256 "
            "--prompt In the beginning  --tokens 110 --temperature 0.7 --top-p 0.9",
            configured("plain"), "cmake --build --preset plain --parallel 3"])
        self.assertIn(("clang-tidy", 360, "ok"), self.phases(said))
        self.assertIn(("sanitizers", 720, "ok"), self.phases(said))
        self.assertIn(("quick start", 60, "ok"), self.phases(said))
        self.assertIn(("plain build", 720, "ok"), self.phases(said))

    def test_a_failed_test_is_named_and_a_failed_build_ends_it(self):
        failed = self.root / "build/host/Testing/Temporary/LastTestsFailed.log"
        failed.parent.mkdir(parents=True)
        failed.write_text("1:of.before\n")
        self.stub("ctest", f'echo "12:kernels.norm" >{failed}; exit 8')
        said = self.bash("scripts/test.sh", "--plain", code=1)
        self.assertIn("\nTests that failed\n  kernels.norm\n", said)
        self.assertIn(("tests", 600, "FAILED with code 8"), self.phases(said))
        self.assertEqual(self.calls[-1], "cmake --build --preset plain --parallel 3")
        self.stub("cmake", '[ "$1" != --version ] || echo 3.25; [ "$1" != --build ]', "--version")
        said = self.bash("scripts/test.sh", code=1)
        self.assertEqual(self.calls[-1], "cmake --build --preset host --parallel 3")
        self.assertNotIn("of.before", said)

    def test_device_code_where_there_is_a_compiler(self):
        self.stub("nvcc")
        self.bash("scripts/test.sh", STOWAGE_PRESET="")
        build = "cmake --build --preset cuda --parallel 3"
        self.assertEqual(self.calls[-3:], [f"{build} --target stowage_cuda_objects", build,
                         "ctest --preset cuda --parallel 6 --output-junit ctest.xml"])

    def test_help_and_unknown_words(self):
        for name in ("test", "dev", "quickstart", "fresh_root", "gpu_sanitize", "publish_gpu",
                     "mutate", "sass_digest", "slurm/chain", "slurm_node", "two_hosts"):
            path = self.root / f"scripts/{name}.sh"
            head = re.match(r"#!.*\n((?:#.*\n)+)", path.read_text(encoding="utf-8"))[1]
            wanted = re.sub("(?m)^# ?", "", head).splitlines()
            said = self.bash(path, "--help").splitlines()
            self.assertEqual(said, wanted[:len(said)], name)
            self.assertGreaterEqual(len(said), 3, name)
            self.assertEqual(self.calls, [], name)
        self.assertIn("unknown argument '--none'", self.bash("scripts/test.sh", "--none", code=3))
        self.assertIn("unknown argument '-x'", self.bash("scripts/dev.sh", "-x", code=3))


class Dev(Tree):
    def setUp(self):
        super().setUp()
        self.stub("python3", 'case "$2" in files) printf "%s\\n" $FILES ;; '
                             'rooms) printf "%s\\n" $ROOMS ;; esac')
        self.stub("ninja", "printf '%s: phony\\n' stowage_fast_tests_kernels test_kernels_norm "
                           "test_results_tools test_results_audit stowage_programs")
        self.stub("mutate.sh", folder=self.root / "scripts")
        for name in ("kernels/norm.cpp", "kernels/norm.hpp", "kernels/gpu.cu",
                     "ctest/kernels/norm_test.cpp", "results/tools/table.py"):
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (self.root / "build/host").mkdir(parents=True)
        (self.root / "build/host/compile_commands.json").write_text(
            f'"file": "{self.root}/kernels/norm.cpp"\n')

    def test_what_a_change_touches(self):
        files = ("kernels/norm.cpp kernels/norm.hpp kernels/gpu.cu kernels/gone.cpp "
                 "ctest/kernels/norm_test.cpp")
        said = self.bash("scripts/dev.sh", "--mutate", "2", FILES=files, ROOMS="kernels")
        lint = ("ctest/lint/lint.py include_direction file_length line_length prose links "
                "readme notes paths")
        self.assertEqual(self.calls, [
            "python3 ctest/lint/includes.py files --changed HEAD",
            "python3 ctest/lint/includes.py rooms --changed HEAD",
            "clang-format --dry-run --Werror kernels/norm.cpp kernels/norm.hpp kernels/gpu.cu "
            "ctest/kernels/norm_test.cpp", f"python3 {lint}",
            f"cmake --preset host -DSTOWAGE_TESTS=ON -DSTOWAGE_UNIT_TESTS=ON "
            f"-DSTOWAGE_WERROR=OFF {LAUNCHERS}",
            "ninja -C build/host -t targets all",
            "cmake --build --preset host --parallel 3 --target stowage_fast_tests_kernels "
            "test_kernels_norm",
            "ctest --preset host --parallel 2 --no-tests=ignore -L ^fast$ -R ^(kernels)\\.",
            "ctest --preset host --parallel 2 -R ^(kernels.norm)",
            "python3 ctest/lint/tidy.py --tree build/host --jobs 3 kernels/norm.cpp "
            "kernels/norm.hpp", "mutate.sh --changed HEAD --count 2"])
        self.assertIn("5 changed files, tests of: kernels", said)
        self.assertIn("left out: tests of ranks", said)

    def test_named_files_of_tools(self):
        name = "results/tools/table.py"
        self.bash("scripts/dev.sh", name, FILES=f"{name} ctest/drivers/train_test.py", ROOMS="a")
        self.assertEqual(self.calls[0], f"python3 ctest/lint/includes.py files {name}")
        self.assertIn("cmake --build --preset host --parallel 3 --target stowage_programs "
                      "test_results_tools test_results_audit", self.calls)
        self.assertIn("ctest --preset host --parallel 2 -R ^(drivers.train|results)", self.calls)

    def test_nothing_to_do_and_wrong_numbers(self):
        self.assertIn("nothing differs", self.bash("scripts/dev.sh", FILES="", ROOMS=""))
        self.bash("scripts/dev.sh", "--changed", "main", FILES="README.md", ROOMS="")
        self.assertEqual(self.calls[0], "python3 ctest/lint/includes.py files --changed main")
        self.assertEqual(len(self.calls), 3)
        for words in ((), ("0",), ("x",)):
            said = self.bash("scripts/dev.sh", "--mutate", *words, code=3)
            self.assertIn("a number of mutants, 1 or more", said)

    def test_a_fault_is_the_exit_code(self):
        self.stub("clang-format", "exit 1")
        said = self.bash("scripts/dev.sh", FILES="kernels/norm.cpp", ROOMS="kernels", code=1)
        self.assertIn("FAILED with code 1", said)
        self.assertIn("ctest --preset host --parallel 2 --no-tests=ignore -L ^fast$ -R "
                      "^(kernels)\\.", self.calls)


class Lib(Tree):
    def test_a_tree_is_configured_once_for_what_is_asked(self):
        tree = self.root / "build/host"
        tree.mkdir(parents=True)
        self.function("configure host OFF")
        self.assertEqual(len(self.calls), 1)
        (tree / "build.ninja").touch()
        cache = tree / "CMakeCache.txt"
        for text, asked, calls in (("", "OFF", 0), ("", "ON", 1),
                                   ("STOWAGE_TESTS", "ON", 1), ("STOWAGE_TESTS", "ON OFF OFF", 0),
                                   ("STOWAGE_TESTS STOWAGE_UNIT_TESTS", "ON", 0),
                                   ("STOWAGE_TESTS STOWAGE_UNIT_TESTS", "ON ON", 1),
                                   ("STOWAGE_TESTS STOWAGE_UNIT_TESTS STOWAGE_WERROR", "ON ON", 0)):
            cache.write_text("".join(f"{name}:BOOL=ON\n" for name in text.split()))
            self.function(f"configure host {asked}")
            self.assertEqual(len(self.calls), calls, (text, asked))

    def test_the_compiler_of_device_code(self):
        self.stub("nvcc", "echo mine", folder=self.folder / "cuda/bin")
        for name in ("CUDA_HOME", "CUDA_PATH"):
            said = self.function("find_nvcc && nvcc", **{name: f"{self.folder}/cuda"})
            self.assertEqual(said, "mine\n")

    def test_ranks(self):
        self.stub("mpirun", 'echo "$OMP_NUM_THREADS $OMP_PROC_BIND $OPENBLAS_NUM_THREADS"')
        self.assertEqual(self.function("mpi_ranks 3 a b"), "1 false 1\n")
        self.assertEqual(self.calls, ["mpirun --oversubscribe --bind-to none -np 3 a b"])
        self.stub("id", "echo 0", unless="-u")
        self.assertEqual(self.function("mpi_ranks 3 a", OMP_NUM_THREADS="4"), "4 false 1\n")
        self.assertEqual(self.calls,
                         ["mpirun --oversubscribe --bind-to none --allow-run-as-root -np 3 a"])

    def test_jobs_and_phases(self):
        self.assertEqual(self.function("jobs_for_build"), "3\n")
        self.stub("nproc", "echo 1", unless="")
        self.assertEqual(self.function("jobs_for_build", STOWAGE_JOBS=""), "1\n")
        said = self.function('phase slow 0 sleep 1; phase bad 1 false; phase good 1 true; '
                             'skip_phase other why; print_phases; echo "$PHASE_FAILED"')
        self.assertEqual(self.phases(said), [("slow", 0, "over budget"),
                                             ("bad", 60, "FAILED with code 1"),
                                             ("good", 60, "ok")])
        self.assertRegex(said, r"(?m)^  other +not run: why\n  total +\d+ s\n1$")
        said = self.function("phase bad 1 false; needed_phase a 1 true; echo $PHASE_FAILED; "
                             "needed_phase b 1 false; echo not here", code=1)
        self.assertIn("\n1\n", said)
        self.assertNotIn("not here", said)

    def test_packages(self):
        some = 'case "$4" in g++) echo "install ok installed" ;; *hdf5*dev) echo $HDF ;; esac'
        self.stub("dpkg-query", some, unless="-W")
        self.assertEqual(self.function("missing_packages g++ cmake"),
                         "cmake\nlibhdf5-openmpi-dev\n")
        self.assertEqual(self.function("missing_packages g++", HDF="install ok installed"), "")
        self.stub("dpkg-query", '[ "$4" = libhdf5-dev ] && echo "install ok installed"', "-W")
        self.assertEqual(self.function("missing_packages"), "")
        said = self.function("ensure_packages tidy")
        install = "apt-get install -qq -y --no-install-recommends clang-tidy-19"
        self.assertEqual(self.calls, ["sudo -n true", "sudo apt-get update -qq", "sudo -n true",
                                      f"sudo env DEBIAN_FRONTEND=noninteractive {install}"])
        self.assertIn("Installing packages to tidy: clang-tidy-19", said)
        self.stub("id", "echo 0", unless="-u")
        self.function("ensure_packages tidy")
        self.assertEqual(self.calls, ["apt-get update -qq", install])
        self.stub("apt-get", "echo no archive; exit 1")
        said = self.function("ensure_packages tidy", code=3)
        self.assertIn("no archive\nerror: packages are missing and could not be installed", said)
        self.assertIn("ask an administrator for: apt-get install --no-install-recommends "
                      "clang-tidy-19", said)
        self.stub("id", "echo 1000", unless="-u")
        self.stub("sudo", "exit 1")
        self.function("ensure_packages tidy", code=3)
        self.assertEqual(self.calls, ["sudo -n true"])

    def test_another_distribution_installs_nothing(self):
        self.stub("dpkg-query", "exit 1", unless="-W")
        said = self.function('have() { [ "$1" != apt-get ] && command -v "$1" >/dev/null; }; '
                             "ensure_packages tidy")
        self.assertIn("packages to tidy are left to you (clang-tidy-19)", said)
        self.assertEqual(self.calls, [])

    def test_tools_of_an_age(self):
        self.stub("tool", "echo 'tool (of Debian 13) 3.9.1'")
        for least, code in (("3.9", 0), ("3.9.1", 0), ("3.10", 3), ("4", 3)):
            said = self.function(f"require_tool tool {least}", code=code)
            self.assertEqual("tool 3.9.1 is too old" in said, code == 3)
        self.assertIn("none_such is missing", self.function("require_tool none_such 1", code=3))

    def test_the_text_is_made_once(self):
        for _ in range(2):
            self.function("ensure_text")
            self.assertEqual((self.root / "data/kjv.txt").read_text(), "Genesis\n")
        self.assertEqual(self.calls, [])


    def test_without_the_package_the_pages_are_the_text(self):
        (self.root / "docs").mkdir()
        (self.root / "docs/page.md").write_text("All of it.\n")
        (self.root / "build").mkdir(exist_ok=True)
        (self.root / "build/not.md").write_text("Not this.\n")
        for _ in range(2):
            said = self.function("have() { return 1; }; ensure_any_text; "
                                 'printf "%s\\n" "${TEXT_KEYS[@]}"')
            self.assertIn(f"data.path={self.root}/data/tree.txt\n", said)
            self.assertIn("\nPage 1\n\n", text := (self.root / "data/tree.txt").read_text())
            self.assertTrue("All of it." in text and "Not this." not in text, text)
        self.assertFalse((self.root / "data/kjv.txt").exists())
        said = self.function('ensure_any_text; echo "${#TEXT_KEYS[@]} keys"')  # with the package
        self.assertIn("0 keys", said)
        self.assertEqual((self.root / "data/kjv.txt").read_text(), "Genesis\n")


class Kokkos(Tree):
    VERSION = "".join(f"set (Kokkos_VERSION_{part})\n"
                      for part in ("MAJOR 3", "MINOR 04", "PATCH 1"))

    def tarball(self, name, inside):
        tree = self.folder / "packed" / inside
        tree.mkdir(parents=True)
        (tree / "CMakeLists.txt").write_text(self.VERSION)
        made = self.folder / name
        made.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(made, "w:gz") as tar:
            top = inside.split("/")[0]
            tar.add(self.folder / "packed" / top, top)

    def test_a_source_of_either_package(self):
        self.tarball("a/trilinos_13.orig.tar.gz", "trilinos-13/packages/kokkos")
        self.tarball("b/kokkos_3.orig.tar.gz", "kokkos-3")
        self.tarball("c/other_3.orig.tar.gz", "other-3")
        for name in "ab":
            said = self.function(f"unpack_kokkos {self.folder}/{name} out_{name}; "
                                 f"kokkos_version out_{name}")
            self.assertEqual(said, "3.4.1\n")
        self.function(f"unpack_kokkos {self.folder}/c out_c", code=1)

    def test_built_once_into_the_cache(self):
        self.tarball("cached/kokkos_3.orig.tar.gz", "kokkos-3")
        packed = self.folder / "cached/kokkos_3.orig.tar.gz"
        fetched = (f'fetch_source() {{ echo "fetch $1 $2" >>{self.log}; '
                   f'[ "$1" = kokkos ] && mkdir -p "$3" && cp {packed} "$3"; }}; ')
        self.stub("cmake", 'for one in "$@"; do case $one in '
                           '-DCMAKE_INSTALL_PREFIX=*) mkdir -p "${one#*=}" ;; esac; done')
        prefix = self.function(fetched + "ensure_kokkos").splitlines()[-1]
        self.assertRegex(prefix, rf"^{self.folder}/cache/kokkos-3.4.1-[0-9a-f]{{10}}$")
        self.assertEqual([call.split()[0] for call in self.calls],
                         ["fetch", "fetch"] + ["cmake"] * 3)
        self.assertIn("-DCMAKE_CXX_STANDARD=17 -DKokkos_CXX_STANDARD=17", self.calls[2])
        self.assertRegex(self.calls[3], r"^cmake --build \S+ --parallel 3$")
        self.assertEqual(self.function(fetched + "ensure_kokkos"), prefix + "\n")
        self.assertEqual(self.calls, [])
        (pathlib.Path(prefix) / "stowage.complete").unlink()
        self.stub("cmake", "echo no compiler; exit 1")
        said = self.function(fetched + "ensure_kokkos || echo code $?")
        self.assertTrue(said.endswith("no compiler\ncode 1\n"), said)
        self.stub("apt-get", "exit 100")
        said = self.bash("scripts/build_kokkos.sh", code=3, STOWAGE_CACHE=f"{self.folder}/new")
        self.assertIn("no Kokkos source package could be fetched and built", said)

    def test_a_private_state_of_apt(self):
        archive = "apt_archive() { echo /k.gpg http://a/debian main; }; "
        self.stub("apt-get", 'for one in "$@"; do case $one in Dir::Etc::SourceList=*) '
                             'cat "${one#*=}" ;; source) touch got ;; esac; done')
        said = self.function(archive + "fetch_source kokkos sid out; ls out")
        listed = "deb-src [signed-by=/k.gpg] http://a/debian sid main\n"
        self.assertEqual(said, 2 * listed + "got\n")
        self.assertEqual([call.rpartition("Languages=none ")[2] for call in self.calls],
                         ["update -qq", "source --download-only -qq kokkos"])
        self.stub("id", "echo 0", unless="-u")
        self.function(archive + "fetch_source kokkos sid out")
        self.assertTrue(all("APT::Sandbox::User=root" in call for call in self.calls))
        self.stub("apt-get", "exit 100")
        self.function(archive + "fetch_source kokkos sid out", code=1)


class Others(Tree):
    def test_the_quick_start(self):
        self.stub("python3")
        self.bash("scripts/quickstart.sh", "a=1", STOWAGE_RANKS="4", code=2)  # no plot.py here
        self.assertEqual(self.calls[-1], "mpirun --oversubscribe --bind-to none -np 4 "
                         "build/host/bin/stowage_train inputs/quickstart.toml "
                         "run.output=runs/quickstart/quickstart.h5 "
                         "checkpoint.directory=runs/quickstart/checkpoint a=1 "
                         "checkpoint.resume=never")
        self.assertTrue((self.root / "runs/quickstart").is_dir())
        self.write_plot()
        self.stub("stowage_generate", folder=self.root / "build/host/bin")
        said = self.bash("scripts/quickstart.sh", STOWAGE_PRESET="")
        self.assertIn("   runs/quickstart/plot.png\n", said)
        self.assertEqual((self.root / "runs/quickstart/plot.png").read_text(),
                         "runs/quickstart/quickstart.h5")
        self.assertEqual([call.split()[0] for call in self.calls], ["cmake", "cmake", "mpirun",
                                                                 "stowage_generate"])

    def test_predicted_layouts(self):
        plan = 'if [ "$1" = --version ]; then echo v1; else cat "$1"; echo "${@:2}"; fi'
        self.stub("stowage_plan", plan, folder=self.folder / "p")
        said = self.bash("scripts/predict_layouts.sh", "--bin", self.folder / "p")
        self.assertIn("\nBy v1.\n\n## hybrid-moe-2b\n\n```\ninclude = "
                      f'["{self.root}/inputs/hybrid-moe-2b.toml", '
                      f'"{self.root}/inputs/machines/h200-cluster.toml"]\n'
                      "--ranks 8 --best 3 train.global_batch_size=16 "
                      "train.micro_batch_size=1\n```\n", said)
        ranks = re.findall(r"--ranks (\d+)", said.partition("## hybrid")[2])
        self.assertEqual(" ".join(ranks), "8 16 64 512 4096 8 16 64 512 4096 16384")
        left = {call.split()[1] for call in self.calls} - {"--version"}
        self.assertFalse(any(pathlib.Path(path).exists() for path in left), left)
        published = (SOURCE / "results/predicted/README.md").read_text(encoding="utf-8")
        self.assertEqual(said.partition("\nBy ")[0], published.partition("\nBy ")[0])
        self.assertIn("no stowage_plan in", self.bash("scripts/predict_layouts.sh", code=3))
        self.assertIn("predict_layouts.sh [--bin",
                      self.bash("scripts/predict_layouts.sh", "x", code=2))

    def test_a_chain_of_jobs(self):
        self.stub("sbatch", 'echo "7;cluster"')
        self.stub("scontrol", '[ "$1" = release ] || echo TimeLimit=04:00:00')
        programs = self.root / "build/cuda/bin"
        programs.mkdir(parents=True)
        (programs / "stowage_train").touch(0o755)
        said = self.bash("scripts/slurm/chain.sh", "2", "name", "--nodes=4", "one_gpu.sbatch")
        self.assertEqual(said, "7\n7\n")
        script = self.root / "scripts/slurm/one_gpu.sbatch"
        rest = f"--kill-on-invalid-dep=yes --nodes=4 {script}"
        held, behind = "sbatch --hold --parsable --job-name=name", "--dependency=afternotok:7 "
        asked = ["scontrol -o show job 7", "scontrol release 7"]
        self.assertEqual(self.calls, [f"{held} {rest}", *asked, f"{held} {behind}{rest}", *asked])
        for words in (("2", "name"), ("0", "name", "x"), ("x", "name", "x")):
            self.assertIn("usage: chain.sh COUNT",
                          self.bash("scripts/slurm/chain.sh", *words, code=2))

    def test_a_batch_system_of_one_node(self):
        for name in ("munged", "slurmctld", "slurmd"):
            self.stub(name)
        self.stub("sinfo", f"[ $(grep -c sinfo {self.log}) -lt 3 ] || echo idle")
        script, folder = "scripts/slurm_node.sh", self.folder / "node"
        self.assertIn("is started by root", self.bash(script, "start", folder, code=3))
        self.stub("id", "echo 0", unless="-u")
        folder.chmod(0o700)
        self.assertEqual(self.bash(script, "start", folder), f"{folder}/slurm.conf\n")
        self.assertEqual(folder.stat().st_mode & 0o777, 0o755)  # users reach munge's socket
        self.assertEqual((folder / "gres.conf").read_text().count("Name=gpu File=/dev/"), 2)
        self.assertEqual(self.calls[1:], [f"slurmctld -f {folder}/slurm.conf",
                                          f"slurmd -f {folder}/slurm.conf",
                                          *["sinfo -h -o %T -p main"] * 3])
        memory = re.search(r"MemTotal: +(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]
        self.assertIn(f" RealMemory={int(memory) // 2048} ", (folder / "slurm.conf").read_text())
        for name in ("slurmd", "slurmctld", "munged"):
            self.stub(name, "exit 1")
            self.assertIn(f"{name} does not start", self.bash(script, "start", folder, code=3))
        self.assertEqual(self.bash(script, "stop", folder), "")
        for words in (("start",), ("none", "x")):
            self.assertIn("usage: slurm_node.sh", self.bash(script, *words, code=3))

    def test_a_fresh_root(self):
        for name in ("debootstrap", "chroot", "git", "mount", "umount"):
            self.stub(name)
        script, roots = "scripts/fresh_root.sh", self.folder / "roots"
        self.assertIn("only be made by root", self.bash(script, "sid", roots, code=3))
        self.stub("id", "echo 0", unless="-u")
        self.assertIn("RELEASE FOLDER", self.bash(script, "sid", code=3))
        root = roots / "sid"
        self.stub("apt-get", "echo http://a/debian")
        self.stub("debootstrap", f"mkdir -p {root}.part/etc/apt/apt.conf.d {root}.part/srv/stowage")
        self.bash(script, "sid", roots, "scripts/x.sh")
        inside = (f"chroot {root} /usr/bin/env -i HOME=/srv PATH=/usr/sbin:/usr/bin:/sbin:/bin "
                  "TERM=dumb STOWAGE_JOBS=3 bash -c cd /srv/stowage && ")
        mounts = [f"mount --bind /{place} {root}/{place}" for place in ("proc", "sys", "dev")]
        clone = [f"git bundle create {root}/srv/stowage.bundle HEAD",
                 f"chroot {root} git clone -q /srv/stowage.bundle /srv/stowage"]
        unmounts = [f"umount {root}/{place}" for place in ("proc", "sys", "dev")]
        self.assertEqual(self.calls, [
            "apt-get indextargets --format $(SITE)",
            f"debootstrap --variant=minbase --include=ca-certificates,git sid {root}.part "
            "http://a/debian", *clone, *mounts, f"mount -o remount,bind,ro {root}/sys",
            inside + "scripts/x.sh", *unmounts])
        self.assertEqual((root / "etc/resolv.conf").read_text(),
                         pathlib.Path("/etc/resolv.conf").read_text())
        self.assertFalse((root / "srv/stowage").exists())
        self.bash(script, "sid", roots)
        self.assertEqual([call for call in self.calls if "/env -i" in call],
                         [inside + "scripts/quickstart.sh", inside + "scripts/test.sh"])
        self.assertFalse(any("debootstrap" in call for call in self.calls))
        self.stub("chroot", 'case "$*" in *x.sh) exit 5 ;; esac')
        self.assertIn("FAILED with code 5", self.bash(script, "sid", roots, "scripts/x.sh", code=1))

    def test_jobs_name_what_they_lack(self):
        job = "source scripts/slurm/job.sh; "
        self.assertIn("STOWAGE_ENV=none: no such file",
                      self.bash("-c", job, code=3, STOWAGE_ENV="none", STOWAGE_SOURCE="x"))
        (self.folder / "env").write_text("export FROM_ENV=yes\n")
        said = self.bash("-c", job + 'echo "$FROM_ENV $STOWAGE_BIN"; set_environment; '
                         'echo "$OMP_NUM_THREADS $UCX_TLS"', STOWAGE_SOURCE="x",
                         STOWAGE_ENV=str(self.folder / "env"), SLURM_CPUS_PER_TASK="6")
        self.assertEqual(said, f"yes {self.root}/build/cuda/bin\n6 ^cuda,gdr_copy\n")
        self.stub("scontrol", 'echo "JobId=1 TimeLimit=$LIMIT x=y"')
        for limit, signal_s, code in (("1-00:00:00", "86399", 0), ("1-00:00:00", "86400", 3),
                                      ("01:02:03", "3722", 0), ("01:02:03", "3723", 3),
                                      ("00:08:00", "180", 0), ("00:03:00", "", 3),
                                      ("00:03:01", "", 0), ("00:01:00", "0", 0),
                                      ("UNLIMITED", "", 0)):
            said = self.bash("-c", job + "require_time", code=code, LIMIT=limit, SLURM_JOB_ID="1",
                             STOWAGE_SOURCE="x", STOWAGE_SIGNAL_S=signal_s)
            self.assertEqual("end as it begins" in said, code == 3, limit)


if __name__ == "__main__":
    unittest.main()
