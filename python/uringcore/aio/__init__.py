"""File I/O for asyncio that is asynchronous, with aiofiles' interface.

    from uringcore import aio

    async with aio.open("data.txt") as file:
        async for line in file:
            ...

A program written for aiofiles runs with ``import uringcore.aio as aiofiles``. What there is more:
``pread``, ``pwrite``, ``fsync``, ``fdatasync`` and ``stat`` of files.

On a uringcore loop with io_uring every operation that may wait is an operation of the ring: opening,
reading, writing, syncing, resizing, closing, and in :mod:`uringcore.aio.os` what changes directories.
io_uring has nothing for reading directories, ``readlink``, ``access`` and the like; those go to the
loop's executor, and so does ``ftruncate`` before Linux 6.9. On the epoll backend, on stock asyncio
and on uvloop everything that may wait goes to the executor. On all of them, bytes that the kernel
has in memory are read at once, without a turn of the loop; a coroutine that reads nothing else lets
others run every half a millisecond.

One file may be used by several tasks: its operations run one after the other, in the order in which
they were asked for; ``pread`` and ``pwrite`` run beside each other. There is no bound on files or on
callers; a loop's ring carries out at most 1,048,576 operations at once and answers one more with
``OSError(ENOBUFS)``.

A cancelled read has taken nothing from the file. A cancelled write is either not begun or accepted
whole, to be carried out by the next flush, write or close (see ``AsyncBufferedIOBase``). A cancelled
``close`` goes on by itself.

What is not as in aiofiles: objects below a file (``buffer``, ``raw``, what ``detach`` returns) are
asynchronous too; ``f._file`` does not exist.
"""

from __future__ import annotations

from . import os, ospath, tempfile
from ._buffered import AsyncBufferedIOBase, AsyncBufferedReader
from ._open import open  # noqa: A004 - the name is the point
from ._raw import AsyncFileIO
from ._standard import stderr, stderr_bytes, stdin, stdin_bytes, stdout, stdout_bytes
from ._text import AsyncTextIOWrapper

__all__ = [
    "AsyncBufferedIOBase",
    "AsyncBufferedReader",
    "AsyncFileIO",
    "AsyncTextIOWrapper",
    "open",
    "os",
    "ospath",
    "stderr",
    "stderr_bytes",
    "stdin",
    "stdin_bytes",
    "stdout",
    "stdout_bytes",
    "tempfile",
]
