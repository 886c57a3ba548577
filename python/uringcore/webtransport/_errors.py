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
    """Something of a WebTransport session failed."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class SessionRefusedError(WebTransportError):
    """The server does not want the session: it has answered with a ``status`` that is not 2xx."""

    def __init__(self, status: int, headers: Headers = ()) -> None:
        super().__init__(f"the server has refused the session with status {status}", status)
        self.status = status
        self.headers = list(headers)


class SessionClosedError(WebTransportError):
    """The session is over: one side has closed it, with a ``code`` and a ``reason`` of its own."""

    def __init__(self, code: int = 0, reason: str = "") -> None:
        said = f": {reason}" if reason else ""
        super().__init__(f"the session was closed with code {code}{said}", code)
        self.reason = reason
