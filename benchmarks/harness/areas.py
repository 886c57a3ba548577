"""The areas of BENCHMARK.md: each has a section on that page and a page of full tables in `docs/benchmarks`.

The tags of a case or matrix select its area. The headline tables of an area are always on BENCHMARK.md,
the others when uringcore is behind in them.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.harness.cases import Case
from benchmarks.harness.matrix import Matrix


@dataclass(frozen=True)
class Area:
    """One section of BENCHMARK.md."""

    name: str
    """The name of the area's page, without `.md`."""
    title: str
    tags: frozenset[str]
    usual: str
    """The peer that most users have today."""
    ours: tuple[str, ...] = ("uringcore-uring",)
    headline: frozenset[str] = frozenset()
    """Names of cases, and rows of matrices as `matrix: row`, or `matrix` for all of them."""
    charts: frozenset[str] = frozenset()
    """Names of the cases and matrices whose chart the area's page shows."""
    limits: frozenset[str] = frozenset()
    """Columns of a matrix that are no rivals, because they do a simpler task."""


AREAS = (
    Area(
        "files",
        "Files",
        frozenset({"files"}),
        "aiofiles on asyncio",
        headline=frozenset({"files"}),
        limits=frozenset({"blocking"}),
    ),
    *(
        Area(
            f"http{version}",
            title,
            frozenset({f"h{version}"}),
            usual,
            headline=frozenset(
                {
                    *(
                        f"h{version}_{application}{name}"
                        for application in ("", "fastapi_")
                        for name in ("hello", "hello_c1000", "100k", "json", "numbers")
                    ),
                    f"h{version}_idle",
                }
            ),
            charts=frozenset({f"h{version}_hello", f"h{version}_fastapi_hello"}),
        )
        for version, title, usual in (
            (1, "HTTP/1.1 server", "uvicorn"),
            (2, "HTTP/2 server", "hypercorn"),
        )
    ),
    Area(
        "https",
        "HTTP/1.1 server over TLS",
        frozenset({"https"}),
        "uvicorn",
        headline=frozenset({"https_full", "https_resumed", "https_download", "https_idle"}),
        charts=frozenset({"https_full", "https_download"}),
    ),
    Area(
        "websocket",
        "WebSocket server",
        frozenset({"ws"}),
        "uvicorn",
        headline=frozenset(
            f"ws_{deflate}{size}_c{connections}"
            for deflate in ("", "deflate_")
            for size in ("100", "64k")
            for connections in (1, 1000)
        ),
        charts=frozenset({"ws_100_c1000", "ws_deflate_64k_c1000"}),
    ),
    Area(
        "static",
        "Static files",
        frozenset({"static"}),
        "nginx",
        headline=frozenset({"file_1k", "file_100k", "file_100m"}),
        charts=frozenset({"file_1k", "file_100m"}),
    ),
    Area(
        "server",
        "HTTP/1.1 beside uvicorn, and processes",
        frozenset({"deployed"}),
        "uvicorn on uvloop",
        headline=frozenset(
            f"http1: {row}"
            for load in ("hello, requests", "POST of 100 KiB, requests", "100 MiB down, MiB")
            for row in (f"{load}/s", f"{load} a second of the server's processor time")
        ),
    ),
    Area(
        "webtransport",
        "WebTransport",
        frozenset({"webtransport"}),
        "aiopquic",
        headline=frozenset(
            f"webtransport_{name}"
            for name in ("upload", "download", "datagrams", "streams_100", "sessions_100")
        ),
        charts=frozenset({"webtransport_datagrams", "webtransport_streams_100", "relay"}),
    ),
    Area(
        "http3",
        "HTTP/3 server",
        frozenset({"h3"}),
        "hypercorn",
        headline=frozenset(
            f"h3_{name}"
            for name in (
                *("hello", "hello_c1000", "hello_quicgo", "100k", "post_100k", "idle"),
                *("fastapi_hello", "fastapi_100k", "fastapi_post_100k", "upload", "download"),
            )
        ),
        charts=frozenset({"h3_hello", "h3_fastapi_hello", "h3_100k", "h3_idle"}),
    ),
    Area(
        "quic",
        "QUIC",
        frozenset({"quic"}),
        "aioquic",
        ours=("uringcore-uring", "uringcore.quic"),
        headline=frozenset(
            f"quic_{name}"
            for name in ("upload", "download", "handshakes", "ping", "requests", "datagrams")
        ),
        charts=frozenset({"quic_download", "quic_handshakes", "quic_requests", "quic_datagrams"}),
    ),
    Area(
        "tcp",
        "TCP",
        frozenset({"tcp"}),
        "uvloop",
        headline=frozenset(
            {
                *(f"tcp_echo_{size}k_c100" for size in (1, 10, 100)),
                *(f"streams_echo_{size}k_c100" for size in (1, 10, 100)),
                *("tcp_echo_1k_c1", "buffered_echo_1k_c100", "sock_echo_1k_c100"),
                *("slow_upload_c10", "slow_upload_streams_c10"),
            }
        ),
        charts=frozenset({"tcp_echo_1k_c100", "tcp_echo_100k_c100", "streams_echo_1k_c100"}),
    ),
    Area(
        "tls",
        "TLS",
        frozenset({"tls"}),
        "uvloop",
        headline=frozenset(
            {*(f"tls_echo_{size}k_c100" for size in (1, 10, 100)), "slow_upload_tls_c10"}
        ),
        charts=frozenset({"tls_echo_1k_c100", "tls_echo_100k_c100"}),
    ),
    Area(
        "udp",
        "UDP",
        frozenset({"udp"}),
        "uvloop",
        headline=frozenset({"udp_echo_1k_c100", "udp_echo_8k_c100"}),
        charts=frozenset({"udp_echo_1k_c100"}),
    ),
    Area(
        "loop",
        "Scheduling, memory and start",
        frozenset({"loop", "computing", "idle"}),
        "uvloop",
        headline=frozenset(
            {
                *(f"micro: {row}" for row in ("call_soon, a chain", "create_task and await")),
                *("micro: call_later and cancel", "micro: call_soon_threadsafe round trip"),
                *("idle: accepted", "start: import, wall ms", "start: run of nothing, wall ms"),
            }
        ),
    ),
    # Tables whose tags belong to no area.
    Area("more", "More", frozenset(), "asyncio"),
)
PAGE_ORDER = (
    "tcp",
    "tls",
    "udp",
    "loop",
    "files",
    "quic",
    "http3",
    "http2",
    "http1",
    "https",
    "websocket",
    "static",
    "webtransport",
    "server",
    "more",
)


def area_of(table: Case | Matrix) -> Area:
    """The first area that shares a tag with the table."""
    return next((area for area in AREAS if area.tags & table.tags), AREAS[-1])


def on_page() -> list[Area]:
    """The areas in the order of BENCHMARK.md."""
    return sorted(AREAS, key=lambda area: PAGE_ORDER.index(area.name))
