"""What pyproject.toml cannot say: files of the checkout that the package needs go into it."""

import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

RESULTS = pathlib.Path(__file__).resolve().parents[1]
BESIDE = (RESULTS / "metrics.toml", RESULTS / "schema.md",
          RESULTS.parent / "docs/reference/deck.md")


class WithData(build_py):
    def run(self):
        super().run()
        data = pathlib.Path(self.build_lib, "stowage_results/data")
        data.mkdir(parents=True, exist_ok=True)
        for path in BESIDE:
            shutil.copy(path, data)


setup(cmdclass={"build_py": WithData})
