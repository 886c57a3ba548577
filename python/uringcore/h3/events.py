"""What an HTTP/3 connection tells its user: aioquic's events, and one for streams given up.

The classes are Rust. They are immutable, take positional and keyword arguments, compare by value,
and work with ``match``.
"""

from __future__ import annotations

from uringcore._uringcore import (
    DatagramReceived,
    DataReceived,
    H3Event,
    HeadersReceived,
    MessageAborted,
    PushPromiseReceived,
    WebTransportStreamDataReceived,
)

__all__ = [
    "DataReceived",
    "DatagramReceived",
    "H3Event",
    "Headers",
    "HeadersReceived",
    "MessageAborted",
    "PushPromiseReceived",
    "WebTransportStreamDataReceived",
]

Headers = list[tuple[bytes, bytes]]
