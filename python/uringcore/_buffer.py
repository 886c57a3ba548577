"""aioquic's extension module of this name, for programs that import from it: see :mod:`uringcore.buffer`."""

from __future__ import annotations

from uringcore.buffer import Buffer, BufferReadError, BufferWriteError

__all__ = ["Buffer", "BufferReadError", "BufferWriteError"]
