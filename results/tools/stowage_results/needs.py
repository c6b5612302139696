"""What tools of result sets need; they import this first."""

import sys

from stowage_results.packages import require

if sys.version_info < (3, 11):  # which brought tomllib
    print(f"error: {sys.executable} is older than Python 3.11: call the tool with another one",
          file=sys.stderr)
    sys.exit(3)
require("numpy", "h5py")
