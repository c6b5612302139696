"""What attention of packed documents takes beside what its documents take among equal ones.

LENGTHS.h5 is of stowage_bench_kernels: attention_forward and attention_backward of equal documents,
a length a shape, about as many tokens in each. Kernels work on blocks of 64 rows: a document is
predicted to take what one of as many blocks does, between measured lengths by the straight line.

MEASURED.h5 is of stowage_bench_kernels, attention_packed_* on the documents of --lengths; or of
stowage_train --time-ops on packed documents, beside --equal, the same deck with documents of T
tokens, whose ops give the rate of such a step. The documents of the timed steps, the last ones of
the run, stand in --documents, as stowage_data documents prints them.
"""

import argparse
import pathlib
import re
import tomllib

from stowage_results import needs  # noqa: F401
import numpy as np

from stowage_results.plain_files import Refused, parse_json, read_text
from stowage_results.result_files import Result

LENGTHS = pathlib.Path(__file__).resolve().parents[4] / "inputs/lengths/packed_65536.toml"
BLOCK_ROWS = 64
SIZES = re.compile(r"([A-Za-z_]+?)(\d+)(?:_|$)")
PLAIN = {"causal": 1, "large": 0, "room_mib": 0, "way": 0}  # what a shape may say besides
OPS = {"forward": "attn/core", "backward": "attn/core_backward"}


def shapes(result, operator):
    """[({name: size}, median seconds)] of an operator's causal shapes, as this suite runs it."""
    found = []
    for name in result.datasets(f"samples/kernels/{operator}"):
        shape, _, implementation = name.rpartition("/")
        sizes = {key: int(size) for key, size in SIZES.findall(shape)}
        plain = all(sizes.get(key, value) == value for key, value in PLAIN.items())
        if implementation == "ours" and plain:
            found.append((sizes, float(np.median(
                result.array(f"samples/kernels/{operator}/{name}")))))
    return found


def whole_lengths(documents):
    """Whether these are lengths of documents."""
    return isinstance(documents, list) and documents and all(
        type(length) is int and length > 0 for length in documents)


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
        if len(set(self.lengths)) < len(found):
            raise Refused(f"{result.path}: has a length twice for attention_{direction}")

    def of(self, documents):
        blocks = [-(-length // BLOCK_ROWS) * BLOCK_ROWS for length in documents]
        if min(blocks) < self.lengths[0] or max(blocks) > self.lengths[-1]:
            raise Refused(f"documents have {min(documents)} to {max(documents)} tokens, equal ones "
                          f"{self.lengths[0]} to {self.lengths[-1]}")
        return float(np.interp(blocks, self.lengths, self.seconds).sum())


def kernels(lengths, measured, documents):
    """(direction, measured seconds, predicted) of attention_packed_*."""
    for direction in OPS:
        for sizes, time in shapes(measured, f"attention_packed_{direction}"):
            heads = tuple(sizes[letter] for letter in "HKP")
            yield direction, time, Needs(lengths, direction, heads).of(documents)


def read_steps(path):
    """{step: lengths of all documents}, of what `stowage_data documents` prints."""
    steps = {}
    try:
        for line in read_text(path).splitlines():
            row = parse_json(path, line)
            if not whole_lengths(row["lengths"]):
                raise ValueError(f"lengths {row['lengths']}")
            steps.setdefault(row["step"], []).extend(row["lengths"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refused(f"{path}: not lines of stowage_data documents ({error})") from None
    return steps


def read_lengths(path):
    """The documents of a file of lengths, as decks include it."""
    try:
        documents = tomllib.loads(read_text(path))["data"]["synthetic_lengths"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refused(f"{path}: no file with data.synthetic_lengths ({error})") from None
    if not whole_lengths(documents):
        raise Refused(f"{path}: data.synthetic_lengths holds no lengths")
    return documents


def are_its_sequences(equal):
    """Whether a set's documents are its sequences: synthetic ones without lengths of their own."""
    keys = equal.config()
    return (str(keys.get("data.source")) == "synthetic"
            and str(keys.get("data.synthetic_lengths", "[]")) == "[]"
            and int(keys.get("data.synthetic_document_length", 0)) == 0)


def steps(lengths, measured, equal, documents):
    """(direction, measured seconds, predicted) of the medians over the timed steps."""
    heads = tuple(int(measured.key(f"model.{name}")) for name in
                  ("num_attention_heads", "num_query_groups", "head_dim"))
    length, number = (int(equal.key(f"train.{name}")) for name in
                      ("seq_length", "global_batch_size"))
    if not are_its_sequences(equal):
        raise Refused(f"{equal.path}: its documents are not of train.seq_length = {length} tokens")
    last = int(measured.key("run.steps"))
    for direction, op in OPS.items():
        times, whole = (result.array(f"samples/ops/{op}") for result in (measured, equal))
        if times is None or whole is None:
            raise Refused(f"no timed op {op}: stowage_train --time-ops stores it")
        timed = range(last - len(times) + 1, last + 1)
        if sorted(documents) != list(timed):
            raise Refused(f"timed are steps {timed[0]} to {timed[-1]}, documents are of "
                          f"{sorted(documents)}")
        needs = Needs(lengths, direction, heads)
        rate = np.median(whole) / needs.of([length] * number)
        yield (direction, float(np.median(times)),
               float(rate * np.median([needs.of(step) for step in documents.values()])))


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
        rows = kernels(lengths, measured, read_lengths(options.lengths))
    rows = list(rows)
    if not rows:
        raise Refused(f"{options.measured}: has no attention_packed_forward or _backward")
    both = ("both", *(sum(row[i] for row in rows) for i in (1, 2)))
    for direction, time, predicted in [*rows, both]:
        print(f"{direction:<9} {time * 1e6:10.1f} us, predicted {predicted * 1e6:10.1f}, "
              f"{time / predicted:.3f} of it")
    return 0
