#!/usr/bin/env python3
"""What a change touches: includes.py files|sources|rooms [--changed [COMMIT] | FILE...]

Prints one path from the root a line:
  files    the files themselves; --changed takes those that differ from COMMIT (HEAD) or are new
  sources  the C++ sources (.cpp, .cu) among them, and those that include one of them, straight or
           through other headers
  rooms    the folders of ctest/ that test the files: those of their own folders, and of the
           folders that include a header from where a changed file lies
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
SOURCES, HEADERS = {".cpp", ".cu"}, {".hpp", ".cuh"}


def git(root, *arguments):
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"error: {done.stderr.strip()}")
    return [line for line in done.stdout.split("\0") if line]


def changed_files(root, commit="HEAD"):
    """Paths from the root of files that differ from a commit, and of new ones."""
    return sorted({*git(root, "diff", "--name-only", "-z", commit, "--"),
                   *git(root, "ls-files", "--others", "--exclude-standard", "-z")})


def including(root):
    """{path: the paths that include it}, of all C++ files of git's tree."""
    listed = git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    paths = [pathlib.PurePath(name) for name in listed]
    graph = collections.defaultdict(set)
    for path in paths:
        if path.suffix not in SOURCES | HEADERS or not (root / path).is_file():
            continue
        text = (root / path).read_text(encoding="utf-8", errors="replace")
        for name in INCLUDE.findall(text):
            beside = (path.parent / name).as_posix()
            graph[beside if (root / beside).is_file() else name].add(path.as_posix())
    return graph


def touched_sources(root, files):
    """The sources among `files`, and those that include one of them."""
    graph, seen, waiting = including(root), set(), list(files)
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            waiting.extend(graph.get(path, ()))
    return sorted(path for path in seen
                  if pathlib.PurePath(path).suffix in SOURCES and (root / path).is_file())


def touched_rooms(root, files):
    """Folders of ctest/ that test the files or what includes a header from beside one of them."""
    beside = {header.relative_to(root).as_posix()
              for name in files
              if pathlib.PurePath(name).suffix in SOURCES and (root / name).parent.is_dir()
              for header in (root / name).parent.iterdir() if header.suffix in HEADERS}
    rooms = set()
    for name in {*files, *touched_sources(root, {*files, *beside})}:
        parts = pathlib.PurePath(name).parts
        room = parts[1] if parts[0] == "ctest" and len(parts) > 2 else parts[0]
        if (root / "ctest" / room / "CMakeLists.txt").is_file():
            rooms.add(room)
    return sorted(rooms)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["files", "sources", "rooms"])
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--changed", nargs="?", const="HEAD", metavar="COMMIT")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    files = [pathlib.Path(name).resolve().relative_to(root).as_posix() for name in arguments.files]
    if arguments.changed:
        files += changed_files(root, arguments.changed)
    files = sorted(set(files))
    if arguments.what == "sources":
        files = touched_sources(root, files)
    elif arguments.what == "rooms":
        files = touched_rooms(root, files)
    if files:
        print("\n".join(files))


if __name__ == "__main__":
    main()
