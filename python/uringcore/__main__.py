"""``python -m uringcore`` is the command ``uringcore``."""

import sys

from uringcore._command_dispatch import main

if __name__ == "__main__":
    sys.exit(main())
