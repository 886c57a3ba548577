"""Reading and writing of QUIC's integers (RFC 9000 section 16), with aioquic's API.

The class is implemented in Rust; this file has the two functions of aioquic's module.
"""

from __future__ import annotations

from uringcore._uringcore import Buffer, BufferReadError, BufferWriteError

__all__ = [
    "UINT_VAR_MAX",
    "UINT_VAR_MAX_SIZE",
    "Buffer",
    "BufferReadError",
    "BufferWriteError",
    "encode_uint_var",
    "size_uint_var",
]

UINT_VAR_MAX = 0x3FFFFFFFFFFFFFFF
UINT_VAR_MAX_SIZE = 8


def encode_uint_var(value: int) -> bytes:
    """Encodes ``value`` as a variable-length integer. Raises ``ValueError`` above 2**62 - 1."""
    buf = Buffer(capacity=UINT_VAR_MAX_SIZE)
    buf.push_uint_var(value)
    return buf.data


def size_uint_var(value: int) -> int:
    """Returns the number of bytes of ``value``. Raises ``ValueError`` above 2**62 - 1."""
    if value <= 0x3F:
        return 1
    if value <= 0x3FFF:
        return 2
    if value <= 0x3FFFFFFF:
        return 4
    if value <= UINT_VAR_MAX:
        return 8
    raise ValueError("Integer is too big for a variable-length integer")
