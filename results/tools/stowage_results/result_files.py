"""Opens result sets: what the tools of this folder share."""

import re
import sys
import traceback

from stowage_results import needs  # noqa: F401
import numpy as np

from stowage_results.inspection import read_set
from stowage_results.plain_files import Refused
from stowage_results.stored import Dataset

SCHEMA = "stowage-result"
MAJOR_VERSION = "1"
# Keys of earlier versions, with what they are called now (inputs/deck/registry.cpp).
RENAMED = {"offload.gradient_memory": "offload.reuse_gradient_memory",
           "offload.berths": "offload.reuse_gradient_memory",
           "offload.keep_unhidden": "offload.keep_exposed"}
BAND = re.compile(r"^(\w+) = \[(.+), (.+)\]$", re.MULTILINE)


def text(value):
    """An HDF5 string as str, whether it was stored with a fixed or a variable length."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def largest_of_ranks(values):
    """One value per entry: a step takes as long as its slowest rank, and as much as its fullest."""
    return values if values.ndim == 1 else values.max(axis=1)


class Result:
    """A result set. `file` is its root group (stored.py)."""

    def __init__(self, path, unfinished_too=False):
        self.path = path
        self._made = {}
        self.stored = read_set(path)
        self.file = self.stored.root
        schema = text(self.file.attrs.get("schema", ""))
        if schema != SCHEMA:
            found = f"'{schema}'" if schema else "missing"
            raise Refused(f"{path}: not a {SCHEMA} file: its root attribute schema is {found}")
        version = text(self.file.attrs.get("schema_version", ""))
        if version.split(".")[0] != MAJOR_VERSION:
            raise Refused(
                f"{path}: has schema version '{version}', this tool reads {MAJOR_VERSION}.x")
        self.minor_version = int(version.split(".")[1]) if version[2:].isdigit() else 0
        self.verdict = text(self.file.attrs.get("verdict", ""))
        if self.verdict == "UNFINISHED" and not unfinished_too:
            raise Refused(f"{path}: the run ended without a verdict")

    def node(self, path):
        """The object of this path, or None if the file does not have it."""
        return self.file.get(path)

    def array(self, path):
        """A dataset's values, or None if the file does not have it."""
        return None if (node := self.node(path)) is None else node[()]

    def series(self, path):
        """The pair (scale, values) of /series/<path>, or None if it is missing or empty."""
        values = self.array(f"series/{path}")
        if values is None or len(values) == 0:
            return None
        scales = self.file[f"series/{path}"].dims[0]
        where = scales[0][()] if len(scales) else np.arange(len(values))
        return where, values

    def skipped_steps(self):
        """Training steps that changed nothing: what they say of loss and norm counts in no figure,
        and need not be finite."""
        ok = self.series("train/ok")
        return ok[0][ok[1] == 0] if ok is not None else np.array([], dtype=np.int64)

    def datasets(self, group):
        """Paths, relative to `group`, of all datasets below it, sorted."""
        return list(self.once(f"datasets of {group}", lambda one: all_datasets(one, group)))

    def attribute(self, path, name):
        """An attribute of an object; a file without it is refused."""
        node = self.node(path)
        if node is None or name not in node.attrs:
            raise Refused(f"{self.path}: /{path} has no {name}")
        return node.attrs[name]

    def key(self, name):
        """The value of a key of the deck; a file without it is refused."""
        value = self.attribute("config", name)
        return text(value) if isinstance(value, bytes) else value

    def once(self, name, function):
        """function(self), computed at the first call under this name."""
        if name not in self._made:
            self._made[name] = function(self)
        return self._made[name]

    def config(self):
        """The deck's keys, by the names that they have now, and values."""
        return self.once("config", deck_keys)

    def expectations(self):
        """The bands of the deck's [expects]: {"loss_at_10": (low, high)}."""
        if "config/deck_resolved" not in self.file:
            return {}
        _, _, table = text(self.file["config/deck_resolved"][()]).partition("\n[expects]\n")
        return {name: (float(low), float(high)) for name, low, high in BAND.findall(table)}


def all_datasets(result, group):
    above = f"/{group}/"
    return sorted(path[len(above):] for path, node in result.stored.nodes.items()
                  if isinstance(node, Dataset) and path.startswith(above))


def deck_keys(result):
    attributes = result.file["config"].attrs if "config" in result.file else {}
    return {RENAMED.get(key, key): text(value) if isinstance(value, bytes) else value
            for key, value in attributes.items()}


# What reading a set raises that lacks an object, or has one of another form, of those that its
# driver writes.
LACKS = (KeyError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError)


def run(main):
    """Runs a tool's main function; a refused file ends it with exit code 2 and one line."""
    try:
        sys.exit(main())
    except Refused as problem:
        said = str(problem)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as problem:
        said = str(problem)
    except MemoryError:
        said = "there is too little memory for what the files hold"
    except RecursionError:
        said = "a file nests deeper than any of ours"
    except LACKS as problem:
        where = traceback.extract_tb(problem.__traceback__)[-1]
        said = ("a file lacks what this needs, or holds it in another form; validate.py names "
                f"what ({type(problem).__name__} in {where.name}: {problem})")
    print(f"error: {printable(said)}", file=sys.stderr)
    sys.exit(2)


def printable(words):
    """Words for a terminal: what files of somebody else hold moves no cursor and forges no line."""
    return "".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in words)
