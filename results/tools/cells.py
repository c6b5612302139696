"""Tables in Markdown, and figures of result sets as they stand in them."""

import pathlib

import numpy as np

from medians import LEAST_FOR_INTERVAL


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows] + [""]


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


def name_of(result):
    return pathlib.Path(result.path).stem


def ranks_of(result):
    return len(result.file["provenance/system/ranks"])
