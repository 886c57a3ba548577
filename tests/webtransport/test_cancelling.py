"""A cancellation at any await of a session loses no data, and a session may end in every state."""

from __future__ import annotations

import asyncio

import pytest

from tests.loop.harness import rounds
from tests.quic.native.connection_pairs import cancelled, cancelled_after
from tests.webtransport.session_pairs import (
    accepting,
    connecting,
    serving,
    session_pair,
    stream_pair,
)
from uringcore.quic import QuicError


@pytest.mark.parametrize(
    "read",
    [
        lambda stream: stream.read(),
        lambda stream: stream.read(10),
        lambda stream: stream.readexactly(10),
        lambda stream: stream.readuntil(b"\n"),
        lambda stream: stream.__anext__(),
    ],
    ids=["all", "some", "exactly", "until", "next"],
)
def test_a_cancelled_read_has_taken_nothing(run_anywhere, certificate, read):
    async def main():
        async with stream_pair(certificate) as (here, there):
            for _ in range(3):
                await cancelled(asyncio.ensure_future(read(there)))
            await here.send(b"0123456789\n")
            await here.finish()
            assert await there.read() == b"0123456789\n"

    run_anywhere(main())


def test_a_cancelled_accept_leaves_the_stream_to_the_next(run_anywhere, certificate):
    async def main():
        async with session_pair(certificate) as (one, other):
            for _ in range(3):
                await cancelled(asyncio.ensure_future(other.accept_stream()))
                await cancelled(asyncio.ensure_future(other.receive_datagram()))
            stream = await one.open_stream()
            await stream.send(b"x")
            one.send_datagram(b"y")
            assert await (await other.accept_stream()).readexactly(1) == b"x"
            assert await other.receive_datagram() == b"y"

    run_anywhere(main())


def test_a_cancelled_wait_for_requests_leaves_them_to_the_next(run_anywhere, certificate):
    async def main():
        async with serving(certificate) as server:
            for _ in range(3):
                await cancelled(asyncio.ensure_future(anext(server)))
            asking = asyncio.ensure_future(connecting(certificate, server))
            async with await (await anext(server)).accept():
                async with await asking:
                    pass

    run_anywhere(main())


def test_a_session_is_closed_at_every_step(run_anywhere, certificate):
    """A session is closed n turns after its request: each side sees an end and no other error."""

    async def main():
        accepted = []
        async with serving(certificate) as server, accepting(server, accepted):
            for turns in range(0, 40, 3):
                session = await cancelled_after(turns, connecting(certificate, server))
                if session is not None:
                    session.close()
                    await session.wait_closed()
            async with connecting(certificate, server) as session:
                async with session.open_uni_stream() as stream:
                    await stream.send(b"well")
                await session.wait_delivered()
                assert await (await accepted[-1].accept_uni_stream()).read() == b"well"

    run_anywhere(main())


@pytest.mark.parametrize("closer", [0, 1], ids=["client", "server"])
def test_a_session_closed_with_streams_in_flight_ends_them(run_anywhere, certificate, closer):
    async def main():
        async with session_pair(certificate) as pair:
            sending = []
            for here in pair:
                for _ in range(5):
                    stream = await here.open_stream()
                    sending.append(asyncio.ensure_future(stream.send_all(bytes(3_000_000))))
            await rounds(20)
            pair[closer].close(1, "enough")
            await asyncio.wait(sending)
            assert all(isinstance(task.exception(), QuicError) for task in sending)
            for session in pair:
                await session.wait_closed()

    run_anywhere(main())
