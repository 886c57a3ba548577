"""How much memory this process has given out, exactly enough to see what a test leaves behind."""

from __future__ import annotations

import ctypes
import sys


class _MallocInfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def memory() -> tuple[int, int]:
    """KiB that the C heap has given out, and blocks that Python has.

    Not the resident set: that holds the holes between what lives, and they grow with chance.
    """
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:  # glibc before 2.33, musl.
        return 0, sys.getallocatedblocks()
    ask.restype = _MallocInfo
    info = ask()
    return (info.uordblks + info.hblkhd) // 1024, sys.getallocatedblocks()


def grown(since: tuple[int, int]) -> tuple[int, int]:
    """How much more there is of both than :func:`memory` said before."""
    heap, blocks = memory()
    return heap - since[0], blocks - since[1]
