"""A program's own attributes on transports, and methods that it replaces: mocks and notes."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import subprocess
import sys
import weakref
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from tests.loop.harness import Echo, Recorder, Runner, collect, connected_pair, listen, rounds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KINDS = ("stream", "accepted", "datagram", "tls")


@asynccontextmanager
async def _transport(
    kind: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> AsyncIterator[Any]:
    """A transport that is open, and closed afterwards."""
    loop = asyncio.get_running_loop()
    if kind == "datagram":
        made: Any = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
        )
        yield made[0]
        made[0].abort()
        await rounds()
        return
    accepted = loop.create_future()

    class Server(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            accepted.set_result((transport, self))

    secure = kind == "tls"
    server, address = await listen(Server, ssl=server_tls if secure else None)
    client, protocol = await loop.create_connection(
        Recorder,
        *address,
        ssl=client_tls if secure else None,
        server_hostname="localhost" if secure else None,
    )
    transport, server_protocol = await accepted
    yield transport if kind == "accepted" else client
    client.abort()
    transport.abort()
    await protocol.until_call("lost")
    await server_protocol.until_call("lost")
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_are_set_read_and_deleted(
    run: Runner, kind: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        async with _transport(kind, server_tls, client_tls) as transport:
            with pytest.raises(AttributeError):
                transport.note  # noqa: B018
            transport.note = ["mine"]
            assert transport.note == ["mine"]
            assert vars(transport)["note"] is transport.note
            del transport.note
            assert not hasattr(transport, "note")
            with pytest.raises(AttributeError):
                del transport.note
            # The result of isinstance() and the repr are unchanged.
            assert isinstance(transport, asyncio.BaseTransport)
            assert repr(transport).startswith(f"<{type(transport).__name__}") or not run.ours

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_replaced_method_is_called_until_it_is_restored(
    run: Runner, kind: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        async with _transport(kind, server_tls, client_tls) as transport:
            name = "sendto" if kind == "datagram" else "write"
            with mock.patch.object(transport, name) as replaced:
                getattr(transport, name)(b"never sent")
            replaced.assert_called_once_with(b"never sent")
            assert name not in vars(transport)
            assert not isinstance(getattr(transport, name), mock.Mock)
            transport.get_extra_info = lambda name, default=None: f"patched {name}"
            assert transport.get_extra_info("peername") == "patched peername"
            del transport.get_extra_info
            assert transport.get_extra_info("sockname")[0] == "127.0.0.1"

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_get_extra_info_replaced_for_all_transports(
    run: Runner, kind: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        async with _transport(kind, server_tls, client_tls) as transport:
            patch = mock.patch("asyncio.BaseTransport.get_extra_info", return_value=("peer", 1234))
            with patch as replaced:
                assert transport.get_extra_info("peername") == ("peer", 1234)
            replaced.assert_called_once()
            if (
                kind != "tls"
            ):  # it gets the value from the transport below, with or without a default
                replaced.assert_called_once_with("peername")

            def shout(self: asyncio.BaseTransport, name: str, default: Any = None) -> Any:
                return self, name.upper(), default

            with mock.patch.object(asyncio.BaseTransport, "get_extra_info", shout):
                found, name, default = transport.get_extra_info("peername", 7)
            assert (name, default) == ("PEERNAME", 7)
            assert found is transport or kind == "tls"
            assert transport.get_extra_info("sockname")[0] == "127.0.0.1"

    run(main())


REPLACED_BEFORE_ANY_WAS_ASKED = """
import asyncio, socket
import uringcore

def shout(self, name, default=None):
    return name.upper()

async def main():
    ours, theirs = socket.socketpair()
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    stock, asyncio.BaseTransport.get_extra_info = asyncio.BaseTransport.get_extra_info, shout
    assert transport.get_extra_info("peername") == "PEERNAME"
    asyncio.BaseTransport.get_extra_info = stock
    assert transport.get_extra_info("nothing", 7) == 7
    transport.abort()
    theirs.close()

uringcore.run(main(), backend="epoll")
"""


def test_get_extra_info_replaced_before_its_first_call() -> None:
    subprocess.run([sys.executable, "-c", REPLACED_BEFORE_ANY_WAS_ASKED], check=True, timeout=60)


def test_a_stream_writer_calls_the_replaced_write(run: Runner) -> None:
    async def main() -> None:
        one, other = connected_pair()
        _, writer = await asyncio.open_connection(sock=one)
        transport: Any = writer.transport
        written: list[bytes] = []
        write = transport.write

        def loud(data: bytes) -> None:
            written.append(data)
            write(data.upper())

        transport.write = loud
        writer.write(b"hello")
        await writer.drain()
        assert written == [b"hello"]
        assert await asyncio.get_running_loop().sock_recv(other, 10) == b"HELLO"
        del transport.write
        writer.write(b"again")
        assert await asyncio.get_running_loop().sock_recv(other, 10) == b"again"
        assert written == [b"hello"]
        transport.abort()
        other.close()
        await rounds()

    run(main())


class _Note:
    """Something that a weak reference can watch."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_transport_in_a_cycle_through_its_own_attribute_is_collected(
    run: Runner, kind: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    watched: list[weakref.ref[Any]] = []

    async def main() -> None:
        async with _transport(kind, server_tls, client_tls) as transport:
            transport.myself = transport
            transport.note = _Note()
            transport.write = mock.Mock(wraps=transport.write) if kind != "datagram" else None
            watched.extend((weakref.ref(transport), weakref.ref(transport.note)))
            del transport
            collect()
            # An open transport stays alive, even if no other reference is left.
            assert watched[0]() is not None
            assert watched[0]().myself is watched[0]()
        await rounds()

    run(main())
    collect()
    assert [reference() for reference in watched] == [None, None]


def test_every_transport_has_attributes_of_its_own(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        pairs = [socket.socketpair() for _ in range(50)]
        transports: list[Any] = []
        for one, _ in pairs:
            one.setblocking(False)
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=one)
            transports.append(transport)
        for number, transport in enumerate(transports):
            setattr(transport, f"only_{number}", number)
            transport.number = number
        for number, transport in enumerate(transports):
            assert vars(transport).get("number") == number
            assert hasattr(transport, f"only_{number}")
            assert not hasattr(transport, f"only_{number + 1}")
            transport.abort()
        for _, other in pairs:
            other.close()
        await rounds()

    run(main())


def test_a_collection_at_every_allocation_finds_no_unfinished_transport(run_ours: Runner) -> None:
    """CPython 3.11 collects inside an allocation: a transport must not be seen half made."""
    connections = 2000

    class Tagged(Echo):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            tagged: Any = transport
            tagged.protocol = self
            tagged.number = len(made)
            made.append(weakref.ref(transport))

    made: list[weakref.ref[Any]] = []

    async def main() -> None:
        server, address = await listen(Tagged)
        before = gc.get_threshold()

        async def one() -> None:
            reader, writer = await asyncio.open_connection(*address)
            transport: Any = writer.transport
            transport.writer = writer
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            writer.close()
            await writer.wait_closed()

        # Each collection would walk the existing objects. They stay frozen: unfreezing would also unfreeze
        # those that tests/conftest.py froze.
        gc.collect()
        gc.freeze()
        gc.set_threshold(1)
        try:
            for _ in range(connections // 50):
                await asyncio.gather(*(one() for _ in range(50)))
        finally:
            gc.set_threshold(*before)
        server.close()
        await server.wait_closed()
        await rounds(20)

    run_ours(main())
    collect()
    assert len(made) == connections
    assert not any(reference() for reference in made)
