"""The names, types, units and help texts of a server's metrics.

Each label has few values, whatever clients send: HTTP versions, methods and statuses, and the worker's
number. There are no metrics of single connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from uringcore.quic._openmetrics_text import Family
from uringcore.quic.metrics import endpoint_families
from uringcore.server._stats_snapshot import Report

__all__ = ["families"]

GIVEN_UP = ("nothing_taken", "little_taken")
"""The extension's reasons for cancelling a response."""

REFUSED_FOR = ("connections", "address", "handshakes", "rate")
"""The limits for which the extension refuses a TCP connection."""


def families(reports: Sequence[Report]) -> Iterator[Family]:
    """Yields every metric once, with the samples of each process."""
    yield requests(reports)
    yield open_requests(reports)
    yield durations(reports)
    yield given_up(reports)
    yield refused(reports)
    yield shed(reports)
    for name, kind, unit, text, value in NUMBERS:
        family = Family(name, kind, text, unit=unit)
        for report in reports:
            family.add(value(report), {"worker": report.worker})
        yield family
    yield rtt(reports)
    yield lag(reports)
    yield from endpoint_families([({"worker": one.worker}, one.endpoint) for one in reports])


def requests(reports: Sequence[Report]) -> Family:
    family = Family("uringcore_http_requests", "counter", "Requests that were answered.")
    for report in reports:
        for (version, method, status), count in sorted(report.counts.requests.items()):
            labels = {"http_version": version, "method": method, "status": status}
            family.add(count, {"worker": report.worker, **labels})
    return family


def open_requests(reports: Sequence[Report]) -> Family:
    family = Family(
        "uringcore_http_requests_open", "gauge", "Requests whose response is not complete."
    )
    for report in reports:
        for version, count in sorted(report.counts.requests_open.items()):
            family.add(count, {"worker": report.worker, "http_version": version})
    return family


def durations(reports: Sequence[Report]) -> Family:
    text = "Time from a request's headers to the last message of its response."
    family = Family("uringcore_http_request_duration", "histogram", text, unit="seconds")
    for report in reports:
        for version, times in sorted(report.counts.durations.items()):
            labels = {"worker": report.worker, "http_version": version}
            family.add_histogram(times.bounds, times.counts, times.total, labels)
    return family


def given_up(reports: Sequence[Report]) -> Family:
    text = "Responses cancelled because the client read nothing for too long, or too slowly."
    family = Family("uringcore_http3_responses_given_up", "counter", text)
    for report in reports:
        for reason in GIVEN_UP:
            count = report.counts.given_up[reason]
            family.add(count, {"worker": report.worker, "reason": reason})
    return family


def refused(reports: Sequence[Report]) -> Family:
    text = "TCP connections closed at once, by the limit that they exceeded. Not with uvicorn's classes."
    family = Family("uringcore_tcp_connections_refused", "counter", text)
    for report in reports:
        for limit in REFUSED_FOR if report.tcp else ():
            count = report.tcp[f"refused_for_{limit}"]
            family.add(count, {"worker": report.worker, "limit": limit})
    return family


def shed(reports: Sequence[Report]) -> Family:
    text = "TCP connections ended because clients exceeded the memory budget. Not with uvicorn's classes."
    family = Family("uringcore_tcp_connections_shed", "counter", text)
    for report in reports:
        if report.tcp:
            family.add(report.tcp["connections_shed"], {"worker": report.worker})
    return family


def rtt(reports: Sequence[Report]) -> Family:
    text = "Smoothed round-trip times of open QUIC connections, by quantile."
    family = Family("uringcore_quic_connections_rtt", "gauge", text, unit="seconds")
    for report in reports:
        for quantile, seconds in report.rtt.items():
            family.add(seconds, {"worker": report.worker, "quantile": quantile})
    return family


def lag(reports: Sequence[Report]) -> Family:
    text = "Delay of a timer of the event loop, measured ten times a second."
    family = Family("uringcore_loop_lag", "histogram", text, unit="seconds")
    for report in reports:
        late = report.counts.lag
        family.add_histogram(late.bounds, late.counts, late.total, {"worker": report.worker})
    return family


NUMBERS: list[tuple[str, str, str, str, Callable[[Report], float]]] = [
    (
        "uringcore_tcp_connections",
        "gauge",
        "",
        "Open TCP connections.",
        lambda report: report.connections_tcp,
    ),
    (
        "uringcore_http3_connections",
        "gauge",
        "",
        "Open HTTP/3 connections.",
        lambda report: report.connections_quic,
    ),
    (
        "uringcore_websockets",
        "counter",
        "",
        "WebSocket sessions started.",
        lambda report: report.counts.websockets,
    ),
    (
        "uringcore_websockets_open",
        "gauge",
        "",
        "Open WebSocket sessions.",
        lambda report: report.counts.websockets_open,
    ),
    (
        "uringcore_quic_streams",
        "gauge",
        "",
        "Open QUIC streams.",
        lambda report: report.streams_open,
    ),
    (
        "uringcore_quic_send_queue",
        "gauge",
        "bytes",
        "Bytes queued for sending on QUIC streams.",
        lambda report: report.send_queue_bytes,
    ),
    (
        "uringcore_quic_memory_budget",
        "gauge",
        "bytes",
        "Maximum bytes that the process holds for QUIC clients.",
        lambda report: report.memory_budget,
    ),
    (
        "uringcore_quic_packets_sent",
        "counter",
        "",
        "QUIC packets sent.",
        lambda report: report.packets_sent,
    ),
    (
        "uringcore_quic_packets_lost",
        "counter",
        "",
        "QUIC packets declared lost.",
        lambda report: report.packets_lost,
    ),
    (
        "uringcore_quic_lost",
        "counter",
        "bytes",
        "Bytes of lost QUIC packets.",
        lambda report: report.bytes_lost,
    ),
    (
        "uringcore_process_resident_memory",
        "gauge",
        "bytes",
        "Resident memory of the process.",
        lambda report: report.process["resident_memory_bytes"],
    ),
    (
        "uringcore_process_open_files",
        "gauge",
        "",
        "Open descriptors of the process.",
        lambda report: report.process["open_fds"],
    ),
    (
        "uringcore_process_cpu",
        "counter",
        "seconds",
        "Processor time of the process.",
        lambda report: report.process["cpu_seconds"],
    ),
]
