"""Detection of a controlling terminal. SIGHUP means its hang-up, or is a signal from another process."""

from __future__ import annotations

import os

__all__ = ["has_terminal"]


def has_terminal() -> bool:
    """True if the process has a controlling terminal; after a hang-up it has none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
