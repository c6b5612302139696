"""Says which Python package is missing, with exit code 3, before a tool fails to import it."""

import importlib.util
import sys


WHEELS = {"quack": "quack-kernels", "flash_attn": "flash-attn-4"}  # called other than the package


def require(*names):
    """Ends the tool if one of the packages is missing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        wheels = " ".join(WHEELS.get(name, name) for name in missing)
        print(f"error: {sys.executable} has no package {', '.join(missing)}: {sys.executable} -m "
              f"pip install {wheels}, or call the tool with another Python (python3 TOOL ...)",
              file=sys.stderr)
        sys.exit(3)
