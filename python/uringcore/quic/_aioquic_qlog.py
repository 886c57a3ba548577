"""qlog traces that are kept in memory: aioquic's classes, which :mod:`uringcore.quic.logger` exports."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from uringcore._uringcore import PacketLog
from uringcore.quic import events
from uringcore.quic.packet import (
    QuicFrameType,
    QuicPacketType,
    QuicStreamFrame,
    QuicTransportParameters,
)

__all__ = [
    "PACKET_TYPE_NAMES",
    "QLOG_VERSION",
    "Headers",
    "QuicFileLogger",
    "QuicLogger",
    "QuicLoggerTrace",
    "hexdump",
]

PACKET_TYPE_NAMES = {
    QuicPacketType.INITIAL: "initial",
    QuicPacketType.HANDSHAKE: "handshake",
    QuicPacketType.ZERO_RTT: "0RTT",
    QuicPacketType.ONE_RTT: "1RTT",
    QuicPacketType.RETRY: "retry",
    QuicPacketType.VERSION_NEGOTIATION: "version_negotiation",
}
QLOG_VERSION = "0.3"

Headers = list[tuple[bytes, bytes]]
"Field lines, as HTTP/3 has them."


def hexdump(data: bytes) -> str:
    """Returns ``data`` in hexadecimal, as qlog writes connection ids."""
    return data.hex()


class QuicLoggerTrace:
    """The trace of one connection. Of more than 65,536 events the first 1,024 and the newest are kept."""

    def __init__(self, *, is_client: bool, odcid: bytes) -> None:
        self._odcid = odcid
        self._packet_log: PacketLog | None = None
        self._first: list[dict[str, Any]] = []
        self._newest: deque[dict[str, Any]] = deque(maxlen=_EVENTS_MAX - _FIRST_EVENTS_MAX)
        self._dropped = 0
        self._vantage_point = {
            "name": "uringcore",
            "type": "client" if is_client else "server",
        }

    def encode_time(self, seconds: float) -> float:
        """Converts a time in seconds to qlog's milliseconds."""
        return seconds * 1000

    def packet_type(self, packet_type: QuicPacketType) -> str:
        """Returns the name that qlog has for a type of packet."""
        return PACKET_TYPE_NAMES[packet_type]

    # The qlog forms of frames, for programs that log frames of their own -----------------------

    def encode_ack_frame(self, ranges: Iterable[range], delay: float) -> dict[str, Any]:
        """Encodes an ACK frame. ``ranges`` are half-open ranges of packet numbers, ``delay`` is in
        seconds."""
        return {
            "ack_delay": self.encode_time(delay),
            "acked_ranges": [[numbers.start, numbers.stop - 1] for numbers in ranges],
            "frame_type": "ack",
        }

    def encode_connection_close_frame(
        self, error_code: int, frame_type: int | None, reason_phrase: str
    ) -> dict[str, Any]:
        """CONNECTION_CLOSE; ``frame_type`` is ``None`` for an application's."""
        frame: dict[str, Any] = {
            "error_code": error_code,
            "error_space": "application" if frame_type is None else "transport",
            "frame_type": "connection_close",
            "raw_error_code": error_code,
            "reason": reason_phrase,
        }
        if frame_type is not None:
            frame["trigger_frame_type"] = frame_type
        return frame

    def encode_connection_limit_frame(self, frame_type: int, maximum: int) -> dict[str, Any]:
        """MAX_DATA or MAX_STREAMS."""
        if frame_type == QuicFrameType.MAX_DATA:
            return {"frame_type": "max_data", "maximum": maximum}
        direction = _direction(frame_type == QuicFrameType.MAX_STREAMS_UNI)
        return {"frame_type": "max_streams", "maximum": maximum, "stream_type": direction}

    def encode_crypto_frame(self, frame: QuicStreamFrame) -> dict[str, Any]:
        """CRYPTO."""
        return {"frame_type": "crypto", "length": len(frame.data), "offset": frame.offset}

    def encode_data_blocked_frame(self, limit: int) -> dict[str, Any]:
        """DATA_BLOCKED."""
        return {"frame_type": "data_blocked", "limit": limit}

    def encode_datagram_frame(self, length: int) -> dict[str, Any]:
        """DATAGRAM (RFC 9221)."""
        return {"frame_type": "datagram", "length": length}

    def encode_handshake_done_frame(self) -> dict[str, Any]:
        """HANDSHAKE_DONE."""
        return {"frame_type": "handshake_done"}

    def encode_max_stream_data_frame(self, maximum: int, stream_id: int) -> dict[str, Any]:
        """MAX_STREAM_DATA."""
        return {"frame_type": "max_stream_data", "maximum": maximum, "stream_id": stream_id}

    def encode_new_connection_id_frame(
        self,
        connection_id: bytes,
        retire_prior_to: int,
        sequence_number: int,
        stateless_reset_token: bytes,
    ) -> dict[str, Any]:
        """NEW_CONNECTION_ID."""
        return {
            "connection_id": hexdump(connection_id),
            "frame_type": "new_connection_id",
            "length": len(connection_id),
            "reset_token": hexdump(stateless_reset_token),
            "retire_prior_to": retire_prior_to,
            "sequence_number": sequence_number,
        }

    def encode_new_token_frame(self, token: bytes) -> dict[str, Any]:
        """NEW_TOKEN."""
        return {"frame_type": "new_token", "length": len(token), "token": hexdump(token)}

    def encode_padding_frame(self) -> dict[str, Any]:
        """PADDING."""
        return {"frame_type": "padding"}

    def encode_path_challenge_frame(self, data: bytes) -> dict[str, Any]:
        """PATH_CHALLENGE."""
        return {"data": hexdump(data), "frame_type": "path_challenge"}

    def encode_path_response_frame(self, data: bytes) -> dict[str, Any]:
        """PATH_RESPONSE."""
        return {"data": hexdump(data), "frame_type": "path_response"}

    def encode_ping_frame(self) -> dict[str, Any]:
        """PING."""
        return {"frame_type": "ping"}

    def encode_reset_stream_frame(
        self, error_code: int, final_size: int, stream_id: int
    ) -> dict[str, Any]:
        """RESET_STREAM."""
        return {
            "error_code": error_code,
            "final_size": final_size,
            "frame_type": "reset_stream",
            "stream_id": stream_id,
        }

    def encode_retire_connection_id_frame(self, sequence_number: int) -> dict[str, Any]:
        """RETIRE_CONNECTION_ID."""
        return {"frame_type": "retire_connection_id", "sequence_number": sequence_number}

    def encode_stop_sending_frame(self, error_code: int, stream_id: int) -> dict[str, Any]:
        """STOP_SENDING."""
        return {"error_code": error_code, "frame_type": "stop_sending", "stream_id": stream_id}

    def encode_stream_data_blocked_frame(self, limit: int, stream_id: int) -> dict[str, Any]:
        """STREAM_DATA_BLOCKED."""
        return {"frame_type": "stream_data_blocked", "limit": limit, "stream_id": stream_id}

    def encode_stream_frame(self, frame: QuicStreamFrame, stream_id: int) -> dict[str, Any]:
        """STREAM."""
        return {
            "fin": frame.fin,
            "frame_type": "stream",
            "length": len(frame.data),
            "offset": frame.offset,
            "stream_id": stream_id,
        }

    def encode_streams_blocked_frame(self, is_unidirectional: bool, limit: int) -> dict[str, Any]:
        """STREAMS_BLOCKED."""
        return {
            "frame_type": "streams_blocked",
            "limit": limit,
            "stream_type": _direction(is_unidirectional),
        }

    def encode_transport_parameters(
        self, owner: str, parameters: QuicTransportParameters
    ) -> dict[str, Any]:
        """Returns the parameters that are present and are a number, a flag or bytes."""
        data: dict[str, Any] = {"owner": owner}
        for name, value in vars(parameters).items():
            if isinstance(value, bytes):
                data[name] = hexdump(value)
            elif isinstance(value, (bool, int)):
                data[name] = value
        return data

    def encode_http3_data_frame(self, length: int, stream_id: int) -> dict[str, Any]:
        """The qlog form of an HTTP/3 DATA frame."""
        return {"frame": {"frame_type": "data"}, "length": length, "stream_id": stream_id}

    def encode_http3_headers_frame(
        self, length: int, headers: Headers, stream_id: int
    ) -> dict[str, Any]:
        """The qlog form of an HTTP/3 HEADERS frame."""
        frame = {"frame_type": "headers", "headers": _fields(headers)}
        return {"frame": frame, "length": length, "stream_id": stream_id}

    def encode_http3_push_promise_frame(
        self, length: int, headers: Headers, push_id: int, stream_id: int
    ) -> dict[str, Any]:
        """The qlog form of an HTTP/3 PUSH_PROMISE frame."""
        frame = {"frame_type": "push_promise", "headers": _fields(headers), "push_id": push_id}
        return {"frame": frame, "length": length, "stream_id": stream_id}

    def log_event(self, *, category: str, event: str, data: dict[str, Any]) -> None:
        """Appends one event, stamped with the wall clock."""
        name = category + ":" + event
        self._append({"data": data, "name": name, "time": self.encode_time(time.time())})

    def log_quic_event(self, event: events.QuicEvent) -> None:
        """Appends the data of ``event`` that packets do not contain."""
        if isinstance(event, events.ProtocolNegotiated):
            data: dict[str, Any] = {"chosen_alpn": event.alpn_protocol}
            self._note("transport:alpn_information", data)
        elif isinstance(event, events.HandshakeCompleted):
            data = {"old": "handshake_started", "new": "handshake_completed"}
            self._note("connectivity:connection_state_updated", data)
        elif isinstance(event, events.ConnectionTerminated):
            space = "application_code" if event.frame_type is None else "connection_code"
            data = {
                "owner": "local" if event.kind == "local" else "remote",
                space: event.error_code,
                "reason": event.reason_phrase,
            }
            self._note("connectivity:connection_closed", data)

    @property
    def _events(self) -> list[dict[str, Any]]:
        """The recorded events, as a new list: programs for aioquic search it for packets."""
        self._take_packets()
        return self._all_events()

    def to_dict(self) -> dict[str, Any]:
        """The trace as a dictionary which can be written as JSON."""
        return {
            "common_fields": {"ODCID": hexdump(self._odcid)},
            "events": self._events,
            "vantage_point": self._vantage_point,
        }

    def _begin(
        self, packet_log: PacketLog | None, versions: Iterable[int], chosen: int, alpns: list[str]
    ) -> None:
        """Starts the trace of a connection. A client's trace begins with its versions and application
        protocols."""
        self._packet_log = packet_log
        if self._vantage_point["type"] == "client":
            data = {"client_versions": list(versions), "chosen_version": chosen}
            self._note("transport:version_information", data)
            self._note("transport:alpn_information", {"client_alpns": alpns})

    def _note(self, name: str, data: dict[str, Any]) -> None:
        """Appends an event after the recorded packets, at the connection's own time."""
        if self._packet_log is not None:
            self._packet_log.note(name, json.dumps(data))
        else:
            category, _, event = name.partition(":")
            self.log_event(category=category, event=event, data=data)

    def _append(self, event: dict[str, Any]) -> None:
        if len(self._first) < _FIRST_EVENTS_MAX:
            self._first.append(event)
            return
        self._dropped += len(self._newest) == self._newest.maxlen
        self._newest.append(event)

    def _all_events(self) -> list[dict[str, Any]]:
        if not self._dropped:
            return [*self._first, *self._newest]
        data = {"message": f"{self._dropped} events were dropped here"}
        warning = {"data": data, "name": "loglevel:warning", "time": self._newest[0]["time"]}
        return [*self._first, warning, *self._newest]

    def _take_packets(self) -> None:
        """Merges the packets since the last call into the program's events, by time."""
        packets = self._packet_log.take() if self._packet_log is not None else []
        if packets:
            recorded = [
                {"data": json.loads(data), "name": name, "time": self.encode_time(seconds)}
                for seconds, name, data in packets
            ]
            merged = sorted([*self._first, *self._newest, *recorded], key=_time)
            self._first.clear()
            self._newest.clear()
            for event in merged:
                self._append(event)


class QuicLogger:
    """Keeps the traces of all its connections in memory."""

    def __init__(self) -> None:
        self._kept: dict[QuicLoggerTrace, None] = {}

    def start_trace(self, is_client: bool, odcid: bytes) -> QuicLoggerTrace:
        """Begins a trace. ``odcid`` is the original destination connection ID, which identifies the
        connection."""
        trace = QuicLoggerTrace(is_client=is_client, odcid=odcid)
        self._kept[trace] = None
        return trace

    @property
    def _traces(self) -> list[QuicLoggerTrace]:
        """aioquic's name for the list of traces, which is a new list each time."""
        return list(self._kept)

    def end_trace(self, trace: QuicLoggerTrace) -> None:
        """Ends a trace, because its connection has ended. Raises ``ValueError`` for a trace of another
        logger.
        """
        if trace not in self._kept:
            raise ValueError("QuicLoggerTrace does not belong to QuicLogger")

    def to_dict(self) -> dict[str, Any]:
        """The traces as a dictionary which can be written as JSON."""
        return {
            "qlog_format": "JSON",
            "qlog_version": QLOG_VERSION,
            "traces": [trace.to_dict() for trace in self._kept],
        }


class QuicFileLogger(QuicLogger):
    """Writes one file per connection into the directory ``path``, when the connection ends.

    The whole trace is in memory until then, and writing it blocks the loop.
    """

    def __init__(self, path: str) -> None:
        if not os.path.isdir(path):
            raise ValueError(f"QUIC log output directory '{path}' does not exist")
        self.path = path
        super().__init__()

    def end_trace(self, trace: QuicLoggerTrace) -> None:
        """Writes the trace to ``<path>/<connection id>.qlog`` and forgets it.

        The file gets its name when it is complete, so that no program reads a partial trace. Only its owner
        may read it: a trace contains addresses and metadata of a client's activity.
        """
        super().end_trace(trace)
        content = trace.to_dict()
        path = os.path.join(self.path, content["common_fields"]["ODCID"] + ".qlog")
        document = {"qlog_format": "JSON", "qlog_version": QLOG_VERSION, "traces": [content]}
        # The peer has chosen the connection ID, which is the file's name. So the trace is written to a new
        # file with a random name, which then replaces a file of that name.
        unfinished = os.path.join(self.path, f"{secrets.token_hex(8)}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(unfinished, flags, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(document, file)
            os.replace(unfinished, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise
        del self._kept[trace]


def _time(event: dict[str, Any]) -> float:
    time: float = event["time"]
    return time


def _direction(is_unidirectional: bool) -> str:
    return "unidirectional" if is_unidirectional else "bidirectional"


def _fields(headers: Headers) -> list[dict[str, str]]:
    # qlog is JSON, and field values may be any bytes, so bytes that are not text are replaced.
    return [
        {"name": name.decode("utf8", "replace"), "value": value.decode("utf8", "replace")}
        for name, value in headers
    ]


_EVENTS_MAX = 65536
_FIRST_EVENTS_MAX = 1024
