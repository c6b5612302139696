"""Tables in Markdown, and figures of result sets as they stand in them. What sets, decks and files
are called is anybody's: it is shown, and is no Markdown of its own."""

import collections
import pathlib
import re

import numpy as np

from stowage_results.check.metrics import metrics
from stowage_results.medians import LEAST_FOR_INTERVAL
from stowage_results.result_files import text

GPU = "GPU"  # a column that a table has only where its sets are of several machines
NOT_OFFICIAL = "‡"  # behind the name of a set that breaks the run rules of results/README.md
# What ends a cell, begins HTML, or makes a link or a picture of what stands in brackets.
MARKUP = re.compile(r"([|]|<(?=[A-Za-z/!?])|\](?=\())")


def printable(words):
    """In one line, without bytes that a terminal obeys."""
    return "".join(one if one.isprintable() else " " for one in str(words))


def plain(words):
    """Words as Markdown that shows them: no column, no HTML; in code, columns alone need care."""
    parts = printable(words).split("`")
    odd = len(parts) % 2 == 0  # the last mark opens nothing
    return "`".join(part.replace("|", "\\|") if at % 2 and not (odd and at == len(parts) - 1)
                    else MARKUP.sub(r"\\\1", part) for at, part in enumerate(parts))


def code(words):
    return "`" + printable(words).replace("`", "'") + "`"


def table(header, rows):
    """Lines of a table; the column GPU only if a row has something there."""
    header, rows = list(header), [list(row) for row in rows]
    if GPU in header:
        at = header.index(GPU)
        if not any(row[at] for row in rows):
            del header[at]
            for row in rows:
                del row[at]
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    return lines + ["| " + " | ".join(map(plain, row)) + " |" for row in rows] + [""]


def digits(value):
    """Four digits that count, without an exponent."""
    if not np.isfinite(value):
        return ""
    decimals = 0 if value == 0 else max(0, 3 - int(np.floor(np.log10(abs(value)))))
    return f"{value:.{decimals}f}"


def percent(share, most=np.inf):
    if share > most:
        return f"ERROR: {100 * share:.0f} %"
    return f"{100 * share:.1f} %" if np.isfinite(share) else ""


def metric(result, tag):
    """The pair (value, (low, high)) of a metric, or (NaN, (NaN, NaN))."""
    values = result.array(f"metrics/{tag}")
    if values is None:
        return np.nan, (np.nan, np.nan)
    attributes = result.file[f"metrics/{tag}"].attrs
    if attributes["median_of"] < LEAST_FOR_INTERVAL:
        return float(values), (np.nan, np.nan)
    return float(values), (float(attributes["ci95_low"]), float(attributes["ci95_high"]))


def interval(bounds, scale=1.0):
    low, high = (digits(scale * bound) for bound in bounds)
    return f"{low} .. {high}" if low and high else ""


FORMS = {"k": (1e-3, lambda value: f"{digits(value)} k"), "ms": (1e3, digits), "s": (1, digits),
         "T": (1e-12, digits), "GiB": (2**-30, lambda value: f"{value:.1f} GiB"),
         "nat": (1, lambda value: f"{value:.4f}")}


def shown_headings():
    """Of the columns that metrics have in the table of training runs, by metrics.toml."""
    return [words for row in metrics() if row.shown
            for words in (row.shown[0], *(["95 % interval"] if row.shown[2] else []))]


def shown_cells(result):
    cells = []
    for row in metrics():
        if row.shown:
            value, bounds = metric(result, row.tag)
            scale, words = FORMS[row.shown[1]]
            cells += [words(scale * value), *([interval(bounds, scale)] if row.shown[2] else [])]
    return cells


def gpu_name(result):
    return result.once("gpu_name", first_gpu)


def first_gpu(result):
    ranks = result.array("provenance/system/ranks")
    return "" if ranks is None or len(ranks) == 0 else printable(text(ranks[0]["gpu_name"]))


def tell_apart(results):
    """From here on, name_of is another for each set, by as many folders as that takes, and gpu_of
    names its GPU if not all are of one."""
    for result in results:
        result.shown = stem_of(result)
    parents = [list(pathlib.Path(result.path).resolve().parents) for result in results]
    for depth in range(max(map(len, parents), default=0)):
        counts = collections.Counter(result.shown for result in results)
        for result, above in zip(results, parents):
            if counts[result.shown] > 1 and depth < len(above):
                result.shown = f"{above[depth].name}/{result.shown}"
    several = len({gpu_name(result) for result in results} - {""}) > 1
    for result in results:
        result.gpu = (gpu_name(result) or "none") if several else ""


def stem_of(result):
    """The name of its file, by which some sets are chosen."""
    return pathlib.Path(result.path).stem


def name_of(result):
    """A set's name in tables and legends."""
    name = getattr(result, "shown", None) or stem_of(result)
    return printable(name).replace("`", "'")


def mark(result):
    """What stands behind a set that official.mark_unofficial found reasons against."""
    return f" {NOT_OFFICIAL}" if getattr(result, "unofficial", None) else ""


def set_cell(result):
    """A set's name as it stands in tables, marked if the set is not official."""
    return f"`{name_of(result)}`{mark(result)}"


def gpu_of(result):
    """What its row has in the column GPU."""
    return getattr(result, "gpu", "")


def label_of(result):
    """A set's name in a legend: the GPU first, if not all are of one."""
    return f"{gpu_of(result).replace('NVIDIA ', '')} {name_of(result)}".strip()


def caption(result):
    """What stands above a table of one set."""
    return set_cell(result) + (f" on {plain(gpu_of(result))}" if gpu_of(result) else "")


def ranks_of(result):
    return len(result.file["provenance/system/ranks"])
