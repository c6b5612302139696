"""Opens result sets: what the tools of this folder share."""

import re
import sys
import traceback

import h5py
import numpy as np

SCHEMA = "stowage-result"
MAJOR_VERSION = "1"
# Keys of earlier versions, with what they are called now (inputs/deck/registry.cpp).
RENAMED = {"offload.gradient_memory": "offload.berths"}
BAND = re.compile(r"^(\w+) = \[(.+), (.+)\]$", re.MULTILINE)


class Refused(Exception):
    """The file cannot be used: missing, truncated, or not ours."""


def text(value):
    """An HDF5 string as str, whether it was stored with a fixed or a variable length."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def largest_of_ranks(values):
    """One value per entry: a step takes as long as its slowest rank, and as much as its fullest."""
    return values if values.ndim == 1 else values.max(axis=1)


class Result:
    """A result set, open for reading."""

    def __init__(self, path, unfinished_too=False):
        self.path = path
        self._made = {}
        try:
            self.file = h5py.File(path, "r")
        except FileNotFoundError:
            raise Refused(f"{path}: no such file") from None
        except OSError as error:
            raise Refused(f"{path}: {self._reason(error)}") from None
        self._touch_everything()
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

    def _touch_everything(self):
        """Reads all metadata, so that damage in it is told here and not half-way through."""
        def touch(_, node):
            dict(node.attrs)
        try:
            dict(self.file.attrs)
            self.file.visititems(touch)
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise Refused(f"{self.path}: the file is damaged ({error})") from None

    @staticmethod
    def _reason(error):
        message = str(error)
        if "truncated" in message:
            return f"the file is truncated ({message})"
        if "signature not found" in message:
            return "not an HDF5 file"
        return f"cannot be read ({message})"

    def array(self, path):
        """A dataset's values, or None if the file does not have it. Damaged bytes are refused."""
        if path not in self.file:
            return None
        try:
            return self.file[path][()]
        except OSError as error:
            raise Refused(f"{self.path}: {path} is damaged ({error})") from None

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
        found = []
        if group not in self.file:
            return found
        self.file[group].visititems(
            lambda name, node: found.append(name) if isinstance(node, h5py.Dataset) else None)
        return sorted(found)

    def attribute(self, path, name):
        """An attribute of an object; a file without it is refused."""
        if path not in self.file or name not in self.file[path].attrs:
            raise Refused(f"{self.path}: /{path} has no {name}")
        return self.file[path].attrs[name]

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
        attributes = self.file["config"].attrs if "config" in self.file else {}
        return {RENAMED.get(key, key): text(value) if isinstance(value, bytes) else value
                for key, value in attributes.items()}

    def expectations(self):
        """The bands of the deck's [expects]: {"loss_at_10": (low, high)}."""
        if "config/deck_resolved" not in self.file:
            return {}
        _, _, table = text(self.file["config/deck_resolved"][()]).partition("\n[expects]\n")
        return {name: (float(low), float(high)) for name, low, high in BAND.findall(table)}


# What reading a set raises that lacks an object, or has one of another form, of those that its
# driver writes.
LACKS = (KeyError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError)


def run(main):
    """Runs a tool's main function; a refused file ends it with exit code 2 and one line."""
    try:
        sys.exit(main())
    except Refused as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
    except LACKS as problem:
        where = traceback.extract_tb(problem.__traceback__)[-1]
        print("error: a file lacks what this needs, or holds it in another form; validate.py names "
              f"what ({type(problem).__name__} in {where.name}: {problem})", file=sys.stderr)
        sys.exit(2)
