"""Messages of a hundred kibibytes, which our loop receives straight into the protocol's memory."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from tests.loop.harness import Runner, rounds

MESSAGE = bytes(range(256)) * 400
"""Larger than a receive through a provided buffer may be before the next receive becomes direct."""


class Plain(asyncio.Protocol):
    """Collects received data."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.news = asyncio.Event()
        self.ended: asyncio.Future[BaseException | None] = (
            asyncio.get_running_loop().create_future()
        )
        self.has_eof = False
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes and data
        self.got += data
        self.news.set()

    def eof_received(self) -> None:
        self.has_eof = True

    def connection_lost(self, exc: BaseException | None) -> None:
        self.ended.set_result(exc)
        self.news.set()

    async def receive(self, size: int) -> bytes:
        """Returns the next `size` bytes, or the data before the end."""
        while len(self.got) < size and not self.ended.done():
            self.news.clear()
            await self.news.wait()
        received = bytes(self.got[:size])
        del self.got[:size]
        return received


class Buffered(Plain, asyncio.BufferedProtocol):
    """Like `Plain`, with a buffer of its own."""

    def __init__(self, size: int = 50_000) -> None:
        super().__init__()
        self.buffer = bytearray(size)

    def get_buffer(self, sizehint: int) -> Any:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        assert count > 0
        self.data_received(bytes(self.buffer[:count]))


class Odd(Buffered):
    """A protocol whose `get_buffer` performs another action when enabled."""

    act: Any = None

    def get_buffer(self, sizehint: int) -> Any:
        return self.act() if self.act is not None else self.buffer


async def connected_pair(protocol: Plain) -> tuple[socket.socket, socket.socket]:
    """The socket that the protocol gets on a transport, and its peer."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: protocol, sock=ours)
    return ours, theirs


async def connected(protocol: Plain) -> socket.socket:
    """A socket, whose peer the protocol gets on a transport."""
    _, theirs = await connected_pair(protocol)
    return theirs


async def say(peer: socket.socket, protocol: Plain, count: int = 8) -> None:
    """Sends messages, each after the previous one has been received."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        sending = loop.create_task(loop.sock_sendall(peer, MESSAGE))
        assert await protocol.receive(len(MESSAGE)) == MESSAGE
        await sending


@pytest.mark.parametrize(
    "make",
    [Plain, Buffered, lambda: Buffered(300_000)],
    ids=["plain", "small buffer", "large buffer"],
)
def test_every_byte_comes_and_the_end_behind_them(run: Runner, make: Any) -> None:
    async def main() -> None:
        protocol = make()
        peer = await connected(protocol)
        await say(peer, protocol)
        loop = asyncio.get_running_loop()
        for number in range(60):
            await loop.sock_sendall(peer, b"%02d" % number)
            assert await protocol.receive(2) == b"%02d" % number
        await say(peer, protocol)
        await loop.sock_sendall(peer, b"the last")
        peer.close()
        assert await protocol.receive(8) == b"the last"
        assert await protocol.ended is None
        assert protocol.has_eof

    run(main())


def test_a_paused_reader_gets_no_data(run: Runner) -> None:
    async def main() -> None:
        protocol = Plain()
        peer = await connected(protocol)
        await say(peer, protocol)
        loop = asyncio.get_running_loop()
        for _ in range(5):
            protocol.transport.pause_reading()
            sending = loop.create_task(loop.sock_sendall(peer, MESSAGE))
            await asyncio.sleep(0.02)
            assert not protocol.got
            protocol.transport.resume_reading()
            assert await protocol.receive(len(MESSAGE)) == MESSAGE
            await sending
        peer.close()
        assert await protocol.ended is None

    run(main())


def test_a_protocol_may_be_another_in_the_middle(run: Runner) -> None:
    async def main() -> None:
        first, second, third = Plain(), Buffered(), Plain()
        peer = await connected(first)
        for protocol in (first, second, third):
            first.transport.set_protocol(protocol)
            await say(peer, protocol)
        peer.close()
        assert await third.ended is None

    run(main())


@pytest.mark.parametrize("failing", ["get_buffer", "empty", "not writable"])
def test_a_get_buffer_that_fails_ends_the_connection(run: Runner, failing: str) -> None:
    async def main() -> None:
        protocol = Odd()
        peer = await connected(protocol)
        await say(peer, protocol)

        def fail() -> Any:
            if failing == "get_buffer":
                raise ZeroDivisionError
            return bytearray() if failing == "empty" else b"constant"

        protocol.act = fail
        peer.send(MESSAGE[:1000])
        exc = await protocol.ended
        kinds = {"get_buffer": ZeroDivisionError, "empty": RuntimeError}
        assert isinstance(exc, kinds.get(failing, (BufferError, TypeError)))
        peer.close()

    run(main())
    assert len(run.complaints.errors) == 1
    run.complaints.contexts.clear()


def test_a_get_buffer_may_end_the_connection(run: Runner) -> None:
    async def main() -> None:
        protocol = Odd()
        peer = await connected(protocol)
        await say(peer, protocol)

        def end() -> Any:
            protocol.transport.abort()
            return protocol.buffer

        protocol.act = end
        peer.send(MESSAGE[:1000])
        assert await protocol.ended is None
        peer.close()

    run(main())


def test_a_reset_is_reported(run: Runner) -> None:
    async def main() -> None:
        accepted: asyncio.Future[Plain] = asyncio.get_running_loop().create_future()

        class Served(Plain):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                accepted.set_result(self)

        loop = asyncio.get_running_loop()
        server = await loop.create_server(Served, "127.0.0.1", 0)
        peer = socket.create_connection(server.sockets[0].getsockname())
        peer.setblocking(False)
        protocol = await accepted
        await say(peer, protocol)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        assert isinstance(await protocol.ended, ConnectionResetError)
        server.close()

    run(main())


def test_an_exit_out_of_get_buffer_leaves_the_bytes_where_they_are(run_ours: Runner) -> None:
    loop = run_ours.factory()

    async def begin() -> tuple[Odd, socket.socket]:
        protocol = Odd()
        peer = await connected(protocol)
        await say(peer, protocol)
        return protocol, peer

    protocol, peer = loop.run_until_complete(begin())

    def leave() -> Any:
        protocol.act = None
        raise SystemExit

    protocol.act = leave
    peer.send(MESSAGE[:1000])
    with pytest.raises(SystemExit):
        loop.run_until_complete(asyncio.sleep(60))
    peer.send(MESSAGE[:1000])
    received = loop.run_until_complete(asyncio.wait_for(protocol.receive(2000), 20))
    assert received == MESSAGE[:1000] * 2
    peer.close()
    assert loop.run_until_complete(asyncio.wait_for(protocol.ended, 20)) is None
    loop.close()


def test_a_socket_without_a_number_ends_its_connection(run: Runner) -> None:
    async def main() -> None:
        protocol = Plain()
        ours, peer = await connected_pair(protocol)
        await say(peer, protocol)
        number = ours.detach()
        try:
            peer.send(b"for whoever has the number now")
            error = await asyncio.wait_for(protocol.ended, 20)
            assert isinstance(error, OSError)
            assert error.errno == errno.EBADF
            assert os.read(number, 100) == b"for whoever has the number now"
        finally:
            os.close(number)
            peer.close()

    run(main())
    run.complaints.contexts.clear()


def test_a_number_that_was_given_away_is_not_received_from(run_ours: Runner) -> None:
    async def main() -> None:
        protocol = Plain()
        ours, peer = await connected_pair(protocol)
        await say(peer, protocol)
        number = ours.fileno()
        ours.close()
        mine, theirs = socket.socketpair()
        with mine, theirs:
            if mine.fileno() != number:
                os.dup2(mine.fileno(), number)
            theirs.send(b"for another")
            with contextlib.suppress(OSError):
                peer.send(b"wakes what still waits")
            await rounds()
            assert not protocol.got.startswith(b"for")
            assert mine.recv(100) == b"for another"
        peer.close()

    run_ours(main())
    run_ours.complaints.contexts.clear()


def test_a_full_buffer_is_not_followed_by_another_while_its_reader_pauses(run: Runner) -> None:
    """A full buffer is followed by another read at once, unless the protocol has paused."""

    class Pausing(Buffered):
        def buffer_updated(self, count: int) -> None:
            assert not self.is_paused
            super().buffer_updated(count)
            if len(self.got) in self.pause_at:
                self.is_paused = True
                self.transport.pause_reading()

        is_paused = False
        pause_at: tuple[int, ...] = ()

    async def main() -> None:
        protocol = Pausing(40_000)
        with await connected(protocol) as peer:
            await say(peer, protocol)
            protocol.pause_at = (40_000, 80_000)
            protocol.transport.pause_reading()
            # When reading resumes, all of it has arrived: the pieces have the buffer's size.
            peer.sendall(MESSAGE)
            protocol.transport.resume_reading()
            for received in protocol.pause_at:
                while not protocol.is_paused:
                    await asyncio.sleep(0)
                for _ in range(5):
                    await asyncio.sleep(0)
                assert protocol.got == MESSAGE[:received]
                protocol.is_paused = False
                protocol.transport.resume_reading()
            assert await protocol.receive(len(MESSAGE)) == MESSAGE
            peer.shutdown(socket.SHUT_WR)
            await protocol.ended
            assert protocol.has_eof and not protocol.got

    run(main())


@pytest.mark.parametrize("size", [20_000, 65_536])
def test_callbacks_of_a_protocol_run_before_its_next_bytes(run: Runner, size: int) -> None:
    """A woken reader empties the buffer; without that it would be full at the next receive."""

    class Emptied(Buffered):
        filled = 0

        def get_buffer(self, sizehint: int) -> Any:
            return memoryview(self.buffer)[self.filled :]

        def buffer_updated(self, count: int) -> None:
            self.filled += count
            asyncio.get_running_loop().call_soon(self.empty)

        def empty(self) -> None:
            filled, self.filled = self.filled, 0
            self.data_received(bytes(self.buffer[:filled]))

    async def main() -> None:
        protocol = Emptied(size)
        with await connected(protocol) as peer:
            await say(peer, protocol)
            # A pause also works between messages that had all arrived when the first was received.
            for _ in range(4):
                protocol.transport.pause_reading()
                peer.sendall(MESSAGE)
                protocol.transport.resume_reading()
                assert await protocol.receive(len(MESSAGE)) == MESSAGE
            protocol.transport.abort()
            await protocol.ended

    run(main())


@pytest.mark.parametrize("what", ["close", "abort", "set_protocol", "raise", "end"])
def test_a_protocol_may_end_or_leave_at_a_full_buffer(run: Runner, what: str) -> None:
    class Acts(Buffered):
        is_due = False

        def buffer_updated(self, count: int) -> None:
            assert not self.transport.is_closing()
            super().buffer_updated(count)
            if count == len(self.buffer) and self.is_due:
                self.is_due = False
                self.act()

        def act(self) -> None:
            raise ZeroDivisionError

    async def main() -> None:
        protocol, successor = Acts(40_000), Plain()
        peer = await connected(protocol)
        await say(peer, protocol)
        actions: dict[str, Any] = {
            "close": protocol.transport.close,
            "abort": protocol.transport.abort,
            "set_protocol": lambda: protocol.transport.set_protocol(successor),
            "raise": protocol.act,
            "end": peer.close,
        }
        protocol.act = actions[what]  # type: ignore[method-assign]
        protocol.transport.pause_reading()
        protocol.is_due = True
        peer.sendall(MESSAGE)
        protocol.transport.resume_reading()
        if what == "end":
            assert await protocol.receive(len(MESSAGE)) == MESSAGE
            assert await protocol.ended is None
            assert protocol.has_eof
        elif what == "set_protocol":
            assert await successor.receive(len(MESSAGE) - 40_000) == MESSAGE[40_000:]
            assert protocol.got == MESSAGE[:40_000]
            peer.close()
            assert await successor.ended is None
        else:
            exc = await protocol.ended
            assert isinstance(exc, ZeroDivisionError) if what == "raise" else exc is None
            assert protocol.got == MESSAGE[:40_000]
            peer.close()

    run(main())
    if what == "raise":
        assert len(run.complaints.errors) == 1
        run.complaints.contexts.clear()


HEAP_OF_A_LOOP = """
import resource, sys
import uringcore

if sys.argv[1] != "none":
    loop = uringcore.new_event_loop(backend=sys.argv[1])
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = faults()
for _ in range(100):
    blocks = [bytes(100_000) for _ in range(8)]
    del blocks
print(faults() - before)
"""


@pytest.mark.parametrize("backend", ["uring", "epoll"])
def test_messages_do_not_take_new_pages_each_time(backend: str) -> None:
    """glibc gives the end of its heap back as soon as 128 KiB of it are free; a loop has it keep more."""

    def faults(backend: str) -> int:
        command = [sys.executable, "-c", HEAP_OF_A_LOOP, backend]
        return int(
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout
        )

    without = faults("none")
    # A C library that keeps such blocks anyway needs no setting.
    assert faults(backend) < 2000 or without < 2000
