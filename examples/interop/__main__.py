"""``python -m examples.interop``."""

import sys

from examples.interop.command import main

sys.exit(main(sys.argv[1:]))
