"""aioquic has an extension module called ``_buffer``. This module exists for programs that import from it;
the code is in :mod:`uringcore.buffer`."""

from __future__ import annotations

from uringcore.buffer import Buffer, BufferReadError, BufferWriteError

__all__ = ["Buffer", "BufferReadError", "BufferWriteError"]
