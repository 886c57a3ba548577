"""What an HTTP/3 connection tells its user: aioquic's events, and two of our own:
:class:`MessageAborted` for streams given up and :class:`GoAwayReceived` for the server's GOAWAY.

The classes are Rust. They are immutable, take positional and keyword arguments, compare by value,
and work with ``match``.
"""

from __future__ import annotations

from uringcore._uringcore import (
    DatagramReceived,
    DataReceived,
    GoAwayReceived,
    H3Event,
    HeadersReceived,
    MessageAborted,
    PushPromiseReceived,
    WebTransportStreamDataReceived,
)

__all__ = [
    "DataReceived",
    "DatagramReceived",
    "GoAwayReceived",
    "H3Event",
    "Headers",
    "HeadersReceived",
    "MessageAborted",
    "PushPromiseReceived",
    "WebTransportStreamDataReceived",
]

Headers = list[tuple[bytes, bytes]]
