"""The events of an HTTP/3 connection: aioquic's, and two of our own:
:class:`MessageAborted` for aborted streams and :class:`GoAwayReceived` for the server's GOAWAY.

The classes are implemented in Rust. Their fields are immutable. They accept positional and keyword arguments,
and a program's own attributes, compare by value, work with ``match`` and ``dataclasses``, and can be copied
and pickled.
"""

from __future__ import annotations

from uringcore._rust_event_dataclasses import describe
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

_PUSH = (int | None, None)
describe(DataReceived, data=bytes, stream_id=int, stream_ended=bool, push_id=_PUSH)
describe(DatagramReceived, data=bytes, stream_id=int)
describe(GoAwayReceived, stream_id=int)
describe(
    HeadersReceived,
    {"early_data": False},
    headers=Headers,
    stream_id=int,
    stream_ended=bool,
    push_id=_PUSH,
)
describe(MessageAborted, stream_id=int, error_code=int)
describe(PushPromiseReceived, headers=Headers, push_id=int, stream_id=int)
describe(
    WebTransportStreamDataReceived, data=bytes, stream_id=int, stream_ended=bool, session_id=int
)
