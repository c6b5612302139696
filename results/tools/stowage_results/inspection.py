"""Reads all of a result set in a child process: what the file holds is somebody else's, and damage
can crash the HDF5 library. A tool gets what the child has read (stored.py); publish.py alone opens
the set after that.

Only what our writer writes is let through. Storage in other files, virtual datasets, links that are
not hard, objects under two names, other filters and types are refused before a value is read, and
so is more than the limits below. The largest of the published sets has 2000 objects, 4 kB in an
attribute, 13 kB in a dataset and 200 kB in all."""

import math
import os
import resource
import signal

import h5py
import numpy as np

from stowage_results.plain_files import Refused, open_plain
from stowage_results.stored import Stored, Writer, packed

LARGEST_DATASET = 256 << 20  # bytes, unpacked: 32 million numbers
LARGEST_FILE = 512 << 20  # bytes of all datasets and attributes, unpacked
LARGEST_ATTRIBUTE = 16 << 20
MOST_OBJECTS = 100_000
MOST_LEVELS = 32  # of groups in groups
MEMORY = 2 << 30  # bytes that the child may have beyond what it began with
SECONDS = 20  # of CPU time
FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
TYPES = {h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING, h5py.h5t.ENUM}
AS_STORED = (h5py.h5t.IEEE_F64LE, h5py.h5t.STD_I64LE)  # read without a conversion
OF_SCALES = {h5py.h5t.VLEN, h5py.h5t.COMPOUND}  # DIMENSION_LIST and REFERENCE_LIST
EMPTY = (None, (), 0)  # of stored.py: there are no values


class Walk:
    """Hands on what it sees; counts, and refuses what is too much or not ours."""

    def __init__(self, writer):
        self.writer = writer
        self.bytes = self.objects = 0
        self.paths = {}  # by the address in the file

    def count(self, where, size, limit):
        self.bytes += size
        if size > limit:
            raise Refused(f"{where} has {size} bytes, more than {limit}")
        if self.bytes > LARGEST_FILE:
            raise Refused(f"the datasets up to {where} have more than {LARGEST_FILE} bytes")

    def group(self, group, path, level):
        if level > MOST_LEVELS:
            raise Refused(f"{path[:80]}...: groups lie in each other more than {MOST_LEVELS} deep")
        self.writer.add(path or "/", self.attributes(group, path or "/"))
        for raw in list(group):
            where = f"{path}/{require_name(raw, path)}"
            if group.links.get_info(raw).type != h5py.h5l.TYPE_HARD:
                raise Refused(f"{where} is a soft or an external link; a set holds its data itself")
            self.node(h5py.h5o.open(group, raw), where, level)

    def node(self, node, where, level):
        self.objects += 1
        if self.objects > MOST_OBJECTS:
            raise Refused(f"it has more than {MOST_OBJECTS} objects")
        info = h5py.h5o.get_info(node)
        self.paths[info.addr] = where
        if info.rc != 1:
            raise Refused(f"{where} is there under two names")
        if isinstance(node, h5py.h5g.GroupID):
            self.group(node, where, level + 1)
        elif isinstance(node, h5py.h5d.DatasetID):
            self.dataset(node, where)
        else:
            raise Refused(f"{where} is neither a group nor a dataset")

    def dataset(self, node, where):
        storage = node.get_create_plist()
        if storage.get_external_count() > 0:
            raise Refused(f"{where} lies in another file; a set holds its data itself")
        layout = storage.get_layout()
        if layout == h5py.h5d.VIRTUAL:
            raise Refused(f"{where} is a view of other datasets; a set holds its data itself")
        for index in range(storage.get_nfilters()):
            if storage.get_filter(index)[0] not in FILTERS:
                raise Refused(f"{where} is packed by filter {storage.get_filter(index)[0]}; ours "
                              "are deflate, shuffle and Fletcher-32")
        kind = node.get_type()
        require_type(kind, where)
        item = kind.get_size()
        if layout == h5py.h5d.CHUNKED:
            chunk = item * math.prod(storage.get_chunk())
            if chunk > LARGEST_DATASET:
                raise Refused(f"{where} has chunks of {chunk} bytes, more than {LARGEST_DATASET}")
        values = node.get_space().get_simple_extent_npoints()
        self.count(where, values * item, LARGEST_DATASET)
        attributes = self.attributes(node, where)
        found = self.written(where, kind, node, LARGEST_DATASET)
        scales = [[] for _ in range(node.rank)]
        if h5py.h5a.exists(node, b"DIMENSION_LIST"):  # in a form of its own it crashes HDF5
            scales = [[h5py.h5o.get_info(dimension[index].id).addr
                       for index in range(len(dimension))]
                      for dimension in h5py.Dataset(node).dims]
        self.writer.add(where, attributes, (*found, scales))

    def index(self):
        """What the writer has, scales by their paths."""
        for where, _, dataset in self.writer.nodes:
            for scales in dataset[3] if dataset is not None else ():
                if not self.paths.keys() >= set(scales):
                    raise Refused(f"{where} has a scale that is no object of it")
                scales[:] = [self.paths[address] for address in scales]
        return {"nodes": self.writer.nodes}

    def attributes(self, node, where):
        """The place of each attribute's value, by name."""
        found, names = {}, []
        h5py.h5a.iterate(node, lambda name, *_: names.append(name))
        for raw in names:
            one = h5py.h5a.open(node, raw)
            name = require_name(raw, where)
            kind = one.get_type()
            self.count(f"{where}@{name}", one.get_storage_size(), LARGEST_ATTRIBUTE)
            if kind.get_class() not in OF_SCALES:
                require_type(kind, f"{where}@{name}")
                found[name] = self.written(f"{where}@{name}", kind, one, LARGEST_ATTRIBUTE)
            else:
                one.read(np.empty(one.shape, one.dtype))
                found[name] = EMPTY
        return found

    def written(self, where, kind, node, limit):
        """Reads the values of a dataset or an attribute, and hands them on."""
        if (shape := node.shape) is None:
            return EMPTY
        values = np.empty(shape, kind.dtype)
        if values.size:
            whole = (h5py.h5s.ALL, h5py.h5s.ALL) if isinstance(node, h5py.h5d.DatasetID) else ()
            plain = any(kind.equal(one) for one in AS_STORED)
            node.read(*whole, values, mtype=kind if plain else None)
        told, made = packed(values)
        if made.nbytes > values.nbytes:  # strings of a variable length
            self.count(where, made.nbytes - values.nbytes, limit)
        return self.writer.array(told, made)


def require_name(raw, path):
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        name = "\n"
    if not name.isprintable():
        raise Refused(f"{path}: the name {raw!r} in it is no text")
    return name


def require_type(kind, where):
    """Numbers, text and our bool; tables of these."""
    if kind.get_class() == h5py.h5t.COMPOUND:
        for index in range(kind.get_nmembers()):
            name = require_name(kind.get_member_name(index), where)
            member = kind.get_member_type(index)
            if member.get_class() == h5py.h5t.COMPOUND:
                raise Refused(f"{where}.{name} is a table in a table")
            require_type(member, f"{where}.{name}")
    elif kind.get_class() not in TYPES:
        raise Refused(f"{where} holds neither numbers nor text")
    elif kind.get_class() == h5py.h5t.ENUM and kind.dtype.kind != "b":
        raise Refused(f"{where} holds an enumeration that is not ours")


def reason(error):
    """Why HDF5 cannot open or read a file."""
    message = str(error)
    if "truncated" in message:
        return f"the file is truncated ({message})"
    if "signature not found" in message:
        return "not an HDF5 file"
    return f"the file is damaged ({message})"


def look(path, stream):
    """Hands on what the file at `path` holds, or why it cannot be used."""
    writer = Writer(stream)
    try:
        with h5py.File(path, "r") as file:
            walk = Walk(writer)
            walk.group(file["/"].id, "", 0)
        writer.end(walk.index())
        return
    except Refused as problem:
        why = str(problem)
    except MemoryError:
        why = "its data needs more memory than any set of ours"
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError,
            OverflowError) as error:
        why = reason(error)
    writer.end({"refused": why[:4000]})


def in_child(path, writing):
    """What the child does; it never returns."""
    code = 1
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)  # what the C library says of a crash
        used = int(open("/proc/self/statm", encoding="ascii").read().split()[0])
        most = used * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        with os.fdopen(writing, "wb", 1 << 16) as stream:
            look(path, stream)
        code = 0
    finally:
        os._exit(code)


def read_set(path):
    """What a file holds; one that a tool must not read is refused."""
    open_plain(path).close()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        in_child(path, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        content = answer.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        raise Refused(f"{path}: reading it takes more than {SECONDS} s, or was killed")
    if status != 0:
        how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        raise Refused(f"{path}: the file is damaged (the HDF5 library ends with {how})")
    return Stored(path, content)
