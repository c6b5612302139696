"""What a result set holds, in memory: groups, datasets and attributes, as inspection.py has read
them from the file. They are asked as those of h5py are, and cost no call of HDF5.

An inspected file is bytes: arrays one behind another, an index in JSON, the length of the index.

    {"refused": reason}  or  {"nodes": [[path, attributes, dataset], ...]}
    attributes           {name: [type, shape, offset], ...}
    dataset              null of a group, else [type, shape, offset, scales]
    type                 of numpy, as "<f8"; [[name, type], ...] of a table; "text 5" of strings of
                         a variable length, at most 5 bytes here; null of what has no values
    scales               of each dimension: paths of the datasets that are its scales
"""

import functools
import json

import h5py
import numpy as np

from stowage_results.plain_files import Refused

ALIGNMENT = 8  # bytes
TEXT = "text "
LENGTH = 8  # bytes of the index' length


class Writer:
    """Writes arrays to a stream, and remembers where they are."""

    def __init__(self, stream):
        self.stream, self.at, self.nodes = stream, 0, []

    def add(self, path, attributes, dataset=None):
        self.nodes.append((path, attributes, dataset))

    def array(self, kind, values):
        """What the index says of an array; its bytes are written."""
        offset = self.at
        self.stream.write(values.tobytes())
        self.stream.write(bytes(-values.nbytes % ALIGNMENT))
        self.at += values.nbytes + -values.nbytes % ALIGNMENT
        return kind, values.shape, offset

    def end(self, index):
        words = json.dumps(index).encode("ascii")
        self.stream.write(words + len(words).to_bytes(LENGTH, "little"))


def of_one_length(values):
    """Strings of a variable length as those of the longest of them."""
    words = [one if isinstance(one, bytes) else b"" for one in values.flat]
    longest = max(map(len, words), default=0) or 1
    return np.array(words, f"S{longest}").reshape(values.shape)


def packed(values):
    """(type, array) of what HDF5 has read: plain bytes without gaps."""
    if values.dtype.names:
        columns = {name: packed(values[name]) for name in values.dtype.names}
        kind = [(name, column.dtype.str) for name, (_, column) in columns.items()]
        table = np.empty(values.shape, kind)
        for name, (_, column) in columns.items():
            table[name] = column
        return kind, table
    if values.dtype.kind == "O":
        values = of_one_length(values)
        return f"{TEXT}{values.dtype.itemsize}", values
    return values.dtype.str, values


@functools.cache
def type_of(word):
    return np.dtype(f"S{word[len(TEXT):]}" if word.startswith(TEXT) else word)


class Content:
    """The bytes of an inspected file."""

    def __init__(self, content):
        self.content = content
        end = len(content) - LENGTH
        start = end - int.from_bytes(content[end:], "little")
        self.index = json.loads(content[start:end])

    def array(self, kind, shape, offset):
        if kind is None:
            return h5py.Empty("f8")
        of = type_of(kind) if isinstance(kind, str) else np.dtype([tuple(one) for one in kind])
        return np.ndarray(shape, of, self.content, offset)

    def attribute(self, kind, shape, offset):
        """Text of a variable length is str, as h5py gives it."""
        found = self.array(kind, shape, offset)
        if kind is None:
            return found
        if isinstance(kind, str) and kind.startswith(TEXT):
            found = np.array([one.decode("utf-8", "surrogateescape") for one in found.flat],
                             object).reshape(found.shape)
        return found[()]


class Node:
    """What groups and datasets have: a path and attributes, by name."""

    def __init__(self, of, path, attributes):
        self._of, self._attributes, self.name = of, attributes, path

    @functools.cached_property
    def attrs(self):
        return {name: self._of.content.attribute(*found)
                for name, found in self._attributes.items()}


class Group(Node):
    def _path(self, name):
        """Of a name below this group, or of a whole path."""
        return name if name.startswith("/") else f"{self.name.rstrip('/')}/{name}"

    def __contains__(self, name):
        return self._path(name) in self._of.nodes

    def __getitem__(self, name):
        if (found := self.get(name)) is None:
            raise KeyError(f"there is no {self._path(name)}")
        return found

    def get(self, name, default=None):
        return self._of.nodes.get(self._path(name), default)

    def __iter__(self):
        return iter(self._of.members[self.name])

    def __len__(self):
        return len(self._of.members[self.name])

    def __bool__(self):
        return True

    def items(self):
        return [(name, self[name]) for name in self]

    def values(self):
        return [self[name] for name in self]


class Dataset(Node):
    def __init__(self, of, path, attributes, kind, shape, offset, scales):
        super().__init__(of, path, attributes)
        self._where, self._scales = (kind, shape, offset), scales

    @functools.cached_property
    def array(self):
        return self._of.content.array(*self._where)

    def __getitem__(self, key):
        return self.array if isinstance(self.array, h5py.Empty) else self.array[key]

    def __len__(self):
        return len(self.array)

    def __bool__(self):
        return True

    @property
    def dtype(self):
        return self.array.dtype

    @property
    def shape(self):
        return self.array.shape

    @property
    def ndim(self):
        return len(self.shape or ())

    @property
    def dims(self):
        """The scales of each dimension."""
        return [[self._of.nodes[path] for path in paths] for paths in self._scales]


class Stored:
    """All of a file. `nodes` has every object by its path, which begins with a slash."""

    def __init__(self, path, content):
        self.content = Content(content)
        index = self.content.index
        if "refused" in index:
            raise Refused(f"{path}: {index['refused']}")
        self.nodes, self.members = {}, {}
        for where, attributes, dataset in index["nodes"]:
            if dataset is None:
                self.nodes[where] = Group(self, where, attributes)
                self.members[where] = []
            else:
                self.nodes[where] = Dataset(self, where, attributes, *dataset)
            above, _, name = where.rpartition("/")
            if name:
                self.members[above or "/"].append(name)

    @property
    def root(self):
        return self.nodes["/"]
