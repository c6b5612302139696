#!/usr/bin/env python3
"""Checks of the source text: lint.py RULE... [--root FOLDER], lint.py prose PAGE...

Without rules all are checked. Pages after `prose` are checked even where the rule lets them pass.
Prints one line per defect, `path:line: what`, and exits 1 if there is any, 77 if a rule cannot be
checked here (no suitable clang-format, no shellcheck).
"""

import argparse
import itertools
import pathlib
import re
import shutil
import subprocess
import sys

import links as within
import prose as pages

# The levels of the design: a folder includes only lower levels, and no other folder of its level.
LEVELS = {
    "version": 0, "execution": 0, "inputs/deck": 0,
    "kernels": 1, "parallel": 1, "offload": 1, "inputs/data": 1, "inputs/huggingface": 1,
    "layers": 2, "results": 2,
    "forecast": 3,
    "run": 4,
    "drivers": 5,
}
# Folders and rooms that know nothing of others below them: a model is recorded without a word of
# how it will be planned and without MPI, a pipeline is cut without a deck.
KEPT_APART = [("layers", "offload"), ("forecast/pipeline", "inputs"),
              ("forecast/pipeline", "results"), ("layers", "parallel/job")]
# Folders with rooms: a room includes only itself and those before it, what stands beside them all.
ROOMS = {
    "parallel": ["groups", "job", "watch", "transport", "proof"],
    "layers": ["recording", "context", "mixers", "model", "state", "schedule", "step"],
    "forecast": ["rates", "pipeline", "plan", "measured", "layouts"],
    "run": ["measure", "machine", "command", "step", "state", "judge", "checkpoints", "export",
            "record", "generate"],
}
# One type of error for all: the reader of decks throws it too.
ALLOWED = {("inputs/deck", "execution/error.hpp")}
CPP = {".hpp", ".cpp", ".cuh", ".cu"}
TEXT = CPP | {".py", ".sh", ".cmake", ".md", ".toml", ".txt", ".json", ".in", ".cff", ".supp"}
SKIPPED_FOLDERS = {".git", "build", "data", "runs", "install", "__pycache__"}
MAX_LINES = 600
MAX_COLUMNS = 100
CLANG_FORMAT_VERSION = 14  # other versions lay out the same style differently

Defect = tuple[pathlib.Path, int, str]


def files(root, suffixes):
    """Tracked and new files below root; without git, all files outside build folders."""
    listing = subprocess.run(
        ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        capture_output=True, text=True, check=False)
    if listing.returncode == 0 and listing.stdout:
        paths = [root / name for name in listing.stdout.split("\0") if name]
    else:
        paths = [path for path in root.rglob("*")
                 if not SKIPPED_FOLDERS & set(path.relative_to(root).parts)]
    return sorted(path for path in paths if path.is_file()
                  and (path.suffix in suffixes or (".sh" in suffixes and path.suffix == "")))


def numbered_lines(path):
    return enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)


def folder_of(relative):
    """The design's folder of a path from the root: "inputs/deck" before "inputs"."""
    parts = relative.split("/")
    return next((name for name in ("/".join(parts[:2]), parts[0]) if name in LEVELS), None)


def room_of(folder, relative):
    """The place of a file among the rooms of its folder; files beside the rooms come last."""
    rooms = ROOMS.get(folder, [])
    name = relative.removeprefix(f"{folder}/").split("/")[0]
    return rooms.index(name) if name in rooms else len(rooms)


def kept_apart(relative, target):
    return next((pair for pair in KEPT_APART
                 if relative.startswith(f"{pair[0]}/") and target.startswith(f"{pair[1]}/")), None)


def include_direction(root):
    include = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
    for path in files(root, CPP):
        here = folder_of(str(path.relative_to(root)))
        in_suite = path.relative_to(root).parts[0] == "ctest"
        for number, line in numbered_lines(path):
            if not (match := include.match(line)):
                continue
            target = match.group(1)
            there = folder_of(target)
            if target.startswith("../") or "/../" in target:
                yield path, number, f'include "{target}": write it from the root of the tree'
            elif there is None and not in_suite:
                if here is not None:
                    yield path, number, f'include "{target}": not a folder of the design'
            elif here is None or there is None or (here, target) in ALLOWED:
                continue
            elif here == there:
                if room_of(here, target) > room_of(here, str(path.relative_to(root))):
                    rooms = ", ".join(ROOMS[here])
                    yield (path, number, f'include "{target}": a room of {here}/ includes only '
                           f'itself and those before it: {rooms}')
            elif apart := kept_apart(str(path.relative_to(root)), target):
                yield path, number, f'include "{target}": {apart[0]} knows nothing of {apart[1]}'
            elif LEVELS[there] >= LEVELS[here]:
                yield (path, number, f'include "{target}": {here} is level {LEVELS[here]} and may '
                       f'include only lower levels, {there} is level {LEVELS[there]}')


def file_length(root):
    for path in files(root, CPP | {".py", ".sh", ".cmake"}):
        count = sum(1 for _ in numbered_lines(path))
        if count > MAX_LINES:
            yield path, count, f"{count} lines, {MAX_LINES} at most: split it by concept"


def line_length(root):
    for path in files(root, CPP | {".py", ".sh"}):
        for number, line in numbered_lines(path):
            if len(line) > MAX_COLUMNS:
                yield path, number, f"{len(line)} columns, {MAX_COLUMNS} at most"


def formatting(root):
    tool = find_clang_format()
    if tool is None:
        print(f"skipped: no clang-format {CLANG_FORMAT_VERSION}")
        sys.exit(77)
    sources = [str(path) for path in files(root, CPP)]
    if not sources:
        return
    result = subprocess.run([tool, "--dry-run", "--style=file", *sources],
                            capture_output=True, text=True, check=False)
    seen = set()
    for line in result.stderr.splitlines():
        match = re.match(r"(.+?):(\d+):\d+: .*\[-Wclang-format-violations\]", line)
        if match and match.group(1) not in seen:
            seen.add(match.group(1))
            yield pathlib.Path(match.group(1)), int(match.group(2)), "not as clang-format writes it"


def shell(root):
    """Scripts are as shellcheck wants them, with what they source; hints (info) are left out."""
    if shutil.which("shellcheck") is None:
        print("skipped: no shellcheck")
        sys.exit(77)
    scripts = [path for path in files(root, {".sh", ".sbatch"}) if is_script(path)]
    if not scripts:
        return
    result = subprocess.run(["shellcheck", "-x", "-a", "--severity=warning", "--format=gcc",
                             "--source-path=SCRIPTDIR", *scripts],
                            capture_output=True, text=True, check=False, cwd=root)
    for line in result.stdout.splitlines():
        match = re.match(r"(.+?):(\d+):\d+: (.*)", line)
        path = (root / match.group(1)).resolve() if match else None
        if path is not None and path.is_relative_to(root):  # not what the system has
            yield path, int(match.group(2)), match.group(3)


def is_script(path):
    with path.open("rb") as file:
        return re.match(rb"#!.*\b(ba)?sh\b", file.readline()) is not None


def find_clang_format():
    for name in (f"clang-format-{CLANG_FORMAT_VERSION}", "clang-format"):
        if shutil.which(name):
            version = subprocess.check_output([name, "--version"], text=True)
            if re.search(rf"version {CLANG_FORMAT_VERSION}\.", version):
                return name
    return None


def readme(root):
    """Every folder of the design that has files explains itself."""
    tops = list(LEVELS) + ["inputs", "ctest", "scripts", "docs", "cmake"]
    tops += [f"{folder}/{room}" for folder, rooms in ROOMS.items() for room in rooms]
    for name in tops:
        folder = root / name
        if name != "version" and folder.is_dir() and any(folder.iterdir()):
            if not (folder / "README.md").is_file():
                yield folder, 0, "no README.md"


def notes(root):
    """A note for later names the issue in which it is done: "TODO(#12): ...". What to try next
    stands in the README.md or NOTES.md of a folder, not in its sources."""
    note = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))")
    plan = re.compile(r"//.*\bNext:")
    for path in files(root, TEXT):
        if path.relative_to(root).parts[:2] == ("ctest", "lint"):
            continue
        for number, line in numbered_lines(path):
            if match := note.search(line):
                yield path, number, f"{match.group(1)} without an issue; write TODO(#N)"
            if plan.search(line):
                yield path, number, "says what to try next: a matter for README.md or NOTES.md"


def paths(root):
    """Nothing names a place that exists on one machine only."""
    place = re.compile(r"(?<![\w.$}])/(work|home/\w+|root|Users/\w+|mnt/\w+|scratch)/")
    for path in files(root, TEXT):
        if path.relative_to(root).parts[:2] == ("ctest", "lint"):
            continue
        for number, line in numbered_lines(path):
            if match := place.search(line):
                yield path, number, f"names a path of one machine: {match.group(0)}"


CALL = re.compile(r"stowage_test\(NAME ([\w.${}]+)([^()]*)\)")
LOOP = re.compile(r"foreach\((\w+) IN ITEMS ([^)]*)\)")


def gpu_programs(path):
    """(line, name) of the test programs with the label gpu that a list of tests makes."""
    text = path.read_text(encoding="utf-8")
    for call in CALL.finditer(text):
        if not re.search(r"\bLABELS\b[^A-Z]*\bgpu\b", call[2]):
            continue
        names, line = [call[1]], text.count("\n", 0, call.start()) + 1
        for loop in LOOP.finditer(text, 0, call.start()):
            variable = "${" + loop[1] + "}"
            if variable in call[1] and "endforeach" not in text[loop.end():call.start()]:
                names = [call[1].replace(variable, item) for item in loop[2].split()]
        for name in names:
            yield line, "test_" + name.replace(".", "_")


def gpu_tests(root):
    """ctest/README.md lists the programs that only a GPU tests, all of them and no others."""
    listing = root / "ctest" / "README.md"
    listed = {}
    if listing.is_file():
        listed = {name: number for number, line in numbered_lines(listing)
                  for name in re.findall(r"`(test_\w+)`", line)}
    made = set()
    for path in files(root, {".txt", ".cmake"}):
        if path.relative_to(root).parts[0] != "ctest":
            continue
        for line, name in gpu_programs(path):
            made.add(name)
            if name not in listed:
                yield path, line, f"{name} is not in ctest/README.md, which lists what GPUs test"
    for name in sorted(listed.keys() - made):
        yield listing, listed[name], f"{name} is no test program with the label gpu"


def prose(root):
    """Pages read as CONTRIBUTING.md asks: short lines, short paragraphs, figures in tables."""
    for path in files(root, {".md"}):
        if pages.is_gated(str(path.relative_to(root))):
            yield from prose_of(path)


def prose_of(path):
    for number, what in pages.defects_of(path.read_text(encoding="utf-8")):
        yield path, number, what


def links(root):
    """Links between pages, and from pages to files of the tree, lead somewhere."""
    for path in files(root, {".md"}):
        for number, what in within.defects_of(path):
            yield path, number, what


RULES = {rule.__name__: rule for rule in
         (include_direction, file_length, line_length, formatting, shell, readme, notes, paths,
          gpu_tests, prose, links)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rules", nargs="*", metavar="RULE", help=", ".join(RULES))
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    if arguments.rules[:1] == ["prose"] and len(arguments.rules) > 1:
        named = [pathlib.Path(name).resolve() for name in arguments.rules[1:]]
        if missing := [str(path) for path in named if not path.is_file()]:
            parser.error(f"no page {', '.join(missing)}")
        found = [prose_of(path) for path in named]
    elif unknown := set(arguments.rules) - set(RULES):
        parser.error(f"unknown rule {', '.join(sorted(unknown))}; known: {', '.join(RULES)}")
    else:
        found = [RULES[rule](root) for rule in arguments.rules or RULES]
    defects = 0
    for path, number, what in itertools.chain.from_iterable(found):
        print(f"{path.relative_to(root) if path.is_relative_to(root) else path}:{number}: {what}")
        defects += 1
    print(f"{defects} defects")
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
