"""Answers that take a while to compute, on a named event loop.

Prints `READY <port>` once it serves and ends on SIGTERM. An answer blocks the loop for `--compute-ms`, like
an application that computes, renders or waits for a blocking call. `--wire` selects the protocol.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.servers.bulk import ALPN
from benchmarks.servers.loops import LOOPS, OURS, new_loop
from tests.support.free_ports import free_port

REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
ANSWER = bytes(100)
WIRES = ("tcp", "streams", "tls", "udp", "quic", "http1", "http3")
OURS_ALONE = ("quic", "http3")
"""On other loops their packets would pass through Python, which is a separate table."""


class Answering:
    """The work that each server does for one request."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def answer(self) -> bytes:
        """Compute the answer."""
        end = time.perf_counter() + self._seconds
        while time.perf_counter() < end:
            pass
        return ANSWER


def application_of(answering: Answering) -> Any:
    """An ASGI application that sends this answer to each request."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = answering.answer()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return application


class Stream(asyncio.Protocol):
    """Answers when a whole request has arrived."""

    transport: asyncio.Transport

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.missing = len(REQUEST)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Answer, if the request is whole."""
        self.missing -= len(data)
        if self.missing == 0:
            self.missing = len(REQUEST)
            self.transport.write(self.answering.answer())


class Datagrams(asyncio.DatagramProtocol):
    """Treats each datagram as one request."""

    transport: asyncio.DatagramTransport

    def __init__(self, answering: Answering) -> None:
        self.answering = answering

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer."""
        self.transport.sendto(self.answering.answer(), addr)


async def serve_protocol(answering: Answering, tls: ssl.SSLContext | None) -> int:
    """Serve by `asyncio.Protocol`."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stream(answering), "127.0.0.1", 0, ssl=tls)
    return int(server.sockets[0].getsockname()[1])


async def serve_streams(answering: Answering) -> int:
    """Serve by a task for each connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readexactly(len(REQUEST)):
                writer.write(answering.answer())
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return int(server.sockets[0].getsockname()[1])


async def serve_datagrams(answering: Answering) -> int:
    """Serve over UDP."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: Datagrams(answering), local_addr=("127.0.0.1", 0)
    )
    return int(transport.get_extra_info("sockname")[1])


async def serve_quic(answering: Answering, cert: str, key: str) -> int:
    """Serve one stream of each connection, by a task."""
    from uringcore import quic

    config = quic.ServerConfig(certificate=(cert, key), alpn=[ALPN])
    listener = await quic.listen("127.0.0.1", 0, config)

    async def handle(connection: quic.Connection) -> None:
        async with connection, await connection.accept_stream() as stream:
            with contextlib.suppress(asyncio.IncompleteReadError):
                while await stream.readexactly(len(REQUEST)):
                    await stream.send(answering.answer())

    async def accept() -> None:
        tasks = set()
        async for connection in listener:
            tasks.add(asyncio.ensure_future(handle(connection)))

    keep(accept())
    return int(listener.address[1])


async def serve_asgi(
    answering: Answering, loop: str, wire: str, files: tuple[str, str] | None
) -> int:
    """Serve by this project's server on its loops, and by uvicorn on others."""
    port = free_port()
    if loop in OURS:
        from uringcore.server import Config
        from uringcore.server._server import Server

        cert, key = files if files is not None and wire == "http3" else (None, None)
        server: Any = Server(
            Config(
                application_of(answering),
                host="127.0.0.1",
                port=port,
                ssl_certfile=cert,
                ssl_keyfile=key,
                access_log=False,
                log_level="warning",
                lifespan="off",
            )
        )
    else:
        import uvicorn

        server = uvicorn.Server(
            uvicorn.Config(
                application_of(answering),
                port=port,
                access_log=False,
                log_level="warning",
                lifespan="off",
            )
        )
    keep(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    return port


_KEPT: set[asyncio.Future[None]] = set()


def keep(work: Awaitable[None]) -> None:
    """Run `work` until the process ends."""
    _KEPT.add(asyncio.ensure_future(work))


async def serve(options: argparse.Namespace) -> None:
    """Serve until SIGTERM."""
    answering = Answering(options.compute_ms / 1000)
    tls = None
    if options.wire == "tls":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.cert, options.key)
    files = (options.cert, options.key)
    starting: dict[str, Callable[[], Awaitable[int]]] = {
        "tcp": lambda: serve_protocol(answering, None),
        "tls": lambda: serve_protocol(answering, tls),
        "streams": lambda: serve_streams(answering),
        "udp": lambda: serve_datagrams(answering),
        "quic": lambda: serve_quic(answering, *files),
        "http1": lambda: serve_asgi(answering, options.loop, "http1", None),
        "http3": lambda: serve_asgi(answering, options.loop, "http3", files),
    }
    port = await starting[options.wire]()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    print("READY", port, flush=True)
    await stopped.wait()


def main() -> None:
    """Serve with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", choices=LOOPS, required=True)
    parser.add_argument("--wire", choices=WIRES, required=True)
    parser.add_argument("--compute-ms", type=float, required=True)
    parser.add_argument("--cert")
    parser.add_argument("--key")
    options = parser.parse_args()
    loop = new_loop(options.loop)
    asyncio.set_event_loop(loop)
    loop.run_until_complete(serve(options))


if __name__ == "__main__":
    main()
