"""Copies of the scripts among commands that only write down how they were called."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LAUNCHERS = "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache"
VERSIONS = {"cmake": "cmake version 3.25.1", "c++": "c++ (Debian 12.2.0-14) 12.2.0"}


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.root, self.bin, self.log = (self.folder / name for name in ("tree", "bin", "log"))
        shutil.copytree(SOURCE / "scripts", self.root / "scripts")
        self.bin.mkdir()
        self.environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder),
                            "STOWAGE_CACHE": str(self.folder / "cache"), "STOWAGE_JOBS": "3",
                            "STOWAGE_PRESET": "host"}
        for name in ("apt-get", "ccache", "clang-format", "clang-tidy-19", "ctest", "mpirun",
                     "ninja", "sudo"):
            self.stub(name)
        for name, version in VERSIONS.items():
            self.stub(name, f'[ "$1" != --version ] || echo "{version}"', unless="--version")
        self.stub("dpkg-query", 'echo "install ok installed"', unless="-W")
        self.stub("nproc", "echo 2", unless="")
        self.stub("id", "echo 1000", unless="-u")
        self.stub("bible", "echo Genesis")

    def stub(self, name, body="", unless=None, folder=None):
        """A command that writes down its words, unless the first is `unless`."""
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        note = "" if unless is None else f'[ "$1" = "{unless}" ] || '
        path.write_text(f'#!/bin/bash\n{note}echo "{name} $*" >>{self.log}\n{body}\n',
                        encoding="utf-8")
        path.chmod(0o755)
        return path

    def bash(self, *words, code=0, **environment):
        """What a command printed; its calls are `self.calls`."""
        self.log.write_text("")
        done = subprocess.run(["bash", *map(str, words)], cwd=self.root, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, env={**self.environment, **environment})
        self.assertEqual(done.returncode, code, done.stdout)
        self.calls = self.log.read_text().splitlines()
        return done.stdout

    def function(self, words, code=0, **environment):
        """The same of functions of scripts/lib."""
        files = ("common", "build", "packages", "text", "kokkos")
        sourced = "".join(f"source scripts/lib/{name}.sh; " for name in files)
        return self.bash("-c", f"set -euo pipefail; {sourced}{words}", code=code, **environment)

    def write_plot(self):
        plot = self.root / "results/tools/plot.py"
        plot.parent.mkdir(parents=True)
        plot.write_text("import sys\nopen('runs/quickstart/plot.png', 'w').write(sys.argv[1])\n")

    def phases(self, said):
        """[(name, budget in seconds, how it ended)] of the lines that end a script."""
        return [(name.strip(), int(budget), verdict) for name, budget, verdict in re.findall(
            r"^  (.{22}) +\d+ s of +(\d+) s  (.+)$", said, re.MULTILINE)]
