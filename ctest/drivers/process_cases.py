"""How a test of whole processes declares its cases.

    @case              # starts programs of one rank
    @case(ranks=4)     # starts up to four ranks at a time

CMake makes a test of each, `stowage_process_tests` in cmake/StowageTests.cmake: ctest counts the
ranks against its parallel jobs.
"""


import argparse
import os
import subprocess
import tempfile


def within_address_space(kib, *command):
    """The command under a limit of its address space."""
    return ["bash", "-c", f'ulimit -v {kib}; exec "$@"', "bash", *command]


def least_address_space(program, env):
    """KiB, to 16 MiB, in which a program says its help; its libraries alone may need gigabytes."""
    for kib in range(131_072, 16_777_216, 16_384):
        try:
            done = subprocess.run(within_address_space(kib, program, "--help"), env=env, timeout=2,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:  # the constructors of libraries wait for memory
            continue
        if done.returncode == 0:
            return kib
    raise AssertionError(f"{program} needs more than 16 GiB")


class Cases(dict):
    """The cases of one script by name; called as a decorator it adds one."""

    def __call__(self, function=None, *, ranks=1):
        if function is None:
            return self
        assert ranks >= 1
        self[function.__name__] = function
        return function

    def run(self, make, *options):
        """Runs the case that the command line names in a folder of its own: make(OPTION...) is
        what it is called with."""
        parser = argparse.ArgumentParser()
        parser.add_argument("case", choices=sorted(self))
        for option in options:
            parser.add_argument(f"--{option}", required=True)
        given = parser.parse_args()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            self[given.case](make(*(getattr(given, option) for option in options)))
        print("passed")
