"""Writes a plot of matplotlib by the rule of outputs.py, and says in it who made it."""

import io
import pathlib

from stowage_results.outputs import MADE, made_by_tools, write
from stowage_results.packages import require
from stowage_results.plain_files import Refused

MARKS = {"png": {"Software": MADE}, "svg": {"Creator": MADE, "Date": None},
         "svgz": {"Creator": MADE, "Date": None}, "pdf": {"Creator": MADE, "CreationDate": None},
         "eps": {"Creator": MADE}, "ps": {"Creator": MADE}}


def pyplot():
    """matplotlib without a display, as on a compute node. It takes a second: only once all files
    are known to be good."""
    require("matplotlib")
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    return plt


def saved(figure, out, dpi=150, metadata=None, ours=made_by_tools, keep=True):
    """Writes a figure in the format that the file's name says. Where a format has no place for who
    made it, an older file is somebody else's."""
    form = pathlib.Path(out).suffix.lstrip(".").lower() or "png"
    made = io.BytesIO()
    try:
        figure.savefig(made, dpi=dpi, format=form, metadata=metadata or MARKS.get(form))
    except (OSError, ValueError) as error:
        raise Refused(f"{out}: cannot be written: {error}") from None
    write(out, made.getvalue(), ours, keep)
