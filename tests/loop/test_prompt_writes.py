"""Data that a callback writes leaves while it, or others of its turn, continue to compute.

The peer is a thread with a plain socket. A callback that waits for the peer's data blocks the whole loop:
bytes that wait for the end of the turn would never arrive. No test measures time; an unsuccessful wait ends
after `PATIENCE`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import LOOPS, PATIENCE, Runner, rounds

CLIENTS = 20


class Peer(threading.Thread):
    """Reads a socket until `size` bytes have arrived, and then sets an event."""

    def __init__(self, sock: Any, size: int) -> None:
        super().__init__(daemon=True)
        self.sock, self.size = sock, size
        self.data = b""
        self.has_all = threading.Event()
        sock.settimeout(PATIENCE)
        self.start()

    def run(self) -> None:
        """Read."""
        while len(self.data) < self.size:
            piece = self.sock.recv(65536)
            if not piece:
                return
            self.data += piece
        self.has_all.set()


def _read_while_blocked(peer: Peer) -> bool:
    """Keep the loop until the peer has everything."""
    return peer.has_all.wait(PATIENCE / 2)


async def _stream(tls: ssl.SSLContext | None = None) -> tuple[asyncio.Transport, socket.socket]:
    """A transport of a loop and the blocking socket at its other end."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    if tls is None:
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        return transport, theirs
    asking = ssl.create_default_context()
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    shaking = asyncio.ensure_future(
        loop.run_in_executor(None, lambda: asking.wrap_socket(theirs, server_hostname="x"))
    )
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours, ssl=tls)
    return transport, await shaking


@pytest.fixture
def serving(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """A server's context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


WRITES: dict[str, Callable[[Any], None]] = {
    "write": lambda transport: transport.write(b"x" * 100),
    "writelines": lambda transport: transport.writelines([b"x" * 40, b"x" * 60]),
}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_callback_that_computes_after_a_write_does_not_hold_it_back(
    run: Runner, serving: ssl.SSLContext, how: str, secure: bool
) -> None:
    async def main() -> None:
        transport, sock = await _stream(serving if secure else None)
        peer = Peer(sock, 100)
        WRITES[how](transport)
        assert _read_while_blocked(peer)
        transport.abort()
        sock.close()

    run(main())


def test_a_task_that_computes_after_a_write_does_not_hold_it_back(run: Runner) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while len(answered) < 20:
            asked = await reader.readexactly(5)
            peer = Peer(client, len(asked))
            writer.write(asked)
            answered.append(_read_while_blocked(peer))
            # Nothing is sent for a while before the next answer.
            await asyncio.sleep(0.01)
            client.sendall(b"hello")
        writer.close()
        done.set()

    answered: list[bool] = []
    done = asyncio.Event()
    client = socket.socket()

    async def main() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        await asyncio.to_thread(client.connect, server.sockets[0].getsockname())
        client.sendall(b"hello")
        await done.wait()
        server.close()
        client.close()

    run(main())
    assert answered == [True] * 20


def test_a_datagram_is_not_held_back(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
        )
        peer = Peer(sock, 100)
        transport.sendto(b"x" * 100, sock.getsockname())
        assert _read_while_blocked(peer)
        transport.abort()
        sock.close()

    run(main())


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Connected sockets, of which the second ones are closed at the end."""
    made = [socket.socketpair() for _ in range(CLIENTS)]
    yield made
    for _, theirs in made:
        theirs.close()


@pytest.mark.parametrize("is_first", [True, False], ids=["then computes", "when computed"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_each_answer_of_a_turn_leaves_before_the_next_is_computed(
    run: Runner, serving: ssl.SSLContext, is_first: bool, secure: bool
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        answered = []
        streams = [await _stream(serving if secure else None) for _ in range(CLIENTS)]
        peers = [Peer(sock, 10) for _, sock in streams]
        done = loop.create_future()

        def compute() -> None:
            # A long callback is what this is about; nothing waits for its end.
            threading.Event().wait(0.005)

        def handle(number: int) -> None:
            if number:
                answered.append(_read_while_blocked(peers[number - 1]))
            if not is_first:
                compute()
            streams[number][0].write(b"0123456789")
            if is_first:
                compute()
            if number == CLIENTS - 1:
                done.set_result(None)

        # All in one turn.
        for number in range(CLIENTS):
            loop.call_soon(handle, number)
        await done
        await asyncio.to_thread(peers[-1].join)
        assert answered == [True] * (CLIENTS - 1)
        for transport, sock in streams:
            transport.abort()
            sock.close()

    run(main())


@pytest.mark.parametrize("writers", range(2, 10))
def test_data_behind_other_streams_leaves_before_a_callback_without_writes(
    run: Runner, writers: int
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        streams = [await _stream() for _ in range(writers)]
        peers = [Peer(sock, 10) for _, sock in streams]
        done = loop.create_future()

        def look() -> None:
            done.set_result(all(_read_while_blocked(peer) for peer in peers))

        for transport, _ in streams:
            loop.call_soon(transport.write, b"0123456789")
        loop.call_soon(threading.Event().wait, 0.005)
        loop.call_soon(look)
        loop.call_soon(int)
        assert await done
        for transport, sock in streams:
            transport.abort()
            sock.close()

    run(main())


@pytest.mark.parametrize("end", ["abort", "close"])
def test_a_stream_that_ends_right_behind_others_sends_has_sent_all(run: Runner, end: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        streams = [await _stream() for _ in range(8)]
        transport, sock = streams[2]
        peer = Peer(sock, len(b"firsttail"))
        done = loop.create_future()

        def write_and_end() -> None:
            transport.write(b"tail")
            getattr(transport, end)()
            done.set_result(_read_while_blocked(peer))

        for one, _ in streams:
            loop.call_soon(one.write, b"first")
        # This callback releases held data; the turn continues.
        loop.call_soon(threading.Event().wait, 0.001)
        loop.call_soon(int)
        loop.call_soon(write_and_end)
        loop.call_soon(int)
        assert await done
        assert peer.data == b"firsttail"
        for one, theirs in streams:
            one.abort()
            theirs.close()

    run(main())


@pytest.mark.parametrize("pieces", [[b"head"], []], ids=["head", "no head"])
def test_data_after_a_large_piece_leaves_with_it(run: Runner, pieces: list[bytes]) -> None:
    async def main() -> None:
        transport, sock = await _stream()
        written = [*pieces, b"x" * 40_000, b"tail"]
        peer = Peer(sock, sum(map(len, written)))
        transport.writelines(written)
        assert _read_while_blocked(peer)
        assert peer.data == b"".join(written)
        transport.abort()
        sock.close()

    run(main())


@pytest.mark.parametrize("end", ["nothing", "close", "abort", "abort twice"])
@pytest.mark.parametrize("writes", [1, 2])
def test_a_reset_during_a_write_is_reported_as_a_reset(run: Runner, writes: int, end: str) -> None:
    """Another send would find a broken pipe."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        lost = loop.create_future()

        class Losing(asyncio.Protocol):
            def connection_lost(self, exc: Exception | None) -> None:
                lost.set_result(exc)

        with socket.create_server(("127.0.0.1", 0)) as listener:
            theirs = socket.create_connection(listener.getsockname())
            ours, _ = listener.accept()
        transport, _ = await loop.create_connection(Losing, sock=ours)
        # No receive meets it first.
        transport.pause_reading()
        await rounds()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        for _ in range(writes):
            transport.write(b"0123456789")
        if end == "close":
            transport.close()
        for _ in range(end.count("abort") + end.count("twice")):
            transport.abort()
            assert transport.is_closing()
        assert isinstance(await lost, ConnectionResetError)

    run(main())


def test_the_only_callback_of_a_turn_holds_nothing_back(run: Runner) -> None:
    """However shortly after the send before."""
    rounds = 50

    async def main() -> None:
        transport, sock = await _stream()
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        peer = Peer(sock, rounds)

        def write(left: int) -> None:
            transport.write(b"x")
            if left:
                loop.call_soon(write, left - 1)
                return
            done.set_result(_read_while_blocked(peer))

        loop.call_soon(write, rounds - 1)
        assert await done
        transport.abort()
        sock.close()

    run(main())


def test_a_head_and_its_body_leave_before_computing_where_the_loop_was_idle(run: Runner) -> None:
    """Earlier streams only wrote heads and bodies, so the loop has learned that heads wait for bodies."""

    async def main() -> None:
        transport, sock = await _stream()
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        peer = Peer(sock, 200 * len(b"headbody"))

        def answer(left: int) -> None:
            transport.write(b"head")
            transport.write(b"body")
            if left:
                loop.call_later(0.001, answer, left - 1)
                return
            done.set_result(_read_while_blocked(peer))

        answer(199)
        assert await done
        transport.abort()
        sock.close()

    run(main())


def test_all_that_is_written_to_a_stopped_loop_leaves(run: Runner) -> None:
    loop = run.factory()
    transport, sock = loop.run_until_complete(_stream())
    peer = Peer(sock, len(b"onetwothree"))
    transport.write(b"one")
    transport.write(b"two")
    transport.write(b"three")
    assert _read_while_blocked(peer)
    transport.abort()
    sock.close()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_all_that_is_written_behind_an_interrupted_run_leaves(run: Runner) -> None:
    loop = run.factory()
    transport, sock = loop.run_until_complete(_stream())
    peer = Peer(sock, len(b"zeroonetwothree"))

    def interrupt() -> None:
        transport.write(b"zero")
        raise KeyboardInterrupt

    loop.call_soon(interrupt)
    loop.call_soon(int)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    for data in (b"one", b"two", b"three"):
        transport.write(data)
    assert _read_while_blocked(peer)
    transport.abort()
    sock.close()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_a_turn_inside_a_callback_does_not_hold_back_what_the_outer_one_writes(
    run_ours: Runner,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        streams = [await _stream() for _ in range(3)]
        peers = [Peer(sock, 10) for _, sock in streams]
        done = loop.create_future()

        def look() -> None:
            done.set_result(all(_read_while_blocked(peer) for peer in peers))

        def spread() -> None:
            # The inner turn runs this; the outer one, what this schedules.
            for transport, _ in streams:
                loop.call_soon(transport.write, b"0123456789")
            loop.call_soon(threading.Event().wait, 0.005)
            loop.call_soon(look)

        loop.call_soon(loop._run_once)  # type: ignore[attr-defined]
        loop.call_soon(spread)
        for _ in range(20):
            loop.call_soon(int)
        assert await done
        for transport, sock in streams:
            transport.abort()
            sock.close()

    run_ours(main())


def test_nothing_is_buffered_that_the_socket_takes(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        streams = [await _stream() for _ in range(10)]
        sizes: list[int] = []

        def write(transport: asyncio.Transport) -> None:
            for _ in range(3):
                transport.write(b"0123456789")
                sizes.append(transport.get_write_buffer_size())

        for transport, _ in streams:
            loop.call_soon(write, transport)
        while len(sizes) < 30:
            await asyncio.sleep(0)
        assert sizes == [0] * 30
        for transport, sock in streams:
            assert sock.recv(100) == b"0123456789" * 3
            transport.abort()
            sock.close()

    run(main())


def test_writes_stay_in_order_however_they_leave(run: Runner) -> None:
    """Writes leave at once, after a callback, in one submission with others, or at the end of the turn."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        streams = [await _stream() for _ in range(CLIENTS)]
        peers = [Peer(sock, 3 * 40 * 8) for _, sock in streams]
        numbers = [0] * CLIENTS

        def write(number: int, pause: float) -> None:
            for _ in range(3):
                streams[number][0].write(b"%08d" % numbers[number])
                numbers[number] += 1
            if pause:
                threading.Event().wait(pause)

        for turn in range(40):
            for number in range(CLIENTS):
                pause = 0.001 if (turn, number) in ((5, 3), (6, 15), (20, 0)) else 0
                loop.call_soon(write, number, pause)
            await asyncio.sleep(0)
        expected = b"".join(b"%08d" % number for number in range(3 * 40))
        for (transport, sock), peer in zip(streams, peers, strict=True):
            await asyncio.to_thread(peer.join)
            assert peer.data == expected
            transport.abort()
            sock.close()

    run(main())


EXITS = """
import asyncio, os, socket, sys
sys.path.insert(0, {root!r})
from tests.loop.harness import factory

class Answer(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)
        os._exit(0)

async def main():
    sock = socket.socket(fileno=int(sys.argv[2]))
    await asyncio.get_running_loop().create_connection(Answer, sock=sock)
    await asyncio.Event().wait()

asyncio.set_event_loop(loop := factory(sys.argv[1])())
loop.run_until_complete(main())
"""


@pytest.mark.parametrize("name", LOOPS)
def test_a_process_that_exits_has_sent_what_it_wrote(name: str) -> None:
    ours, theirs = socket.socketpair()
    root = str(Path(__file__).parents[2])
    program = textwrap.dedent(EXITS).format(root=root)
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", program, name, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=os.environ,
        )
        theirs.close()
        ours.settimeout(PATIENCE)
        ours.sendall(b"hello")
        assert ours.recv(100) == b"hello"
        assert process.wait(PATIENCE) == 0
