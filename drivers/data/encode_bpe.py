#!/usr/bin/env python3
"""Encodes JSON lines with a tokenizer.json, for `stowage_data prepare --tokenizer ids`.

    encode_bpe.py tokenizer.json FILE.jsonl... > ids.jsonl &&
      stowage_data prepare ids.jsonl --tokenizer ids ...

A line has "text", or "prompt" and "response", or "turns", texts that are only read and predicted by
turns; they are encoded apart, so that no token lies on both sides of where the mask begins. Chat
lines have "messages": a Jinja chat template makes turns of them (chat_template.py). It is
chat_template.jinja beside tokenizer.json or "chat_template" in tokenizer_config.json, unless
--chat-template names a file. Files may be compressed (gzip, bzip2, xz; zstd with the package
zstandard); - is standard input.

No special tokens are added but those that a template writes: --append-token of `prepare` ends a
document. Truncation and padding that stand in tokenizer.json are not applied; a model with dropout
is refused. Needs the package tokenizers, and jinja2 for chat lines; it encodes on all cores
(RAYON_NUM_THREADS says how many).

Exit codes: 0 all lines encoded, 2 a file or a line is bad, 3 a package is missing, 4 the output
cannot be written.
"""

import argparse
import bz2
import functools
import gzip
import io
import itertools
import json
import lzma
import os
import sys

from chat_template import ChatTemplate, Refused

KINDS = ({"text"}, {"prompt", "response"}, {"turns"})
KEYS = ("text", "prompt", "response", "turns")
BATCH = 2000  # lines encoded at once


class Missing(Exception):
    """A package."""


class Zstd(io.RawIOBase):
    """What frames of zstd hold. The package's own reader takes a cut file for a whole one."""

    def __init__(self, file):
        try:
            import zstandard
        except ImportError:
            raise Missing("zstandard") from None
        self.file, self.package = file, zstandard
        self.frame, self.packed, self.left = None, b"", b""

    def readable(self):
        return True

    def readinto(self, to):
        while not self.left:
            if not self.packed and not (packed := self.file.read(1 << 20)):
                if self.frame:
                    raise EOFError("Compressed file ended before the end of a frame")
                return 0
            self.packed = self.packed or packed
            self.frame = self.frame or self.package.ZstdDecompressor().decompressobj()
            try:
                self.left = self.frame.decompress(self.packed)
            except self.package.ZstdError as error:
                raise OSError(str(error)) from None
            self.packed = self.frame.unused_data if self.frame.eof else b""
            if self.frame.eof:
                self.frame = None
        count = min(len(to), len(self.left))
        to[:count], self.left = self.left[:count], self.left[count:]
        return count


OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open,
           b"\x28\xb5\x2f\xfd": Zstd}


def unpacked(file):
    """A binary file, or what it is compressed from."""
    first = file.peek(8)
    opener = next((opener for magic, opener in OPENERS.items() if first.startswith(magic)), None)
    return io.BufferedReader(opener(file)) if opener else file


def parsed(place, line):
    """The value of a line of bytes; a byte order mark may stand before it."""
    try:
        return json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise Refused(f"{place}: not UTF-8, column {error.start + 1}: {error.reason}") from None
    except json.JSONDecodeError as error:
        raise Refused(f"{place}: not JSON, column {error.colno}: {error.msg}") from None
    except ValueError as error:
        raise Refused(f"{place}: {error}") from None
    except RecursionError:
        raise Refused(f"{place}: lists or objects are nested too deeply") from None


def read_lines(paths):
    """(place, value) of each line that is not blank."""
    for path in paths:
        try:
            with open(0 if path == "-" else path, "rb") as file:
                for number, line in enumerate(unpacked(file), start=1):
                    if line.strip():
                        yield f"{path}:{number}", parsed(f"{path}:{number}", line)
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise Refused(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def require_whole(place, key, string):
    try:
        string.encode()
    except UnicodeEncodeError as error:
        raise Refused(f'{place}: "{key}" has half a surrogate pair, '
                      f"\\u{ord(string[error.start]):04x}, at character {error.start + 1}"
                      ) from None


def strings_of(place, value, chat):
    """The keys that are encoded, with their strings; of turns a list of them."""
    found = {key: value[key] for key in KEYS if key in value} if isinstance(value, dict) else {}
    if not found and isinstance(value, dict) and "messages" in value:
        more = {"tools": value["tools"]} if "tools" in value else {}
        try:
            found = {"turns": chat().turns(value["messages"], more)}
        except Refused as error:
            raise Refused(f"{place}: {error}") from None
    strings = [(key, string) for key, given in found.items()
               for string in (given if key == "turns" and isinstance(given, list) else [given])]
    if (set(found) not in KINDS or not all(isinstance(string, str) for _, string in strings)
            or not isinstance(found.get("turns", []), list)):
        raise Refused(f'{place}: a line has "text", or "prompt" and "response", all strings, or '
                      '"turns", a list of strings, or "messages"')
    for key, string in strings:
        require_whole(place, key, string)
    return found


def open_tokenizer(path):
    """The tokenizer of a file, which gives a string the same tokens whatever is beside it."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise Missing("tokenizers") from None
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # the library throws nothing narrower
        raise Refused(f"{path}: {error}") from None
    dropout = getattr(tokenizer.model, "dropout", None)
    if dropout:
        raise Refused(f"{path}: its model has a dropout of {dropout:.4g}, so each call would give "
                      "other tokens: set it to null")
    if tokenizer.truncation or tokenizer.padding:
        print(f"# truncation and padding of {path} are not applied", file=sys.stderr)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def ids_of(tokenizer, strings, place):
    """The ids of strings; `place` names them in an error."""
    try:
        return [encoded.ids for encoded in
                tokenizer.encode_batch(strings, add_special_tokens=False)]
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library is no Exception
        raise Refused(f"{place}: the tokenizer fails: {error}") from None


def flat(line):
    return [string for given in line.values()
            for string in (given if isinstance(given, list) else [given])]


def encode(tokenizer, lines, out, chat):
    while batch := list(itertools.islice(lines, BATCH)):
        found = [strings_of(place, value, chat) for place, value in batch]
        strings = [string for line in found for string in flat(line)]
        try:
            ids = iter(ids_of(tokenizer, strings, "a batch"))
        except Refused:  # find the line
            ids = iter([tokens for (place, _), line in zip(batch, found)
                        for tokens in ids_of(tokenizer, flat(line), place)])
        for line in found:
            json.dump({key: [next(ids) for _ in given] if isinstance(given, list) else next(ids)
                       for key, given in line.items()}, out, separators=(",", ":"))
            out.write("\n")
    out.flush()


def template_of(options):
    """Opens the chat template when the first line needs it."""
    @functools.cache
    def chat():
        try:
            import jinja2  # noqa: F401
        except ImportError:
            raise Missing("jinja2") from None
        return ChatTemplate(options.tokenizer, options.chat_template)
    return chat


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizer", metavar="tokenizer.json")
    parser.add_argument("inputs", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("--chat-template", metavar="FILE.jinja",
                        help="of lines with messages, instead of the one beside tokenizer.json")
    options = parser.parse_args()
    os.environ["RUST_BACKTRACE"] = "0"  # a panic of the library is one line
    try:
        tokenizer = open_tokenizer(options.tokenizer)
        largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        print(f"# --vocab-size {largest + 1}", file=sys.stderr)
        encode(tokenizer, read_lines(options.inputs), sys.stdout, template_of(options))
    except Missing as error:
        print(f"encode_bpe.py: the Python package {error} is missing: pip install {error}",
              file=sys.stderr)
        return 3
    except Refused as error:
        print(f"encode_bpe.py: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"encode_bpe.py: standard output cannot be written: {error.strerror}",
              file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is buffered is lost
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
