#!/usr/bin/python3
"""Copies result sets for publication, without what names the machine that they ran on.

Host names, the scheduler's names, the GPUs' serial identities, a kernel's build name and what the
MPI launcher left in the environment are cleared; no measured value, no setting that can change one
and no verdict is touched. A set in which a path of the machine is left is refused.

Exit codes: 0, 2 for a file that is not ours, or one that may not be published as it is.
"""

import argparse
import pathlib
import re
import shutil

import h5py
import numpy as np

from result_files import Refused, Result, run, text

LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "PRTE_")
CLEARED_RUN = ("cwd", "nodelist", "slurm_job_id")
CLEARED_RANK = ("gpu_uuid",)
MACHINE_PATH = re.compile(r"(?<![\w.<])/[\w.+-]+/[\w.+/-]*")
LARGEST_BYTES = 2 << 20


def bytes_of(value):
    """As the writer stores text: of fixed length, one byte at least."""
    return np.bytes_(value.encode() or b"\0")


def rename_hosts(file):
    """The hosts' names by their order, in the table of ranks; the names that they had."""
    path = "provenance/system/ranks"
    table = file[path][()]
    names = list(dict.fromkeys(text(host) for host in table["host"]))
    short = {name: f"h{index}" for index, name in enumerate(names)}
    columns = {name: table[name] for name in table.dtype.names}
    columns["host"] = np.array([short[text(host)].encode() for host in table["host"]])
    columns["kernel"] = np.array([text(kernel).split("-")[0].encode()
                                  for kernel in table["kernel"]])
    for name in CLEARED_RANK:
        columns[name] = np.array([b""] * len(table), dtype="S1")
    made = np.empty(len(table), dtype=[(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        made[name] = column
    del file[path]
    file.create_dataset(path, data=made)
    return short


def clear(file):
    short = rename_hosts(file)
    started = file["provenance/run"].attrs
    for name in CLEARED_RUN:
        started[name] = bytes_of("")
    environment = file["provenance/env"].attrs
    for name in [name for name in environment if name.startswith(LAUNCHERS)]:
        del environment[name]
    path = "provenance/system/differences"
    lines = [text(line) for line in file[path][()]]
    for old, new in short.items():
        lines = [line.replace(f"host {old}", f"host {new}") for line in lines]
    if lines:
        del file[path]
        file.create_dataset(path, data=np.array([line.encode() for line in lines]))


def texts(file):
    """Every text of a file, with where it stands."""
    found = []

    def visit(name, node):
        for key, value in node.attrs.items():
            if isinstance(value, (bytes, str)):
                found.append((f"{name}@{key}", text(value)))
        if not isinstance(node, h5py.Dataset):
            return
        values = node[()]
        if node.dtype.names:
            for column in node.dtype.names:
                if node.dtype[column].kind == "S":
                    found.extend((f"{name}.{column}", text(one)) for one in values[column])
        elif node.dtype.kind in "SO":
            found.extend((name, text(one)) for one in np.atleast_1d(values))

    visit("/", file)
    file.visititems(visit)
    return found


def publish(source, folder):
    Result(source).file.close()  # ours, whole and finished, or refused
    target = folder / pathlib.Path(source).name
    shutil.copyfile(source, target)
    with h5py.File(target, "r+") as file:
        clear(file)
        left = [(where, words.group(0)) for where, value in texts(file)
                if (words := MACHINE_PATH.search(value))]
    if left or target.stat().st_size > LARGEST_BYTES:
        size = target.stat().st_size
        target.unlink()
        if left:
            raise Refused(f"{source}: {left[0][0]} holds a path of the machine: {left[0][1]}")
        raise Refused(f"{source}: {size} bytes are more than {LARGEST_BYTES}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", metavar="result.h5")
    parser.add_argument("--to", type=pathlib.Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    for path in options.results:
        publish(path, options.to)
    return 0


if __name__ == "__main__":
    run(main)
