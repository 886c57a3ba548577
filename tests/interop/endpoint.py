"""A server and a client on aioquic's API that run on aioquic and on uringcore.

One source for both libraries is itself a test of the API's compatibility. As a program it is the
aioquic peer:

    python -m tests.interop.endpoint server --cert CERT --key KEY
    python -m tests.interop.endpoint client --port PORT --ca CERT --mode echo|get

It echoes streams (ALPN `echo`) and answers HTTP/3 requests (ALPN `h3`).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.free_ports import free_port

STREAMS = 20
STREAM_BYTES = 1 << 20
GREETING = b"hello over HTTP/3\n"
WINDOW = 1 << 20
ALPN_ECHO, ALPN_H3 = "echo", "h3"


def pattern(stream: int) -> bytes:
    """Returns the content of one stream: different for each, computed by both ends."""
    state = stream + 1
    out = bytearray(4096)
    for index in range(len(out)):
        state = (state * 1_664_525 + 1_013_904_223) & 0xFFFFFFFF
        out[index] = state >> 24
    return bytes(out) * (STREAM_BYTES // len(out))


class Library:
    """The modules of one library, by aioquic's names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asyncio = self._module("asyncio")
        self.configuration = self._module("quic.configuration")
        self.events = self._module("quic.events")
        self.h3 = self._module("h3.connection")
        self.h3_events = self._module("h3.events")

    def _module(self, path: str) -> Any:
        return importlib.import_module(f"{self.name}.{path}")


def server_protocol(library: Library) -> type:
    """Echoes streams, or serves HTTP/3, depending on the client's ALPN."""

    class Protocol(library.asyncio.QuicConnectionProtocol):  # type: ignore[name-defined, misc]
        http: Any = None
        bodies: dict[int, tuple[bytes, bytearray]]

        def quic_event_received(self, event: Any) -> None:
            if isinstance(event, library.events.ProtocolNegotiated):
                if event.alpn_protocol == ALPN_H3:
                    self.http = library.h3.H3Connection(self._quic)
                    self.bodies = {}
            elif self.http is not None:
                for http_event in self.http.handle_event(event):
                    self.http_event_received(http_event)
            elif isinstance(event, library.events.StreamDataReceived):
                self._quic.send_stream_data(event.stream_id, event.data, event.end_stream)
            self.transmit()

        def http_event_received(self, event: Any) -> None:
            if isinstance(event, library.h3_events.HeadersReceived):
                headers = dict(event.headers)
                self.bodies[event.stream_id] = (headers[b":path"], bytearray())
            elif isinstance(event, library.h3_events.DataReceived):
                self.bodies[event.stream_id][1].extend(event.data)
            else:
                return
            if event.stream_ended:
                path, body = self.bodies.pop(event.stream_id)
                answer = GREETING if path == b"/" else bytes(body)
                fields = [
                    (b":status", b"200"),
                    (b"content-length", str(len(answer)).encode()),
                ]
                self.http.send_headers(event.stream_id, fields)
                self.http.send_data(event.stream_id, answer, end_stream=True)

    return Protocol


@asynccontextmanager
async def serving(library: Library, cert: str, key: str) -> AsyncIterator[int]:
    """Starts a server on a free port, and yields the port."""
    configuration = library.configuration.QuicConfiguration(
        is_client=False, alpn_protocols=[ALPN_ECHO, ALPN_H3], max_data=8 * WINDOW
    )
    configuration.load_cert_chain(cert, key)
    port = free_port()
    server = await library.asyncio.serve(
        "127.0.0.1",
        port,
        configuration=configuration,
        create_protocol=server_protocol(library),
    )
    try:
        yield port
    finally:
        server.close()


def client_protocol(library: Library) -> type:
    """A connection that collects complete HTTP/3 responses."""

    class Protocol(library.asyncio.QuicConnectionProtocol):  # type: ignore[name-defined, misc]
        http: Any = None

        def quic_event_received(self, event: Any) -> None:
            if self.http is None:
                super().quic_event_received(event)
                return
            for http_event in self.http.handle_event(event):
                stream = self.answers.get(getattr(http_event, "stream_id", None))
                if stream is None:
                    continue
                if isinstance(http_event, library.h3_events.HeadersReceived):
                    stream["status"] = dict(http_event.headers)[b":status"]
                elif isinstance(http_event, library.h3_events.DataReceived):
                    stream["body"] += http_event.data
                if http_event.stream_ended:
                    stream["ended"].set_result(None)
            if isinstance(event, library.events.ConnectionTerminated):
                for stream in self.answers.values():
                    if not stream["ended"].done():
                        stream["ended"].set_exception(ConnectionError(event.reason_phrase))

        def begin_http(self) -> None:
            self.http = library.h3.H3Connection(self._quic)
            self.answers: dict[int, Any] = {}

        async def fetch(self, method: bytes, path: bytes, body: bytes = b"") -> bytes:
            stream_id = self._quic.get_next_available_stream_id()
            answer = self.answers[stream_id] = {
                "status": b"",
                "body": bytearray(),
                "ended": asyncio.get_running_loop().create_future(),
            }
            fields = [
                (b":method", method),
                (b":scheme", b"https"),
                (b":authority", b"localhost"),
                (b":path", path),
            ]
            self.http.send_headers(stream_id, fields, end_stream=not body)
            if body:
                self.http.send_data(stream_id, body, end_stream=True)
            self.transmit()
            await answer["ended"]
            assert answer["status"] == b"200", answer["status"]
            return bytes(answer["body"])

    return Protocol


@asynccontextmanager
async def connected(library: Library, port: int, ca: str, alpn: str) -> AsyncIterator[Any]:
    """A connection that verifies the server against `ca`."""
    configuration = library.configuration.QuicConfiguration(
        is_client=True,
        alpn_protocols=[alpn],
        server_name="localhost",
        verify_mode=ssl.CERT_REQUIRED,
        max_data=8 * WINDOW,
    )
    configuration.load_verify_locations(cafile=ca)
    async with library.asyncio.connect(
        "127.0.0.1",
        port,
        configuration=configuration,
        create_protocol=client_protocol(library),
    ) as protocol:
        yield protocol


async def echo(library: Library, port: int, ca: str) -> None:
    """Sends 1 MiB on each of 20 streams at once and compares the echoes."""
    async with connected(library, port, ca, ALPN_ECHO) as protocol:

        async def one(number: int) -> None:
            sent = pattern(number)
            reader, writer = await protocol.create_stream()
            writer.write(sent)
            await writer.drain()
            writer.write_eof()
            assert await reader.read() == sent, f"stream {number}"

        await asyncio.gather(*(one(number) for number in range(STREAMS)))


async def get(library: Library, port: int, ca: str) -> None:
    """Requests the greeting, then posts a pattern and compares the response."""
    async with connected(library, port, ca, ALPN_H3) as protocol:
        protocol.begin_http()
        assert await protocol.fetch(b"GET", b"/") == GREETING
        sent = pattern(0)
        assert await protocol.fetch(b"POST", b"/echo", sent) == sent


MODES = {"echo": echo, "get": get}


async def run_server(library: Library, cert: str, key: str) -> None:
    """Serve until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with serving(library, cert, key) as port:
        print("READY", port, flush=True)
        await stopped.wait()


def main() -> None:
    """The aioquic peer's command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("server", "client"))
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--ca")
    parser.add_argument("--port", type=int)
    parser.add_argument("--mode", choices=MODES, default="echo")
    options = parser.parse_args()
    library = Library("aioquic")
    if options.role == "server":
        asyncio.run(run_server(library, options.cert, options.key))
    else:
        asyncio.run(MODES[options.mode](library, options.port, options.ca))
        print("OK", options.mode)


if __name__ == "__main__":
    main()
