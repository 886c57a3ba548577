"""Datagrams: Unix sockets, host names, order, errors, and cases that asyncio's own transport still
handles.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import Runner
from tests.support.free_ports import free_port
from uringcore import _uringcore


class Datagrams(asyncio.DatagramProtocol):
    """Records received datagrams, with an event to wait for more."""

    def __init__(self) -> None:
        self.got: list[tuple[bytes, Any]] = []
        self.errors: list[BaseException] = []
        self.lost: list[BaseException | None] = []
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.got.append((data, addr))
        self._changed.set()

    def error_received(self, exc: BaseException) -> None:
        self.errors.append(exc)
        self._changed.set()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


async def _endpoint(**options: Any) -> tuple[Any, Datagrams]:
    loop = asyncio.get_running_loop()
    return await loop.create_datagram_endpoint(Datagrams, **options)


def test_unix_datagrams_between_paths(run: Runner, tmp_path: Path) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "öther")

    async def main() -> None:
        left, left_protocol = await _endpoint(family=socket.AF_UNIX, local_addr=one)
        right, right_protocol = await _endpoint(
            family=socket.AF_UNIX, local_addr=other, remote_addr=one
        )
        assert right.get_extra_info("sockname") == other
        assert right.get_extra_info("peername") == one
        right.sendto(b"hello")
        await left_protocol.until(lambda: bool(left_protocol.got))
        assert left_protocol.got == [(b"hello", other)]
        left.sendto(b"back", other)
        left.sendto(b"bytes", os.fsencode(other))
        await right_protocol.until(lambda: len(right_protocol.got) == 2)
        assert right_protocol.got == [(b"back", one), (b"bytes", one)]
        left.sendto(b"nowhere", str(tmp_path / "nobody"))
        await left_protocol.until(lambda: bool(left_protocol.errors))
        assert type(left_protocol.errors[0]) is FileNotFoundError
        left.sendto(b"too long", "x" * 200)
        await left_protocol.until(lambda: len(left_protocol.errors) == 2)
        assert str(left_protocol.errors[1]) == "AF_UNIX path too long"
        assert not left.is_closing()
        left.close()
        right.close()
        await left_protocol.until(lambda: bool(left_protocol.lost))

    run(main())


def test_unix_datagrams_of_abstract_and_unnamed_senders(run: Runner) -> None:
    name = f"\0uringcore-test-{os.getpid()}-{run.name}"

    async def main() -> None:
        transport, protocol = await _endpoint(family=socket.AF_UNIX, local_addr=name)
        assert transport.get_extra_info("sockname") == os.fsencode(name)
        assert transport.get_extra_info("peername") is None
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unnamed:
            unnamed.sendto(b"who", name)
            await protocol.until(lambda: bool(protocol.got))
        _, second_protocol = await _endpoint(
            family=socket.AF_UNIX, local_addr=name + "2", remote_addr=name
        )
        second_protocol.transport.sendto(b"me")
        await protocol.until(lambda: len(protocol.got) == 2)
        assert protocol.got == [(b"who", None), (b"me", os.fsencode(name + "2"))]
        transport.sendto(b"you", protocol.got[1][1])
        await second_protocol.until(lambda: bool(second_protocol.got))
        assert second_protocol.got == [(b"you", os.fsencode(name))]
        transport.close()
        second_protocol.transport.close()

    run(main())


def _connected_to(path: Path) -> tuple[socket.socket, socket.socket]:
    """A Unix datagram socket that is connected to another, which is bound to `path`."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    other.bind(str(path))
    one.connect(str(path))
    one.setblocking(False)
    other.setblocking(False)
    return one, other


def test_a_large_unix_datagram_arrives_whole(run: Runner, tmp_path: Path) -> None:
    payload = bytes(range(256)) * 600  # 150 KiB: more than a UDP datagram can be

    async def main() -> None:
        one, other = _connected_to(tmp_path / "other")
        left, _ = await _endpoint(sock=one)
        right, protocol = await _endpoint(sock=other)
        left.sendto(payload)
        left.sendto(b"small")
        await protocol.until(lambda: len(protocol.got) == 2)
        assert protocol.got == [(payload, None), (b"small", None)]
        left.close()
        right.close()

    run(main())


def test_a_socket_pair_needs_no_address(run_ours: Runner) -> None:
    """The socket's peer has no name, which asyncio takes for a missing peer: there sendto() without an
    address fails.
    """

    async def main() -> None:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        one.setblocking(False)
        other.setblocking(False)
        left, _ = await _endpoint(sock=one)
        right, protocol = await _endpoint(sock=other)
        left.sendto(b"x")
        await protocol.until(lambda: bool(protocol.got))
        assert protocol.got == [(b"x", None)]
        left.close()
        right.close()

    run_ours(main())


def test_datagrams_keep_their_order_when_the_socket_is_full(run: Runner, tmp_path: Path) -> None:
    """A Unix socket's queue holds few datagrams, so most of these wait for room."""
    count = 2000

    async def main() -> None:
        one, other = _connected_to(tmp_path / "other")
        left, protocol = await _endpoint(sock=one)
        for number in range(count):
            left.sendto(b"%d" % number)
            if number % 37 == 0:
                await asyncio.sleep(0)
        assert left.get_write_buffer_size() > 0
        left.close()
        got: list[int] = []
        loop = asyncio.get_running_loop()
        while len(got) < count:
            got.append(int(await loop.sock_recv(other, 100)))
        assert got == list(range(count))
        await protocol.until(lambda: bool(protocol.lost))
        other.close()

    run(main())


def test_host_names_are_those_of_the_sockets_family(run: Runner) -> None:
    async def main() -> None:
        receiver, received = await _endpoint(local_addr=("127.0.0.1", 0))
        sender, sent = await _endpoint(local_addr=("127.0.0.1", 0))
        port = receiver.get_extra_info("sockname")[1]
        sender.sendto(b"name", ("localhost", port))
        sender.sendto(b"bytes", (b"127.0.0.1", port))
        sender.sendto(b"wildcard", ("", port))
        await received.until(lambda: len(received.got) == 3)
        assert [data for data, _ in received.got] == [b"name", b"bytes", b"wildcard"]
        for host in ("::1", "no-such-host.invalid"):
            before = len(sent.errors)
            sender.sendto(b"x", (host, port))
            assert [type(one) for one in sent.errors[before:]] == [socket.gaierror]
        assert not sender.is_closing()
        receiver.close()
        sender.close()

    run(main())


@pytest.mark.parametrize(
    ("addr", "error"),
    [
        ("127.0.0.1", TypeError),
        (("127.0.0.1",), TypeError),
        (("127.0.0.1", "80"), TypeError),
        ((7, 80), TypeError),
        (("127.0.0.1", 70000), OverflowError),
        (("127.0.0.1", -1), OverflowError),
        (None, TypeError),
    ],
    ids=repr,
)
def test_an_invalid_address_ends_the_endpoint(
    run: Runner, addr: Any, error: type[BaseException]
) -> None:
    async def main() -> None:
        transport, protocol = await _endpoint(local_addr=("127.0.0.1", 0))
        transport.sendto(b"x", addr)
        assert transport.is_closing()
        await protocol.until(lambda: bool(protocol.lost))
        assert [type(one) for one in protocol.lost] == [error]
        assert protocol.errors == []

    run(main())
    run.expect(error)


def test_ipv6_scopes_and_flow_labels(run: Runner) -> None:
    async def main() -> None:
        receiver, received = await _endpoint(local_addr=("::1", 0))
        sender, sent = await _endpoint(local_addr=("::1", 0))
        port = receiver.get_extra_info("sockname")[1]
        addresses: list[Any] = [("::1", port), ("::1", port, 0), ("::1", port, 0, 0)]
        for addr in addresses:
            sender.sendto(b"x", addr)
        await received.until(lambda: len(received.got) == 3)
        own = sender.get_extra_info("sockname")
        assert own[0] == "::1"
        assert len(own) == 4
        assert {addr for _, addr in received.got} == {own}
        sender.sendto(b"x", ("127.0.0.1", port))
        await sent.until(lambda: bool(sent.errors))
        assert isinstance(sent.errors[0], OSError)
        receiver.close()
        sender.close()

    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this host has no IPv6 loopback")
    run(main())


def test_many_peers_get_their_own_answers(run: Runner) -> None:
    """More senders than the transport caches addresses of; each gets an answer."""

    async def main() -> None:
        server, protocol = await _endpoint(local_addr=("127.0.0.1", 0))
        to = server.get_extra_info("sockname")
        peers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(300)]
        try:
            for number, peer in enumerate(peers):
                peer.bind(("127.0.0.1", 0))
                peer.settimeout(10)
                peer.sendto(b"%d" % number, to)
                await protocol.until(lambda number=number: len(protocol.got) > number)
            for data, addr in reversed(protocol.got):
                assert addr == peers[int(data)].getsockname()
                server.sendto(data, addr)
                server.sendto(data, tuple(addr))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for number, peer in enumerate(peers):
                assert [peer.recv(100), peer.recv(100)] == [b"%d" % number] * 2
        finally:
            for peer in peers:
                peer.close()
            server.close()

    run(main())


def test_a_connected_socket_ignores_the_address(run: Runner) -> None:
    """asyncio requires a peer name, even if the socket was connected before."""

    async def main() -> None:
        receiver, received = await _endpoint(local_addr=("127.0.0.1", 0))
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.connect(receiver.get_extra_info("sockname"))
        sender, _ = await _endpoint(sock=sock)
        assert sender.get_extra_info("peername") == receiver.get_extra_info("sockname")
        sender.sendto(b"1")
        sender.sendto(b"2", ("127.0.0.1", 1))
        await received.until(lambda: len(received.got) == 2)
        assert [data for data, _ in received.got] == [b"1", b"2"]
        receiver.close()
        sender.close()

    run(main())


def test_the_pending_error_of_a_socket_is_received(run: Runner) -> None:
    async def main() -> None:
        transport, protocol = await _endpoint(remote_addr=("127.0.0.1", free_port()))
        for _ in range(3):
            transport.sendto(b"x")
            await asyncio.sleep(0.01)
        await protocol.until(lambda: bool(protocol.errors))
        assert {type(one) for one in protocol.errors} == {ConnectionRefusedError}
        assert not transport.is_closing()
        transport.close()

    run(main())


def test_a_datagram_that_is_too_long_is_an_error_and_the_next_goes(run: Runner) -> None:
    async def main() -> None:
        receiver, received = await _endpoint(local_addr=("127.0.0.1", 0))
        sender, sent = await _endpoint(local_addr=("127.0.0.1", 0))
        to = receiver.get_extra_info("sockname")
        for size in (1, 70_000, 2, 3):
            sender.sendto(b"x" * size, to)
        await received.until(lambda: len(received.got) == 3)
        await sent.until(lambda: bool(sent.errors))
        assert [len(data) for data, _ in received.got] == [1, 2, 3]
        assert [one.errno for one in sent.errors] == [90]  # type: ignore[attr-defined]
        receiver.close()
        sender.close()

    run(main())


def test_empty_datagrams_by_version(run: Runner) -> None:
    async def main() -> None:
        receiver, received = await _endpoint(local_addr=("127.0.0.1", 0))
        sender, _ = await _endpoint(local_addr=("127.0.0.1", 0))
        to = receiver.get_extra_info("sockname")
        sender.sendto(b"", to)
        sender.sendto(b"end", to)
        await received.until(lambda: bool(received.got) and received.got[-1][0] == b"end")
        expected = [b"", b"end"] if sys.version_info >= (3, 13) else [b"end"]
        assert [data for data, _ in received.got] == expected
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.sendto(b"", to)
        await received.until(lambda: len(received.got) > len(expected))
        assert received.got[-1][0] == b""
        receiver.close()
        sender.close()

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 13), reason="asyncio takes only SOCK_DGRAM before 3.13")
def test_sockets_of_other_kinds_work_as_with_asyncio(run: Runner) -> None:
    """Our datagram transport does not handle sequenced packets; asyncio's own does."""

    async def main() -> None:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one.setblocking(False)
        other.setblocking(False)
        transport, protocol = await _endpoint(sock=one)
        assert not isinstance(transport, _uringcore.DatagramTransport)
        other.send(b"packet")
        await protocol.until(lambda: bool(protocol.got))
        assert protocol.got[0][0] == b"packet"
        transport._extra["peername"] = "connected"  # a pair has no names, which asyncio requires
        transport.sendto(b"answer")
        assert await asyncio.get_running_loop().sock_recv(other, 100) == b"answer"
        transport.close()
        other.close()

    run(main())


def test_sending_after_the_end(run_ours: Runner) -> None:
    """asyncio's transport fails on its own missing socket here; ours drops the datagram."""

    async def main() -> None:
        transport, protocol = await _endpoint(local_addr=("127.0.0.1", 0))
        transport.close()
        transport.sendto(b"x", ("127.0.0.1", 9))
        await protocol.until(lambda: bool(protocol.lost))
        transport.sendto(b"x", ("127.0.0.1", 9))
        transport.close()
        transport.abort()
        assert protocol.lost == [None]
        assert protocol.errors == []

    run_ours(main())


def test_connection_lost_of_datagrams_has_its_place_in_the_order(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await _endpoint(local_addr=("127.0.0.1", 0))
        diary: list[str] = []
        protocol.connection_lost = lambda exc: diary.append("lost")  # type: ignore[method-assign]
        loop.call_soon(diary.append, "before")
        transport.sendto(b"x", transport.get_extra_info("sockname"))
        transport.close()
        loop.call_soon(diary.append, "after")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert diary == ["before", "lost", "after"]

    run(main())
