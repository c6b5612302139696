"""The rule `links` of lint.py: links of pages within the tree lead somewhere."""

import re

FENCE = re.compile(r"\s*(```|~~~)")
CODE = re.compile(r"(`+).+?\1")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"#{1,6}\s+(.*)")


def lines_of(text):
    """(number, line) outside blocks of code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(text):
    """Names of a page's headings, as GitHub makes them."""
    for _, line in lines_of(text):
        if heading := HEADING.match(line):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            yield re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def defects_of(path):
    """(line, what) of each link of a page to a file or heading that is not there."""
    for number, line in lines_of(path.read_text(encoding="utf-8")):
        for target in LINK.findall(CODE.sub("code", line)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            page = path.parent / name if name else path
            if not page.exists():
                yield number, f"links to {name}, which is not there"
            elif anchor and anchor not in anchors(page.read_text(encoding="utf-8")):
                yield number, f"links to {target}, a heading that is not there"
