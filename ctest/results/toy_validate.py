"""validate.py, with a file of metrics more: toy_validate.py TOOLS FILE result.h5..."""

import pathlib
import sys

TOOLS, FILE = (pathlib.Path(sys.argv.pop(1)) for _ in range(2))
sys.path.insert(0, str(TOOLS))

from stowage_results.check import metrics, validate  # noqa: E402
from stowage_results.result_files import run  # noqa: E402

metrics.FILES.append(FILE)
run(validate.main)
