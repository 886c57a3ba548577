"""Events of a session under aiopquic's names. Not here: the session (``uringcore.contrib.aiopquic``)."""

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
"""The error code of streams that end because their session has ended."""

_NOTHING = memoryview(b"")


class WebTransportError(ConnectionError):
    """The session was closed, was refused, or timed out. ``__cause__`` is uringcore's exception."""


class WebTransportEvent:
    """The base of all events."""


@dataclass
class WebTransportSessionReady(WebTransportEvent):
    """The session is open. Never delivered: programs get open sessions only."""


@dataclass
class WebTransportSessionRefused(WebTransportEvent):
    """The server refused the session. Never delivered: ``connect_webtransport`` raises instead."""

    error_code: int = 0


@dataclass
class WebTransportSessionDraining(WebTransportEvent):
    """The peer has asked this side to end the session."""


@dataclass
class WebTransportSessionClosed(WebTransportEvent):
    """The session has ended. This is the last event.

    If the connection was lost, ``error_code`` and ``reason`` come from the connection's end. Without a code,
    e.g. after a reset of the CONNECT stream, ``error_code`` is :data:`WT_SESSION_GONE`: 0 means a close with
    this code.
    """

    error_code: int = 0
    reason: memoryview = _NOTHING


@dataclass
class WebTransportNewStream(WebTransportEvent):
    """The peer has opened a stream."""

    stream_id: int = 0


@dataclass
class WebTransportStreamDataReceived(WebTransportEvent):
    """Data of a stream. With ``end_stream`` the stream ends after the data."""

    stream_id: int = 0
    data: memoryview = _NOTHING
    end_stream: bool = False


@dataclass
class WebTransportStreamReset(WebTransportEvent):
    """The peer has sent RESET_STREAM."""

    stream_id: int = 0
    error_code: int = 0


@dataclass
class WebTransportStopSending(WebTransportEvent):
    """The peer has sent STOP_SENDING."""

    stream_id: int = 0
    error_code: int = 0


@dataclass
class WebTransportDatagramReceived(WebTransportEvent):
    """A datagram."""

    data: memoryview = _NOTHING
