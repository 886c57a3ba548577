"""A program with live objects of each kind, from transports to a server with a request."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uringcore
from tests.webtransport.session_pairs import stream_pair
from uringcore import http3
from uringcore._uringcore import StaticFolder
from uringcore.devcert import DevelopmentCertificate
from uringcore.h3.connection import H3Connection
from uringcore.quic import ClientConfig, connect, listen
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection
from uringcore.server import Config, Server
from uringcore.tls import MemorySessionStore


class Application:
    """Keeps its arguments, and returns when it is released."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.is_asked = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        self.kept += [receive.__self__, send, receive(), send({"type": "http.response.start"})]
        self.is_asked.set()
        await self.may_end.wait()


@contextlib.asynccontextmanager
async def serving(certificate: DevelopmentCertificate, folder: Path) -> AsyncIterator[list[Any]]:
    """The ASGI server with an active request, and its client."""
    files = folder / "cert.pem", folder / "key.pem"
    for path, content in zip(
        files, (certificate.certificate_pem, certificate.key_pem), strict=True
    ):
        path.write_bytes(content)
    application = Application()
    config = Config(
        application,
        port=0,
        ssl_certfile=str(files[0]),
        ssl_keyfile=str(files[1]),
        log_config=None,
    )
    server = Server(config)
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    url = f"https://localhost:{server._listener.port}/"
    async with http3.Client(base_url=url, cafile=str(files[0])) as client:
        asking = asyncio.ensure_future(client.get("/"))
        await application.is_asked.wait()
        yield [*application.kept, server, client]
        application.may_end.set()
        server.should_exit = server.force_exit = True
        asking.cancel()
    await asyncio.wait([task, asking], timeout=5)


@contextlib.asynccontextmanager
async def quic_pair(certificate: DevelopmentCertificate) -> AsyncIterator[list[Any]]:
    """Both ends of a connection with a waiting stream."""
    identity = (certificate.certificate_pem, certificate.key_pem)
    async with listen("127.0.0.1", 0, certificate=identity, alpn=["x"]) as listener:
        config = ClientConfig(alpn=["x"], verify=False)
        async with connect(*listener.address[:2], config) as connection:
            server = await listener.accept()
            async with connection.open_stream() as stream:
                await stream.send(b"x")
                other = await server.accept_stream()
                reads = [stream.read(), other.read(5), other.readexactly(1 << 40)]
                yield [listener, connection, server, stream, other, *reads]


@contextlib.asynccontextmanager
async def transports(certificate: DevelopmentCertificate, folder: Path) -> AsyncIterator[list[Any]]:
    """TCP, TLS and UDP."""
    loop = asyncio.get_running_loop()
    pem = folder / "both.pem"
    pem.write_bytes(certificate.certificate_pem + certificate.key_pem)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(pem)
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ours.check_hostname, ours.verify_mode = False, ssl.CERT_NONE
    kept: list[Any] = []
    for server_tls, client_tls in ((None, None), (theirs, ours)):
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=server_tls)
        address = server.sockets[0].getsockname()[:2]
        transport, _ = await loop.create_connection(asyncio.Protocol, *address, ssl=client_tls)
        kept += [server, transport]
    datagrams, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )
    handles = [loop.call_later(1000, print), loop.call_soon_threadsafe(int), loop.call_soon(int)]
    yield [*kept, datagrams, *handles]
    for one in [*kept, datagrams]:
        one.close()


def without_a_loop() -> list[Any]:
    """State machines that a program drives itself."""
    quic = QuicConnection(configuration=QuicConfiguration(alpn_protocols=["h3"]))
    quic.connect(("127.0.0.1", 1), now=0.0)
    store = MemorySessionStore()
    store.put(b"ticket", b"session")
    folder = StaticFolder("/proc/self/fdinfo")
    file = StaticFolder("/usr/bin").open(b"env", may_wait=True)
    return [quic, H3Connection(quic), store, uringcore.new_event_loop(), folder, file]


async def living() -> list[Any]:
    """The whole program. It is never closed, because broken objects may not end any more."""
    certificate = DevelopmentCertificate.make()
    stack = contextlib.AsyncExitStack()
    folder = Path(tempfile.mkdtemp(dir=".")).resolve()
    kept: list[Any] = without_a_loop()
    kept += await stack.enter_async_context(transports(certificate, folder))
    kept += await stack.enter_async_context(quic_pair(certificate))
    kept += await stack.enter_async_context(stream_pair(certificate))
    kept += await stack.enter_async_context(serving(certificate, folder))
    return [*kept, stack]
