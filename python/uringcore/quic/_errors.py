"""Exceptions of connections and streams: one class for each cause that a program may catch.

Every class except :class:`QuicConfigurationError` is a :class:`QuicError`, with a code and a reason, and a
``ConnectionError``. The end of a connection is a :class:`QuicConnectionError`, which has aioquic's name and
attributes; :func:`error_from_event` chooses its subclass from the ``ConnectionTerminated`` event.
"""

from __future__ import annotations

import errno as _errno
import os
from typing import TYPE_CHECKING, Any

from uringcore._exception_pickling import PickledWithFields
from uringcore.quic.packet import QuicErrorCode
from uringcore.tls import AlertDescription

if TYPE_CHECKING:
    from uringcore._uringcore import ConnectionTerminated

__all__ = [
    "ConnectionClosedError",
    "DatagramSendError",
    "ListenerClosedError",
    "QuicAlpnError",
    "QuicCertificateError",
    "QuicConfigurationError",
    "QuicConnectionError",
    "QuicConnectionRefusedError",
    "QuicError",
    "QuicIdleTimeoutError",
    "QuicTlsError",
    "QuicVersionError",
    "StreamClosedError",
    "StreamError",
    "StreamResetError",
    "StreamStoppedError",
    "error_from_event",
]


class QuicConfigurationError(PickledWithFields, ValueError):
    """A field of a configuration has an impossible or unsupported value; ``field`` is its name."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class QuicError(PickledWithFields, ConnectionError):
    """The base class: a connection, a stream, or an operation on one of them has failed."""

    code: int = 0
    """The error code: the application's, or one of RFC 9000 section 20.1 for errors of the transport."""

    reason: str = ""
    """The reason phrase that came with the code."""


class StreamError(QuicError):
    """A direction of a stream has ended before its FIN. ``stream_id`` is the stream's ID."""

    def __init__(self, stream_id: int, code: int, reason: str = "") -> None:
        super().__init__(f"stream {stream_id}: {reason or self._text}, error {code:#x}")
        self.stream_id = stream_id
        self.code = code
        self.reason = reason

    _text = "it has failed"


class StreamResetError(StreamError):
    """The peer has reset the stream with ``code`` (RESET_STREAM, RFC 9000 section 19.4)."""

    _text = "the peer has reset it"


class StreamStoppedError(StreamError):
    """The peer has stopped the stream with ``code`` (STOP_SENDING, RFC 9000 section 19.5)."""

    _text = "the peer has stopped it"


class StreamClosedError(StreamError):
    """This side has already finished, reset or stopped the stream."""

    def __init__(self, stream_id: int, reason: str) -> None:
        super().__init__(stream_id, 0, reason)
        self.args: tuple[Any, ...] = (f"stream {stream_id}: {reason}",)


class DatagramSendError(QuicError, ValueError):
    """A datagram was not sent: it is longer than the peer or the path allows, or one side does not use
    datagrams (RFC 9221). The connection stays open.

    Also a ``ValueError``. The limit depends on the peer and the network, so any program that sends datagrams
    has to expect this exception.
    """


class ListenerClosedError(QuicError):
    """The listener is closed: no more connections can be accepted."""


class WriteAfterResetError(ConnectionResetError, RuntimeError):
    """A write to a stream that was reset, by this side or after the peer's STOP_SENDING.

    Raised under aioquic's names, and also a ``RuntimeError``, as in aioquic.
    """


class StreamEndedError(ConnectionResetError, ValueError):
    """A command on a stream that has ended in both directions.

    Raised under aioquic's names, and also a ``ValueError``, as in aioquic.
    """


class QuicConnectionError(QuicError):
    """The connection ended.

    ``error_code`` is the code on the wire, ``frame_type`` the type of the frame that caused the error
    (``None`` for an application's close, RFC 9000 section 19.19), ``reason_phrase`` the text that came with
    them.
    """

    def __init__(
        self,
        error_code: int,
        frame_type: int | None,
        reason_phrase: str,
        message: str | None = None,
    ) -> None:
        super().__init__(
            message
            if message is not None
            else f"Error: {error_code}, reason: {reason_phrase}"
            + (f", frame_type: {frame_type}" if frame_type is not None else "")
        )
        self.error_code = error_code
        self.frame_type = frame_type
        self.reason_phrase = reason_phrase
        self.code = error_code
        self.reason = reason_phrase


class ConnectionClosedError(QuicConnectionError):
    """The application of this side or of the peer has closed the connection, with a code and a reason of its
    own."""


class QuicTlsError(QuicConnectionError):
    """The TLS handshake failed. ``alert`` is the alert's number (RFC 8446 section 6)."""

    @property
    def alert(self) -> int:
        """The TLS alert, which QUIC carries as ``0x100 + alert`` (RFC 9001 section 4.8)."""
        return self.error_code - 0x100


class QuicCertificateError(QuicTlsError):
    """A certificate was not accepted: unknown issuer, expired, or issued for another name."""


class QuicAlpnError(QuicTlsError):
    """Client and server have no application protocol in common (RFC 7301)."""


class QuicIdleTimeoutError(QuicConnectionError, TimeoutError):
    """No packet arrived from the peer within the idle time-out (RFC 9000 section 10.1)."""


class QuicVersionError(QuicConnectionError):
    """The server supports none of the client's versions of QUIC (RFC 9000 section 6.2)."""


class QuicConnectionRefusedError(QuicConnectionError, ConnectionRefusedError):
    """The network or the server refused the connection.

    The network: an ICMP error such as port unreachable, whose number is ``errno``. The server:
    CONNECTION_REFUSED (RFC 9000 section 20.1).
    """

    def __init__(
        self,
        error_code: int,
        frame_type: int | None,
        reason_phrase: str,
        message: str | None = None,
        *,
        errno: int = _errno.ECONNREFUSED,
    ) -> None:
        super().__init__(error_code, frame_type, reason_phrase, message)
        self.errno: int | None = errno


_CERTIFICATE_ALERTS = frozenset(
    {
        AlertDescription.bad_certificate,
        AlertDescription.unsupported_certificate,
        AlertDescription.certificate_revoked,
        AlertDescription.certificate_expired,
        AlertDescription.certificate_unknown,
        AlertDescription.unknown_ca,
        AlertDescription.bad_certificate_status_response,
        AlertDescription.certificate_required,
    }
)


# The beginning of all error messages about certificates. Their alerts differ: a wrong signature, for example,
# is a decrypt_error (RFC 8446 section 6.2).
_OUR_VERIFIER = "certificate verification failed"


_TOO_SMALL = (
    "the network does not take datagrams as large as QUIC needs "
    "(1,200 bytes: an MTU of 1,228 for IPv4, 1,248 for IPv6)"
)


def _alert_name(alert: int) -> str:
    try:
        return AlertDescription(alert).name
    except ValueError:
        return "unknown alert"


def _tls_error(event: ConnectionTerminated, alert: int) -> QuicTlsError:
    said = f" ({event.reason_phrase})" if event.reason_phrase else ""
    named = f"TLS alert {alert}, {_alert_name(alert)}"
    kind: type[QuicTlsError] = QuicTlsError
    if alert == AlertDescription.no_application_protocol:
        kind = QuicAlpnError
        message = (
            "no application protocol in common with the peer: compare alpn_protocols on both "
            f"sides{said} [{named}]"
        )
    elif alert in _CERTIFICATE_ALERTS or event.reason_phrase.startswith(_OUR_VERIFIER):
        kind = QuicCertificateError
        message = f"the certificate was not accepted{said} [{named}]"
    else:
        message = f"the TLS handshake failed{said} [{named}]"
    return kind(event.error_code, event.frame_type, event.reason_phrase, message)


def error_from_event(event: ConnectionTerminated, peer: object = None) -> QuicConnectionError:
    """Returns the exception for a ``ConnectionTerminated`` event. ``peer`` is named in the text if it is
    given.
    """
    args = (event.error_code, event.frame_type, event.reason_phrase)
    whom = f" to {peer}" if peer is not None else ""
    said = f": {event.reason_phrase}" if event.reason_phrase else ""
    if event.alert is not None:
        return _tls_error(event, event.alert)
    if event.kind == "unreachable":
        code = event.errno if event.errno is not None else _errno.ECONNREFUSED
        if code == _errno.EMSGSIZE:
            message = f"no connection{whom} is possible: {_TOO_SMALL}"
            return QuicConnectionRefusedError(*args, message, errno=code)
        refused_hint = "; no program listens there" if code == _errno.ECONNREFUSED else ""
        message = f"the connection{whom} was refused: {os.strerror(code)}{refused_hint}"
        return QuicConnectionRefusedError(*args, message, errno=code)
    if event.kind == "idle_timeout":
        return QuicIdleTimeoutError(*args, f"the connection{whom} timed out: the peer is silent")
    if event.kind == "version_negotiation":
        return QuicVersionError(*args, f"the server{whom} supports none of our QUIC versions")
    if event.kind == "stateless_reset":
        message = f"the connection{whom} was reset: the peer has lost its state"
        return QuicConnectionError(*args, message)
    if event.kind == "local":
        kind = ConnectionClosedError if event.frame_type is None else QuicConnectionError
        return kind(*args, f"the connection{whom} was closed on this side{said}")
    if event.kind == "peer_transport" and event.error_code == QuicErrorCode.CONNECTION_REFUSED:
        return QuicConnectionRefusedError(*args, f"the server refused the connection{whom}{said}")
    is_applications = event.kind == "peer_application"
    by = "application" if is_applications else "transport"
    message = f"the peer closed the connection{whom}, {by} error {event.error_code:#x}{said}"
    return (ConnectionClosedError if is_applications else QuicConnectionError)(*args, message)
