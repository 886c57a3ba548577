"""Whether this process has a terminal: SIGHUP is its end, or a word from somebody else."""

from __future__ import annotations

import os

__all__ = ["has_terminal"]


def has_terminal() -> bool:
    """True if there is a controlling terminal; after its hang-up there is none any more."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
