"""Opens plain files for reading. What is none, or is larger than any of ours, is refused."""

import json
import os
import stat

LARGEST_TEXT = 256 << 20  # bytes; the JSON lines of a run of 1e6 steps have less
KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"),
         (stat.S_ISBLK, "a device"), (stat.S_ISCHR, "a device"))


class Refused(Exception):
    """A file cannot be used: missing, truncated, not ours, or it may not be written."""


def require_plain(path, mode):
    for is_kind, words in KINDS:
        if is_kind(mode):
            raise Refused(f"{path}: is {words}, not a file")


def open_plain(path):
    """A plain file, open for reading bytes. Nothing else is opened, since opening it can wait or
    have effects."""
    try:
        require_plain(path, os.stat(path).st_mode)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Refused(f"{path}: no such file") from None
    except OSError as error:
        raise Refused(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # a null byte
        raise Refused(f"{str(path)!r}: no name of a file: {error}") from None
    file = os.fdopen(descriptor, "rb")
    try:
        require_plain(path, os.fstat(descriptor).st_mode)
    except Refused:
        file.close()
        raise
    return file


def read_text(path):
    """The text of a plain file."""
    with open_plain(path) as file:
        try:
            content = file.read(LARGEST_TEXT + 1)
        except OSError as error:
            raise Refused(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > LARGEST_TEXT:
        raise Refused(f"{path}: has more than {LARGEST_TEXT >> 20} MiB, no text of ours has")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{path}: is no UTF-8 text: {error.reason} at byte {error.start}") from None


def parse_json(path, words):
    """The value of a JSON text that stands in the file at `path`."""
    try:
        return json.loads(words)
    except ValueError as error:
        raise Refused(f"{path}: is no JSON: {error}") from None
    except RecursionError:
        raise Refused(f"{path}: its JSON nests deeper than any of ours") from None
