"""A snapshot of a server: its counters, and statistics of its connections.

A report consists of plain numbers and strings, so that it can be written as JSON. _metric_definitions.py
names them for export."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from uringcore.server._request_counters import Counters

__all__ = ["Connection", "Endpoint", "Report", "Sources", "make_report"]

QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)

AT_ONCE = 256
"""Connections that are read in one iteration of the loop, which takes about a millisecond."""

SHOWN = 50
"""The maximum number of connections that a report lists: those with the most open requests."""


class Connection(Protocol):
    """The interface of an HTTP/3 connection whose counters are reported."""

    @property
    def open_requests(self) -> int: ...
    @property
    def client_address(self) -> Any: ...
    def stats(self) -> Any: ...


class Endpoint(Protocol):
    """A UDP socket's endpoint, or the service of native HTTP/1.1."""

    def stats(self) -> dict[str, int]: ...


class State(Protocol):
    """uvicorn's ``ServerState``."""

    connections: Any
    total_requests: int


@dataclass
class Sources:
    """The sources of a report, set when the server has started."""

    worker: str = "0"
    state: State | None = None
    connections: Any = ()
    """HTTP/3 connections."""
    endpoints: Sequence[Endpoint] = ()
    tcp: Endpoint | None = None
    """The service of native HTTP/1.1. ``None`` with uvicorn's classes, which count no connections."""
    memory_budget: int = 0
    """The number of bytes that the process may hold for QUIC clients."""


@dataclass
class Report:
    """The numbers of one process at one moment."""

    worker: str
    pid: int
    time: float
    """Unix time, in seconds."""
    counts: Counters
    connections_tcp: int
    connections_quic: int
    streams_open: int = 0
    send_queue_bytes: int = 0
    memory_budget: int = 0
    packets_sent: int = 0
    packets_lost: int = 0
    bytes_lost: int = 0
    rtt: dict[str, float] = field(default_factory=dict)
    """Smoothed round-trip times of the open connections, in seconds, by quantile."""
    endpoint: dict[str, int] = field(default_factory=dict)
    """``stats()`` of the UDP sockets' endpoints, added up."""
    tcp: dict[str, int] = field(default_factory=dict)
    """``stats()`` of native HTTP/1.1."""
    process: dict[str, float] = field(default_factory=dict)
    clients: list[dict[str, Any]] = field(default_factory=list)


async def make_report(counts: Counters, sources: Sources) -> Report:
    """Reads all connections, a few hundred in each iteration of the loop."""
    connections = list(sources.connections)
    state = sources.state
    everybody = 0 if state is None else len(state.connections)
    report = Report(
        worker=sources.worker,
        pid=os.getpid(),
        time=time.time(),
        counts=counts.copy(),
        connections_tcp=max(everybody - len(connections), 0),
        connections_quic=len(connections),
        memory_budget=sources.memory_budget,
        packets_sent=counts.packets_sent,
        packets_lost=counts.packets_lost,
        bytes_lost=counts.bytes_lost,
        endpoint=added([endpoint.stats() for endpoint in sources.endpoints]),
        tcp={} if sources.tcp is None else sources.tcp.stats(),
        process=process(),
    )
    rtts: list[float] = []
    for number, connection in enumerate(connections, 1):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
        # A connection that has ended in the meantime is missing in `counts`, so its final statistics are
        # added here.
        stats = connection.stats()
        rtts.append(stats["rtt"])
        report.streams_open += stats["streams_open"]
        report.send_queue_bytes += stats["send_queue_bytes"]
        report.packets_sent += stats["packets_sent"]
        report.packets_lost += stats["packets_lost"]
        report.bytes_lost += stats["bytes_lost"]
    report.rtt = quantiles(rtts)
    busiest = sorted(connections, key=lambda one: -one.open_requests)[:SHOWN]
    report.clients = [connection_fields(connection) for connection in busiest]
    return report


def connection_fields(connection: Connection) -> dict[str, Any]:
    stats = connection.stats()
    return {
        "client": address(connection.client_address),
        "requests": connection.open_requests,
        "rtt": stats["rtt"],
        "sent": stats["bytes_sent"],
        "received": stats["bytes_received"],
        "packets": stats["packets_sent"],
        "lost": stats["packets_lost"],
    }


def address(name: Any) -> str:
    if name is None:
        return ""
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def added(stats: Sequence[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in stats:
        for name, value in one.items():
            total[name] = total.get(name, 0) + value
    return total


def quantiles(values: list[float]) -> dict[str, float]:
    values.sort()
    return {
        f"{share:g}": values[min(int(share * len(values)), len(values) - 1)]
        for share in QUANTILES
        if values
    }


def process() -> dict[str, float]:
    """Returns this process's memory, open files and processor time."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "resident_memory_bytes": pages * resource.getpagesize(),
        "open_fds": len(os.listdir("/proc/self/fd")),
        "cpu_seconds": used.ru_utime + used.ru_stime,
    }
