"""Copies result sets for publication, without what names the machine that they ran on.

Host names, the scheduler's names, the GPUs' serial identities, the names of network cards (some
hold their hardware addresses), a kernel's build name and what the MPI launcher left in the
environment are cleared, and of `run.output` and an absolute `data.path` the file's name alone is
left; no measured value, no setting that can change one and no verdict is touched. A set in which a
path or a name of the machine is left is refused, and so is one that does not conform.

All of it happens in memory, and what is cleared is not merely unlinked: the objects are written
into a new file, since HDF5 leaves the bytes of what is deleted where they were. A copy that was
not cleared never lies in the folder, whatever goes wrong.

Exit codes: 0, 2 for a file that is not ours, or one that may not be published as it is.
"""

import argparse
import io
import pathlib
import re

from stowage_results import needs  # noqa: F401
import h5py
import numpy as np

from stowage_results.outputs import require_free, write
from stowage_results.result_files import LACKS, Refused, Result, text
from stowage_results.check.schema import kind_of, own_attributes
from stowage_results.check.validate import check, schema_rows

LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "PRTE_")
# What the environment of an older set may hold; results/environment.cpp stores none of it.
SECRET_NAMES = re.compile("auth|cert|comment|cred|jwt|key|pass|priv|psk|pwd|secret|tok|uri", re.I)
SECRETS = re.compile(r"://|:[^\s/@]*@")
CLEARED_RUN = ("cwd", "nodelist", "slurm_job_id")
CLEARED_RANK = ("gpu_uuid",)
MACHINE_PATH = re.compile(r"(?<![\w.<])/(?:[\w.+-]+/[\w.+/-]*|[A-Za-z][\w.+-]*)")
LINKS = "provenance/system/links"
LARGEST_BYTES = 4 << 20  # a sweep of all exchanges and sizes has 2.4 MB
LEAST_NAME, LEAST_WORD = 2, 4  # letters of a host and of a folder or job, to be looked for
WRITTEN_BY_LAUNCHERS = re.compile(r"provenance/(env|run|system/differences)@?|/@remark")
OUR_TEXTS = re.compile(r"(metrics|samples|series|ceilings|offload|validation)(/|@|$)|provenance/"
                       r"(software|choices)")  # in these no user and no launcher writes


def bytes_of(value):
    """As the writer stores text: of fixed length, one byte at least."""
    return np.bytes_(value.encode() or b"\0")


def rename_cards(cells, lines):
    """The network cards by their order, in cells "name place ..., ..." and lines "NIC0: name ("."""
    split = [[card.split(" ") for card in text(cell).split(", ")] for cell in cells]
    names = dict.fromkeys(card[0] for cards in split for card in cards if card[0])
    short = {name: f"nic{index}" for index, name in enumerate(names)}
    cells = [", ".join(" ".join([short.get(card[0], ""), *card[1:]]) for card in cards)
             for cards in split]
    for old, new in short.items():
        lines = [line.replace(f": {old} (", f": {new} (") for line in lines]
    return cells, lines


def replace_lines(file, path, lines):
    if lines:
        del file[path]
        file.create_dataset(path, data=np.array([line.encode() for line in lines]))


def rename_hosts(file):
    """The names of hosts and cards by their order, in the table of ranks; the hosts' old ones."""
    path = "provenance/system/ranks"
    table = file[path][()]
    names = list(dict.fromkeys(text(host) for host in table["host"]))
    short = {name: f"h{index}" for index, name in enumerate(names)}
    columns = {name: table[name] for name in table.dtype.names}
    columns["host"] = np.array([short[text(host)].encode() for host in table["host"]])
    columns["kernel"] = np.array([text(kernel).split("-")[0].encode()
                                  for kernel in table["kernel"]])
    if "nics" in columns:  # sets before 1.6 have none
        cells, lines = rename_cards(columns["nics"], [text(line) for line in file[LINKS][()]])
        columns["nics"] = np.array([bytes_of(cell) for cell in cells])
        replace_lines(file, LINKS, lines)
    for name in CLEARED_RANK:
        columns[name] = np.array([b""] * len(table), dtype="S1")
    made = np.empty(len(table), dtype=[(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        made[name] = column
    del file[path]
    file.create_dataset(path, data=made)
    return short


def drop_folders(file):
    """Leaves the file's name of run.output, and of data.path where that names the machine's root,
    in the deck's texts too: a set says nothing of the folders that it was written to and read from.
    Which data it was is told by its digest."""
    config = file["config"]
    for key in ("run.output", "data.path"):
        path = text(config.attrs.get(key, b""))
        name = path.rpartition("/")[2]
        if path == name or not name or (key == "data.path" and not path.startswith("/")):
            continue
        config.attrs[key] = bytes_of(name)
        for deck in ("deck_given", "deck_resolved"):
            said = text(config[deck][()])
            del config[deck]
            config[deck] = bytes_of(said.replace(path, name))


def clear(file):
    """Clears an open file; returns (names of hosts and boards, which no text of a user may hold,
    words such as a folder's, which no launcher's may)."""
    said = [text(one) for name in CLEARED_RANK for one in file["provenance/system/ranks"][name]]
    drop_folders(file)
    short = rename_hosts(file)
    started = file["provenance/run"].attrs
    nodes = text(started["nodelist"])
    said += [*short, *(host.partition(".")[0] for host in short), nodes,
             *re.findall(r"(?<![^\s,])[^\s,\[\]]+(?![^\s,])", re.sub(r"\[[^\]]*\]", "[]", nodes))]
    words = [text(started[name]) for name in CLEARED_RUN]
    for name in CLEARED_RUN:
        started[name] = bytes_of("")
    environment = file["provenance/env"].attrs
    for name, value in list(environment.items()):
        if name.startswith(LAUNCHERS) or SECRET_NAMES.search(name) or SECRETS.search(text(value)):
            del environment[name]
    path = "provenance/system/differences"
    lines = [text(line) for line in file[path][()]]
    for old, new in short.items():
        lines = [line.replace(f"host {old}", f"host {new}") for line in lines]
    replace_lines(file, path, lines)
    names = {one for one in said if len(one) >= (LEAST_WORD if one.isdigit() else LEAST_NAME)}
    return names.difference(short.values()), {one for one in words if len(one) >= LEAST_WORD}


def holds(value, names):
    """Whether a text has one of the names between other signs than letters and digits."""
    return any(re.search(rf"(?<![^\W_]){re.escape(one)}(?![^\W_])", value, re.IGNORECASE)
               for one in names)


def copy_attributes(source, target):
    for name in own_attributes(source):
        old = h5py.h5a.open(source.id, name.encode())
        kind, values = old.get_type().copy(), np.empty(old.shape, old.dtype)
        old.read(values, mtype=kind)
        made = h5py.h5a.create(target.id, name.encode(), kind, old.get_space())
        made.write(values, mtype=kind)


def untimed(kind):
    """A property list of what carries no time: the same copy again has the same bytes."""
    made = h5py.h5p.create(kind)
    made.set_obj_track_times(False)
    return made


def new_file(made):
    """A file whose bytes go into `made`, in the format of the writer (HDF5 1.8)."""
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_V18, h5py.h5f.LIBVER_V18)
    access.set_fileobj_driver(h5py.h5fd.fileobj_driver, made)
    return h5py.File(h5py.h5f.create(b"copy", h5py.h5f.ACC_TRUNC, untimed(h5py.h5p.FILE_CREATE),
                                     access))


def storage_like(node):
    """A property list of our own with a dataset's chunks and filters. Its own list could also say
    that values lie in another file."""
    old, made = node.id.get_create_plist(), untimed(h5py.h5p.DATASET_CREATE)
    if node.chunks is None:
        return made
    made.set_chunk(node.chunks)
    made.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    for index in range(old.get_nfilters()):
        which, _, words, _ = old.get_filter(index)
        if which == h5py.h5z.FILTER_SHUFFLE:
            made.set_shuffle()
        elif which == h5py.h5z.FILTER_DEFLATE:
            made.set_deflate(words[0])
        elif which == h5py.h5z.FILTER_FLETCHER32:
            made.set_fletcher32()
    return made


def copy_objects(source, target):
    """All objects of a group into a new one, with their types and storage; scales are attached
    afterwards, since they refer to each other."""
    copy_attributes(source, target)
    for name, node in source.items():
        if isinstance(node, h5py.Group):
            copy_objects(node, h5py.Group(h5py.h5g.create(target.id, name.encode(),
                                                          gcpl=untimed(h5py.h5p.GROUP_CREATE))))
            continue
        kind = node.id.get_type().copy()
        made = h5py.Dataset(h5py.h5d.create(target.id, name.encode(), kind, node.id.get_space(),
                                            storage_like(node)))
        if node.size:
            values = np.empty(node.shape, node.dtype)
            node.id.read(h5py.h5s.ALL, h5py.h5s.ALL, values, mtype=kind)
            made.id.write(h5py.h5s.ALL, h5py.h5s.ALL, values, mtype=kind)
        copy_attributes(node, made)
    for name, node in source.items():
        if isinstance(node, h5py.Dataset) and kind_of(node) == "scale":
            target[name].make_scale(text(node.attrs.get("NAME", name)))
    for name, node in source.items():
        if isinstance(node, h5py.Dataset):
            for axis, dimension in enumerate(node.dims):
                for scale in dimension.values():
                    target[name].dims[axis].attach_scale(target[scale.name.rpartition("/")[2]])


def texts(file):
    """Every text of a file, with where it stands; names of attributes and columns too."""
    found = []

    def add(where, values):
        if values.dtype.kind in "SUO":
            found.extend((where, text(one)) for one in values.reshape(-1))

    def visit(name, node):
        for key in own_attributes(node):
            found.append((f"{name}@", key))
            add(f"{name}@{key}", np.asarray(node.attrs[key]))
        if not isinstance(node, h5py.Dataset):
            return
        values = node[()]
        for column in node.dtype.names or ():
            found.append((f"{name}.", column))
            add(f"{name}.{column}", values[column])
        if not node.dtype.names:
            add(name, np.asarray(values))

    visit("/", file)
    file.visititems(visit)
    return found


def cleared(source):
    """The bytes of a set for publication."""
    problems = check(Result(source), schema_rows())
    if problems:
        raise Refused(f"{source}: does not conform: {problems[0]}")
    made = io.BytesIO()
    with h5py.File(io.BytesIO(pathlib.Path(source).read_bytes()), "r+") as old, \
            new_file(made) as new:
        names, words = clear(old)
        copy_objects(old, new)
        left = [(where, path.group(0)) for where, value in texts(new)
                if (path := MACHINE_PATH.search(value))]
        named = [where for where, value in texts(new)
                 if (not OUR_TEXTS.match(where) and holds(value, names))
                 or (WRITTEN_BY_LAUNCHERS.match(where) and holds(value, words))]
    if left:
        raise Refused(f"{source}: {left[0][0]} holds a path of the machine: {left[0][1]}")
    if named:
        raise Refused(f"{source}: {named[0]} names the machine")
    content = made.getvalue()
    if len(content) > LARGEST_BYTES:
        raise Refused(f"{source}: {len(content)} bytes are more than {LARGEST_BYTES}")
    return content


def is_set(path):
    """Whether a file is a result set."""
    try:
        return bool(Result(path, unfinished_too=True))
    except Refused:
        return False


def publish(source, folder):
    """Writes the cleared copy under its final name at once; an older set there is kept aside."""
    require_free(folder / pathlib.Path(source).name, is_set)
    try:
        content = cleared(source)
    except (*LACKS, OSError, RuntimeError) as error:
        raise Refused(f"{source}: cannot be cleared: {error}") from None
    write(folder / pathlib.Path(source).name, content, is_set)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", nargs="+", metavar="result.h5")
    parser.add_argument("--to", type=pathlib.Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    try:
        options.to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"--to {options.to}: {error.strerror}") from None
    for path in options.results:
        publish(path, options.to)
        print(f"{options.to / pathlib.Path(path).name}: {Result(path, True).verdict}")
    return 0
