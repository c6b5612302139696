"""What scripts/bundle.sh packs, and what the bundle's run.sh calls. Nothing is fetched or built."""

import hashlib
import re
import subprocess
import tarfile
import unittest

from stubs import SOURCE, Tree

SITES = {"Threads", "PkgConfig", "MPI", "HDF5", "BLAS", "CUDAToolkit", "NCCL", "cuDNN", "Python3"}
NAMES = {"GTest": "googletest", "HWLOC": "hwloc", "Kokkos": "kokkos"}
VERSION = "SET(Kokkos_VERSION_MAJOR 3)\nset (Kokkos_VERSION_MINOR 4)\nset(Kokkos_VERSION_PATCH 1)\n"


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Bundle(Tree):
    def setUp(self):
        super().setUp()
        self.files = self.folder / "files"
        self.files.mkdir()
        rows = [self.source("kokkos", "kokkos_3.orig.tar.gz", {"CMakeLists.txt": VERSION}),
                self.source("fmt", "fmt_1.orig.tar.gz", {"CMakeLists.txt": ""}),
                self.source("hwloc", "hwloc_1.orig.tar.gz", {"configure": "#!/bin/sh\n"}),
                self.source("googletest", "gtest_1.orig.tar.gz", {"CMakeLists.txt": ""}),
                self.headers()]
        (self.root / "scripts/bundle/sources.txt").write_text("# a list\n" + "".join(rows))
        (self.root / ".gitignore").write_text("/data/\n/build/\n")
        for words in (("init", "-q"), ("add", "-A"), ("-c", "user.name=a", "-c", "user.email=a@b",
                                                      "commit", "-qm", "all")):
            subprocess.run(["git", *words], cwd=self.root, check=True)

    def row(self, name, kind, file):
        return f"{name} {kind} package sid {file}\n  {digest(self.files / file)}\n"

    def source(self, name, file, tree):
        top = self.folder / "trees" / f"{name}-1"
        for path, text in tree.items():
            top.mkdir(parents=True, exist_ok=True)
            (top / path).write_text(text)
            (top / path).chmod(0o755)
        with tarfile.open(self.files / file, "w:gz") as tar:
            tar.add(top, top.name)
        return self.row(name, "source", file)

    def headers(self):
        top = self.folder / "deb"
        for path, text in (("usr/include/CLI/CLI.hpp", ""), ("usr/lib/libcli.so", ""),
                           ("DEBIAN/control", "Package: a\nVersion: 1\nArchitecture: all\n"
                                              "Maintainer: a\nDescription: a\n")):
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            (top / path).write_text(text)
        subprocess.run(["dpkg-deb", "-b", top, self.files / "a.deb"], check=True,
                       stdout=subprocess.DEVNULL)
        return self.row("CLI11", "headers", "a.deb")

    def bundle(self, name="b.tar.gz", **more):
        said = self.bash("scripts/bundle.sh", "--files", self.files, "--to", self.folder / name,
                         **more)
        return said

    def unpacked(self):
        self.bundle()
        with tarfile.open(self.folder / "b.tar.gz") as tar:
            tar.extractall(self.folder / "there")
        top, = (self.folder / "there").iterdir()
        return top

    def test_what_is_in_it(self):
        top = self.unpacked()
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=self.root, text=True,
                                capture_output=True, check=True).stdout.strip()
        self.assertEqual(top.name, f"stowage-{commit}")
        self.assertEqual((top / "stowage/COMMIT").read_text(), commit + "\n")
        self.assertEqual((top / "stowage/data/kjv.txt").read_text(), "Genesis\n")
        self.assertEqual(sorted(path.name for path in top.iterdir()),
                         ["SHA256SUMS", "run.sh", "sources", "stowage"])
        self.assertEqual(sorted(path.name for path in (top / "sources").iterdir()),
                         ["fmt.tar.gz", "googletest.tar.gz", "headers.tar.gz", "hwloc.tar.gz",
                          "kokkos.tar.gz"])
        with tarfile.open(top / "sources/headers.tar.gz") as tar:
            self.assertEqual([one.name for one in tar if one.isfile()], ["usr/include/CLI/CLI.hpp"])
        summed = {}
        for folder in (top, top / "stowage"):
            subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], check=True,
                           cwd=folder)
            summed[folder] = {line.split(maxsplit=1)[1] for line in
                              (folder / "SHA256SUMS").read_text().splitlines()}
        files = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}
        self.assertEqual(summed[top], files - {"SHA256SUMS"})
        self.assertIn("scripts/bundle.sh", summed[top / "stowage"])
        self.assertNotIn("data/kjv.txt", summed[top / "stowage"])
        self.bundle("again.tar.gz")
        self.assertEqual(digest(self.folder / "b.tar.gz"), digest(self.folder / "again.tar.gz"))

    def test_what_is_not_the_pinned_file_is_refused(self):
        (self.files / "a.deb").write_bytes(b"other")
        self.stub("apt-get", "exit 100")
        said = self.bash("scripts/bundle.sh", "--files", self.files, code=3)
        self.assertRegex(said, r"error: \S+/a.deb: its SHA-256 is not [0-9a-f]{64}")
        (self.files / "a.deb").unlink()
        self.assertIn("a.deb is missing: put it there",
                      self.bash("scripts/bundle.sh", "--files", self.files, code=3))
        self.assertIn("'none': no commit",
                      self.bash("scripts/bundle.sh", "--commit", "none", code=3))
        self.assertIn("unknown argument 'x'", self.bash("scripts/bundle.sh", "x", code=3))

    def test_every_dependency_has_a_source(self):
        """All that CMake finds but what a site has: one more dependency belongs into the list."""
        text = (SOURCE / "cmake/StowageDependencies.cmake").read_text()
        found = set(re.findall(r"find_package\((\w+)", text)) - SITES
        found |= {"HWLOC", "tomlplusplus", "Kokkos"}
        rows = [line.split() for line in
                (SOURCE / "scripts/bundle/sources.txt").read_text().splitlines()
                if line and line[0] not in "# "]
        self.assertEqual({NAMES.get(name, name) for name in found}, {row[0] for row in rows})

    def test_a_run_without_a_network(self):
        top = self.unpacked()
        (top / "stowage/build.log").touch()  # what a build leaves does not make it another tree
        prefix = ('for one in "$@"; do case $one in '
                  '-DCMAKE_INSTALL_PREFIX=*) mkdir -p "${one#*=}" ;; esac; done\n'
                  '[ "$1" != --version ] || echo "cmake version 3.25.1"')
        self.stub("cmake", prefix, unless="--version")
        self.stub("make")
        self.stub("pkg-config")
        self.stub("python3")
        self.stub("curl", "exit 1")
        self.stub("openssl", 'touch "${@: -1}"')
        said = self.bash(top / "run.sh", "--to", self.folder / "work", "--", "-DX=1")
        self.assertIn(f"STOWAGE BUNDLE VALID  commit={top.name[8:]}  ", said)
        self.assertEqual([name for name, _, verdict in self.phases(said) if verdict == "ok"],
                         ["dependencies", "build", "tests", "quick start", "acceptance"])
        build = next(call for call in self.calls if "--preset" in call)
        self.assertIn(f"-DCMAKE_PREFIX_PATH={self.folder}/work/dependencies", build)
        self.assertRegex(build, r"-DKokkos_ROOT=\S+/cache/kokkos-3.4.1-\w{10} .* -DX=1$")
        self.assertFalse(any(call.startswith(("apt-get", "git", "curl")) for call in self.calls))
        made = next(call for call in self.calls if "--target stowage_programs" in call)
        tests = set(re.findall(r" (test_\S+)", made))
        self.assertEqual(len(tests), 3)
        for test in tests:
            self.assertRegex(test, self.programs_of_tests())
        train, = (call for call in self.calls if "stowage_train" in call)
        self.assertIn(" -np 2 ", train)
        accept = self.calls[-1]
        self.assertIn("scripts/accept/stowage_accept.py", accept)
        self.assertIn(f" --sign {self.folder}/work/key.pem ", accept)
        again = self.bash(top / "run.sh", "--to", self.folder / "work", "--sign", "mine.pem")
        self.assertNotIn("make install", self.calls)
        self.assertRegex(self.calls[-1], r" --sign /\S+/mine.pem ")
        self.assertIn("BUNDLE VALID", again)
        self.stub("mpirun", "exit 1")
        said = self.bash(top / "run.sh", "--to", self.folder / "work", code=1)
        self.assertIn("STOWAGE BUNDLE INVALID", said)
        self.stub("cmake", "exit 1")
        self.assertIn("cmake is missing", self.bash(top / "run.sh", code=3))
        (top / "stowage/scripts/README.md").write_text("other")
        self.assertIn("are not those that were packed", self.bash(top / "run.sh", code=3))
        self.assertIn("unknown argument 'x'", self.bash(top / "run.sh", "x", code=2))

    @staticmethod
    def programs_of_tests():
        """A pattern of the targets that stowage_test() of cmake/StowageTests.cmake makes."""
        names = [name for path in (SOURCE / "ctest").rglob("CMakeLists.txt")
                 for name in re.findall(r"stowage_test\(NAME (\S+)", path.read_text())]
        return "^test_(" + "|".join(names).replace(".", "_").replace("${unit}", r"\w+") + ")$"

    def test_a_bundle_knows_its_commit(self):
        top = self.unpacked()
        made = self.folder / "version.txt"
        (self.folder / "in").write_text("@GIT_DESCRIBE@")

        def version():
            subprocess.run(["/usr/bin/cmake", f"-DSOURCE={top}/stowage", "-DGIT=git",
                            f"-DINPUT={self.folder}/in", f"-DOUTPUT={made}", "-P",
                            SOURCE / "cmake/version/write_version.cmake"], check=True)
            return made.read_text().strip()

        self.assertEqual(version(), top.name[8:])
        (top / "stowage/scripts/README.md").write_text("other")
        self.assertEqual(version(), top.name[8:] + "-dirty")


if __name__ == "__main__":
    unittest.main()
