"""Runs Python programs of a test in children of one process, which has loaded what takes long. A
line of stdin: a file for what the program says, then its command; the answer is its exit code, and
0 at first."""

import os
import runpy
import shlex
import sys
import traceback

import h5py  # noqa: F401
import matplotlib  # noqa: F401


def in_child(out, words):
    to = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(to, stream)
    sys.argv, sys.path[0] = words, os.path.dirname(words[0])
    try:
        runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # as an interpreter of its own would
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


print(0, flush=True)
for line in sys.stdin:
    file, *command = shlex.split(line)
    child = os.fork()
    if child == 0:
        in_child(file, command)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
