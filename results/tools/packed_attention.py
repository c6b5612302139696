#!/usr/bin/python3
"""What attention of packed documents takes beside what its documents take among equal ones.

LENGTHS.h5 is of stowage_bench_kernels: attention_forward and attention_backward of equal documents,
a length a shape, as many tokens in each. Kernels work on blocks of 64 rows: a document is taken to
need what one of as many blocks does, between measured lengths by the straight line.

MEASURED.h5 is of stowage_bench_kernels, attention_packed_* on the documents of --lengths; or of
stowage_train --time-ops on packed documents, which --documents names step by step, beside --equal,
the same deck with documents of T tokens, whose ops give the rate of that step.
"""

import argparse
import json
import pathlib
import re
import tomllib

import numpy as np

from result_files import Refused, Result, run

LENGTHS = pathlib.Path(__file__).resolve().parents[2] / "inputs/lengths/packed_65536.toml"
BLOCK_ROWS = 64
SIZES = re.compile(r"([BTHKP])(\d+)(?:_|$)")
OPS = {"forward": "attn/core", "backward": "attn/core_backward"}


def shapes(result, operator):
    """[({letter: size}, median seconds)] of an operator, as this suite runs it."""
    names = {name.split("/")[0] for name in result.datasets(f"samples/kernels/{operator}")
             if name.endswith("/ours")}
    return [({letter: int(size) for letter, size in SIZES.findall(name)},
             float(np.median(result.array(f"samples/kernels/{operator}/{name}/ours"))))
            for name in sorted(names)]


class Needs:
    """Seconds that documents need, by their blocks."""

    def __init__(self, result, direction, heads):
        found = sorted((sizes["T"], time / sizes["B"])
                       for sizes, time in shapes(result, f"attention_{direction}")
                       if tuple(sizes[letter] for letter in "HKP") == heads)
        if not found:
            raise Refused("{}: has no attention_{} of {}/{} heads of {}".format(
                result.path, direction, *heads))
        self.lengths, self.seconds = zip(*found)

    def of(self, documents):
        blocks = [-(-length // BLOCK_ROWS) * BLOCK_ROWS for length in documents]
        if max(blocks) > self.lengths[-1]:
            raise Refused(f"a document has {max(documents)} tokens, the longest equal ones "
                          f"{self.lengths[-1]}")
        return float(np.interp(blocks, self.lengths, self.seconds).sum())


def kernels(lengths, measured, documents):
    """(direction, measured seconds, predicted) of attention_packed_*."""
    for direction in OPS:
        for sizes, time in shapes(measured, f"attention_packed_{direction}"):
            heads = tuple(sizes[letter] for letter in "HKP")
            yield direction, time, Needs(lengths, direction, heads).of(documents)


def read_steps(path):
    """[lengths of all documents] step by step, of what `stowage_data documents` prints."""
    steps = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            steps.setdefault(row["step"], []).extend(row["lengths"])
    except (OSError, ValueError, KeyError) as error:
        raise Refused(f"{path}: not lines of stowage_data documents ({error})") from None
    return [steps[step] for step in sorted(steps)]


def steps(lengths, measured, equal, documents):
    """(direction, measured seconds, predicted) of the medians over the timed steps."""
    heads = tuple(int(measured.key(f"model.{name}")) for name in
                  ("num_attention_heads", "num_query_groups", "head_dim"))
    length = int(equal.key("train.seq_length"))
    for direction, op in OPS.items():
        times, whole = (result.array(f"samples/ops/{op}") for result in (measured, equal))
        if times is None or whole is None:
            raise Refused(f"no timed op {op}: stowage_train --time-ops stores it")
        if len(times) != len(documents):
            raise Refused(f"{len(times)} timed steps, documents of {len(documents)}")
        needs = Needs(lengths, direction, heads)
        rate = np.median(whole) / needs.of([length] * (sum(documents[0]) // length))
        yield (direction, float(np.median(times)),
               float(rate * np.median([needs.of(step) for step in documents])))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("equal_documents", metavar="LENGTHS.h5")
    parser.add_argument("measured", metavar="MEASURED.h5")
    parser.add_argument("--lengths", type=pathlib.Path, default=LENGTHS)
    parser.add_argument("--equal", metavar="EQUAL.h5")
    parser.add_argument("--documents", type=pathlib.Path, metavar="LINES.jsonl")
    options = parser.parse_args()
    if bool(options.equal) != bool(options.documents):
        parser.error("--equal and --documents go together")
    lengths, measured = Result(options.equal_documents), Result(options.measured)
    if options.equal:
        rows = steps(lengths, measured, Result(options.equal), read_steps(options.documents))
    else:
        text = options.lengths.read_text(encoding="utf-8")
        rows = kernels(lengths, measured, tomllib.loads(text)["data"]["synthetic_lengths"])
    rows = list(rows)
    if not rows:
        raise Refused(f"{options.measured}: has no attention_packed_forward or _backward")
    both = ("both", *(sum(row[i] for row in rows) for i in (1, 2)))
    for direction, time, predicted in [*rows, both]:
        print(f"{direction:<9} {time * 1e6:10.1f} us, predicted {predicted * 1e6:10.1f}, "
              f"{time / predicted:.3f} of it")
    return 0


if __name__ == "__main__":
    run(main)
