"""The hot paths whose machine instructions are counted, one group of rows a process.

`harness/callgrind.py` runs this under `valgrind --tool=callgrind`. Each row runs a few times and many times,
with a mark after each. So the difference contains neither the start of the interpreter nor the begin and end
of a row. Without `--marks` the program runs the rows and counts nothing: training.py does this. `--times`
multiplies the rows that use a socket.

The clients of the echoes and of the HTTP servers are separate processes on the server's core; valgrind does
not follow them. The group `quic` is two connections in this process with a simulated clock: a row is the cost
of a KiB for its sender and its receiver together.

Valgrind makes the server about fifty times slower but does not slow the clock. The duration of callbacks
decides when written bytes leave, so our loops would send each answer by itself. `SLOWDOWN` corrects this:
with it the loops send as without valgrind. `--sends` prints how often a row sends, to compare the two.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import json
import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.applications import bare
from benchmarks.harness.process import SERVER_CORE, pin
from benchmarks.programs import micro
from benchmarks.programs.rows import Row
from benchmarks.servers import echo, http1, http3, quic_bulk, quic_native, webtransport
from benchmarks.servers.bulk import ALPN
from benchmarks.servers.loops import LOOPS, OURS, new_loop
from tests.support.free_ports import free_port

QUIC, QUIC_PROTOCOL, QUIC_STREAMS, QUIC_NATIVE = (
    "quic",
    "quic-protocol",
    "quic-streams",
    "quic-native",
)
QUIC_FACES = (QUIC_PROTOCOL, QUIC_STREAMS, QUIC_NATIVE)
"""Servers on the API of aioquic, by its events and by `stream_handler`, and on `uringcore.quic`."""
H3, WEBTRANSPORT = "h3", "webtransport"
HTTP1, HTTPTOOLS, HTTP2 = "http1", "http1-httptools", "http2"
HTTP1_OPTIONS = {HTTP1: "native", HTTPTOOLS: "httptools"}
"""The option `http` of the server, by group."""
GROUPS = (*LOOPS, QUIC, *QUIC_FACES, H3, WEBTRANSPORT, HTTP1, HTTPTOOLS, HTTP2)
DEFAULT_GROUPS = (*OURS, QUIC, *QUIC_FACES, H3, WEBTRANSPORT, HTTP1, HTTP2)
"""The groups of the baseline, and of the training of the compiler's profile."""
REPEATS = 3
SLOWDOWN = 200
"""Valgrind's factor is 30 to 60; the rest is a margin for a busy machine."""

Counts = tuple[int, int]
"""The number of operations in the short and in the long run."""
MICRO: Counts = (2_000, 12_000)
ECHO: Counts = (50, 250)
KIB: Counts = (256, 1024)
REQUESTS: Counts = (320, 1600)
HANDSHAKES: Counts = (4, 20)

# Their instructions depend on the scheduling of the threads.
WITH_THREADS = ("run_in_executor round trip", "call_soon_threadsafe round trip")
ECHOES = (
    ("Protocol echo, 1 KiB", "protocol", "tcp", 1024),
    ("Protocol echo, 10 KiB", "protocol", "tcp", 10 * 1024),
    ("Protocol echo, 100 KiB", "protocol", "tcp", 100 * 1024),
    ("BufferedProtocol echo, 10 KiB", "buffered", "tcp", 10 * 1024),
    ("streams echo, 1 KiB", "streams", "tcp", 1024),
    ("streams echo, 100 KiB", "streams", "tcp", 100 * 1024),
    ("sock_* echo, 1 KiB", "sock", "tcp", 1024),
    ("UDP echo, 1 KiB", "udp", "udp", 1024),
    ("TLS echo, 10 KiB", "protocol", "tls", 10 * 1024),
)
QUIC_WRITES = (
    ("stream in writes of 1 KiB, per KiB", 1),
    ("stream in writes of 64 KiB, per KiB", 64),
)
FACE_ROWS = (
    ("handshake", "handshake", HANDSHAKES),
    ("round trip of 100 bytes", "ping", ECHO),
    ("request of 100 bytes, 100 at once", "requests", REQUESTS),
    ("DATAGRAM of 1,000 bytes, 100 at once", "datagrams", REQUESTS),
    ("64 KiB writes to the client, per KiB", "download", (4096, 16384)),
    ("1 KiB writes from the client, per KiB", "upload", (1024, 4096)),
)
UNSERVED = {
    # It only echoes streams.
    QUIC_STREAMS: ("datagrams", "download", "upload"),
    # Another task of each connection would serve them, which is not part of a handshake.
    QUIC_NATIVE: ("datagrams",),
}
"""The modes that a server does not serve."""
WEBTRANSPORT_ROWS = (
    ("stream of 100 bytes, 8 at once", "streams"),
    ("session, 8 at once", "sessions"),
    ("datagram of 100 bytes, 8 at once", "datagrams"),
)
BODIES: Counts = (16, 80)
H3_ROWS = (
    ("hello, one at a time", "hello", 1, REQUESTS),
    ("hello, 32 at once", "hello", 32, REQUESTS),
    ("answer of 100 KiB, 4 at once", "download", 4, BODIES),
    ("POST of 100 KiB, 4 at once", "upload", 4, BODIES),
    ("WebSocket message of 100 bytes, 4 at once", "websocket", 4, REQUESTS),
)
HTTP1_ROWS = (
    ("hello, one at a time", "hello", 1, REQUESTS),
    ("hello, 32 connections at once", "hello", 32, REQUESTS),
    ("ten path parameters, 32 connections at once", "numbers", 32, REQUESTS),
    ("POST of JSON, 32 connections at once", "json", 32, REQUESTS),
    ("response of 100 KiB, 4 connections at once", "download", 4, BODIES),
    ("POST of 100 KiB, 4 connections at once", "upload", 4, BODIES),
    ("WebSocket message of 100 bytes, 4 at once", "websocket", 4, REQUESTS),
)
HTTP2_ROWS = (
    ("hello, one at a time", "hello", 1, REQUESTS),
    ("hello, 32 at once", "hello", 32, REQUESTS),
    ("ten path parameters, 32 at once", "numbers", 32, REQUESTS),
    ("POST of JSON, 32 at once", "json", 32, REQUESTS),
    ("response of 100 KiB, 4 at once", "download", 4, BODIES),
    ("POST of 100 KiB, 4 at once", "upload", 4, BODIES),
)
SENDS = ("syscalls", "quic_datagrams_sent")
"""The counters in `loop.stats()` that show how written bytes leave."""
CLIENT, SERVER = ("192.0.2.1", 40_000), ("192.0.2.2", 4433)


class Marks:
    """The marks between the rows, for callgrind or to print how often the loop sends."""

    def __init__(self, library: Path | None, repeats: int, *, shows_sends: bool) -> None:
        self.repeats = repeats
        self._callgrind = ctypes.CDLL(str(library)) if library is not None else None
        self._shows_sends = shows_sends
        self._loop: Any = None
        self._before: dict[str, int] = {}

    def loop(self, name: str) -> asyncio.AbstractEventLoop:
        """Make the loop called `name` for the rows."""
        loop: Any = new_loop(name)
        # Older packages (`--pythonpath`) hold written bytes until the end of the turn.
        if self._callgrind is not None and name in OURS and hasattr(loop, "_slow_down"):
            loop._slow_down(SLOWDOWN)
        asyncio.set_event_loop(loop)
        if self._shows_sends and name in OURS:
            self._loop = loop
        return loop  # type: ignore[no-any-return]

    def __call__(self, row: str = "", count: int = 0) -> None:
        """A row begins (without arguments), or has run `count` times."""
        if self._callgrind is not None:
            self._callgrind.mark(f"{count} {row}".encode() if row else b"")
        if self._loop is None:
            return
        now = {name: self._loop.stats()[name] for name in SENDS}
        if row:
            shown = {name: round((now[name] - self._before[name]) / count, 3) for name in SENDS}
            print(json.dumps({"row": row, "count": count, **shown}), flush=True)
        self._before = now


class ServedRow:
    """A server on the loop and its client: a program of this package and its arguments."""

    def __init__(self, loop: asyncio.AbstractEventLoop, program: str, *arguments: object) -> None:
        self.loop = loop
        self.client = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.programs.{program}", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def __call__(self, count: int) -> None:
        """Serve until the client has received `count` replies."""
        assert self.client.stdin is not None
        assert self.client.stdout is not None
        self.client.stdin.write(b"%d\n" % count)
        told = self.client.stdout.fileno()
        self.loop.add_reader(told, self.loop.stop)
        self.loop.run_forever()
        self.loop.remove_reader(told)
        if os.read(told, 1) != b".":
            raise RuntimeError("the client did not get all of its replies")

    def end(self) -> None:
        """End the client."""
        self.client.communicate()


class QuicPair:
    """A QUIC client and server without sockets, on a link without loss or delay."""

    def __init__(self) -> None:
        from uringcore.devcert import DevelopmentCertificate
        from uringcore.quic.configuration import QuicConfiguration
        from uringcore.quic.connection import QuicConnection

        made = DevelopmentCertificate.make()
        serving = QuicConfiguration(is_client=False, alpn_protocols=[ALPN])
        with tempfile.TemporaryDirectory() as folder:
            serving.load_cert_chain(*made.write(folder))
        asking = QuicConfiguration(alpn_protocols=[ALPN], server_name="localhost")
        asking.load_verify_locations(cadata=made.certificate_pem)
        self.client = QuicConnection(configuration=asking)
        self.server = QuicConnection(configuration=serving)
        self.now = 1000.0
        self.received = 0
        self.client.connect(SERVER, now=self.now)
        while not self.client.is_established:
            self._turn()
        self.stream = self.client.get_next_available_stream_id()

    def send(self, write: int, count: int) -> None:
        """Send `count` KiB in writes of `write` KiB; each is received before the next."""
        piece = bytes(write * 1024)
        for _ in range(count // write):
            self.client.send_stream_data(self.stream, piece)
            due = self.received + len(piece)
            while self.received < due:
                self._turn()

    def _turn(self) -> None:
        moved = self._carry(self.client, self.server, CLIENT)
        moved += self._carry(self.server, self.client, SERVER)
        if not moved:
            times = [side.get_timer() for side in (self.client, self.server)]
            self.now = max(self.now, min(time for time in times if time is not None))
            for side, time in zip((self.client, self.server), times, strict=True):
                if time is not None and time <= self.now:
                    side.handle_timer(now=self.now)

    def _carry(self, source: object, target: object, address: tuple[str, int]) -> int:
        """Deliver the datagrams that `source` has to send; return their number."""
        datagrams = source.datagrams_to_send(now=self.now)  # type: ignore[attr-defined]
        for data, _ in datagrams:
            target.receive_datagram(data, address, now=self.now)  # type: ignore[attr-defined]
        while (event := target.next_event()) is not None:  # type: ignore[attr-defined]
            if target is self.server and hasattr(event, "data"):
                self.received += len(event.data)
        return len(datagrams)


def count_rows(rows: dict[str, Row], counts: Counts, mark: Marks) -> None:
    """Do every row a few and many times, each between two marks, `mark.repeats` times."""
    for name, row in rows.items():
        row(counts[0])
        # No collection in the middle of this row visits objects of imports and of other rows.
        gc.collect()
        gc.freeze()
        for _ in range(mark.repeats):
            for count in counts:
                mark()
                row(count)
                mark(name, count)


@contextlib.contextmanager
def certified() -> Iterator[tuple[str, str]]:
    """The files of a certificate for localhost and of its key."""
    from uringcore.devcert import DevelopmentCertificate

    with tempfile.TemporaryDirectory() as folder:
        certificate, key = DevelopmentCertificate.make().write(folder)
        yield str(certificate), str(key)


def more(counts: Counts, times: int) -> Counts:
    """The counts, multiplied by `times`."""
    return counts[0] * times, counts[1] * times


def leave() -> None:
    """End the process without Python's finalization: the servers' tasks and transports are dropped. The
    exit handlers of C libraries run: a profile is written then."""
    sys.stdout.flush()
    ctypes.CDLL(None).exit(0)


def count_loop(name: str, mark: Marks, times: int) -> None:
    """The rows of the loop called `name`."""
    loop = mark.loop(name)
    rows = micro.Rows(loop).all()
    threaded = {title: rows.pop(title) for title in WITH_THREADS}
    count_rows(rows, MICRO, mark)
    if times > 1:
        count_rows(threaded, ECHO, mark)
    with certified() as (certificate, key):
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(certificate, key)
        for title, style, transport, size in ECHOES:
            tls = serving if transport == "tls" else None
            port = loop.run_until_complete(echo.STYLES[style](tls))
            echoing = ServedRow(loop, "echo_client", port, size, transport, certificate)
            count_rows({title: echoing}, more(ECHO, times), mark)
            echoing.end()
    leave()


def count_quic(mark: Marks, times: int) -> None:
    """The rows of QUIC."""
    pair = QuicPair()

    def row(write: int) -> Row:
        return lambda count: pair.send(write, count)

    count_rows({title: row(write) for title, write in QUIC_WRITES}, more(KIB, times), mark)
    leave()


def count_face(face: str, mark: Marks, times: int) -> None:
    """The rows of a server on one of QUIC's interfaces: its cost, the server program included."""
    loop = mark.loop("uringcore-uring")
    with certified() as (certificate, key):
        listener = None
        if face == QUIC_NATIVE:
            listener = loop.run_until_complete(_listening(certificate, key))
            port = listener.address[1]
            serving: Any = loop.create_task(quic_native.connections(listener, datagrams=False))
        else:
            port = free_port()
            configuration = quic_bulk.configure("uringcore", certificate, key)
            streams = face == QUIC_STREAMS
            starting = quic_bulk.start_server("uringcore", port, configuration, streams)
            serving = loop.run_until_complete(starting)
        for title, mode, counts in FACE_ROWS:
            if mode in UNSERVED.get(face, ()):
                continue
            asking = ServedRow(loop, "quic_client", port, certificate, mode)
            count_rows({title: asking}, more(counts, times), mark)
            asking.end()
    if listener is not None and serving.done():
        serving.result()
    leave()


async def _listening(certificate: str, key: str) -> Any:
    return await quic_native.listening(certificate, key)


def count_h3(mark: Marks, times: int) -> None:
    """The rows of the HTTP/3 server: the cost of a request, the bare application's answer included."""
    loop = mark.loop("uringcore-uring")
    with certified() as (certificate, key):
        port = free_port()
        starting = http3.start_uringcore(bare.application, port, certificate, key)
        serving = loop.run_until_complete(starting)
        for title, mode, at_once, counts in H3_ROWS:
            asking = ServedRow(loop, "h3_client", port, certificate, mode, at_once)
            count_rows({title: asking}, more(counts, times), mark)
            asking.end()
    if serving.done():
        serving.result()
    leave()


def count_http1(option: str, mark: Marks, times: int) -> None:
    """The rows of the server over HTTP/1.1, the bare application's answer included."""
    count_tcp(option, "http1_client", HTTP1_ROWS, mark, times)


def count_http2(mark: Marks, times: int) -> None:
    """The rows of the server over HTTP/2 without TLS, the bare application's answer included."""
    count_tcp("native", "http2_client", HTTP2_ROWS, mark, times)


def count_tcp(
    option: str,
    client: str,
    rows: tuple[tuple[str, str, int, Counts], ...],
    mark: Marks,
    times: int,
) -> None:
    """The rows of the server over TCP with its option `http`."""
    loop = mark.loop("uringcore-uring")
    port = free_port()
    serving = loop.run_until_complete(http1.start_uringcore(bare.application, port, option))
    for title, mode, at_once, counts in rows:
        asking = ServedRow(loop, client, port, mode, at_once)
        count_rows({title: asking}, more(counts, times), mark)
        asking.end()
    if serving.done():
        serving.result()
    leave()


def count_webtransport(mark: Marks, times: int) -> None:
    """The rows of the WebTransport server, the server program included."""
    loop = mark.loop("uringcore-uring")
    with certified() as (certificate, key):
        port = free_port()
        server = loop.run_until_complete(webtransport.serve_uringcore(port, certificate, key))
        for title, mode in WEBTRANSPORT_ROWS:
            asking = ServedRow(loop, "webtransport_client", port, certificate, mode)
            count_rows({title: asking}, more(REQUESTS, times), mark)
            asking.end()
    if server.is_closed:
        raise RuntimeError("the server has closed by itself")
    leave()


def main() -> None:
    """Count the group named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--group", choices=GROUPS, required=True)
    parser.add_argument("--marks", type=Path, help="the built callgrind_mark.c")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument(
        "--repeats", type=int, default=REPEATS, help="how often each row is counted"
    )
    parser.add_argument("--sends", action="store_true", help="print how often each row sends")
    options = parser.parse_args()
    pin(SERVER_CORE)
    mark = Marks(options.marks, options.repeats, shows_sends=options.sends)
    if options.group == QUIC:
        count_quic(mark, options.times)
    elif options.group in QUIC_FACES:
        count_face(options.group, mark, options.times)
    elif options.group == H3:
        count_h3(mark, options.times)
    elif options.group in HTTP1_OPTIONS:
        count_http1(HTTP1_OPTIONS[options.group], mark, options.times)
    elif options.group == HTTP2:
        count_http2(mark, options.times)
    elif options.group == WEBTRANSPORT:
        count_webtransport(mark, options.times)
    else:
        count_loop(options.group, mark, options.times)


if __name__ == "__main__":
    main()
