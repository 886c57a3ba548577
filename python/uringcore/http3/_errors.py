"""Exceptions of requests: one family, :class:`HTTP3Error`.

A :class:`~uringcore.http3.Client` raises nothing else, except for exceptions of the program's own body.
"""

from __future__ import annotations

from uringcore._exception_pickling import PickledWithFields
from uringcore.h3.connection import ErrorCode
from uringcore.quic._errors import QuicConnectionError

__all__ = [
    "ConnectError",
    "ConnectTimeoutError",
    "ConnectionLostError",
    "HTTP3Error",
    "InvalidRequestError",
    "MalformedResponseError",
    "PoolTimeoutError",
    "ReadTimeoutError",
    "RequestFailedError",
    "RequestNotProcessedError",
    "RequestResetError",
    "RequestTimeoutError",
    "URLError",
    "WriteTimeoutError",
    "code_name",
]


class HTTP3Error(PickledWithFields, Exception):
    """The base class: a request got no complete response."""

    @property
    def retryable(self) -> bool:
        """True if the server has certainly not acted on the request. Then any request, idempotent or not, can
        be repeated on a new connection."""
        return False


class URLError(HTTP3Error, ValueError):
    """The URL cannot be fetched over HTTP/3; the text has the reason."""


class InvalidRequestError(HTTP3Error, ValueError):
    """A method or header field is not allowed in HTTP/3 (RFC 9114 section 4.2). Nothing was sent."""


class RequestFailedError(HTTP3Error):
    """The server was reached and gave no complete response."""


class RequestNotProcessedError(RequestFailedError):
    """The server has sent GOAWAY and will not process the request (RFC 9114 section 5.2)."""

    def __init__(self) -> None:
        super().__init__(
            "the server is going away and has not processed the request: "
            "repeat it on a new connection"
        )

    @property
    def retryable(self) -> bool:
        """Always true: the server has not processed the request."""
        return True


class RequestResetError(RequestFailedError):
    """The server has reset the request's stream with ``error_code`` (RFC 9114 section 8.1)."""

    def __init__(self, error_code: int) -> None:
        super().__init__(f"the server reset the request: {code_name(error_code)}")
        self.error_code = error_code

    @property
    def retryable(self) -> bool:
        """True for H3_REQUEST_REJECTED (RFC 9114 section 4.1.1)."""
        return self.error_code == ErrorCode.H3_REQUEST_REJECTED


class MalformedResponseError(RequestFailedError):
    """The response is malformed (RFC 9114 section 4.1.2). Its stream was reset with ``error_code``; the
    connection stays open."""

    def __init__(self, error_code: int) -> None:
        super().__init__(f"the server's response is malformed: {code_name(error_code)}")
        self.error_code = error_code


class ConnectionLostError(RequestFailedError, QuicConnectionError):
    """The connection ended before the response was complete. ``__cause__`` is QUIC's exception."""

    _is_unsent = False

    @classmethod
    def by(cls, error: QuicConnectionError, *, unsent: bool = False) -> ConnectionLostError:
        """The exception of one request on a connection that ended with ``error``."""
        lost = cls(error.error_code, error.frame_type, error.reason_phrase, str(error))
        lost.__cause__ = error
        lost._is_unsent = unsent
        return lost

    @property
    def retryable(self) -> bool:
        """True if nothing of the request had been sent."""
        return self._is_unsent


class ConnectError(HTTP3Error, ConnectionError):
    """No connection could be made. ``__cause__`` is a :class:`~uringcore.quic.QuicConnectionError`, a
    ``socket.gaierror`` or another ``OSError``."""

    @classmethod
    def by(cls, error: Exception) -> ConnectError:
        """The exception of one request that waited for a connection that failed with ``error``."""
        failed = cls(str(error))
        failed.__cause__ = error
        return failed

    @property
    def retryable(self) -> bool:
        """True: nothing was sent."""
        return True


class RequestTimeoutError(HTTP3Error, TimeoutError):
    """A time limit of :class:`~uringcore.http3.Timeouts` has passed."""


class ConnectTimeoutError(RequestTimeoutError):
    """No connection was made within ``Timeouts.connect`` seconds."""

    @property
    def retryable(self) -> bool:
        """True: nothing was sent."""
        return True


class ReadTimeoutError(RequestTimeoutError):
    """Nothing of the response arrived for ``Timeouts.read`` seconds."""


class WriteTimeoutError(RequestTimeoutError):
    """The server read nothing of the request's body for ``Timeouts.write`` seconds."""


class PoolTimeoutError(RequestTimeoutError):
    """No stream was free within ``Timeouts.pool`` seconds, or too many requests waited for one."""

    @property
    def retryable(self) -> bool:
        """True: nothing was sent."""
        return True


def code_name(code: int) -> str:
    """The RFC's name of an HTTP/3 error code, or its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"{code:#x}"
