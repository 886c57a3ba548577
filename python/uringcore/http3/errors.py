"""What can go wrong with a request, beyond the connection itself.

A connection that fails raises :class:`uringcore.quic.errors.QuicConnectionError` and its
subclasses; a name that does not resolve raises ``socket.gaierror``.
"""

from __future__ import annotations

from uringcore.h3.connection import ErrorCode

__all__ = ["RequestFailed", "RequestNotProcessed", "RequestReset", "URLError", "code_name"]


class URLError(ValueError):
    """A URL that HTTP/3 cannot fetch; the text says what is wrong with it."""


class RequestFailed(Exception):
    """A request that got no complete response."""

    @property
    def retryable(self) -> bool:
        """Whether the server has certainly not acted on the request, so that any request, also one
        that is not idempotent, can be repeated on a new connection."""
        return False


class RequestNotProcessed(RequestFailed):
    """The server is going away and told that it will not process the request (RFC 9114 section 5.2)."""

    def __init__(self) -> None:
        super().__init__(
            "the server is going away and has not processed the request: "
            "repeat it on a new connection"
        )

    @property
    def retryable(self) -> bool:
        """Always."""
        return True


class RequestReset(RequestFailed):
    """The server gave up on the request. ``error_code`` is its reason (RFC 9114 section 8.1)."""

    def __init__(self, error_code: int) -> None:
        super().__init__(f"the server reset the request: {code_name(error_code)}")
        self.error_code = error_code

    @property
    def retryable(self) -> bool:
        """With H3_REQUEST_REJECTED (RFC 9114 section 4.1.1)."""
        return self.error_code == ErrorCode.H3_REQUEST_REJECTED


def code_name(code: int) -> str:
    """The RFC's name of an HTTP/3 error code, or its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"{code:#x}"
