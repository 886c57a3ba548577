"""Flow control: the write buffer's limits, pause_writing and pause_reading."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from tests.loop.harness import Recorder, Runner, connected_pair, rounds

PIECE = b"p" * 65536


KERNEL_BYTES = 1 << 19
"""The most bytes that the sockets of a `_pair` buffer."""


async def _pair() -> tuple[asyncio.Transport, Recorder, asyncio.Transport, Recorder]:
    loop = asyncio.get_running_loop()
    one, other = connected_pair()
    # The kernel doubles the size. Without this option the buffer would grow with the written data.
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES // 4)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES // 4)
    left, left_protocol = await loop.create_connection(Recorder, sock=one)
    right, right_protocol = await loop.create_connection(Recorder, sock=other)
    return left, left_protocol, right, right_protocol


def test_a_full_buffer_pauses_and_an_empty_one_resumes(run: Runner) -> None:
    async def main() -> None:
        left, sender, right, receiver = await _pair()
        right.pause_reading()
        # The kernel may accept data at any time: that must not cause the resume.
        high = 4 * KERNEL_BYTES
        left.set_write_buffer_limits(high=high, low=20_000)
        assert left.get_write_buffer_limits() == (20_000, high)
        written = 0
        while "pause" not in sender.calls:
            left.write(PIECE)
            written += len(PIECE)
            await asyncio.sleep(0)
            assert written < 1 << 30
        assert left.get_write_buffer_size() > high - KERNEL_BYTES
        await rounds()
        assert "resume" not in sender.calls
        right.resume_reading()
        await sender.until_call("resume")
        assert left.get_write_buffer_size() <= 20_000
        await receiver.until(lambda: len(receiver.data) == written)
        assert sender.calls == ["made", "pause", "resume"]
        left.close()
        await receiver.until_call("lost")

    run(main())


def test_drain_waits_for_a_slow_reader(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        _, writer = await asyncio.open_connection(sock=one)
        right, receiver = await loop.create_connection(Recorder, sock=other)
        right.pause_reading()
        written = 0
        with pytest.raises(asyncio.TimeoutError):
            while written < 1 << 30:
                writer.write(PIECE)
                written += len(PIECE)
                await asyncio.wait_for(writer.drain(), 0.2)
        right.resume_reading()
        await writer.drain()
        await receiver.until(lambda: len(receiver.data) == written)
        writer.close()
        await receiver.until_call("lost")

    run(main())


def test_zero_high_water_pauses_at_the_first_byte_left(run: Runner) -> None:
    async def main() -> None:
        left, sender, right, receiver = await _pair()
        left.set_write_buffer_limits(high=0)
        assert left.get_write_buffer_limits() == (0, 0)
        right.pause_reading()
        for _ in range(500):
            left.write(PIECE)
            if "pause" in sender.calls:
                break
            await asyncio.sleep(0)
        assert "pause" in sender.calls
        right.resume_reading()
        await sender.until_call("resume")
        assert left.get_write_buffer_size() == 0
        left.close()
        await receiver.until_call("lost")

    run(main())


def test_limits_are_checked(run: Runner) -> None:
    async def main() -> None:
        left, _, right, _ = await _pair()
        with pytest.raises(ValueError):
            left.set_write_buffer_limits(high=10, low=20)
        with pytest.raises(ValueError):
            left.set_write_buffer_limits(high=10, low=-1)
        left.set_write_buffer_limits()
        low, high = left.get_write_buffer_limits()
        assert (low, high) == (16 * 1024, 64 * 1024)
        left.abort()
        right.abort()
        await rounds()

    run(main())


def test_pause_reading_holds_data_back(run: Runner) -> None:
    async def main() -> None:
        left, _, right, receiver = await _pair()
        assert right.is_reading()
        right.pause_reading()
        assert not right.is_reading()
        right.pause_reading()
        left.write(b"held back")
        await rounds()
        assert receiver.data == b""
        right.resume_reading()
        right.resume_reading()
        assert right.is_reading()
        await receiver.until(lambda: receiver.data == b"held back")
        left.close()
        await receiver.until_call("lost")

    run(main())


def test_pause_within_data_received_holds_at_once(run: Runner) -> None:
    class OneAtATime(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        left, _ = await loop.create_connection(Recorder, sock=one)
        right, receiver = await loop.create_connection(OneAtATime, sock=other)
        total = 40 * len(PIECE)
        for _ in range(40):
            left.write(PIECE)
        while len(receiver.data) < total:
            before = len(receiver.data)
            await receiver.until(lambda: len(receiver.data) > before)  # noqa: B023
            held = len(receiver.data)
            await asyncio.sleep(0.002)
            # No data may be delivered between a pause and its resume.
            assert len(receiver.data) == held
            right.resume_reading()
        left.close()
        right.resume_reading()
        await receiver.until_call("lost")
        assert len(receiver.data) == total

    run(main())


def test_a_paused_reader_does_not_fill_memory(run: Runner) -> None:
    async def main() -> None:
        left, _, right, _ = await _pair()
        right.pause_reading()
        await rounds()
        written = 0
        while written < 16 * KERNEL_BYTES:
            left.write(PIECE)
            written += len(PIECE)
            await asyncio.sleep(0)
        await rounds(50)
        # Received data is limited by the socket buffers, not by the amount written.
        assert left.get_write_buffer_size() > written - 2 * KERNEL_BYTES
        left.abort()
        right.abort()
        await rounds()

    run(main())


def test_close_while_paused_still_delivers_nothing_more(run: Runner) -> None:
    async def main() -> None:
        left, _, right, receiver = await _pair()
        right.pause_reading()
        left.write(b"never read")
        await rounds()
        right.close()
        await receiver.until_call("lost")
        assert receiver.data == b""
        left.abort()
        await rounds()

    run(main())


def test_writing_from_within_callbacks(run: Runner) -> None:
    """A ping-pong that writes from data_received, with a buffer that fills now and then."""

    class Multiply(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.write(data)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        left, client = await loop.create_connection(Recorder, sock=one)
        _, server = await loop.create_connection(Multiply, sock=other)
        total = 0
        for index in range(200):
            message = bytes([index % 251]) * (index * 37 + 1)
            total += len(message)
            left.write(message)
            if index % 20 == 0:
                await asyncio.sleep(0)
        await client.until(lambda: len(client.data) == total)
        assert client.data == server.data
        left.close()
        await client.until_call("lost")

    run(main())


def test_marks_that_are_set_after_the_end_are_answered(run: Runner) -> None:
    async def main() -> None:
        left, sender, right, _ = await _pair()
        left.abort()
        right.abort()
        await sender.until_call("lost")
        left.set_write_buffer_limits(high=100, low=10)
        assert left.get_write_buffer_limits() == (10, 100)

    run(main())


def test_a_buffer_that_empties_without_a_wait_resumes(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        one.setblocking(False)
        other.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 106_496)
        transport, sender = await loop.create_connection(Recorder, sock=one)
        size = 400_000
        transport.write(bytes(size))
        assert sender.calls == ["made", "pause"]
        # In that iteration the socket has room again by the time the loop sends the rest.
        taken = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                taken += len(other.recv(size))
        while taken < size:
            taken += len(await loop.sock_recv(other, size))
        await sender.until_call("resume")
        assert transport.get_write_buffer_size() == 0
        transport.close()
        other.close()

    run(main())
