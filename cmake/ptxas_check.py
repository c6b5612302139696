#!/usr/bin/env python3
"""Compiler launcher for device code: ptxas_check.py [--strict|--wgmma PATH]... -- COMMAND...

Runs the command, keeps ptxas' report beside the object file (<object>.ptxas), and fails when a
source under a strict folder, or whose path begins so, spills registers on Hopper or has its wgmma
instructions serialised; with --wgmma only the latter. Both are silent losses of speed: the program
stays right and ptxas only mentions them.
"""

import os
import re
import subprocess
import sys

SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
TUNED = "sm_90a"  # what kernels are written for: elsewhere a spill is no fault
ARCHITECTURE = re.compile(r"Compiling entry function .* for '(\w+)'")
FUNCTION = re.compile(r"(?:Function properties for|Compiling entry function '?)\s*([\w$.]+)")
# ptxas advisories: wgmma pipeline crossing a function boundary, serialised for lack of registers...
SERIALISED = re.compile(r"C75(?:0[0-9]|1[0-8])|wgmma\.mma_async instructions are serialized")


def split_arguments(arguments):
    folders = {"--strict": [], "--wgmma": []}
    while arguments and arguments[0] in folders:
        path = os.path.realpath(arguments[1])
        folders[arguments[0]].append(path + os.sep if os.path.isdir(path) else path)
        arguments = arguments[2:]
    if not arguments or arguments[0] != "--":
        sys.exit(__doc__)
    return folders["--strict"], folders["--wgmma"], [word for word in arguments[1:] if word]


def defects(report, may_spill):
    function, architecture = "?", TUNED
    for line in report.splitlines():
        if match := ARCHITECTURE.search(line):
            architecture = match.group(1)
        if match := FUNCTION.search(line):
            function = match.group(1)
        spills = (match := SPILL.search(line)) and match.groups() != ("0", "0")
        if spills and architecture == TUNED and not may_spill:
            yield f"{function}: {match.group(0)}"
        if SERIALISED.search(line):
            yield line.strip()


def main():
    strict, wgmma, command = split_arguments(sys.argv[1:])
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    report, other = [], []
    for line in result.stderr.splitlines(keepends=True):
        ours = line.startswith("ptxas info") or re.match(r"\s+\d+ bytes stack frame", line)
        (report if ours else other).append(line)
    sys.stderr.writelines(other)
    if result.returncode != 0:
        return result.returncode

    output = command[command.index("-o") + 1] if "-o" in command else None
    if output and report:
        with open(output + ".ptxas", "w", encoding="utf-8") as file:
            file.writelines(report)
    source = next((word for word in reversed(command) if word.endswith(".cu")), "")
    under = [any(os.path.realpath(source).startswith(folder) for folder in folders)
             for folders in (strict, wgmma)]
    if any(under):
        found = list(defects(result.stderr, may_spill=not under[0]))
        if found:
            print(f"{source}: slow device code", *found, sep="\n  ", file=sys.stderr)
            if output and os.path.exists(output):
                os.unlink(output)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
