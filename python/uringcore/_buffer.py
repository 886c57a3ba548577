"""aioquic's extension module of this name, which its programs import from: see :mod:`uringcore.buffer`."""

from __future__ import annotations

from uringcore.buffer import Buffer, BufferReadError, BufferWriteError

__all__ = ["Buffer", "BufferReadError", "BufferWriteError"]
