"""Which tests can notice a change of a C++ source, in the order of trying them. Runs nothing."""

import collections
import dataclasses
import pathlib
import re
import subprocess

OTHERS = re.compile(r"^(docs|install|lint|scripts)\.")  # others try the same, nearer
FAR = 4
# To build a program that has code of the source, one that has none, one that is not built yet.
BUILD_S = {True: 0.5, False: 0, None: 15}
UNMEASURED_S = {"slow": 30, "process": 10, "ranks": 3}


@dataclasses.dataclass(frozen=True)
class Test:
    """A test of ctest, and the targets that it runs."""
    name: str
    labels: frozenset[str]
    programs: tuple[str, ...]
    run_s: float = 0
    build_s: tuple[float, ...] = ()  # to link each program

    def time_s(self, done=()):
        """What it takes once the programs in `done` are built."""
        return self.run_s + sum(build_s for program, build_s in zip(self.programs, self.build_s)
                                if program not in done)


def module(path):
    return pathlib.PurePath(path).with_suffix("").as_posix()


def declared_by(graph, path):
    """Modules whose headers declare what the source defines: its own, or those beside it."""
    own, beside = module(path), pathlib.PurePath(path).parent
    headers = [header for header, users in graph.items() if path in users]
    if any(module(header) == own for header in headers):
        return {own}
    return {own, *(module(header) for header in headers
                   if pathlib.PurePath(header).parent == beside)}


def distances(graph, path):
    """{module: how many includes it is from the source}; a module is a header and its source."""
    users = collections.defaultdict(set)
    for header, sources in graph.items():
        users[module(header)] |= {module(source) for source in sources}
    found = dict.fromkeys(declared_by(graph, path), 0)
    waiting = collections.deque(found)
    while waiting:
        name = waiting.popleft()
        for user in users[name] - set(found):
            found[user] = found[name] + 1
            waiting.append(user)
    return found


def strong_symbols(object_file):
    """What an object defines and no other does: a program that has it can run its code."""
    listed = subprocess.run(["nm", "--defined-only", "--extern-only", object_file],
                            capture_output=True, text=True, check=True).stdout
    return [line.split()[2].encode() for line in listed.splitlines()
            if len(line.split()) == 3 and line.split()[1] in "TDBR"]


def links(program, symbols):
    """Whether a program has code of the object; None if it is not built."""
    if not program.is_file():
        return None
    text = program.read_bytes()
    return not symbols or any(symbol in text for symbol in symbols)


def in_order(path, tests, sources, graph, measured, linked):
    """The tests that can notice, with their times, those first that find the most for their time.

    sources: {program: its sources}; measured: {test: seconds}; linked(program): whether it has code
    of the source, None if it is not built. A test that is one include further away is tried as one
    that takes thrice as long.
    """
    away, folder = distances(graph, path), pathlib.PurePath(path).parts[0]
    away |= {f"ctest/{folder}/{pathlib.PurePath(path).stem}_test": 0}
    if path.endswith("_section.cpp"):  # rows of deck keys
        away["ctest/inputs/deck_test"] = 1

    def step(test):
        least = min((away.get(module(source), FAR) for program in test.programs
                     for source in sources.get(program, ())), default=FAR)
        return min(FAR, least + (test.name.split(".")[0] != folder))

    known, chosen = {}, []
    for test in tests:
        if OTHERS.match(test.name) or test.labels & {"gpu", "slurm", "fuzz", "interop", "lint"}:
            continue
        known |= {program: linked(program) for program in test.programs if program not in known}
        if any(known[program] is not False for program in test.programs):
            run_s = measured.get(test.name, max(
                (UNMEASURED_S[label] for label in test.labels & set(UNMEASURED_S)), default=0.5))
            # All are built: one without the source may still have the mutant before.
            chosen.append(Test(test.name, test.labels, test.programs, run_s, tuple(
                BUILD_S[known[program]] for program in test.programs)))
    return sorted(chosen, key=lambda test: (test.time_s() * 3 ** step(test), test.name))


def batches(tests, limit_s, batch_s=8, batch_size=8):
    """Groups of tests to run together, small ones first; those beyond the limit are left out."""
    groups, total_s, group_s, done = [], 0, 0, set()
    for test in tests:
        time_s = test.time_s(done)
        if total_s + time_s > limit_s:
            continue
        size = min(batch_size, 2 ** (len(groups) - 1)) if groups else 0
        if size == 0 or group_s + time_s > batch_s or len(groups[-1]) >= size:
            groups.append([])
            group_s = 0
        groups[-1].append(test)
        group_s += time_s
        total_s += time_s
        done |= set(test.programs)
    return groups
