"""Exceptions of WebTransport sessions, in the family of :mod:`uringcore.quic`'s exceptions.

Streams of a session raise :class:`~uringcore.quic.StreamResetError` and its siblings, with the
application's codes.
"""

from __future__ import annotations

from collections.abc import Sequence

from uringcore.quic._errors import QuicError

__all__ = ["SessionClosedError", "SessionRefusedError", "WebTransportError"]

Headers = Sequence[tuple[bytes, bytes]]


class WebTransportError(QuicError):
    """A WebTransport session failed; the base of the other classes. ``code`` and ``reason`` describe it."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class SessionRefusedError(WebTransportError):
    """The server refused the session with ``status``, which is not 2xx, and ``headers``."""

    def __init__(self, status: int, headers: Headers = ()) -> None:
        super().__init__(f"the server has refused the session with status {status}", status)
        self.status = status
        self.headers: list[tuple[bytes, bytes]] = list(headers)


class SessionClosedError(WebTransportError):
    """This side or the peer has closed the session, with the application's ``code`` (32 bits) and
    ``reason``."""

    def __init__(self, code: int = 0, reason: str = "") -> None:
        said = f": {reason}" if reason else ""
        super().__init__(f"the session was closed with code {code}{said}", code)
        self.reason = reason
