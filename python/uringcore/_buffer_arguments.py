"""Checks of arguments that may be any buffer, for Python code that only reads them.

``src/py/capi/bytes_like_objects.rs`` has these checks for Rust code.
"""

from __future__ import annotations

from typing import Any

__all__ = ["contiguous_bytes", "is_buffer"]


def contiguous_bytes(value: Any, name: str) -> bytes:
    """Returns the bytes of a C-contiguous buffer; ``bytes`` itself is not copied.

    Raises ``TypeError`` for an object without the buffer protocol and ``BufferError`` for a buffer that is
    not contiguous. Both name the argument.
    """
    if type(value) is bytes:
        return value
    try:
        view = memoryview(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"{name}: a bytes-like object is required, not {kind!r}") from None
    with view:
        # `tobytes()` would rearrange the items into C's order.
        if not view.c_contiguous:
            raise BufferError(f"{name}: the buffer is not C-contiguous")
        return view.tobytes()


def is_buffer(value: Any) -> bool:
    """True if an object supports the buffer protocol."""
    try:
        memoryview(value).release()
    except TypeError:
        return False
    return True
