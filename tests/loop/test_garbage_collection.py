"""The garbage collector frees every cycle that contains our objects, both new and reused ones."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.loop.harness import (
    BACKENDS,
    LOOPS,
    Recorder,
    Runner,
    collect,
    connected_pair,
    eventually,
    factory,
    rounds,
)

# More than any free list would keep, and often enough that each of them is reused.
OBJECTS = 100
TURNS = 30


class Owner:
    """A program's object that is part of a reference cycle."""

    kept: Any


Refs = list["weakref.ref[Owner]"]


def _own(refs: Refs, kept: Any) -> Owner:
    owner = Owner()
    owner.kept = kept
    refs.append(weakref.ref(owner))
    return owner


def _alive(refs: Refs) -> int:
    collect()
    return sum(ref() is not None for ref in refs)


def _idle(owner: Owner) -> None:
    """A callback that is no bound method, so that only the handle closes the cycle."""


async def _timers_that_ran(refs: Refs) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(OBJECTS):
        owner = _own(refs, None)
        owner.kept = loop.call_later(0.001, _idle, owner)
    await asyncio.sleep(0.002)


async def _timers_cancelled(refs: Refs) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(OBJECTS):
        owner = _own(refs, None)
        owner.kept = loop.call_later(100, _idle, owner)
        owner.kept.cancel()
    await asyncio.sleep(0)


async def _handles(refs: Refs) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(OBJECTS):
        owner = _own(refs, None)
        owner.kept = loop.call_soon(_idle, owner)
    await asyncio.sleep(0)


async def _handles_threadsafe(refs: Refs) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(OBJECTS):
        owner = _own(refs, None)
        owner.kept = loop.call_soon_threadsafe(_idle, owner)
    await asyncio.sleep(0)


async def _readers(refs: Refs) -> None:
    loop = asyncio.get_running_loop()
    one, other = connected_pair()
    with one, other:
        for _ in range(OBJECTS):
            owner = _own(refs, None)
            loop.add_reader(one, _idle, owner)
            owner.kept = loop
        loop.remove_reader(one)
        await asyncio.sleep(0)


class _Owned(Recorder):
    """A protocol that holds its transport, as usual, and an owner that holds the protocol."""

    owner: Owner


async def _streams(refs: Refs) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(5):
        one, other = connected_pair()
        transport, protocol = await loop.create_connection(_Owned, sock=one)
        protocol.owner = _own(refs, transport)
        other.close()
        await protocol.until_call("lost")


async def _datagrams(refs: Refs) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(5):

        class Protocol(asyncio.DatagramProtocol):
            owner: Owner

        transport, protocol = await loop.create_datagram_endpoint(
            Protocol, local_addr=("127.0.0.1", 0)
        )
        protocol.owner = _own(refs, (transport, protocol))
        transport.close()
        await asyncio.sleep(0)
    await rounds()


class _Number(int):
    """A number that holds a reference, as a buffer limit may."""

    owner: Owner


async def _limits(refs: Refs) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(5):
        one, other = connected_pair()
        transport, protocol = await loop.create_connection(Recorder, sock=one)
        number = _Number(100_000)
        number.owner = _own(refs, transport)
        transport.set_write_buffer_limits(high=number)
        other.close()
        await protocol.until_call("lost")


async def _sock_calls(refs: Refs) -> None:
    loop = asyncio.get_running_loop()
    one, other = connected_pair()
    with one, other:
        for _ in range(5):
            task = asyncio.ensure_future(loop.sock_recv(one, 10))
            owner = _own(refs, task)
            task.add_done_callback(lambda _, owner=owner: None)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            del task, owner


CASES: list[Callable[[Refs], Coroutine[Any, Any, None]]] = [
    _timers_that_ran,
    _timers_cancelled,
    _handles,
    _handles_threadsafe,
    _readers,
    _streams,
    _datagrams,
    _limits,
    _sock_calls,
]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__.strip("_"))
def test_cycles_go_when_they_are_collected(
    run: Runner, make: Callable[[Refs], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        refs: Refs = []
        for _ in range(TURNS):
            await make(refs)
            # New objects reuse the memory of the freed ones.
            gc.collect()
        # Objects that the latest loop iteration still holds are released.
        await asyncio.sleep(0)
        assert len(refs) >= 5 * TURNS
        assert _alive(refs) == 0

    run(main())


def test_tls_connections_go_when_they_are_collected(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Recorder, "127.0.0.1", 0, ssl=server_tls)
        address = server.sockets[0].getsockname()[:2]
        refs: Refs = []
        for _ in range(10):
            transport, protocol = await loop.create_connection(
                _Owned, *address, ssl=client_tls, server_hostname="localhost"
            )
            protocol.owner = _own(refs, (transport, protocol))
            number = _Number(100_000)
            number.owner = _own(refs, transport)
            transport.set_write_buffer_limits(high=number)
            if run.ours:  # asyncio's has it since 3.11
                transport.set_read_buffer_limits(high=number)  # type: ignore[attr-defined]
            transport.abort()
            await protocol.until_call("lost")
            del transport, protocol, number
        await eventually(lambda: _alive(refs) == 0)
        server.close()
        await server.wait_closed()

    run(main())


@pytest.mark.parametrize("name", LOOPS)
def test_loops_that_ran_and_were_not_closed_are_collected(name: str) -> None:
    make = factory(name)

    async def main() -> None:
        await asyncio.sleep(0.001)
        asyncio.get_running_loop().call_soon(int)

    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    def leave_one() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop = make()
        loop.run_until_complete(main())
        loop.kept = loop.call_later(100, main)  # type: ignore[attr-defined]
        return weakref.ref(loop)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        leave_one()
        collect()
        before = count()
        left = [leave_one() for _ in range(10)]
        collect()
        assert [ref() for ref in left] == [None] * 10
        # Threads of earlier tests may still be closing theirs.
        assert count() <= before


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_is_collected_unclosed_warns(name: str) -> None:
    def run_and_forget() -> None:
        factory(name)().run_until_complete(asyncio.sleep(0))
        collect()

    # Not only the first of the process, or of its kind.
    for _ in range(3):
        with pytest.warns(ResourceWarning, match="unclosed event loop"):
            run_and_forget()


@pytest.mark.parametrize("backend", BACKENDS)
def test_transports_of_a_loop_that_is_collected_go_with_it(backend: str) -> None:
    refs: Refs = []
    loop = factory(backend)()
    one, other = connected_pair()

    async def main(sock: socket.socket) -> None:
        _, protocol = await asyncio.get_running_loop().create_connection(_Owned, sock=sock)
        protocol.owner = _own(refs, protocol)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loop.run_until_complete(main(one))
        del loop, one
        assert _alive(refs) == 0
    other.settimeout(10)
    assert other.recv(1) == b""
    other.close()
