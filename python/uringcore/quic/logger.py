"""qlog traces (draft-ietf-quic-qlog-main-schema), in aioquic's shape.

What is written today is what can be seen from outside the packet layer: the connection's start, the
negotiated protocol, stream and datagram data as it reaches the program, and the end with its cause.
Packets, frames and recovery metrics are not in the traces yet.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from typing import Any

from uringcore.quic import events

__all__ = ["QLOG_VERSION", "QuicFileLogger", "QuicLogger", "QuicLoggerTrace", "hexdump"]

QLOG_VERSION = "0.3"


def hexdump(data: bytes) -> str:
    """``data`` in hexadecimal, as qlog writes connection ids."""
    return data.hex()


class QuicLoggerTrace:
    """The trace of one connection.

    A trace keeps its newest 65,536 events; older ones are dropped.
    """

    def __init__(self, *, is_client: bool, odcid: bytes) -> None:
        self._odcid = odcid
        self._events: deque[dict[str, Any]] = deque(maxlen=_EVENTS_MAX)
        self._vantage_point = {
            "name": "uringcore",
            "type": "client" if is_client else "server",
        }

    def encode_time(self, seconds: float) -> float:
        """Converts a time in seconds to qlog's milliseconds."""
        return seconds * 1000

    def encode_http3_data_frame(self, length: int, stream_id: int) -> dict[str, Any]:
        """The qlog form of an HTTP/3 DATA frame."""
        return {"frame": {"frame_type": "data"}, "length": length, "stream_id": stream_id}

    def encode_http3_headers_frame(
        self, length: int, headers: list[tuple[bytes, bytes]], stream_id: int
    ) -> dict[str, Any]:
        """The qlog form of an HTTP/3 HEADERS frame."""
        return {
            "frame": {
                "frame_type": "headers",
                "headers": [
                    {"name": name.decode("latin-1"), "value": value.decode("latin-1")}
                    for name, value in headers
                ],
            },
            "length": length,
            "stream_id": stream_id,
        }

    def log_event(self, *, category: str, event: str, data: dict[str, Any]) -> None:
        """Appends one event, stamped with the wall clock."""
        self._events.append(
            {
                "data": data,
                "name": category + ":" + event,
                "time": self.encode_time(time.time()),
            }
        )

    def log_quic_event(self, event: events.QuicEvent) -> None:
        """Appends what ``event`` says, if qlog has a word for it."""
        if isinstance(event, events.StreamDataReceived):
            data: dict[str, Any] = {
                "stream_id": event.stream_id,
                "length": len(event.data),
                "from": "transport",
                "to": "application",
            }
            self.log_event(category="transport", event="data_moved", data=data)
        elif isinstance(event, events.DatagramFrameReceived):
            data = {"length": len(event.data), "from": "transport", "to": "application"}
            self.log_event(category="transport", event="data_moved", data=data)
        elif isinstance(event, events.ProtocolNegotiated):
            data = {"chosen_alpn": event.alpn_protocol}
            self.log_event(category="transport", event="alpn_information", data=data)
        elif isinstance(event, events.HandshakeCompleted):
            data = {"old": "handshake_started", "new": "handshake_completed"}
            self.log_event(category="connectivity", event="connection_state_updated", data=data)
        elif isinstance(event, events.ConnectionTerminated):
            space = "application_code" if event.frame_type is None else "connection_code"
            data = {
                "owner": "local" if event.kind == "local" else "remote",
                space: event.error_code,
                "reason": event.reason_phrase,
            }
            self.log_event(category="connectivity", event="connection_closed", data=data)

    def to_dict(self) -> dict[str, Any]:
        """The trace as a dictionary which can be written as JSON."""
        return {
            "common_fields": {"ODCID": hexdump(self._odcid)},
            "events": list(self._events),
            "vantage_point": self._vantage_point,
        }


class QuicLogger:
    """Keeps the traces of all its connections in memory."""

    def __init__(self) -> None:
        self._traces: list[QuicLoggerTrace] = []

    def start_trace(self, is_client: bool, odcid: bytes) -> QuicLoggerTrace:
        """A new trace; ``odcid`` names the connection."""
        trace = QuicLoggerTrace(is_client=is_client, odcid=odcid)
        self._traces.append(trace)
        return trace

    def end_trace(self, trace: QuicLoggerTrace) -> None:
        """The connection is over. Raises ``ValueError`` for a trace that is not of this logger."""
        if trace not in self._traces:
            raise ValueError("QuicLoggerTrace does not belong to QuicLogger")

    def to_dict(self) -> dict[str, Any]:
        """The traces as a dictionary which can be written as JSON."""
        return {
            "qlog_format": "JSON",
            "qlog_version": QLOG_VERSION,
            "traces": [trace.to_dict() for trace in self._traces],
        }


class QuicFileLogger(QuicLogger):
    """Writes one file per connection into the directory ``path``, when the connection ends."""

    def __init__(self, path: str) -> None:
        if not os.path.isdir(path):
            raise ValueError(f"QUIC log output directory '{path}' does not exist")
        self.path = path
        super().__init__()

    def end_trace(self, trace: QuicLoggerTrace) -> None:
        """Writes the trace to ``<path>/<connection id>.qlog`` and forgets it."""
        super().end_trace(trace)
        content = trace.to_dict()
        name = content["common_fields"]["ODCID"] + ".qlog"
        with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
            document = {"qlog_format": "JSON", "qlog_version": QLOG_VERSION, "traces": [content]}
            json.dump(document, file)
        self._traces.remove(trace)


_EVENTS_MAX = 65536
