"""aiofastnet's transports on our loop: a program that requests them gets them, any other gets ours."""

from __future__ import annotations

import asyncio
import ssl

import pytest

import uringcore
from tests.server.conftest import backends
from uringcore.devcert import DevelopmentCertificate

aiofastnet = pytest.importorskip("aiofastnet")


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


def contexts(folder):
    certfile, keyfile = DevelopmentCertificate.make().write(folder)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certfile, keyfile)
    return server, ssl.create_default_context(cafile=certfile)


async def echoed(folder, *, tls):
    """Returns the transport's class, after 300,000 bytes have been echoed."""
    ours, theirs = contexts(folder) if tls else (None, None)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "localhost", 0, ssl=ours)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("localhost", port, ssl=theirs)
    data = bytes(range(250)) * 1200
    writer.write(data)
    assert await reader.readexactly(len(data)) == data
    module = type(writer.transport).__module__
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    return module


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
@pytest.mark.parametrize("backend", backends())
def test_patch_loop_switches_to_aiofastnet(tmp_path, backend, tls):
    async def main():
        native = await echoed(tmp_path, tls=tls)
        aiofastnet.patch_loop()
        return native, await echoed(tmp_path, tls=tls)

    native, patched = uringcore.run(asyncio.wait_for(main(), 60), backend=backend)
    assert not native.startswith("aiofastnet")
    assert patched.startswith("aiofastnet")


@pytest.mark.parametrize("backend", backends())
def test_its_loop_factory_takes_ours(tmp_path, backend):
    """docs/aiofastnet.md shows this use."""
    make = aiofastnet.loop_factory(lambda: uringcore.new_event_loop(backend=backend))
    loop = make()
    try:
        assert isinstance(loop, uringcore.UringEventLoop)
        found = loop.run_until_complete(asyncio.wait_for(echoed(tmp_path, tls=True), 60))
        assert found.startswith("aiofastnet")
    finally:
        asyncio.set_event_loop(None)
        loop.close()
