"""A static site of submitted result sets: one table of all training runs, a page for each machine.

  submissions.py SITE FOLDER ...     each FOLDER is what one submitter sent, and is named as such

SITE/index.html has a row for each training run: machine, deck, layout, tokens/s, joules a token,
verdict, and whether it is official or why not. SITE/FOLDER.html is report.py's page of the sets in
FOLDER. A set that does not conform has a row that says why, and is on no page.

Exit codes: 0 written, 2 a folder has no set, two have one name, or a page cannot be written.
"""

import argparse
import collections
import html
import pathlib
from urllib.parse import quote

from stowage_results import needs  # noqa: F401
import numpy as np

from stowage_results.check.official import mark_unofficial
from stowage_results.outputs import made_by_tools, require_free, write
from stowage_results.publish.report import document, page, sets_in, table_html
from stowage_results.result_files import Refused, printable, text
from stowage_results.tables.cells import (code, digits, first_gpu, interval, metric, ranks_of,
                                          stem_of, table)
from stowage_results.tables.table import conforming

COLUMNS = ("machine", "GPU", "ranks", "deck", "batch x tokens", "layout", "tokens/s",
           "95 % interval", "tokens/s a rank", "mJ a token", "verdict", "official", "commit",
           "date", "set")
INDEX = "index"
ABOUT = ("All training runs that were submitted, the fastest a rank first. Compare official ones "
         "of one deck and batch. A rule that a set breaks stands in its row; results/README.md has "
         "the rules and says how a set is checked.")


class Submission:
    """The sets of a folder: those that conform, and what is wrong with the others."""

    def __init__(self, folder):
        self.name = folder.resolve().name
        self.results, self.refused = [], []
        for path in sets_in([folder]):
            try:
                self.results.append(conforming(path))
            except Refused as problem:
                self.refused.append((path.stem, str(problem).removeprefix(f"{path}: ")))
        mark_unofficial(self.results)


def grid_of(result):
    node = result.node("provenance/grid")
    return text(node.attrs["shape"]) if node is not None else ""


def row_of(submission, result):
    """(what rows are sorted by, cells)"""
    rate, bounds = metric(result, "train/tokens_per_s")
    joules, _ = metric(result, "energy/j_per_token")
    ranks = ranks_of(result)
    deck = result.key("run.name")
    return (deck, -rate / ranks), (
        submission.name, first_gpu(result) or "none", f"{ranks}", deck,
        f"{result.key('train.global_batch_size')} x {result.key('train.seq_length')}",
        grid_of(result), digits(rate), interval(bounds), digits(rate / ranks),
        digits(1e3 * joules) if np.isfinite(joules) else "", result.verdict,
        "; ".join(result.unofficial) or "yes", code(text(result.file.attrs["git_describe"])),
        text(result.file.attrs["created"])[:10], code(stem_of(result)))


def rows_of(submissions):
    """Cells of all training runs, by deck, then those of what does not conform."""
    rows = [row_of(one, result) for one in submissions for result in one.results
            if text(result.file.attrs["driver"]) == "train"]
    refused = [(one.name, *[""] * 9, "REFUSED", why, "", "", code(name))
               for one in submissions for name, why in one.refused]
    return [cells for _, cells in sorted(rows)] + refused


def index(submissions):
    links = " ".join(f'<a href="{quote(one.name)}.html">{html.escape(one.name)}</a>'
                     for one in submissions if one.results)
    return document("Stowage submissions", f"<p>{html.escape(ABOUT)}</p><nav>{links}</nav>\n" +
                    table_html(table(COLUMNS, rows_of(submissions))[:-1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("site", type=pathlib.Path, metavar="SITE")
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="FOLDER")
    options = parser.parse_args()
    for folder in options.folders:
        if not folder.is_dir():
            raise Refused(f"{folder}: is no folder of result sets")
    names = collections.Counter(folder.resolve().name for folder in options.folders)
    for name, count in names.items():
        if count > 1 or name == INDEX:
            raise Refused(f"{name}: a submission needs a name of its own, and not '{INDEX}'")
    options.site.mkdir(parents=True, exist_ok=True)
    pages = {name: options.site / f"{name}.html" for name in (INDEX, *names)}
    for path in pages.values():
        require_free(path, made_by_tools)
    submissions = [Submission(folder) for folder in options.folders]
    made = {INDEX: index(submissions)}  # before the pages, which give the sets other names
    made.update({one.name: page(one.results) for one in submissions if one.results})
    for name, words in made.items():
        write(pages[name], printable(words).encode(), made_by_tools)
        print(pages[name])
    return 0
