"""The sockets that a loop treats as its own, found through CPython's private methods.

The loop finds its own listeners in ``Server._sockets`` before it calls ``Server._start_serving()``, and its
own datagram sockets by ``_make_datagram_transport()``, which CPython calls straight after the factory.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import uringcore
from tests.loop.harness import BACKENDS


class Watched(uringcore.UringEventLoop):
    """Notes of each socket whether it was taken for a shared one."""

    def __init__(self, backend: str | None = None) -> None:
        super().__init__(backend)
        self.shared: list[bool] = []

    def _is_shared_listener(self, sock: Any) -> bool:
        self.shared.append(super()._is_shared_listener(sock))
        return self.shared[-1]

    def _is_shared_datagram_socket(self, protocol: asyncio.BaseProtocol) -> bool:
        self.shared.append(super()._is_shared_datagram_socket(protocol))
        return self.shared[-1]


def taken_for_shared(
    backend: str, open_sockets: Callable[[Watched], Coroutine[Any, Any, Any]]
) -> list[bool]:
    loop = Watched(backend)
    try:
        opened = loop.run_until_complete(open_sockets(loop))
        opened.close()
        loop.run_until_complete(asyncio.sleep(0))
        return loop.shared
    finally:
        loop.close()


@pytest.mark.parametrize("options", [{}, {"start_serving": False}], ids=["at once", "later"])
@pytest.mark.parametrize("name", BACKENDS)
def test_a_listener_that_the_loop_binds_is_its_own(name: str, options: dict[str, Any]) -> None:
    async def main(loop: Watched) -> asyncio.Server:
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, **options)
        await server.start_serving()
        return server

    assert taken_for_shared(name, main) == [False]


@pytest.mark.parametrize("name", BACKENDS)
def test_each_listener_of_several_addresses_is_the_loops_own(name: str) -> None:
    async def main(loop: Watched) -> asyncio.Server:
        return await loop.create_server(asyncio.Protocol, ["127.0.0.1", "127.0.0.2"], 0)

    assert taken_for_shared(name, main) == [False, False]


@pytest.mark.parametrize("name", BACKENDS)
def test_a_listener_with_reuse_port_is_shared(name: str) -> None:
    async def main(loop: Watched) -> asyncio.Server:
        return await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, reuse_port=True)

    assert taken_for_shared(name, main) == [True]


@pytest.mark.parametrize("name", BACKENDS)
def test_a_listener_that_the_program_binds_is_shared(name: str) -> None:
    async def main(loop: Watched) -> asyncio.Server:
        listener = socket.create_server(("127.0.0.1", 0))
        return await loop.create_server(asyncio.Protocol, sock=listener)

    assert taken_for_shared(name, main) == [True]


@pytest.mark.parametrize("name", BACKENDS)
def test_a_unix_listener_is_the_loops_own_if_the_loop_binds_it(name: str, tmp_path: Path) -> None:
    async def bound_by_the_loop(loop: Watched) -> asyncio.Server:
        return await loop.create_unix_server(asyncio.Protocol, str(tmp_path / "own"))

    async def bound_by_the_program(loop: Watched) -> asyncio.Server:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "given"))
        return await loop.create_unix_server(asyncio.Protocol, sock=listener)

    assert taken_for_shared(name, bound_by_the_loop) == [False]
    assert taken_for_shared(name, bound_by_the_program) == [True]


@pytest.mark.parametrize(
    "options",
    [
        {"local_addr": ("127.0.0.1", 0)},
        {"remote_addr": ("127.0.0.1", 9)},
        {"family": socket.AF_INET},
    ],
    ids=["bound", "connected", "neither"],
)
@pytest.mark.parametrize("name", BACKENDS)
def test_a_datagram_socket_that_the_loop_makes_is_its_own(
    name: str, options: dict[str, Any]
) -> None:
    async def main(loop: Watched) -> asyncio.DatagramTransport:
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, **options)
        return transport

    assert taken_for_shared(name, main) == [False]


@pytest.mark.parametrize("name", BACKENDS)
def test_a_datagram_socket_that_the_program_makes_is_shared(name: str) -> None:
    async def main(loop: Watched) -> asyncio.DatagramTransport:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=sock)
        return transport

    assert taken_for_shared(name, main) == [True]


@pytest.mark.parametrize("name", BACKENDS)
def test_a_protocol_of_a_transport_that_does_not_ask_is_let_go(name: str) -> None:
    """asyncio's own transports, for sockets with methods of their own."""

    class Stock(uringcore.UringEventLoop):
        def _make_datagram_transport(self, *args: Any, **options: Any) -> Any:
            base: Any = asyncio.SelectorEventLoop
            return base._make_datagram_transport(self, *args, **options)

    class Referable(asyncio.DatagramProtocol):
        """A protocol with room for weak references."""

    async def main() -> weakref.ref[asyncio.DatagramProtocol]:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_datagram_endpoint(
            Referable, local_addr=("127.0.0.1", 0)
        )
        transport.close()
        await asyncio.sleep(0)
        return weakref.ref(protocol)

    loop = Stock(name)
    try:
        protocol = loop.run_until_complete(main())
        loop.run_until_complete(asyncio.sleep(0))
        gc.collect()
        assert protocol() is None
    finally:
        loop.close()
