#!/usr/bin/env python3
"""Checks host sources with clang-tidy: tidy.py --tree BUILD_TREE [--changed [COMMIT] | FILE...]

Without files all .cpp files that the tree compiles are checked, tests aside; with --changed those
that differ from COMMIT (HEAD) or include what differs. A header is checked in one source that
includes it. What is checked says .clang-tidy. Prints one line per finding, `path:line:column: what
[check]`, each once, and exits 1 if there is any, 77 where clang-tidy is missing.
"""

import argparse
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from includes import changed_files, touched_sources
from tidy_batches import batch_entry, batches

CLANG_TIDY = "clang-tidy-19"  # 14 cannot read gcc 12's <source_location>; others have other checks
ROOT = pathlib.Path(__file__).resolve().parents[2]
# What clang does not know: gcc's warnings and precompiled headers.
DROPPED = re.compile(r"-W(?!p,|l,|a,).*|.*cmake_pch\.hxx")
FINDING = re.compile(r"(/.+?):(\d+):(\d+): (?:warning|error): (.*)")


def commands(tree, root):
    """{source: its command}: the sources of `root` that the tree compiles, each once, without
    those that the tree generates and without tests."""
    entries = json.loads((tree / "compile_commands.json").read_text(encoding="utf-8"))
    chosen = {}
    for entry in entries:
        source = pathlib.Path(entry["directory"], entry["file"])
        if source.suffix != ".cpp" or not source.is_relative_to(root):
            continue
        if source.is_relative_to(tree) or source.relative_to(root).parts[0] in ("build", "ctest"):
            continue
        chosen.setdefault(source, entry)
    return chosen


def for_clang(entry):
    """The entry of a compilation database without what only gcc understands."""
    kept = []
    for argument in shlex.split(entry["command"]):
        if not DROPPED.fullmatch(argument):
            kept.append(argument)
        elif kept[-1] == "-include":
            kept.pop()
    # Clang has no omp.h, and of an attribute in gcc's it does not know the arguments.
    kept += ["-idirafter", own_headers(kept[0]), "-D__malloc__(...)=__malloc__"]
    return {"directory": entry["directory"], "file": entry["file"], "arguments": kept}


@functools.cache
def own_headers(compiler):
    """Where a compiler has the headers that come with it."""
    return subprocess.check_output([compiler, "-print-file-name=include"], text=True).strip()


def check(source, root, database):
    """(path, line, column, what) of the findings in one source and what it includes of `root`."""
    result = subprocess.run(
        [CLANG_TIDY, "-p", database, "--quiet", f"--config-file={ROOT / '.clang-tidy'}",
         rf"--header-filter=^{re.escape(str(root))}/.*\.[ch]pp$", source],
        capture_output=True, text=True, check=False)
    findings = [match.groups() for line in result.stdout.splitlines()
                if (match := FINDING.match(line.replace(",-warnings-as-errors]", "]")))]
    if result.returncode != 0 and not findings:
        findings = [(str(source), "1", "1", f"{CLANG_TIDY} failed: {result.stderr.strip()}")]
    return findings


def check_batch(members, root, folder):
    """Findings in sources that are read as one file, or one by one where that does not compile."""
    if len(members) > 1:
        database = pathlib.Path(tempfile.mkdtemp(dir=folder))
        entry = batch_entry(members, database / "batch.cpp")
        (database / "compile_commands.json").write_text(json.dumps([entry]), encoding="utf-8")
        findings = [row for row in check(entry["file"], root, database) if row[0] != entry["file"]]
        if not any("[clang-diagnostic-error]" in what for *_, what in findings):
            return findings
    database = pathlib.Path(tempfile.mkdtemp(dir=folder))
    (database / "compile_commands.json").write_text(json.dumps(members), encoding="utf-8")
    return [row for entry in members for row in check(entry["file"], root, database)]


def compiled_as(path, root, chosen, parser):
    """The source through which a file is checked: itself, or for a header one that includes it."""
    if path in chosen:
        return [path]
    if path.suffix == ".hpp" and path.is_relative_to(root):
        return [root / name for name in touched_sources(root, [path.relative_to(root).as_posix()])
                if root / name in chosen][:1]
    parser.error(f"not compiled in {parser.parse_args().tree}: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--tree", type=pathlib.Path, required=True,
                        help="a configured build tree, such as build/host")
    parser.add_argument("--changed", nargs="?", const="HEAD", metavar="COMMIT")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="checks at a time")
    arguments = parser.parse_args()
    if shutil.which(CLANG_TIDY) is None:
        print(f"skipped: no {CLANG_TIDY}")
        return 77
    root, start = arguments.root.resolve(), time.monotonic()
    chosen = commands(arguments.tree.resolve(), root)
    if arguments.files:
        wanted = {path for file in arguments.files
                  for path in compiled_as(file.resolve(), root, chosen, parser)}
        chosen = {path: entry for path, entry in chosen.items() if path in wanted}
    elif arguments.changed:
        touched = touched_sources(root, changed_files(root, arguments.changed))
        chosen = {path: entry for path, entry in chosen.items()
                  if path.relative_to(root).as_posix() in touched}
    seen = set()
    together = batches([for_clang(entry) for entry in chosen.values()])
    with (tempfile.TemporaryDirectory() as folder,
          concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool):
        for findings in pool.map(lambda members: check_batch(members, root, folder), together):
            for path, line, column, what in findings:
                path = os.path.relpath(path, root)
                if (path, line, column, what) not in seen:
                    seen.add((path, line, column, what))
                    print(f"{path}:{line}:{column}: {what}", flush=True)
    print(f"{len(seen)} findings in {len(chosen)} sources, {len(together)} batches, "
          f"{time.monotonic() - start:.0f} s")
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
