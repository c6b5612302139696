#!/usr/bin/python3
"""Encodes JSON lines with a tokenizer.json, for `stowage_data prepare --tokenizer ids`.

    encode_bpe.py tokenizer.json FILE.jsonl... > ids.jsonl &&
      stowage_data prepare ids.jsonl --tokenizer ids ...

A line has "text", or "prompt" and "response", which are encoded apart, so that no token lies on
both sides of where the mask begins. No special tokens are added: --append-token of `prepare` ends
a document. Needs the package tokenizers; it encodes on all cores (RAYON_NUM_THREADS says how many).

Exit codes: 0 all lines encoded, 2 a file or a line is bad, 3 the package tokenizers is missing.
"""

import argparse
import itertools
import json
import sys

KEYS = ("text", "prompt", "response")
BATCH = 2000  # lines encoded at once


class Refused(Exception):
    """A file or a line cannot be used."""


def read_lines(paths):
    """(place, object) of each line that is not blank."""
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        yield f"{path}:{number}", json.loads(line)
        except (OSError, ValueError) as error:
            raise Refused(f"{path}: {error}") from None


def strings_of(place, value):
    """The keys that are encoded, with their strings."""
    found = [(key, value[key]) for key in KEYS if key in value] if isinstance(value, dict) else []
    if not found or not all(isinstance(string, str) for _, string in found):
        raise Refused(f'{place}: a line has "text", or "prompt" and "response", all strings')
    return found


def encode(tokenizer, lines, out):
    while batch := list(itertools.islice(lines, BATCH)):
        found = [strings_of(place, value) for place, value in batch]
        strings = [string for line in found for _, string in line]
        ids = iter(tokenizer.encode_batch(strings, add_special_tokens=False))
        for line in found:
            json.dump({key: next(ids).ids for key, _ in line}, out, separators=(",", ":"))
            out.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizer", metavar="tokenizer.json")
    parser.add_argument("inputs", nargs="+", metavar="FILE.jsonl")
    options = parser.parse_args()
    try:
        import tokenizers
    except ImportError:
        print("encode_bpe.py: the Python package tokenizers is missing: pip install tokenizers",
              file=sys.stderr)
        return 3
    try:
        try:
            tokenizer = tokenizers.Tokenizer.from_file(options.tokenizer)
        except Exception as error:  # the library throws nothing narrower
            raise Refused(f"{options.tokenizer}: {error}") from None
        print(f"# --vocab-size {tokenizer.get_vocab_size(with_added_tokens=True)}", file=sys.stderr)
        encode(tokenizer, read_lines(options.inputs), sys.stdout)
    except Refused as error:
        print(f"encode_bpe.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
