"""Exceptions of requests: one family, :class:`HTTP3Error`.

A :class:`~uringcore.http3.Client` raises nothing else, except for exceptions of the program's own body.
"""

from __future__ import annotations

from uringcore._pickling import PickledWhole
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


class HTTP3Error(PickledWhole, Exception):
    """A request that got no complete response, whatever the reason."""

    @property
    def retryable(self) -> bool:
        """True if the server has certainly not acted on the request, so that any request, also one
        that is not idempotent, can be repeated on a new connection."""
        return False


class URLError(HTTP3Error, ValueError):
    """A URL that HTTP/3 cannot fetch; the text says what is wrong with it."""


class InvalidRequestError(HTTP3Error, ValueError):
    """A method or header field that HTTP/3 cannot carry (RFC 9114 section 4.2). Nothing was sent."""


class RequestFailedError(HTTP3Error):
    """A request that got no complete response from a server that was there."""


class RequestNotProcessedError(RequestFailedError):
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


class RequestResetError(RequestFailedError):
    """The server gave up on the request. ``error_code`` is its reason (RFC 9114 section 8.1)."""

    def __init__(self, error_code: int) -> None:
        super().__init__(f"the server reset the request: {code_name(error_code)}")
        self.error_code = error_code

    @property
    def retryable(self) -> bool:
        """With H3_REQUEST_REJECTED (RFC 9114 section 4.1.1)."""
        return self.error_code == ErrorCode.H3_REQUEST_REJECTED


class MalformedResponseError(RequestFailedError):
    """The response is not one (RFC 9114 section 4.1.2): its stream was reset with ``error_code``, and
    the connection goes on."""

    def __init__(self, error_code: int) -> None:
        super().__init__(f"the server's response is malformed: {code_name(error_code)}")
        self.error_code = error_code


class ConnectionLostError(RequestFailedError, QuicConnectionError):
    """The connection ended under the request. ``__cause__`` is QUIC's exception, whose class says how."""

    _is_unsent = False

    @classmethod
    def by(cls, error: QuicConnectionError, *, unsent: bool = False) -> ConnectionLostError:
        """For one request on the connection that ended with ``error``, perhaps before it was sent."""
        lost = cls(error.error_code, error.frame_type, error.reason_phrase, str(error))
        lost.__cause__ = error
        lost._is_unsent = unsent
        return lost

    @property
    def retryable(self) -> bool:
        """If the connection had ended before anything of the request was sent."""
        return self._is_unsent


class ConnectError(HTTP3Error, ConnectionError):
    """No connection could be made. ``__cause__`` says why: a
    :class:`~uringcore.quic.QuicConnectionError`, a ``socket.gaierror``, another ``OSError``."""

    @classmethod
    def by(cls, error: Exception) -> ConnectError:
        """For one request that waited for the connection that failed with ``error``."""
        failed = cls(str(error))
        failed.__cause__ = error
        return failed

    @property
    def retryable(self) -> bool:
        """Always: nothing was sent."""
        return True


class RequestTimeoutError(HTTP3Error, TimeoutError):
    """A limit of :class:`~uringcore.http3.Timeouts` passed."""


class ConnectTimeoutError(RequestTimeoutError):
    """No connection within ``Timeouts.connect`` seconds."""

    @property
    def retryable(self) -> bool:
        """Always: nothing was sent."""
        return True


class ReadTimeoutError(RequestTimeoutError):
    """Nothing arrived for ``Timeouts.read`` seconds."""


class WriteTimeoutError(RequestTimeoutError):
    """The server took nothing more of the body for ``Timeouts.write`` seconds."""


class PoolTimeoutError(RequestTimeoutError):
    """No stream was free within ``Timeouts.pool`` seconds, or too many requests waited for one."""

    @property
    def retryable(self) -> bool:
        """Always: nothing was sent."""
        return True


def code_name(code: int) -> str:
    """The RFC's name of an HTTP/3 error code, or its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"{code:#x}"
