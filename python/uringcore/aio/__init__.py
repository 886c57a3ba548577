"""Asynchronous file I/O for asyncio, with aiofiles' interface.

    from uringcore import aio

    async with aio.open("data.txt") as file:
        async for line in file:
            ...

A program written for aiofiles runs with ``import uringcore.aio as aiofiles``. Files have more methods:
``pread``, ``pwrite``, ``fsync``, ``fdatasync`` and ``stat``.

| file | noun |
| --- | --- |
| ``_open`` | ``open``: from a path and a mode to a file object |
| ``_file_base`` | the methods that binary and text files share |
| ``_text_file``, ``_text_decoder`` | text files; their decoder and its positions |
| ``_buffered_file``, ``_raw_file`` | binary files with a buffer, and without |
| ``_binary_file`` | position and close of binary files |
| ``_file_buffer`` | bytes read ahead, and bytes that wait to be written |
| ``_descriptor_io`` | single operations on an open descriptor |
| ``_operation_order`` | the order of operations on one file |
| ``_pending_operation`` | one operation in progress, and its result after a cancellation |
| ``_file_backends`` | the two implementations of operations: the ring, and threads |
| ``os``, ``ospath`` | functions of ``os`` and ``os.path`` |
| ``tempfile``, ``_spooled_file_and_directory`` | temporary files and directories; two of their classes |
| ``_standard_streams`` | standard input, output and error |
| ``threadpool`` | aiofiles' names for the classes above |

On a uringcore loop with io_uring every operation that may wait is an operation of the ring: opening,
reading, writing, syncing, resizing, closing, and most of :mod:`uringcore.aio.os`. io_uring has no
operation for reading directories, ``readlink``, ``access`` and some others; those use the loop's
executor, and so do ``ftruncate`` before Linux 6.9 and the creation of temporary files. On the epoll
backend, on stock asyncio and on uvloop all operations that may wait use the executor. On all of them,
cached bytes are read at once, without an iteration of the loop; a coroutine that
only reads such bytes lets other tasks run every half a millisecond.

Several tasks may use one file: its operations run one after the other, in the order of the calls;
``pread`` and ``pwrite`` run concurrently. The number of files and callers has no limit; a loop's
ring runs at most 1,048,576 operations at once and fails one more with ``OSError(ENOBUFS)``.

A cancelled read leaves the position where it was. A cancelled write has either not begun or is accepted
whole; the next flush, write or close completes it (see ``AsyncBufferedIOBase``). A cancelled
``close`` completes in the background.

There is one difference from aiofiles: the objects below a file (``buffer``, ``raw``, the result of
``detach``) are asynchronous too, and ``f._file`` does not exist.
"""

from __future__ import annotations

from . import os, ospath, tempfile
from ._buffered_file import AsyncBufferedIOBase, AsyncBufferedReader
from ._open import open  # noqa: A004 - the name is the point
from ._raw_file import AsyncFileIO
from ._standard_streams import stderr, stderr_bytes, stdin, stdin_bytes, stdout, stdout_bytes
from ._text_file import AsyncTextIOWrapper

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
