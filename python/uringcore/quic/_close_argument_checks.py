"""Checks of the arguments of a close, a reset and a stop, before any effect.

A close that raises has changed nothing, also if the object was already closed.
"""

from __future__ import annotations

import operator

__all__ = ["CODE_BITS", "check_close", "check_code", "check_reason"]

CODE_BITS = 62
"""Bits of an error code, which is a variable-length integer (RFC 9000 section 16)."""


def check_code(code: int, name: str = "code", bits: int = CODE_BITS) -> None:
    """Raises ``TypeError`` and ``ValueError`` naming the argument."""
    try:
        number = operator.index(code)
    except TypeError:
        raise TypeError(f"{name}: must be an int, not {type(code).__name__}") from None
    if not 0 <= number < 1 << bits:
        raise ValueError(f"{name}: must be from 0 to 2**{bits} - 1 ({bits} bits), not {number}")


def check_reason(reason: str, name: str = "reason", bytes_max: int | None = None) -> None:
    """Raises ``TypeError`` and ``ValueError`` naming the argument."""
    if not isinstance(reason, str):
        raise TypeError(f"{name}: must be str, not {type(reason).__name__}")
    try:
        length = len(reason.encode())
    except UnicodeEncodeError as exc:
        raise ValueError(f"{name}: cannot be encoded in UTF-8: {exc.reason}") from None
    if bytes_max is not None and length > bytes_max:
        raise ValueError(f"{name}: must have at most {bytes_max} bytes, not {length}")


def check_close(code: int, reason: str) -> None:
    """Checks the arguments of a ``close(code, reason)``."""
    check_code(code)
    check_reason(reason)
