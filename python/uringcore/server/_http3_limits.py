"""Limits of a server's HTTP/3 side: for each client, and for all together.

Each limit is a field of a dataclass, and an option of the command: ``--http3-`` and the field's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from uvicorn.config import Config

from uringcore._uringcore import Http3Limits, WebSocketLimits, WebTransportLimits
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic._qlog_files import TraceLimits
from uringcore.quic.limits import ServerLimits
from uringcore.server._startup_errors import StartupError

__all__ = [
    "HEADER_BYTES_MAX",
    "HTTP3Limits",
    "SessionLimits",
    "limit_options",
    "limits_from",
    "server_limits",
    "trace_limits",
    "websocket_limits",
]

HEADER_BYTES_MAX = 64 * 1024

COUNT_MAX = (1 << 32) - 1
"""The largest value of a limit that is a whole number."""

RETRY_HANDSHAKES = 256
"""Number of concurrent handshakes from which on a new client must prove its address first (RFC 9000
section 8.1.2). A flood of forged addresses then costs the memory of this many handshakes, and a burst of
real clients costs each one round trip."""

SESSION_LIMIT_MAX = 1 << 32

SESSION_STREAMS_MAX = 1 << 16
"""The maximum number of streams of a session. QUIC allocates memory for each stream that a client may
open."""


@dataclass(frozen=True)
class HTTP3Limits:
    """The bounds of one connection; times are in seconds. Raises ``ValueError`` naming the field."""

    max_requests: int = 100
    """Requests that may be open at once; the client waits for a stream. RFC 9114 section 6.1 recommends at
    least 100, and an idle connection takes memory for each. Up to eight times as many applications may run,
    including those that have sent their response and continue."""

    max_requests_per_connection: int | None = None
    """Requests in all. Then the server sends GOAWAY, and the client opens a new connection."""

    max_header_bytes: int = HEADER_BYTES_MAX
    """Size of a request's header section, which SETTINGS announces to the client. A larger one is answered
    with 431, or its stream is reset (H3_EXCESSIVE_LOAD)."""

    max_header_fields: int = 256
    """Fields of a request's header section. More are answered as for ``max_header_bytes``."""

    max_early_resets: int = 1000
    """Requests that the client may cancel before they are answered, at once. One more closes the connection
    (H3_EXCESSIVE_LOAD) and cancels its applications."""

    early_reset_rate: float = 33.0
    """Requests a second that the client may cancel beyond ``max_early_resets``."""

    header_timeout: float = 10.0
    """Time within which a request's header section must be complete. Otherwise the request is rejected
    (H3_REQUEST_REJECTED)."""

    body_timeout: float = 60.0
    """Time within which more of a request's content must arrive while the application waits for it and has
    not begun its response. Otherwise the server answers with 408."""

    body_rate: int = 240
    """Bytes of content that extend the total time for the content by one second."""

    send_timeout: float = 600.0
    """Time within which a client must read something of a response that waits for it. Otherwise the
    response is cancelled (H3_REQUEST_CANCELLED). A slow client reads half of its window at a time."""

    send_rate: int = 240
    """Bytes a second that a client must read of responses that wait for it. A response that falls further
    behind than ``send_rate_grace`` is cancelled as for ``send_timeout``. Responses of one urgency (RFC 9218)
    count together. Time in which a response waits behind others, or for its application, does not count.
    0 sets no minimum rate."""

    send_rate_grace: float = 60.0
    """Seconds that a response may fall behind ``send_rate``. Reading faster makes up for lost time, up to
    this grace period. A gap in which the client reads nothing costs the grace period at most;
    ``send_timeout`` ends longer ones."""

    keep_alive: float = 120.0
    """Time after which a connection without requests is closed, also if its client sends pings."""

    max_open_files: int = 16
    """Files of ``http.response.pathsend`` that stay open while their responses wait for the client. Files
    of further responses are opened again for each part. If a file was replaced meanwhile, its response is
    cancelled (H3_INTERNAL_ERROR)."""

    max_process_files: int | None = None
    """Files that are open for responses of the whole process, shared fairly among client addresses (IPv6 by
    /64). The default is a quarter of the descriptors that the process may have (RLIMIT_NOFILE), 16,384 at
    most. The value is capped at half of them. A response beyond the limit waits."""

    max_large_messages: int = 4
    """Messages of more than 256 KiB that may be in transit at once on a connection's WebSockets. Others
    wait for credit until one of them is complete and delivered."""

    def __post_init__(self) -> None:
        check_numbers(self)
        for name, value in asdict(self).items():
            if isinstance(value, int) and value > COUNT_MAX:
                raise ValueError(f"{name} must be at most {COUNT_MAX}, not {value}")
        for name in (
            "max_requests",
            "max_header_fields",
            "max_early_resets",
            "body_rate",
            "max_large_messages",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        requests = self.max_requests_per_connection
        if requests is not None and requests < 1:
            raise ValueError(f"max_requests_per_connection must be at least 1, not {requests}")
        if self.send_rate < 0:
            raise ValueError(f"send_rate must be at least 0, not {self.send_rate}")
        if self.max_open_files < 0:
            raise ValueError(f"max_open_files must be at least 0, not {self.max_open_files}")
        files = self.max_process_files
        if files is not None and files < 1:
            raise ValueError(f"max_process_files must be at least 1, not {files}")
        if not 1024 <= self.max_header_bytes <= HEADER_BYTES_MAX:
            raise ValueError(
                f"max_header_bytes must be 1024 to {HEADER_BYTES_MAX}, not {self.max_header_bytes}"
            )
        if not self.early_reset_rate > 0:
            raise ValueError(f"early_reset_rate must be above 0, not {self.early_reset_rate}")
        self.checked()

    def checked(
        self,
        *,
        refuses_early: bool = False,
        protocols: Sequence[str] = (),
    ) -> Http3Limits:
        """Returns the limits for the extension.

        ``refuses_early``: answer unsafe requests in 0-RTT data with 425 instead of delaying them until the
        handshake is complete. ``protocols``: protocols of extended CONNECT that the application implements,
        besides WebSocket.
        """
        return Http3Limits(
            **asdict(self),
            refuses_early=refuses_early,
            protocols=list(protocols),
        )


@dataclass(frozen=True)
class SessionLimits:
    """The bounds of WebTransport on one connection. Raises ``ValueError`` naming the field."""

    max_sessions: int = 1024
    """Concurrent sessions. If the client's draft of the protocol can express this limit, the server
    announces it. A request for another session is reset (H3_REQUEST_REJECTED)."""

    max_session_streams: int = 256
    """Bidirectional streams that a client may have open in one session; then it waits for one."""

    max_session_uni_streams: int = 256
    """Unidirectional streams that a client may have open in one session; then it waits for one."""

    session_window: int = 16 * 1024 * 1024
    """Unread bytes of one session's streams, if the draft has flow control of sessions; then the client
    waits. The connection's window bounds the unread bytes of all sessions together."""

    session_datagram_buffer: int = 1024 * 1024
    """Bytes of one session's received datagrams that may wait for the application; the oldest are
    dropped."""

    def __post_init__(self) -> None:
        check_numbers(self)
        for name, value in asdict(self).items():
            of_streams = name.endswith("streams")
            least, most = (0, SESSION_STREAMS_MAX) if of_streams else (1, SESSION_LIMIT_MAX)
            if not least <= value <= most:
                raise ValueError(f"{name} must be {least} to {most}, not {value}")

    def checked(self) -> WebTransportLimits:
        """Returns the limits for the extension."""
        return WebTransportLimits(
            sessions=self.max_sessions,
            streams=self.max_session_streams,
            uni_streams=self.max_session_uni_streams,
            window=self.session_window,
            datagram_bytes=self.session_datagram_buffer,
        )


def check_numbers(limits: HTTP3Limits | SessionLimits) -> None:
    """Raises ``ValueError`` naming a field whose value is not a number of its type."""
    for field in fields(limits):
        kind, value = str(field.type), getattr(limits, field.name)
        if value is None and "None" in kind:
            continue
        if not isinstance(value, (int, float) if "float" in kind else int):
            number = "number" if "float" in kind else "whole number"
            raise ValueError(f"{field.name} must be a {number}, not {value!r}")


def server_limits(**given: Any) -> ServerLimits:
    """Returns the limits of all connections together, with a server's defaults."""
    return ServerLimits(**{"retry_handshakes": RETRY_HANDSHAKES, **given})


class LimitOption(NamedTuple):
    """An option that is a limit."""

    kind: type[HTTP3Limits | SessionLimits | ServerLimits]
    """The dataclass with this field."""
    type: type[int | float]
    default: Any


def limit_options() -> dict[str, LimitOption]:
    """Returns the options that are limits, by name without ``http3_``."""
    options: dict[str, LimitOption] = {}
    all_defaults: tuple[HTTP3Limits | SessionLimits | ServerLimits, ...]
    all_defaults = (HTTP3Limits(), SessionLimits(), server_limits())
    for defaults in all_defaults:
        kind = type(defaults)
        for field in fields(kind):
            number = float if "float" in str(field.type) else int
            options[field.name] = LimitOption(kind, number, getattr(defaults, field.name))
    return options


def limits_from(options: dict[str, Any]) -> tuple[HTTP3Limits, SessionLimits, ServerLimits]:
    """Removes the limits from a server's ``http3_`` options and returns them.

    Raises :class:`~uringcore.quic.QuicConfigurationError` naming the option.
    """
    given: dict[type, dict[str, Any]] = {HTTP3Limits: {}, SessionLimits: {}, ServerLimits: {}}
    for name, option in limit_options().items():
        if f"http3_{name}" in options:
            given[option.kind][name] = options.pop(f"http3_{name}")
    try:
        return (
            HTTP3Limits(**given[HTTP3Limits]),
            SessionLimits(**given[SessionLimits]),
            server_limits(**given[ServerLimits]),
        )
    except ValueError as exc:
        field, said = named_field(exc)
        raise QuicConfigurationError(f"http3_{field}", said) from None


def trace_limits(options: dict[str, Any]) -> TraceLimits:
    """Takes the bounds of traces out of a server's options."""
    names = {field.name: f"http3_qlog_{field.name}" for field in fields(TraceLimits)}
    given = {name: options.pop(option) for name, option in names.items() if option in options}
    try:
        return TraceLimits(**given)
    except ValueError as exc:
        field, said = named_field(exc)
        name = f"http3_qlog_{field}"
        raise StartupError(f"{name}: {said}", option=name) from None


def websocket_limits(config: Config) -> WebSocketLimits | None:
    """Returns the limits from uvicorn's ``ws_`` options for HTTP/3; with ``ws="none"`` there are no
    WebSockets there either.

    A WSGI application has none, as over TCP.
    """
    if config.ws == "none" or config.interface == "wsgi":
        return None
    return WebSocketLimits(
        max_size=config.ws_max_size,
        max_queue=config.ws_max_queue,
        ping_interval=config.ws_ping_interval,
        ping_timeout=config.ws_ping_timeout,
        compresses=config.ws_per_message_deflate,
    )


def named_field(error: ValueError) -> tuple[str, str]:
    """Splits the text of a limit's error into the name of the field and the rest."""
    field, _, said = str(error).partition(" ")
    return field.removesuffix(":"), said
