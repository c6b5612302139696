"""Files that the tools read beside results/tools: in a checkout, where Stowage is installed, or in
the package itself, where pip put it."""

import pathlib

PACKAGE = pathlib.Path(__file__).resolve().parent
FOLDERS = (PACKAGE / "data", PACKAGE.parents[1], PACKAGE.parents[2] / "docs" / "reference")


def beside(name):
    """The file of this name; where it ought to be, if it is nowhere."""
    found = (folder / name for folder in FOLDERS if (folder / name).is_file())
    return next(found, FOLDERS[1] / name)
