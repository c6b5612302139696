"""Files that tools write: whole or not there, and never in place of somebody else's
(results/README.md, "Whose files")."""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import zlib

from stowage_results.plain_files import Refused, require_plain

MADE = "made by Stowage results/tools"  # stands in pages and plots, so that they are known again


def made_by_tools(path):
    """Whether a page or a plot is one of ours."""
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):  # svgz: who made it stands in its first lines
        try:
            content = zlib.decompressobj(wbits=31).decompress(content, 1 << 16)
        except zlib.error:
            return False
    return MADE.encode() in content


def is_timings(path):
    """Whether a file holds JSON lines of a peer that a script of ours timed."""
    try:
        with open(path, encoding="utf-8") as file:
            row = json.loads(file.readline(1 << 20))
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and bool({"shape", "deck"} & row.keys()) \
        and bool({"time_s", "ours_by_theirs"} & row.keys())


def require_free(path, ours):
    """Refuses a path where something is that is not `ours(path)`. Tools ask before they work."""
    path = pathlib.Path(path)
    try:
        if not path.parent.is_dir():
            raise Refused(f"{path}: cannot be written: there is no folder {path.parent}")
        if not os.path.lexists(path):
            return
        if not path.exists():
            raise Refused(f"{path}: cannot be written: it is a link that leads nowhere")
        require_plain(path, path.stat().st_mode)
        if path.stat().st_size > 0 and not ours(path):
            raise Refused(f"{path}: exists and is no older file of this kind; move it away, or "
                          "name another file")
    except OSError as error:
        raise Refused(f"{path}: cannot be written: {error.strerror}") from None
    except ValueError as error:  # a null byte
        raise Refused(f"{str(path)!r}: no name of a file: {error}") from None


def keep_older(path):
    """Renames what is at `path` as the programs do: run.h5 is kept as run.older_1.h5."""
    number = 1
    while os.path.lexists(path.with_name(f"{path.stem}.older_{number}{path.suffix}")):
        number += 1
    older = path.with_name(f"{path.stem}.older_{number}{path.suffix}")
    os.rename(path, older)
    print(f"# {path} was there: it is kept as {older.name}", file=sys.stderr)


def timings(path):
    """The path that a script's --out names, for argparse: refused before anything is timed."""
    try:
        require_free(path, is_timings)
    except Refused as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    return pathlib.Path(path)


def opened(path):
    """A new file for lines of timings, which stand there as they come; an older one is kept."""
    require_free(path, is_timings)
    if os.path.lexists(path):
        if path.stat().st_size > 0:
            keep_older(path)
        else:
            os.unlink(path)
    return open(path, "x", encoding="utf-8")


def written_beside(path, content):
    """A new file beside `path` with these bytes; nobody can have put a link under its name."""
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=".stowage.", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(descriptor, 0o666 & ~mask)
    except BaseException:
        os.unlink(part)
        raise
    return part


def write(path, content, ours, keep=True):
    """Writes a whole file at once.

    @param ours  tells of an existing file whether it is an older one of this kind; others are
                 refused
    @param keep  whether an older one is kept beside the new one; a page's parts are not, since the
                 sets make them again
    """
    path = pathlib.Path(path)
    require_free(path, ours)
    try:
        there = os.path.lexists(path)
        if there and not path.is_symlink() and path.read_bytes() == content:
            return
        part = written_beside(path, content)
        try:
            if there and keep and path.stat().st_size > 0:
                keep_older(path)
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise
    except OSError as error:
        raise Refused(f"{path}: cannot be written: {error.strerror}") from None
