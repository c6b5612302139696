#!/usr/bin/env python3
"""Tests that README.md and the guide name are there: promises_test.py --source DIR --build DIR.

README's promises each name a test, and so does docs/develop/at_a_site.md of each fault that was
mended. Other pages name theirs as `ctest -R '...'`. docs/reference/exit_codes.md has the codes of
execution::Exit, and each begins with its name there.
"""

import argparse
import fnmatch
import pathlib
import re
import subprocess
import sys


AT_A_SITE = "docs/develop/at_a_site.md"


def promised(page):
    """Names of tests in the second column of README's promises; * stands for anything."""
    table = page.split("## What it promises")[1].split("\n## ")[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")][2:]
    return [name for row in rows for name in re.findall(r"`([a-z_]+\.[\w.*]+)`", row)]


def held(page):
    """Names of tests in the last column of the tables of at_a_site.md."""
    cells = [line.split("|")[-2] for line in page.splitlines() if line.startswith(("| M", "| m"))]
    return [name for cell in cells for name in re.findall(r"`([a-z_]+\.[\w.]+)`", cell)]


def selected(page):
    """Expressions behind ctest -R."""
    return re.findall(r"ctest (?:--preset \w+ )?-R '?([^'`\s]+)", page)


def missing(pages, tests):
    """What README.md ("README.md") and other pages name and no test is."""
    for name in promised(pages["README.md"]):
        if not fnmatch.filter(tests, f"{name}*"):
            yield f"README.md promises {name}, which is no test"
    for name in held(pages.get(AT_A_SITE, "")):
        if not fnmatch.filter(tests, f"{name}*"):
            yield f"{AT_A_SITE} names {name}, which is no test"
    for where, page in pages.items():
        for words in selected(page):
            if not any(re.search(words, test) for test in tests):
                yield f"{where}: ctest -R {words} selects no test"


def other_codes(header, page):
    """Codes of execution::Exit that the page lacks or means otherwise, and the page's own."""
    declared = {int(code): name for name, code in
                re.findall(r"^  (\w+) = (\d+)", header.split("enum class Exit")[1].split("};")[0],
                           re.MULTILINE)}
    table = page.split("| code | meaning | do |")[1].split("\n\n")[0]
    stated = {int(code): word for code, word in
              re.findall(r"^\| (\d+) \| (\w+)", table, re.MULTILINE)}
    for code in sorted(declared.keys() | stated.keys()):
        if declared.get(code) != stated.get(code):
            yield (f"docs/reference/exit_codes.md: {code} is {stated.get(code)}, "
                   f"execution::Exit has {declared.get(code)}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("source", "build"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    given = parser.parse_args()
    listed = subprocess.run(["ctest", "--test-dir", given.build, "-N"], text=True, check=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    tests = re.findall(r"Test +#\d+: (\S+)", listed)
    paths = [given.source / "README.md", *sorted((given.source / "docs").rglob("*.md"))]
    pages = {str(path.relative_to(given.source)): path.read_text(encoding="utf-8")
             for path in paths}
    assert len(promised(pages["README.md"])) >= 7, promised(pages["README.md"])
    assert len(held(pages[AT_A_SITE])) >= 30, held(pages[AT_A_SITE])
    made_up = "## What it promises\n| a | b |\n| --- | --- |\n| x | `no.test`; `ctest -R no_such` |"
    made_up = {"README.md": made_up, AT_A_SITE: "| M | a | b | `no.test` |"}
    assert len(list(missing(made_up, tests))) == 3, "what is not there is not missed"
    codes = ((given.source / "execution/error.hpp").read_text(encoding="utf-8"),
             pages["docs/reference/exit_codes.md"])
    assert list(other_codes(codes[0].replace("= 75", "= 76"), codes[1])), "no other code is seen"
    found = [*missing(pages, tests), *other_codes(*codes)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
