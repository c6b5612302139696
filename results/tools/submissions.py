#!/usr/bin/env python3
"""Command of stowage_results/publish/submissions.py, which says what it does."""

from stowage_results.result_files import run
from stowage_results.publish.submissions import main

if __name__ == "__main__":
    run(main)
