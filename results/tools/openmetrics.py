#!/usr/bin/env python3
"""Command of stowage_results/publish/openmetrics.py, which says what it does."""

from stowage_results.result_files import run
from stowage_results.publish.openmetrics import main

if __name__ == "__main__":
    run(main)
