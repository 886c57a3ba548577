"""What happens to a session, as aiopquic names it. Not here: the session (``events``)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "WT_SESSION_GONE",
    "WebTransportDatagramReceived",
    "WebTransportError",
    "WebTransportEvent",
    "WebTransportNewStream",
    "WebTransportSessionClosed",
    "WebTransportSessionDraining",
    "WebTransportSessionReady",
    "WebTransportSessionRefused",
    "WebTransportStopSending",
    "WebTransportStreamDataReceived",
    "WebTransportStreamReset",
]

WT_SESSION_GONE = 0x170D7B68
"""The code of streams that end with their session."""

_NOTHING = memoryview(b"")


class WebTransportError(ConnectionError):
    """The session is unusable: closed, refused or timed out. What uringcore has to say of it is its
    ``__cause__``."""


class WebTransportEvent:
    """What happens to a session."""


@dataclass
class WebTransportSessionReady(WebTransportEvent):
    """The session is open: those that a program gets are, and none is told it."""


@dataclass
class WebTransportSessionRefused(WebTransportEvent):
    """The server wants no session. ``connect_webtransport`` raises instead, and none is told it."""

    error_code: int = 0


@dataclass
class WebTransportSessionDraining(WebTransportEvent):
    """The peer asks for the session to come to its end."""


@dataclass
class WebTransportSessionClosed(WebTransportEvent):
    """The session is over. This is the last event.

    Where neither side has closed it, but the connection was lost, ``error_code`` and ``reason`` are those of
    what ended the connection. Where that has no code either, e.g. when the CONNECT stream was reset, the
    code is :data:`WT_SESSION_GONE`: 0 is that of a session which was closed and said so.
    """

    error_code: int = 0
    reason: memoryview = _NOTHING


@dataclass
class WebTransportNewStream(WebTransportEvent):
    """The peer has opened a stream."""

    stream_id: int = 0


@dataclass
class WebTransportStreamDataReceived(WebTransportEvent):
    """Data of a stream, and with ``end_stream`` its end."""

    stream_id: int = 0
    data: memoryview = _NOTHING
    end_stream: bool = False


@dataclass
class WebTransportStreamReset(WebTransportEvent):
    """The peer gave up sending."""

    stream_id: int = 0
    error_code: int = 0


@dataclass
class WebTransportStopSending(WebTransportEvent):
    """The peer wants no more data."""

    stream_id: int = 0
    error_code: int = 0


@dataclass
class WebTransportDatagramReceived(WebTransportEvent):
    """A datagram."""

    data: memoryview = _NOTHING
