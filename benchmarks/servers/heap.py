"""The state of the C library's heap during a measurement."""

from __future__ import annotations

WARM_BYTES = 4 << 20
"""More than any buffer that a server here allocates for one read or one message."""


def warm() -> None:
    """Free one large block, as nearly every program does while it starts.

    glibc maps blocks of at least 128 KiB from the kernel and unmaps them when they are freed, until the
    first such block is freed: then the threshold rises to the size of that block (mallopt(3),
    M_MMAP_THRESHOLD). Without this call, a loop that allocates 256 KiB for each read, such as asyncio's,
    pays for two system calls and two page faults a request in a small benchmark and for none in a program.
    """
    bytearray(WARM_BYTES)
