"""What peers in PyTorch need; they import this first."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # of the package

from stowage_results.packages import require  # noqa: E402

require("torch")
