"""The memory that this process has allocated, exactly enough to detect leaks of a test."""

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
    """Returns the KiB allocated from the C heap, and the number of Python's memory blocks.

    The resident set is not used: it includes free holes between allocations, which grow at random.
    """
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:  # glibc before 2.33, musl.
        return 0, sys.getallocatedblocks()
    ask.restype = _MallocInfo
    info = ask()
    return (info.uordblks + info.hblkhd) // 1024, sys.getallocatedblocks()


def grown(since: tuple[int, int]) -> tuple[int, int]:
    """Returns the growth of both since an earlier result of :func:`memory`."""
    heap, blocks = memory()
    return heap - since[0], blocks - since[1]
