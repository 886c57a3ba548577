"""qlog traces that are written to files as their events happen, within bounds: for servers.

The events are described in :mod:`uringcore.quic.logger`. Traces that are kept in memory, or written when a
connection ends, are in ``_aioquic_qlog``.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import time
import weakref
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from uringcore._uringcore import PacketLog, TraceFile, TraceFolder
from uringcore.quic._aioquic_qlog import QLOG_VERSION, QuicLogger, QuicLoggerTrace, hexdump

__all__ = ["QuicSequenceLogger", "TraceLimits"]

EVENT_SCHEMAS = ("quic-02", "http3-02", "loglevel-02")
"""The qlog drafts that define the names of the recorded events, as identifiers for the file's header."""

logger = logging.getLogger("uringcore.quic")


@dataclass(frozen=True)
class TraceLimits:
    """The maximum sizes of traces. Raises ``ValueError``, which names the field."""

    trace_bytes: int = 16 * 1024 * 1024
    """The maximum size of a trace in bytes, 64 KiB or more. A trace that reaches it ends with a
    ``loglevel:warning``, and further events of its connection are not recorded."""

    total_bytes: int = 1024 * 1024 * 1024
    """The maximum size in bytes of all traces in the folder, including those of earlier runs. The oldest
    traces are removed beyond it. Each process may exceed it by a sixteenth."""

    traces: int = 1000
    """The maximum number of traces in the folder, including those of earlier runs. The oldest are removed."""

    open_traces: int = 128
    """The maximum number of connections that are traced at a time. Each needs a descriptor, so there are
    never more than an eighth of the process's limit (RLIMIT_NOFILE). Further connections have no trace."""

    def __post_init__(self) -> None:
        for name, least in (
            ("trace_bytes", _TRACE_BYTES_MIN),
            ("total_bytes", self.trace_bytes),
            ("traces", 1),
            ("open_traces", 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, int):
                raise ValueError(f"{name} must be a whole number, not {value!r}")
            if not least <= value <= _LIMIT_MAX:
                raise ValueError(f"{name} must be {least} to {_LIMIT_MAX}, not {value}")


class QuicSequenceLogger(QuicLogger):
    """Writes each connection's events to a file as they happen, within bounds.

    The files are JSON text sequences (RFC 7464), as draft-ietf-quic-qlog-main-schema has them for streaming:
    each record is a record separator, a JSON object and a line feed; the first one describes the trace, and
    each other one is an event. A file is named ``trace-<milliseconds since 1970>-<random number>.sqlog``, so
    a peer chooses no part of the name; the connection's id is ``ODCID`` in the first record. Only its owner
    may read it (mode 0600).

    A thread writes. At most 256 KiB of a trace and 2 MiB of all traces wait for it; events beyond that are
    dropped, and a ``loglevel:warning`` counts them. Several processes may share a folder. ``limits`` are the
    bounds of the files.

    Raises ``ValueError`` if ``path`` is not a directory.
    """

    def __init__(self, path: str, *, limits: TraceLimits | None = None) -> None:
        if not os.path.isdir(path):
            raise ValueError(f"QUIC log output directory '{path}' does not exist")
        limits = limits or TraceLimits()
        self.path = path
        open_traces = limits.open_traces
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if descriptors != resource.RLIM_INFINITY:
            open_traces = max(min(open_traces, descriptors // 8), 1)
        self._folder = TraceFolder(path, **{**asdict(limits), "open_traces": open_traces})
        self._warned_at: float | None = None
        super().__init__()
        # When the process ends, this waits for a moment, so that the thread can write its data.
        weakref.finalize(self, self._folder.flush, _LAST_FLUSH_SECONDS)

    def start_trace(self, is_client: bool, odcid: bytes) -> QuicLoggerTrace:
        """Returns a new trace, whose file is created soon; ``odcid`` names the connection.

        If the maximum number of traces is open, the trace discards its events.
        """
        trace = _WrittenTrace(is_client=is_client, odcid=odcid)
        try:
            trace._file = self._folder.begin(json.dumps(trace._header()))
        except OSError as exc:
            self._warn(str(exc))
        self._look_for_errors()
        self._kept[trace] = None
        return trace

    def end_trace(self, trace: QuicLoggerTrace) -> None:
        """Ends the file, because the connection has ended. Raises ``ValueError`` for a trace of another
        logger.
        """
        super().end_trace(trace)
        del self._kept[trace]
        assert isinstance(trace, _WrittenTrace)
        if trace._file is not None:
            trace._file.end()
        self._look_for_errors()

    def flush(self, timeout: float = 5.0) -> bool:
        """Waits until all events are in the files, ``timeout`` seconds at most; returns false after that.

        It also runs at the end of the process.
        """
        is_written = self._folder.flush(timeout)
        self._look_for_errors()
        return is_written

    def _look_for_errors(self) -> None:
        error = self._folder.take_error()
        if error is not None:
            self._warn(error)

    def _warn(self, error: str) -> None:
        """Logs an error, at most once a minute, because a full disk fails every trace."""
        now = time.monotonic()
        if self._warned_at is None or now - self._warned_at >= _SECONDS_BETWEEN_WARNINGS:
            self._warned_at = now
            logger.warning("qlog traces in %s are incomplete: %s", self.path, error)


class _WrittenTrace(QuicLoggerTrace):
    """A trace whose events are written to its file and not kept in memory."""

    _file: TraceFile | None = None

    def to_dict(self) -> dict[str, Any]:
        """The trace's own fields. Its events are in the file."""
        return {
            "common_fields": {"ODCID": hexdump(self._odcid)},
            "events": [],
            "vantage_point": self._vantage_point,
        }

    def log_event(self, *, category: str, event: str, data: dict[str, Any]) -> None:
        """Writes one event, stamped with the connection's own clock, so that a file is in order."""
        self._note(category + ":" + event, data)

    def _header(self) -> dict[str, Any]:
        """Returns the first record. qvis reads ``qlog_version`` and ``qlog_format``; later drafts replace
        them by the first two fields, which must be in the first 256 bytes. Times are milliseconds since 1970,
        the default of both.
        """
        return {
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "qlog_version": QLOG_VERSION,
            "qlog_format": "JSON-SEQ",
            "trace": {
                "common_fields": {"ODCID": hexdump(self._odcid)},
                "vantage_point": self._vantage_point,
                "event_schemas": [f"urn:ietf:params:qlog:events:{name}" for name in EVENT_SCHEMAS],
            },
        }

    def _begin(
        self, packet_log: PacketLog | None, versions: Iterable[int], chosen: int, alpns: list[str]
    ) -> None:
        if packet_log is not None:
            packet_log.write_to(self._file)
        super()._begin(packet_log, versions, chosen, alpns)

    def _append(self, event: dict[str, Any]) -> None:
        """Writes an event, with its own time, if the trace belongs to no connection."""
        if self._file is not None:
            seconds = event["time"] / self.encode_time(1)
            self._file.write(seconds, event["name"], json.dumps(event["data"]))

    def _note(self, name: str, data: dict[str, Any]) -> None:
        if self._packet_log is not None:
            self._packet_log.note(name, json.dumps(data))
        else:
            self._append({"data": data, "name": name, "time": self.encode_time(time.time())})


_TRACE_BYTES_MIN = 64 * 1024
_LIMIT_MAX = 1 << 60
_SECONDS_BETWEEN_WARNINGS = 60.0
_LAST_FLUSH_SECONDS = 5.0
