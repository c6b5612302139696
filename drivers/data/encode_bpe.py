#!/usr/bin/env python3
"""Encodes JSON lines with a tokenizer.json, for `stowage_data prepare --tokenizer ids`.

    encode_bpe.py tokenizer.json FILE.jsonl... > ids.jsonl &&
      stowage_data prepare ids.jsonl --tokenizer ids ...

A line has "text", or "prompt" and "response", which are encoded apart, so that no token lies on
both sides of where the mask begins. No special tokens are added: --append-token of `prepare` ends
a document. Truncation and padding that stand in tokenizer.json are not applied; a model with
dropout is refused. Needs the package tokenizers; it encodes on all cores (RAYON_NUM_THREADS says
how many).

Exit codes: 0 all lines encoded, 2 a file or a line is bad, 3 the package tokenizers is missing,
4 the output cannot be written.
"""

import argparse
import itertools
import json
import os
import sys

KINDS = ({"text"}, {"prompt", "response"})
KEYS = ("text", "prompt", "response")
BATCH = 2000  # lines encoded at once


class Refused(Exception):
    """A file or a line cannot be used."""


def parsed(place, line):
    """The value of a line of bytes; a byte order mark may stand before it."""
    try:
        return json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise Refused(f"{place}: not UTF-8, column {error.start + 1}: {error.reason}; a compressed "
                      "file must be unpacked first") from None
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
            with open(path, "rb") as file:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        yield f"{path}:{number}", parsed(f"{path}:{number}", line)
        except OSError as error:
            raise Refused(f"{path}: {error.strerror}") from None


def strings_of(place, value):
    """The keys that are encoded, with their strings."""
    found = [(key, value[key]) for key in KEYS if key in value] if isinstance(value, dict) else []
    if ({key for key, _ in found} not in KINDS
            or not all(isinstance(string, str) for _, string in found)):
        raise Refused(f'{place}: a line has "text", or "prompt" and "response", all strings')
    for key, string in found:
        try:
            string.encode()
        except UnicodeEncodeError as error:
            raise Refused(f'{place}: "{key}" has half a surrogate pair, '
                          f"\\u{ord(string[error.start]):04x}, at character {error.start + 1}"
                          ) from None
    return found


def open_tokenizer(path):
    """The tokenizer of a file, which gives a string the same tokens whatever is beside it."""
    from tokenizers import Tokenizer
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


def encode(tokenizer, lines, out):
    while batch := list(itertools.islice(lines, BATCH)):
        found = [strings_of(place, value) for place, value in batch]
        strings = [string for line in found for _, string in line]
        try:
            ids = iter(ids_of(tokenizer, strings, "a batch"))
        except Refused:  # find the line
            ids = iter([tokens for (place, _), line in zip(batch, found)
                        for tokens in ids_of(tokenizer, [string for _, string in line], place)])
        for line in found:
            json.dump({key: next(ids) for key, _ in line}, out, separators=(",", ":"))
            out.write("\n")
    out.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizer", metavar="tokenizer.json")
    parser.add_argument("inputs", nargs="+", metavar="FILE.jsonl")
    options = parser.parse_args()
    os.environ["RUST_BACKTRACE"] = "0"  # a panic of the library is one line
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        print("encode_bpe.py: the Python package tokenizers is missing: pip install tokenizers",
              file=sys.stderr)
        return 3
    try:
        tokenizer = open_tokenizer(options.tokenizer)
        largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        print(f"# --vocab-size {largest + 1}", file=sys.stderr)
        encode(tokenizer, read_lines(options.inputs), sys.stdout)
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
