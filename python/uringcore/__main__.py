"""``python -m uringcore`` is the command ``uringcore``."""

import sys

from uringcore._cli import main

if __name__ == "__main__":
    sys.exit(main())
