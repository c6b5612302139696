#!/usr/bin/env python3
"""Command of stowage_results/plots/plot.py, which says what it does."""

from stowage_results.result_files import run
from stowage_results.plots.plot import main

if __name__ == "__main__":
    run(main)
