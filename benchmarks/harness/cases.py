"""The cases and, for each, the load on the server.

A case names a family of servers (`servers/*.py` and native programs, see peers.py), the load
generator with its arguments, and the unit of its numbers: per request or per MiB.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.applications import ORDER, TOTAL
from benchmarks.harness.matrix import MATRICES, Matrix
from benchmarks.servers.static_files import SIZES as FILE_SIZES


@dataclass(frozen=True)
class Unit:
    """The unit of a rate, and the unit by which processor time and system calls are divided."""

    rate: str
    """The rate's name in tables, such as "requests/s"."""
    per: str
    """The divisor's name in tables, such as "request"."""

    def rate_of(self, sample: dict[str, float]) -> float:
        """The sample's rate in `self.rate`."""
        if self.per == "connection":
            return sample["private_bytes"] / sample["requests"] / 1000
        if self.per == "MiB":
            return sample["bytes"] * 8 / sample["seconds"] / 1e9
        return sample["requests"] / sample["seconds"]

    def count_of(self, sample: dict[str, float]) -> float:
        """The number of `self.per` in the sample's window."""
        return sample["bytes"] / 2**20 if self.per == "MiB" else sample["requests"]

    def count_of_visit(self, sample: dict[str, float]) -> float:
        """The number of `self.per` in the whole visit, including the time before its window.

        Counts over the whole visit are divided by this number.
        """
        if self.per == "MiB":
            return sample.get("bytes_all", sample["bytes"]) / 2**20
        return sample["requests"]


REQUESTS = Unit("requests/s", "request")
MESSAGES = Unit("messages/s", "message")
HANDSHAKES = Unit("handshakes/s", "handshake")
DATAGRAMS = Unit("datagrams/s", "datagram")
GIGABITS = Unit("Gbit/s", "MiB")
IDLE_MEMORY = Unit("kB a connection", "connection")

IN_PROCESS = "in process"
"""The name of the peer that is the application without a server."""
RAW_QUIC = "our QUIC alone"
"""The name of the peer that is this project's QUIC without HTTP/3 and ASGI."""
LONE = "_lone"
"""The end of the name of a family with one client, for which a loop may spin before it sleeps."""


@dataclass(frozen=True)
class Amount:
    """The work of a visit that ends after an amount and not after a time."""

    unit: str
    """The name of the load generator's option."""
    full: int
    quick: int
    """The amount in a quick run."""
    counted: int
    """The amount while system calls are counted."""

    def arguments(self, *, quick: bool, counting: bool) -> list[str]:
        """The option for the load generator's command line."""
        value = self.counted if counting else self._timed(quick)
        return [f"--{self.unit}", str(value)]

    def told(self, *, quick: bool) -> str:
        """The amount as the table prints it."""
        return f"{self._timed(quick):,} {self.unit}"

    def _timed(self, quick: bool) -> int:
        return self.quick if quick else self.full


@dataclass(frozen=True)
class Case:
    """One table of BENCHMARK.md."""

    name: str
    title: str
    """The table's heading."""
    about: str
    """A sentence or two for the reader of the table: the data and its sender and receiver."""
    family: str
    """The kind of server, a key of `peers.PEERS`."""
    unit: Unit
    load: tuple[str, ...]
    """The load generator's name and its arguments except address, pid and times."""
    baseline: str
    """The peer that ratios refer to."""
    tls: bool = True
    """True if the load generator verifies the test certificate."""
    latency: bool = True
    """True if the load reports round-trip percentiles."""
    amount: Amount | None = None
    """The work of a visit, if it does not end after the plan's time."""
    memory: bool = False
    """True if the load reports the growth of the server's memory."""
    whole_tree: bool = False
    """True if processor time and memory are those of all processes of the server."""
    tags: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class _Style:
    """One style of a loop's server, a family of servers."""

    family: str
    title: str
    about: str
    transport: str = "tcp"
    tags: frozenset[str] = frozenset({"tcp", "loop"})
    sizes: tuple[int, ...] = (1, 10, 100)
    """The sizes of an echo's messages, in KiB."""


_ECHOES = (
    _Style("tcp_echo", "TCP echo", "An `asyncio.Protocol` writes received bytes back"),
    _Style(
        "buffered_echo", "Buffered echo", "An `asyncio.BufferedProtocol` with one buffer echoes"
    ),
    _Style("streams_echo", "Streams echo", "`asyncio.start_server`: `read`, `write`, `drain`"),
    _Style("sock_echo", "sock_* echo", "`loop.sock_accept`, `sock_recv` and `sock_sendall`"),
    _Style(
        "tls_echo",
        "TLS echo",
        "An `asyncio.Protocol` on TLS 1.3 echoes; Python's `ssl` does the cryptography for all",
        transport="tls",
        tags=frozenset({"tls", "loop"}),
    ),
    _Style(
        "udp_echo",
        "UDP echo",
        "An `asyncio.DatagramProtocol` on one socket sends received datagrams back",
        transport="udp",
        tags=frozenset({"udp", "loop"}),
        # Programs do not send datagrams of more than 8 KiB.
        sizes=(1, 8),
    ),
)


def _echo(kind: _Style, size: int, connections: int) -> Case:
    noun = "client socket" if kind.transport == "udp" else "connection"
    nouns = noun if connections == 1 else f"{noun}s"
    return Case(
        name=f"{kind.family}_{size}k_c{connections}",
        title=f"{kind.title}, {size} KiB, {connections} {nouns}",
        about=(
            f"{kind.about}; {connections} {nouns}, one message of {size * 1024:,} bytes in flight "
            "on each."
        ),
        family=kind.family if connections > 1 else f"{kind.family}{LONE}",
        unit=REQUESTS,
        load=(
            "echo_load",
            *("--transport", kind.transport),
            *("--connections", str(connections), "--size", str(size * 1024)),
        ),
        baseline="asyncio",
        tls=kind.transport == "tls",
        tags=kind.tags | {f"{size}k"},
    )


_PAUSING = (
    "An `asyncio.Protocol`{tls} pauses reading when more than 64 KiB have collected, as uvicorn does "
    "with a request's body, and resumes in the next turn"
)
_SLOW_UPLOADS = (
    _Style("slow_upload", "Upload, slow reader", _PAUSING.format(tls="")),
    _Style(
        "slow_upload_streams",
        "Upload, streams",
        "`asyncio.start_server` and `read(65536)`; the `StreamReader` pauses when more than 128 KiB "
        "have collected",
    ),
    _Style(
        "slow_upload_tls",
        "TLS upload, slow reader",
        _PAUSING.format(tls=" on TLS 1.3"),
        transport="tls",
        tags=frozenset({"tls", "loop"}),
    ),
)


def _slow_upload(kind: _Style, connections: int) -> Case:
    noun = "connection" if connections == 1 else "connections"
    return Case(
        name=f"{kind.family}_c{connections}",
        title=f"{kind.title}, {connections} {noun}",
        about=(
            f"{kind.about}; a native client writes on {connections} {noun} as fast as they take it. "
            "The figure counts the bytes that the server has acknowledged. Before the clock starts, each "
            "connection uploads 8 MiB, whose SHA-256 is compared."
        ),
        family=kind.family,
        unit=GIGABITS,
        load=(
            "upload_load",
            *("--transport", kind.transport),
            *("--connections", str(connections)),
        ),
        baseline="asyncio",
        tls=kind.transport == "tls",
        latency=False,
        tags=kind.tags,
    )


@dataclass(frozen=True)
class _Request:
    """One kind of request of the HTTP/3 tables."""

    title: str
    about: str
    """The request and its answer."""
    load: tuple[str, ...]


_LARGE = 100 * 1024
_REQUESTS = {
    "hello": _Request("hello", "answers `GET /` with 13 bytes", ()),
    "100k": _Request(
        "100 KiB",
        "answers a GET with 102,400 bytes, each of them compared",
        ("--path", "/100k", "--size", str(_LARGE)),
    ),
    "post_100k": _Request(
        "POST of 100 KiB",
        "reads the 102,400 bytes of a POST piece by piece and answers their count",
        ("--path", "/upload", "--upload", str(_LARGE)),
    ),
}
_CONCURRENCY = {"hello": ((4, 8), (10, 100))}
"""Connections and requests in flight on each; the default is 4 and 8."""
_APPLICATIONS = {"bare": "A bare ASGI application", "fastapi": "FastAPI"}


def _requests(
    name: str, request: _Request, application: str, connections: int, streams: int
) -> Case:
    fastapi = application == "fastapi"
    concurrent = connections * streams
    crowd = concurrent != 32
    about = (
        f"{_APPLICATIONS[application]} {request.about}; a native client (quinn and h3) keeps "
        f"{connections} connections with {streams} requests each in flight and checks status and body."
    )
    if fastapi:
        about += (
            f" *{IN_PROCESS}* calls the application with no server, one request after another from one "
            "task."
        )
    return Case(
        name=f"h3_{'fastapi_' if fastapi else ''}{name}{f'_c{concurrent}' if crowd else ''}",
        title=(
            f"HTTP/3 {request.title}{', FastAPI' if fastapi else ''}"
            f"{f', {concurrent:,} concurrent' if crowd else ''}"
        ),
        about=about,
        family=f"h3_{application}",
        unit=REQUESTS,
        load=(
            *("h3_load", "--connections", str(connections), "--streams", str(streams)),
            *request.load,
        ),
        baseline=IN_PROCESS if fastapi else "hypercorn",
        tags=frozenset({"h3", application}),
    )


def _by_quic_go(name: str) -> Case:
    """A table of bare applications, with quic-go's client."""
    case = _requests(name, _REQUESTS[name], "bare", 4, 8)
    return replace(
        case,
        name=f"{case.name}_quicgo",
        title=f"{case.title}, quic-go's client",
        about=case.about.replace("a native client (quinn and h3)", "quic-go's client"),
        load=("quicgo_load", *case.load[1:]),
        tags=case.tags | {"quicgo"},
    )


def _transfer(mode: str) -> Case:
    what = {
        "upload": "A bare ASGI application reads the body of one POST, 1 GiB, and answers its length, "
        "after one of 8 MiB whose SHA-256 is compared.",
        "download": "A bare ASGI application sends one body, 1 GiB, in pieces of 64 KiB; every byte is "
        "compared.",
    }[mode]
    return Case(
        name=f"h3_{mode}",
        title=f"HTTP/3 {mode} of a large body",
        about=(
            f"{what} *{RAW_QUIC}* is this project's QUIC server of the bulk tables on one stream, for a "
            "window of time. Memory is the growth of the server's resident memory during the transfer "
            "(`VmHWM`). A quick run has 64 MiB."
        ),
        family=f"h3_{mode}",
        unit=GIGABITS,
        load=("h3_load", "--mode", mode),
        baseline=RAW_QUIC,
        latency=False,
        amount=Amount("bytes", full=1 << 30, quick=64 << 20, counted=16 << 20),
        memory=True,
        tags=frozenset({"h3", "bare"}),
    )


_TCP_REQUESTS = {
    "hello": _REQUESTS["hello"],
    "100k": _REQUESTS["100k"],
    "json": _Request(
        "POST of JSON",
        f"reads {len(ORDER)} bytes of JSON and answers {len(TOTAL)}",
        ("--path", "/order", "--content", ORDER, "--answer", TOTAL),
    ),
    "numbers": _Request(
        "ten path parameters",
        "answers the sum of ten numbers in the path of a GET",
        ("--path", "/numbers/1/2/3/4/5/6/7/8/9/10", "--answer", "55"),
    ),
}
_CROWD = 1_000
_VERSIONS = {1: "HTTP/1.1", 2: "HTTP/2"}
_USUAL = {1: "uvicorn", 2: "hypercorn"}
"""The server that most users have today."""


def _tcp_requests(version: int, name: str, application: str, connections: int) -> Case:
    request = _TCP_REQUESTS[name]
    crowd = connections == _CROWD
    streams = 1 if version == 1 or crowd else 8
    connections //= streams
    each = "a request" if streams == 1 else f"{streams} requests"
    fastapi = application == "fastapi"
    return Case(
        name=f"h{version}_{'fastapi_' if fastapi else ''}{name}{'_c1000' if crowd else ''}",
        title=(
            f"{_VERSIONS[version]} {request.title}{', FastAPI' if fastapi else ''}"
            f"{f', {connections:,} connections' if crowd else ''}"
        ),
        about=(
            f"{_APPLICATIONS[application]} {request.about}; a native client keeps {connections:,} "
            f"connections with {each} each in flight and checks status and body. Without TLS. CPU is that of "
            "all processes of the server."
        ),
        family=f"h{version}_{application}",
        unit=REQUESTS,
        load=(
            *("http_load", "--http", str(version), "--connections", str(connections)),
            *("--streams", str(streams), *request.load),
        ),
        baseline=_USUAL[version],
        tls=False,
        whole_tree=True,
        tags=frozenset({f"h{version}", application}),
    )


def _tcp_idle(version: int) -> Case:
    return Case(
        name=f"h{version}_idle",
        title=f"{_VERSIONS[version]}, idle connections",
        about=(
            f"Memory of all processes of the server for each {_VERSIONS[version]} connection without TLS "
            "that has received one answer of the bare application and has been idle since: the growth of "
            "private pages (`Private_Clean` and `Private_Dirty` of `/proc/<pid>/smaps_rollup`). All "
            "connections have to be open at the end: 10,000, or 1,000 in a quick run. CPU is the cost of the "
            "connection and the request. Less is better."
        ),
        family=f"h{version}_bare",
        unit=IDLE_MEMORY,
        load=("http_load", "--http", str(version), "--mode", "idle"),
        baseline=_USUAL[version],
        tls=False,
        latency=False,
        amount=Amount("connections", full=10_000, quick=1_000, counted=100),
        whole_tree=True,
        tags=frozenset({f"h{version}", "idle"}),
    )


_OVER_TCP = tuple(
    case
    for version in _VERSIONS
    for case in (
        *(
            _tcp_requests(version, name, application, connections)
            for name in _TCP_REQUESTS
            for application in ("bare", "fastapi")
            for connections in ((32, _CROWD) if name == "hello" else (32,))
        ),
        _tcp_idle(version),
    )
)


def _https(name: str, title: str, about: str, unit: Unit, *load: str, **more: Any) -> Case:
    return Case(
        name=f"https_{name}",
        title=f"HTTP/1.1 over TLS, {title}",
        about=(
            f"{about} TLS 1.3 with X25519, ECDSA P-256 and AES-128-GCM; the bare application answers. The "
            "client has one core too and limits the rate of fast servers: compare the processor time."
        ),
        family="https",
        unit=unit,
        load=("tls_load", "--mode", *load),
        baseline="uvicorn",
        whole_tree=True,
        tags=frozenset({"https"}),
        **more,
    )


_OVER_TLS = (
    _https(
        "full",
        "full handshakes",
        "A native client keeps 8 connections in progress: a full handshake, a hello, the end.",
        HANDSHAKES,
        *("full", "--connections", "8"),
    ),
    _https(
        "resumed",
        "resumed handshakes",
        "A native client keeps 8 connections in progress: a handshake resumed with a ticket of the "
        "connection before, a hello, the end. A server that does not resume sessions fails.",
        HANDSHAKES,
        *("resumed", "--connections", "8"),
    ),
    _https(
        "download",
        "responses of 100 MiB",
        "4 connections with a response of 100 MiB each in flight, which the application sends in parts of "
        "64 KiB; a native client compares every byte.",
        GIGABITS,
        *("download", "--connections", "4", "--size", str(100 << 20)),
        latency=False,
    ),
    _https(
        "idle",
        "idle connections",
        "Memory of all processes of the server for each connection that has received one answer and has "
        "been idle since: the growth of private pages. 10,000 connections, or 1,000 in a quick run; one of "
        "100 is used again at the end. CPU is the cost of the handshake and the request. Less is better.",
        IDLE_MEMORY,
        "idle",
        latency=False,
        amount=Amount("connections", full=10_000, quick=1_000, counted=100),
    ),
)


def _websocket(size: int, connections: int, *, deflate: bool) -> Case:
    unit = "100 bytes" if size == 100 else f"{size >> 10} KiB"
    noun = "connection" if connections == 1 else "connections"
    compressed = (
        " Messages are compressed (permessage-deflate), as browsers offer it; the server compresses each "
        "with reference to earlier ones."
    )
    return Case(
        name=f"ws_{'deflate_' if deflate else ''}{size if size == 100 else f'{size >> 10}k'}_c{connections}",
        title=(
            f"WebSocket echo, {unit}, {connections:,} {noun}{', permessage-deflate' if deflate else ''}"
        ),
        about=(
            "A bare ASGI application sends each text message back, over HTTP/1.1 without TLS; a native "
            f"client keeps one message of {size:,} bytes in flight on {connections:,} {noun} and compares "
            f"every reply.{compressed if deflate else ''}"
        ),
        family="ws_deflate" if deflate else "ws",
        unit=MESSAGES,
        load=(
            *("ws_load", "--connections", str(connections), "--size", str(size)),
            *("--deflate", "true" if deflate else "false"),
        ),
        baseline="uvicorn",
        tls=False,
        whole_tree=True,
        tags=frozenset({"ws"}),
    )


def _file(name: str, title: str, connections: int) -> Case:
    size = FILE_SIZES[name]
    return Case(
        name=f"file_{name}",
        title=f"Static file, {title}",
        about=(
            f"A native client keeps {connections} connections with a GET of a file of {size:,} bytes each in "
            "flight, over HTTP/1.1 without TLS. The file is in the page cache. uringcore serves it by "
            "`--static`, nginx with `sendfile`, `tcp_nopush` and `open_file_cache`, and Caddy by "
            "`file_server` on one processor."
        ),
        family="files_http1",
        unit=GIGABITS if size >= 1 << 20 else REQUESTS,
        load=(
            *("file_load", "--connections", str(connections), "--size", str(size)),
            *("--path", f"/assets/{name}.bin"),
        ),
        baseline="nginx",
        tls=False,
        whole_tree=True,
        latency=size < 1 << 20,
        tags=frozenset({"static"}),
    )


SESSIONS = Unit("sessions/s", "session")
STREAMS = Unit("streams/s", "stream")


def _webtransport(name: str, title: str, about: str, unit: Unit, *load: str, **more: Any) -> Case:
    return Case(
        name=f"webtransport_{name}",
        title=f"WebTransport {title}",
        about=f"{about} The client is native: quinn with a WebTransport layer.",
        family="webtransport",
        unit=unit,
        load=("quic_load", "--webtransport", "1", "--mode", *load),
        baseline="aiopquic",
        tags=frozenset({"webtransport"}),
        **more,
    )


_WEBTRANSPORT = (
    *(
        _webtransport(
            f"{mode}{suffix}",
            f"{mode} on one stream, writes of {title}",
            f"One bidirectional stream; the sender writes pieces of {title}. {check}",
            GIGABITS,
            *(mode, "--write", str(size)),
            latency=False,
        )
        for mode, check in (
            ("upload", "Before the clock starts, 8 MiB are uploaded and their SHA-256 compared."),
            ("download", "Every byte is compared."),
        )
        for suffix, title, size in (("", "64 KiB", 1 << 16), ("_1k", "1 KiB", 1 << 10))
    ),
    _webtransport(
        "datagrams",
        "datagrams, 1,000 bytes",
        "Up to 256 in flight, which the server sends back; received echoes are counted.",
        DATAGRAMS,
        "datagram",
        latency=False,
    ),
    *(
        _webtransport(
            f"{mode}s{suffix}",
            f"{title}{more}",
            f"{concurrent} at once, each {what}.",
            unit,
            *(mode, "--concurrent", str(concurrent)),
        )
        for mode, unit, title, what in (
            (
                "stream",
                STREAMS,
                "streams opened, echoed and closed",
                "with 100 bytes there and back",
            ),
            ("session", SESSIONS, "sessions on one connection", "accepted and closed again"),
        )
        for concurrent, suffix, more in ((8, "", ""), (100, "_100", ", 100 at once"))
    ),
)

CASES: tuple[Case, ...] = (
    *(
        _echo(kind, size, connections)
        for kind in _ECHOES
        for size in kind.sizes
        for connections in (1, 100)
    ),
    *(_slow_upload(kind, connections) for kind in _SLOW_UPLOADS for connections in (1, 10)),
    Case(
        name="quic_upload",
        title="QUIC bulk, client to server",
        about=(
            "A native quinn client writes 64 KiB pieces on one stream; the server under test reads "
            "them. Before the clock starts, 8 MiB are uploaded and their SHA-256 compared."
        ),
        family="quic_bulk",
        unit=GIGABITS,
        load=("quic_load", "--mode", "upload"),
        baseline="aioquic",
        latency=False,
        tags=frozenset({"quic"}),
    ),
    Case(
        name="quic_download",
        title="QUIC bulk, server to client",
        about=(
            "The server under test writes 64 KiB pieces on one stream, with whatever back pressure "
            "its API has; a native quinn client compares every byte."
        ),
        family="quic_bulk",
        unit=GIGABITS,
        load=("quic_load", "--mode", "download"),
        baseline="aioquic",
        latency=False,
        tags=frozenset({"quic"}),
    ),
    Case(
        name="quic_upload_1k",
        title="QUIC bulk, client to server, writes of 1 KiB",
        about="As above, but the client writes pieces of 1 KiB.",
        family="quic",
        unit=GIGABITS,
        load=("quic_load", "--mode", "upload", "--write", "1024"),
        baseline="aioquic",
        latency=False,
        tags=frozenset({"quic"}),
    ),
    Case(
        name="quic_download_1k",
        title="QUIC bulk, server to client, writes of 1 KiB",
        about="As above, but the server writes pieces of 1 KiB.",
        family="quic",
        unit=GIGABITS,
        load=("quic_load", "--mode", "download", "--write", "1024"),
        baseline="aioquic",
        latency=False,
        tags=frozenset({"quic"}),
    ),
    Case(
        name="quic_handshakes",
        title="QUIC handshakes",
        about=(
            "A native quinn client keeps 8 full handshakes (ECDSA P-256) in progress and closes each "
            "connection at once."
        ),
        family="quic",
        unit=HANDSHAKES,
        load=("quic_load", "--mode", "handshake"),
        baseline="aioquic",
        tags=frozenset({"quic"}),
    ),
    Case(
        name="quic_ping",
        title="QUIC round trip, 100 bytes",
        about="One message of 100 bytes in flight on one stream, which the server sends back.",
        family="quic",
        unit=REQUESTS,
        load=("quic_load", "--mode", "ping"),
        baseline="aioquic",
        tags=frozenset({"quic"}),
    ),
    Case(
        name="quic_requests",
        title="QUIC requests, 100 bytes, 100 at once",
        about=(
            "100 streams at once on one connection: the client opens one, sends 100 bytes and ends its "
            "side, the server sends them back and ends its own. The rows with `streams` and "
            "`uringcore.quic` have a task for each stream; the others answer in the call that brings the "
            "event."
        ),
        family="quic_requests",
        unit=REQUESTS,
        load=("quic_load", "--mode", "stream", "--concurrent", "100"),
        baseline="aioquic",
        tags=frozenset({"quic"}),
    ),
    Case(
        name="quic_datagrams",
        title="QUIC DATAGRAM frames, 1,000 bytes",
        about=(
            "A native quinn client keeps up to 256 DATAGRAM frames in flight, which the server "
            "sends back; received echoes are counted."
        ),
        family="quic_datagrams",
        unit=DATAGRAMS,
        load=("quic_load", "--mode", "datagram"),
        baseline="aioquic",
        latency=False,
        tags=frozenset({"quic"}),
    ),
    *(
        _requests(name, request, application, connections, streams)
        for name, request in _REQUESTS.items()
        for application in ("bare", "fastapi")
        for connections, streams in _CONCURRENCY.get(name, ((4, 8),))
    ),
    *(_by_quic_go(name) for name in ("hello", "100k")),
    *(_transfer(mode) for mode in ("upload", "download")),
    Case(
        name="h3_idle",
        title="HTTP/3, idle connections",
        about=(
            "Memory of the server for each HTTP/3 connection that has received one answer of the bare "
            "application and has been idle since (except for a PING every 10 s, which prevents a time-out): "
            "the growth of the process's private pages (`Private_Clean` and `Private_Dirty` of "
            "`/proc/<pid>/smaps_rollup`). All connections have to be open at "
            "the end: 10,000, or 1,000 in a quick run. CPU is the cost of the handshake and the request. "
            "Less is better."
        ),
        family="h3_bare",
        unit=IDLE_MEMORY,
        load=("h3_load", "--mode", "idle"),
        baseline="hypercorn",
        latency=False,
        amount=Amount("connections", full=10_000, quick=1_000, counted=100),
        tags=frozenset({"h3", "idle"}),
    ),
    *_OVER_TCP,
    *_OVER_TLS,
    *_WEBTRANSPORT,
    *(
        _websocket(size, connections, deflate=deflate)
        for deflate in (False, True)
        for size in (100, 64 << 10)
        for connections in (1, 1000)
    ),
    _file("1k", "1 KiB", 32),
    _file("100k", "100 KiB", 32),
    _file("100m", "100 MiB", 4),
)


def select(names: list[str]) -> tuple[list[Case], list[Matrix]]:
    """The cases and matrices with these names or tags, in order; all for an empty list.

    Raises `ValueError` for a name that is neither.
    """
    if not names:
        return list(CASES), list(MATRICES)
    tables: list[Case | Matrix] = [*CASES, *MATRICES]
    for name in names:
        if not any(name == table.name or name in table.tags for table in tables):
            known = ", ".join(table.name for table in tables)
            raise ValueError(f"cases: {name!r} is neither a case nor a tag; cases are {known}")
    chosen = set(names)
    return (
        [case for case in CASES if case.name in chosen or case.tags & chosen],
        [matrix for matrix in MATRICES if matrix.name in chosen or matrix.tags & chosen],
    )
