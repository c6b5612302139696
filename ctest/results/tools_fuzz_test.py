#!/usr/bin/env python3
"""Random damage to a set, given to the tools that read sets: tools_fuzz_test.py TOOLS PUBLISHED.

Each mutant is read in a child process by validate, compare, publish and table. None of them ends by
a signal, with a traceback, after more than 20 s, with more than 2 GiB or with another code than its
own. Some bytes of a mutant are changed, or its objects are by HDF5 itself, whose checksums then
hold; one with changed bytes that validate accepts has the tables of the good one.

STOWAGE_FUZZ_ROUNDS: how many mutants (15), at most so many as STOWAGE_FUZZ_SECONDS allow;
STOWAGE_TEST_SEED: a number, or `random`."""

import collections
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unittest

if not all(importlib.util.find_spec(name) for name in ("h5py", "matplotlib")):
    print(f"skipped: no h5py or no matplotlib for {sys.executable}")
    sys.exit(77)

import h5py  # noqa: E402
import numpy  # noqa: E402

TOOLS, PUBLISHED = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path.insert(0, str(TOOLS))

from stowage_results.check import compare  # noqa: E402
from stowage_results.publish import publish  # noqa: E402
from stowage_results import result_files  # noqa: E402
from stowage_results.tables import table  # noqa: E402
from stowage_results.check import validate  # noqa: E402

ROUNDS = int(os.environ.get("STOWAGE_FUZZ_ROUNDS", 15))
GIVEN = os.environ.get("STOWAGE_TEST_SEED", "1")
SEED = random.SystemRandom().randrange(1 << 32) if GIVEN == "random" else int(GIVEN)
SECONDS, WAITING = 20, 600  # that a child computes, and that it may take on a busy machine
SECONDS_IN_ALL = float(os.environ.get("STOWAGE_FUZZ_SECONDS", "inf"))
MEMORY, ADDRESSES = 2 << 30, 4 << 30  # bytes that a child takes, and may ask for
SETS = ("train_dense_124m.h5", "ssd.h5", "ceilings.h5")
USES = ((validate, [], (0, 1, 2)), (compare, None, (0, 1, 2)), (publish, ["--to", "out"], (0, 2)),
        (table, [], (0, 2)))  # with the codes that they may end with


def byte_mutant(path, chance):
    """Changes bytes as ctest/support/mutate.hpp does."""
    content = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 4)):
        at, count = chance.randrange(len(content)), chance.randint(1, 16)
        kind = chance.randrange(6)
        if kind == 0:
            content[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            content[at:at + count] = chance.randbytes(count)
        elif kind == 2:
            content[at:at + count] = chance.choice((b"\0", b"\xff")) * count
        elif kind == 3:
            del content[at:at + count]
        elif kind == 4:
            content[at:at] = content[:count]
        else:
            del content[max(at, 1):]
    path.write_bytes(content)


VALUES = (0, -1, 2**63 - 1, 1e308, float("nan"), float("inf"), "", "\x1b[2J", "\ud800", "NaN",
          "x" * 70000, b"\xff\xfe", [1, 2], [b"a", b"b"], h5py.Empty("f8"), True,
          numpy.zeros((2, 0)), numpy.zeros((1, 1, 1)))


def object_mutant(path, chance):
    """Changes what objects are, by HDF5 itself."""
    with h5py.File(path, "r+") as file:
        names = []
        file.visit(names.append)
        for _ in range(chance.randint(1, 3)):
            name, value = chance.choice(names), chance.choice(VALUES)
            node = file.get(name)
            if node is None:
                continue
            kind = chance.randrange(7)
            with contextlib.suppress(ValueError, TypeError, OSError, RuntimeError, KeyError,
                                     OverflowError):
                if kind == 0:
                    del file[name]
                elif kind == 1:
                    del file[name]
                    file[name] = value
                elif kind == 2:
                    del file[name]
                    file.create_group(name)
                elif kind == 3 and node.attrs:
                    del node.attrs[chance.choice(list(node.attrs))]
                elif kind == 4 and node.attrs:
                    node.attrs[chance.choice(list(node.attrs))] = value
                elif kind == 5:
                    node.attrs[chance.choice(("x", "units", "/", "\n"))] = value
                elif isinstance(node, h5py.Dataset) and node.size:
                    node[()] = value


def use(path, good):
    """Gives a mutant to the tools: ({tool: its code}, what is wrong or an empty text, its tables).
    """
    codes, said = {}, io.StringIO()
    for tool, words, allowed in USES:
        said = io.StringIO()
        name = tool.__name__.rpartition(".")[2]
        sys.argv = [name, str(path), *(words if words is not None else [str(good)])]
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                result_files.run(tool.main)
        except SystemExit as end:
            codes[name] = end.code
            if end.code not in allowed:
                return codes, f"{name} ends with {end.code}: {said.getvalue()}", ""
        except BaseException:
            return codes, f"{name}: {traceback.format_exc()}", ""
    return codes, "", said.getvalue()


def in_child(path, good, tables):
    """({tool: code}, what is wrong or an empty text) of a child that uses a mutant. One that
    validate accepts has the numbers of `tables`, unless these are None."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            signal.alarm(WAITING)
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
            codes, wrong, made = use(path, good)
            if not wrong and tables is not None and codes["validate"] == 0 and made != tables:
                wrong = f"accepted with other numbers: {made}"
            os.write(writing, json.dumps([codes, wrong[:10000]]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read().decode()
    _, status, used = os.wait4(child, 0)
    status = os.waitstatus_to_exitcode(status)
    if status != 0 or not said:
        return {}, f"ends by {signal.Signals(-status).name if status < 0 else 'itself'}"
    codes, wrong = json.loads(said)
    if used.ru_maxrss << 10 > MEMORY:
        wrong = wrong or f"takes {used.ru_maxrss >> 10} MiB"
    return codes, wrong


class Fuzz(unittest.TestCase):
    def test_damaged_sets(self):
        chance, counts = random.Random(SEED), collections.Counter()
        self.addCleanup(lambda: print(*(f"{what}: {count}" for what, count in
                                        sorted(counts.items())), sep=", "))
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            tables = {}
            for name in SETS:  # in this process, so that children have imported everything
                shutil.copy(PUBLISHED / name, "mutant.h5")
                codes, wrong, tables[name] = use("mutant.h5", PUBLISHED / name)
                self.assertEqual((set(codes.values()), wrong), ({0}, ""))
                shutil.rmtree("out")
            end = time.monotonic() + SECONDS_IN_ALL
            for number in range(ROUNDS):
                good = PUBLISHED / chance.choice(SETS)
                mutant = pathlib.Path(shutil.copy(good, "mutant.h5"))
                change = chance.choice((byte_mutant, object_mutant))
                change(mutant, chance)
                codes, wrong = in_child(mutant, good,
                                        tables[good.name] if change is byte_mutant else None)
                if wrong and "STOWAGE_FUZZ_KEEP" in os.environ:
                    shutil.copy(mutant, os.environ["STOWAGE_FUZZ_KEEP"])
                self.assertEqual(wrong, "", f"seed {SEED}, round {number}")
                counts["mutants"] += 1
                counts.update(f"{tool} {code}" for tool, code in codes.items())
                shutil.rmtree("out", ignore_errors=True)
                if time.monotonic() > end:
                    break
            os.chdir("/")


if __name__ == "__main__":
    print(f"seed {SEED}, {ROUNDS} mutants")
    unittest.main(argv=sys.argv[:1])
