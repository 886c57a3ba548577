"""`python -m tests.interop.webtransport LIBRARY server|client ...`."""

import sys

from tests.interop.webtransport.scenario import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
