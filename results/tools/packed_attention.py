#!/usr/bin/env python3
"""Command of stowage_results/tables/packed_attention.py, which says what it does."""

from stowage_results.result_files import run
from stowage_results.tables.packed_attention import main

if __name__ == "__main__":
    run(main)
