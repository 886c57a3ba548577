"""Why a connection or a stream failed, as exceptions: a class for each cause that a program may want to
catch.

Every class but that for settings is a :class:`QuicError` with a code and a reason, and a
``ConnectionError``. Those about a connection are a :class:`QuicConnectionError` (aioquic's name and
attributes). :func:`error_from_event` is the only place that decides which one a ``ConnectionTerminated``
event becomes.
"""

from __future__ import annotations

import errno as _errno
import os
from typing import TYPE_CHECKING

from uringcore._pickling import PickledWhole
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


class QuicConfigurationError(PickledWhole, ValueError):
    """A field of a configuration is impossible or not supported; ``field`` is its name."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class QuicError(PickledWhole, ConnectionError):
    """Something of a connection has ended: it as a whole, or a stream of it."""

    code: int = 0
    """The error code: the application's, or that of RFC 9000 section 20.1 where the transport is at
    fault."""

    reason: str = ""
    """The text that came with it."""


class StreamError(QuicError):
    """One direction of a stream has ended otherwise than by its end."""

    def __init__(self, stream_id: int, code: int, reason: str = "") -> None:
        super().__init__(f"stream {stream_id}: {reason or self._text}, error {code:#x}")
        self.stream_id = stream_id
        self.code = code
        self.reason = reason

    _text = "it has failed"


class StreamResetError(StreamError):
    """The peer gave up sending (RFC 9000 section 19.4), with this code."""

    _text = "the peer has reset it"


class StreamStoppedError(StreamError):
    """The peer wants no more data (RFC 9000 section 19.5), with this code."""

    _text = "the peer wants no more of it"


class StreamClosedError(StreamError):
    """This side has finished, reset or stopped the stream."""

    def __init__(self, stream_id: int, reason: str) -> None:
        super().__init__(stream_id, 0, reason)
        self.args = (f"stream {stream_id}: {reason}",)


class DatagramSendError(QuicError, ValueError):
    """A datagram was not sent: the other side takes none, or none as long as this, or none fits into a
    packet on this path; or this side has them switched off (RFC 9221). The connection is as it was.

    A ``ValueError`` too, which says it of the length. What is allowed is up to the peer and the network,
    so a program that sends datagrams to strangers meets this one, whatever it sends.
    """


class ListenerClosedError(QuicError):
    """The listener was closed: there are no more connections to be accepted."""


class WriteAfterResetError(ConnectionResetError, RuntimeError):
    """Data for a stream that was reset: by this side, or because the peer asked to stop.

    A ``RuntimeError`` too, which is what aioquic raises.
    """


class StreamEndedError(ConnectionResetError, ValueError):
    """A stream that is over in both directions was named. A ``ValueError`` too, as in aioquic."""


class QuicConnectionError(QuicError):
    """The connection ended.

    ``error_code`` is the code on the wire, ``frame_type`` the frame that was at fault (``None`` for
    an application's close, RFC 9000 section 19.19), ``reason_phrase`` the text that came with it.
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
    """An application closed the connection, on either side, with a code and a reason of its own."""


class QuicTlsError(QuicConnectionError):
    """The TLS handshake failed. ``alert`` is the alert's number (RFC 8446 section 6)."""

    @property
    def alert(self) -> int:
        """The TLS alert, which QUIC carries as ``0x100 + alert`` (RFC 9001 section 4.8)."""
        return self.error_code - 0x100


class QuicCertificateError(QuicTlsError):
    """A certificate was not accepted: unknown issuer, expired, or not made for this name."""


class QuicAlpnError(QuicTlsError):
    """Client and server have no application protocol in common (RFC 7301)."""


class QuicIdleTimeoutError(QuicConnectionError, TimeoutError):
    """Nothing was heard from the peer for the idle time-out (RFC 9000 section 10.1)."""


class QuicVersionError(QuicConnectionError):
    """The server speaks no version of QUIC that we speak (RFC 9000 section 6.2)."""


class QuicConnectionRefusedError(QuicConnectionError, ConnectionRefusedError):
    """Nobody is there, or nobody who wants the connection.

    The network said so (e.g. ICMP port unreachable; ``errno`` says which), or the server did
    (CONNECTION_REFUSED, RFC 9000 section 20.1).
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
        self.errno = errno


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


# How our own verifier begins, whatever alert TLS has for what it found: a wrong signature, for one,
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
    """The exception that says what ``event`` says. ``peer`` is named in the text when given."""
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
        nobody = "; nobody listens there" if code == _errno.ECONNREFUSED else ""
        message = f"the connection{whom} was refused: {os.strerror(code)}{nobody}"
        return QuicConnectionRefusedError(*args, message, errno=code)
    if event.kind == "idle_timeout":
        return QuicIdleTimeoutError(*args, f"the connection{whom} timed out: the peer is silent")
    if event.kind == "version_negotiation":
        return QuicVersionError(*args, f"the server{whom} speaks none of our QUIC versions")
    if event.kind == "stateless_reset":
        message = f"the connection{whom} was reset: the peer no longer knows it"
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
