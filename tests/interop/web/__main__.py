"""`python -m tests.interop.web NAME server|client ...`."""

import importlib
import sys

if __name__ == "__main__":
    module = "server" if sys.argv[2] == "server" else "clients"
    sys.exit(importlib.import_module(f"tests.interop.web.{module}").main(sys.argv[1:]))
