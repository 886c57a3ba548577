"""TLS connections leave no resources behind."""

from __future__ import annotations

import asyncio
import gc
import ssl
import sys
import weakref
from pathlib import Path

import pytest

from tests.loop.harness import (
    Echo,
    Recorder,
    Runner,
    collect,
    connected_pair,
    eventually,
    listen,
    open_descriptors,
    rounds,
)
from tests.support.allocated_memory import grown, memory


class Once(asyncio.Protocol):
    """Sends a byte, and closes when it has one back."""

    def __init__(self, done: asyncio.Future[None]) -> None:
        self.done = done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.transport.write(b"x")

    def data_received(self, data: bytes) -> None:
        self.transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.done.set_result(None)


async def handshakes(
    count: int, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, at_once: int = 10
) -> None:
    """Connects, echoes a byte and closes, `count` times."""
    loop = asyncio.get_running_loop()
    server, address = await listen(Echo, ssl=server_tls)

    async def one() -> None:
        done = loop.create_future()
        await loop.create_connection(
            lambda: Once(done), *address, ssl=client_tls, server_hostname="localhost"
        )
        await done

    for _ in range(count // at_once):
        await asyncio.gather(*(one() for _ in range(at_once)))
    server.close()
    await server.wait_closed()


def test_handshakes_leave_no_memory_and_no_descriptor(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        await handshakes(100, server_tls, client_tls)
        collect()
        taken, descriptors = memory(), open_descriptors()
        await handshakes(1000, server_tls, client_tls)
        collect()
        # A leaked connection costs OpenSSL's 20 KiB and more, and some objects.
        heap, blocks = grown(taken)
        assert heap < 1000
        assert blocks < 1000
        assert open_descriptors() <= descriptors

    run_ours(main(), timeout=120)


def test_connections_are_freed_without_the_collector(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    ended: list[weakref.ref[object]] = []

    class Watched(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            ended.extend(weakref.ref(one) for one in (self, transport, transport._ssl_protocol))  # type: ignore[attr-defined]

    async def talk(address: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(
            Watched, *address, ssl=client_tls, server_hostname="localhost"
        )
        transport.write(b"data")
        await client.until(lambda: client.data == b"data")
        transport.close()
        await client.until_call("lost")
        # A protocol that keeps its transport makes no cycle with what is freed here.
        del client.transport

    class Served(Watched):
        def data_received(self, data: bytes) -> None:
            self.transport.write(data)

        def connection_lost(self, exc: BaseException | None) -> None:
            super().connection_lost(exc)
            del self.transport

    async def main() -> None:
        server, address = await listen(Served, ssl=server_tls)
        gc.collect()
        gc.disable()
        try:
            await talk(address)
            server.close()
            await server.wait_closed()
            await eventually(lambda: [one() for one in ended] == [None] * 6)
        finally:
            gc.enable()

    run_ours(main())


def test_failed_handshakes_are_freed_without_the_collector(
    run_ours: Runner, client_tls: ssl.SSLContext
) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    watched = weakref.ref(context)

    async def fail(context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        connecting = asyncio.ensure_future(
            loop.create_connection(Recorder, sock=one, ssl=context, server_hostname="localhost")
        )
        await rounds()
        other.close()
        with pytest.raises(ConnectionError) as caught:
            await connecting
        # The traceback of a failure holds what its frames held.
        caught.value.__traceback__ = None
        del caught

    async def main() -> None:
        nonlocal context
        gc.collect()
        gc.disable()
        try:
            await fail(context)
            del context
            await eventually(lambda: watched() is None)
        finally:
            gc.enable()

    run_ours(main())


def test_an_abandoned_transport_warns(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Echo, ssl=server_tls)
        await loop.create_connection(
            Recorder, *address, ssl=client_tls, server_hostname="localhost"
        )
        server.close()

    def abandon() -> None:
        run_ours(main())
        collect()

    with pytest.warns(ResourceWarning, match="unclosed transport"):
        abandon()


def test_a_transport_that_is_kept_keeps_no_context(
    run: Runner, server_tls: ssl.SSLContext, certificate: tuple[Path, Path]
) -> None:
    if run.name == "stock" and sys.version_info < (3, 11):
        pytest.skip("CPython 3.10's transport keeps everything")
    context = ssl.create_default_context(cafile=str(certificate[0]))
    watched = weakref.ref(context)

    async def talk(context: ssl.SSLContext) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        server, address = await listen(Echo, ssl=server_tls)
        transport, client = await loop.create_connection(
            Recorder, *address, ssl=context, server_hostname="localhost"
        )
        transport.close()
        transport.close()
        await client.until_call("lost")
        server.close()
        return transport

    async def main() -> None:
        nonlocal context
        transport = await talk(context)
        del context
        collect()
        assert watched() is None
        transport.close()
        transport.abort()

    run(main())


def test_a_kept_transport_answers_after_its_end(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Echo, ssl=server_tls)
        transport, client = await loop.create_connection(
            Recorder, *address, ssl=client_tls, server_hostname="localhost"
        )
        transport.close()
        await client.until_call("lost")
        # Closed once: what the connection was is still known.
        assert transport.get_extra_info("sslcontext") is client_tls
        transport.close()
        assert transport.get_extra_info("sslcontext", "unknown") == "unknown"
        assert transport.is_closing()
        assert not transport.is_reading()
        assert transport.get_protocol() is None
        assert transport.get_write_buffer_size() == 0
        transport.write(b"too late")
        transport.writelines([b"too late"])
        transport.pause_reading()
        transport.resume_reading()
        transport.close()
        transport.abort()
        with pytest.raises(TypeError):
            transport.write("text")  # type: ignore[arg-type]
        server.close()

    run_ours(main())
