"""What a server takes on over HTTP/3: of each client, and of all together.

Each limit is a field of a dataclass, and an option of the command: ``--http3-`` and its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from uvicorn.config import Config

from uringcore._uringcore import Http3Limits, WebSocketLimits, WebTransportLimits
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic._sequence_logger import TraceLimits
from uringcore.quic.limits import ServerLimits
from uringcore.server._startup import StartupError

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
"""Handshakes under way from which on a new client proves its address first (RFC 9000 section 8.1.2):
a flood of invented addresses costs the memory of so many, and a flash crowd a round trip."""

SESSION_LIMIT_MAX = 1 << 32

SESSION_STREAMS_MAX = 1 << 16
"""QUIC keeps a place for each stream that a client may open."""


@dataclass(frozen=True)
class HTTP3Limits:
    """The bounds of one connection; times are in seconds. Raises ``ValueError`` naming the field."""

    max_requests: int = 100
    """Requests that may be open at once; the client waits for a stream. RFC 9114 section 6.1 wants no fewer,
    and an idle connection takes memory for each. Eight times as many applications may be at work, those
    included that have sent their response and go on."""

    max_requests_per_connection: int | None = None
    """Requests in all, after which the client is told to go away (GOAWAY) and comes again."""

    max_header_bytes: int = HEADER_BYTES_MAX
    """Size of a request's header section, which the client is told in SETTINGS; above it 431 is
    answered, or the stream reset (H3_EXCESSIVE_LOAD)."""

    max_header_fields: int = 256
    """Fields of a request's header section; above it as above."""

    max_early_resets: int = 1000
    """Requests that the client may give up before they are answered, at once; more close the
    connection (H3_EXCESSIVE_LOAD) and cancel its applications."""

    early_reset_rate: float = 33.0
    """Requests a second that the client may go on giving up beyond ``max_early_resets``."""

    header_timeout: float = 10.0
    """Within which a request's header section has to be complete; then the request is refused
    (H3_REQUEST_REJECTED)."""

    body_timeout: float = 60.0
    """Within which the next of a request's content has to come while the application waits for it and has
    not begun its response; then 408 is answered."""

    body_rate: int = 240
    """Bytes of content that earn a client a second more for all of it."""

    send_timeout: float = 600.0
    """Within which a client has to take something of a response that waits for it; then the response is
    given up (H3_REQUEST_CANCELLED). A client that reads slowly takes half of its window at a time."""

    send_rate: int = 240
    """Bytes a second that a client has to take of responses that wait for it. A response that falls further
    behind than ``send_rate_grace`` is given up like one of which nothing is taken. Responses of one urgency
    (RFC 9218) make the rate together. Time in which a response waits behind others, or for its application,
    does not count. 0 is no least rate."""

    send_rate_grace: float = 60.0
    """Seconds that a response may fall behind that rate. What its client takes above the rate makes up for
    lost time, up to this grace period. A gap in which nothing is taken costs the grace period at most:
    ``send_timeout`` ends longer ones."""

    keep_alive: float = 120.0
    """After which a connection without requests is closed, however often its client pings."""

    max_open_files: int = 16
    """Files of ``http.response.pathsend`` that stay open while their responses wait for the client. Those
    of more responses are opened again for each part; a response whose file was replaced meanwhile is
    given up (H3_INTERNAL_ERROR)."""

    max_process_files: int | None = None
    """Files that are open for responses of the whole process, shared fairly among client addresses (IPv6 by
    /64); by default a quarter of the descriptors that the process may have (RLIMIT_NOFILE) and at most
    16,384, and never more than half of them. A response whose file cannot be opened for want of a place
    waits for one."""

    max_large_messages: int = 4
    """Messages of more than 256 KiB that may be on their way at once on a connection's WebSockets; others
    wait for credit until one is whole and taken."""

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
        origins: Sequence[str] = (),
    ) -> Http3Limits:
        """For the extension. ``refuses_early``: what may not be repeated and comes as 0-RTT data
        is answered with 425 instead of waiting for the handshake. ``protocols``: those of extended
        CONNECT that the application speaks, besides WebSocket. ``origins``: what an ORIGIN frame
        names."""
        return Http3Limits(
            **asdict(self),
            refuses_early=refuses_early,
            protocols=list(protocols),
            origins=list(origins),
        )


@dataclass(frozen=True)
class SessionLimits:
    """The bounds of WebTransport on one connection. Raises ``ValueError`` naming the field."""

    max_sessions: int = 1024
    """Sessions at once. The client is told so where its draft of the protocol has a word for that, and a
    request for another is reset (H3_REQUEST_REJECTED)."""

    max_session_streams: int = 256
    """Streams in both directions that a client may have open in one session; then it waits for one."""

    max_session_uni_streams: int = 256
    """Streams in its direction only that a client may have open in one session; then it waits for one."""

    session_window: int = 16 * 1024 * 1024
    """Bytes of one session's streams that may wait to be read, where the draft has credit of sessions; then
    the client waits. What waits of all sessions together is bounded by the connection's window."""

    session_datagram_buffer: int = 1024 * 1024
    """Bytes of one session's received datagrams that may wait for the application; the oldest make
    room."""

    def __post_init__(self) -> None:
        check_numbers(self)
        for name, value in asdict(self).items():
            of_streams = name.endswith("streams")
            least, most = (0, SESSION_STREAMS_MAX) if of_streams else (1, SESSION_LIMIT_MAX)
            if not least <= value <= most:
                raise ValueError(f"{name} must be {least} to {most}, not {value}")

    def checked(self) -> WebTransportLimits:
        """For the extension."""
        return WebTransportLimits(
            sessions=self.max_sessions,
            streams=self.max_session_streams,
            uni_streams=self.max_session_uni_streams,
            window=self.session_window,
            datagram_bytes=self.session_datagram_buffer,
        )


def check_numbers(limits: HTTP3Limits | SessionLimits) -> None:
    """Raises ``ValueError`` naming a field that has no number of its kind."""
    for field in fields(limits):
        kind, value = str(field.type), getattr(limits, field.name)
        if value is None and "None" in kind:
            continue
        if not isinstance(value, (int, float) if "float" in kind else int):
            number = "number" if "float" in kind else "whole number"
            raise ValueError(f"{field.name} must be a {number}, not {value!r}")


def server_limits(**given: Any) -> ServerLimits:
    """The bounds of all connections together, with a server's own defaults."""
    return ServerLimits(**{"retry_handshakes": RETRY_HANDSHAKES, **given})


class LimitOption(NamedTuple):
    """An option that is a limit."""

    kind: type[HTTP3Limits | SessionLimits | ServerLimits]
    """What it is a field of."""
    type: type[int | float]
    default: Any


def limit_options() -> dict[str, LimitOption]:
    """The options that are limits, by name without ``http3_``."""
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
    """Takes the limits out of a server's ``http3_`` options.

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
    """What uvicorn's ``ws_`` options mean over HTTP/3; ``ws="none"`` takes none there either.

    Nor does an application of WSGI, as over TCP.
    """
    if config.ws == "none" or config.interface == "wsgi":
        return None
    return WebSocketLimits(
        max_size=config.ws_max_size,
        max_queue=config.ws_max_queue,
        ping_interval=config.ws_ping_interval,
        ping_timeout=config.ws_ping_timeout,
    )


def named_field(error: ValueError) -> tuple[str, str]:
    """The field that an error of a limit names first, and what it says of it."""
    field, _, said = str(error).partition(" ")
    return field.removesuffix(":"), said
