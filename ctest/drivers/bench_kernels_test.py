#!/usr/bin/python3
"""stowage_bench_kernels among the files of a user: what is refused before a GPU is looked for.

Usage: bench_kernels_test.py CASE --bench PROGRAM. Each case runs in a folder of its own.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from process_cases import Cases

CASES = case = Cases()


@case
def rows_are_added_only_to_a_table_of_ours(bench):
    pathlib.Path("thesis").write_text("mine\n")
    pathlib.Path("rows").write_text('{"GPU", 130100, {1}},\n')
    product = [bench, "--op", "product", "--product-table"]
    for path, more, says in (("thesis", [], "the product table cannot be written to thesis"),
                             ("rows", [], "rows: it exists and is no older file of this kind"),
                             ("/dev/null", [], "/dev/null"),
                             ("new", ["--out", "./new"], "two outputs need two files")):
        before = {each: each.read_bytes() for each in pathlib.Path(".").iterdir()}
        done = subprocess.run([*product, path, *more], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and says in done.stderr, (done.returncode, done.stderr)
        assert {each: each.read_bytes() for each in pathlib.Path(".").iterdir()} == before, path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("--bench", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        CASES[options.case](options.bench)
        os.chdir("/")
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
