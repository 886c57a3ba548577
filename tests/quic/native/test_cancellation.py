"""A cancellation at any await loses no data and leaves no waiter behind."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.harness import eventually, patterned
from tests.quic.native.connection_pairs import (
    cancelled,
    connecting,
    listening,
    pair,
    settled,
    stream_pair,
)
from uringcore import quic


@pytest.mark.parametrize(
    "read",
    [
        lambda stream: stream.read(),
        lambda stream: stream.read(10),
        lambda stream: stream.readexactly(10),
        lambda stream: stream.readuntil(b"\n"),
        lambda stream: stream.readinto(bytearray(10)),
        lambda stream: stream.__anext__(),
    ],
    ids=["all", "some", "exactly", "until", "into", "next"],
)
def test_a_cancelled_read_has_taken_nothing(run_anywhere, pki, read):
    async def main():
        async with stream_pair(pki) as (here, there):
            for _ in range(3):
                await cancelled(asyncio.ensure_future(read(there)))
            await here.send(b"0123456789\n")
            await here.finish()
            assert await there.read() == b"0123456789\n"

    run_anywhere(main())


@pytest.mark.parametrize("want", ["all", "exactly", "until"])
def test_data_of_a_cancelled_read_is_returned_by_the_next(run_anywhere, pki, want):
    message = patterned(100_000)

    async def main():
        async with stream_pair(pki) as (here, there):
            calls = {
                "all": lambda: there.read(),
                "exactly": lambda: there.readexactly(1 << 20),
                "until": lambda: there.readuntil(b"no such thing", limit=1 << 20),
            }
            reading = asyncio.ensure_future(calls[want]())
            await here.send(message)
            await here.finish()
            await eventually(lambda: there.connection.stats()["bytes_received"] > len(message))
            if not reading.done():
                await settled(reading)
            reading.cancel()
            await asyncio.wait([reading])
            if reading.cancelled():
                assert await there.read() == message
            elif want == "all":
                assert reading.result() == message
            else:
                assert reading.exception().partial == message

    run_anywhere(main())


def test_a_search_that_is_cancelled_is_not_the_next_ones(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            searching = asyncio.ensure_future(there.readuntil(b"\r\n"))
            before = there.connection.stats()["bytes_received"]
            await here.send(b"a|b")
            await eventually(lambda: there.connection.stats()["bytes_received"] > before)
            await cancelled(searching)
            assert await there.readuntil(b"|") == b"a|"

    run_anywhere(main())


def test_a_read_that_is_woken_and_cancelled_at_once_takes_nothing(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            reading = await settled(asyncio.ensure_future(there.readexactly(1)))
            await here.send(b"ab")
            other = asyncio.ensure_future(there.connection.ping())
            while not reading.done() and not other.done():
                await asyncio.sleep(0)
                # Cancel in the turn in which the read's future is set, or in a later one.
                if reading._fut_waiter is None or reading._fut_waiter.done():
                    reading.cancel()
                    break
            await asyncio.wait([reading])
            await other
            left = b"ab" if reading.cancelled() else b"b"
            assert await there.readexactly(len(left)) == left

    run_anywhere(main())


def test_a_cancelled_send_has_sent_nothing(run_anywhere, pki):
    async def main():
        client, server = {"send_buffer": 10_000}, {"receive_window": 20_000}
        async with stream_pair(pki, client, server) as (here, there):
            filling = 0
            while True:
                sending = await settled(asyncio.ensure_future(here.send(bytes(5_000))))
                if not sending.done():
                    break
                filling += 5_000
            await cancelled(sending)
            await cancelled(asyncio.ensure_future(here.writelines([b"never", b"ever"])))
            await cancelled(asyncio.ensure_future(here.send(b"never", finish=True)))
            reading = asyncio.ensure_future(there.read())
            await here.send(b"the end")
            await here.finish()
            assert await reading == bytes(filling) + b"the end"

    run_anywhere(main())


def test_a_cancelled_wait_for_the_end_changes_nothing(run_anywhere, pki):
    async def main():
        async with stream_pair(pki, server={"receive_window": 10_000}) as (here, there):
            await here.send(bytes(50_000))
            await here.finish()
            await cancelled(asyncio.ensure_future(here.wait_finished()))
            await cancelled(asyncio.ensure_future(here.connection.wait_delivered()))
            assert len(await there.read()) == 50_000
            await here.wait_finished()

    run_anywhere(main())


def test_a_cancelled_accept_has_taken_no_stream(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            await cancelled(asyncio.ensure_future(other.accept_stream()))
            await cancelled(asyncio.ensure_future(other.streams().__anext__()))
            accepting = [asyncio.ensure_future(other.accept_stream()) for _ in range(2)]
            await settled(accepting[0])
            accepting[0].cancel()
            async with one.open_stream() as stream:
                await stream.send(b"x")
                there = await accepting[1]
                assert await there.readexactly(1) == b"x"

    run_anywhere(main())


def test_a_cancelled_open_has_opened_no_stream(run_anywhere, pki):
    async def main():
        async with pair(pki, server={"max_streams": 1}) as (one, other):

            async def opened():
                return await one.open_stream()

            async with one.open_stream() as first:
                await first.send(b"x")
                await cancelled(asyncio.ensure_future(opened()))
                await cancelled(asyncio.ensure_future(one.open_stream().__aenter__()))
                waiting = await settled(asyncio.ensure_future(opened()))
                assert not waiting.done()
                await first.finish()
                async with await other.accept_stream() as there:
                    assert await there.read() == b"x"
            async with await waiting as second:
                assert second.id == 4
                await second.send(b"y")
            async with await other.accept_stream() as there:
                assert (there.id, await there.read()) == (4, b"y")

    run_anywhere(main())


def test_a_cancelled_wait_for_datagrams_has_taken_none(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            await cancelled(asyncio.ensure_future(other.receive_datagram()))
            await cancelled(asyncio.ensure_future(other.receive_datagrams()))
            await cancelled(asyncio.ensure_future(other.datagrams().__anext__()))
            one.send_datagram(b"kept")
            assert await other.receive_datagram() == b"kept"

    run_anywhere(main())


def test_a_cancelled_accept_leaves_the_connection_to_the_next(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            await cancelled(asyncio.ensure_future(listener.accept()))
            accepting = [asyncio.ensure_future(listener.accept()) for _ in range(2)]
            await settled(accepting[0])
            async with connecting(pki, listener):
                while not accepting[0].done():
                    waiter = accepting[0]._fut_waiter
                    if waiter is None or waiter.done():
                        # The first waiter has been woken; cancel it before it runs.
                        accepting[0].cancel()
                        break
                    await asyncio.sleep(0)
                await asyncio.wait(accepting, return_when=asyncio.FIRST_COMPLETED)
                done = [one for one in accepting if one.done() and not one.cancelled()]
                if not done:
                    done = [accepting[1]]
                async with await done[0] as connection:
                    assert connection.alpn == "test"
            for one in accepting:
                one.cancel()
            await asyncio.wait(accepting)

    run_anywhere(main())


def test_a_cancelled_connect_leaves_nothing_open(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            connection = connecting(pki, listener)

            async def connected():
                async with connection:
                    pass

            task = asyncio.ensure_future(connected())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # A second connection attempt succeeds.
            async with connecting(pki, listener) as one:
                await one.ping()
            await eventually(lambda: listener.stats()["connections"] == 0)

    run_anywhere(main())


def test_time_limits_leave_no_waiters_behind(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            for _ in range(100):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(there.read(1), 0.0001)
            await here.send(b"x")
            assert await asyncio.wait_for(there.read(1), 30) == b"x"

    run_anywhere(main())


def test_the_price_of_a_waiter_does_not_grow_with_their_number(pki):
    class Future(asyncio.Future):
        asked = 0

        def done(self):
            Future.asked += 1
            return super().done()

    class Loop(asyncio.SelectorEventLoop):
        def create_future(self):
            return Future(loop=self)

    async def main():
        async with pair(pki) as (one, other):
            Future.asked = 0
            accepting = [asyncio.ensure_future(one.accept_stream()) for _ in range(1000)]
            await settled(accepting[0])
            assert Future.asked < 10_000
            other.close()
            await asyncio.wait(accepting)

    loop = Loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_a_block_that_is_cancelled_resets_its_stream(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):

            async def client():
                async with one.open_stream() as stream:
                    await stream.send(b"half of")
                    await stream.read()

            task = await settled(asyncio.ensure_future(client()))
            async with await other.accept_stream() as there:
                task.cancel()
                with pytest.raises(quic.StreamResetError):
                    await there.read()
            await asyncio.wait([task])
            assert task.cancelled()
            await one.ping()

    run_anywhere(main())
