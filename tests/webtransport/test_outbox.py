"""Data that a program has queued without awaiting, with aiopquic's names: its limits, and calls that wait for
room.
"""

from __future__ import annotations

import array
import asyncio

import pytest

from tests.loop.harness import rounds
from tests.quic.harness import eventually
from tests.webtransport.aiopquic_pairs import (
    accepted,
    connecting,
    next_of,
    read_all,
    serving,
    staying,
)
from uringcore.contrib import aiopquic as wt
from uringcore.quic.configuration import QuicConfiguration
from uringcore.webtransport._outbox import Outboxes

pytestmark = pytest.mark.either_backend

MEBIBYTE = 1 << 20


async def fill(session, stream):
    """Queues as much on a stream as it accepts; returns the number of bytes."""
    queued = 0
    with pytest.raises(BufferError):
        while queued < 100 * MEBIBYTE:
            session.send_stream_data(stream, bytes(1 << 18))
            queued += 1 << 18
            await asyncio.sleep(0.01)
    return queued


def reading(go):
    """Returns a handler that reads all streams to their end once ``go`` is set, and the list of its tasks."""
    tasks = []

    async def handler(session):
        await go.wait()
        async for event in session.events():
            if isinstance(event, wt.WebTransportNewStream):
                tasks.append(asyncio.ensure_future(read_all(session, event.stream_id)))

    return handler, tasks


def test_the_queue_is_bounded(run_anywhere, files):
    async def main():
        served = []
        server = await serving(files, served.append)
        async with connecting(files, server) as session:
            session.stream_ring_cap = MEBIBYTE
            stream = await session.create_stream()
            with pytest.raises(ValueError, match="stream_ring_cap"):
                session.send_stream_data(stream, bytes(MEBIBYTE + 1))
            queued = await fill(session, stream)
            assert 0 < session.tx_data_ring_used(stream) <= MEBIBYTE
            drained = session.get_tx_data_drain_event(stream)
            drained.clear()
            await eventually(lambda: served)
            reading = asyncio.ensure_future(read_all(served[0], await accepted(served[0])))
            await drained.wait()
            await session.send_stream_data_drained(stream, b"end", end_stream=True)
            assert len(await reading) == queued + 3
        await server.aclose()

    run_anywhere(main())


def test_a_program_takes_no_wakeup_of_send_stream_data_drained(run_anywhere, files):
    async def main():
        go = asyncio.Event()
        handler, tasks = reading(go)
        server = await serving(files, handler)
        async with connecting(files, server) as session:
            session.stream_ring_cap = MEBIBYTE
            stream = await session.create_stream()
            queued = await fill(session, stream)
            sending = asyncio.ensure_future(
                session.send_stream_data_drained(stream, bytes(MEBIBYTE), end_stream=True)
            )
            await asyncio.sleep(0)
            assert not sending.done()
            session.clear_tx_data_drain_pending(stream)
            session.get_tx_data_drain_event(stream).clear()
            go.set()
            await asyncio.wait_for(sending, 20)
            await eventually(lambda: tasks)
            assert len(await tasks[0]) == queued + MEBIBYTE
        await server.aclose()

    run_anywhere(main())


def test_tasks_that_send_on_one_stream_all_come_to_an_end(run_anywhere, files):
    async def main():
        go = asyncio.Event()
        handler, tasks = reading(go)
        server = await serving(files, handler)
        go.set()
        async with connecting(files, server) as session:
            session.stream_ring_cap = 1 << 16
            for _ in range(20):
                stream = await session.create_stream(bidir=False)

                async def send(stream=stream):
                    # Each send waits for room: the ring holds little more than one.
                    for _ in range(10):
                        await session.send_stream_data_drained(stream, bytes(50_000))

                await asyncio.wait_for(asyncio.gather(*(send() for _ in range(5))), 20)
                await session.send_stream_data_drained(stream, b"", end_stream=True)
            await eventually(lambda: len(tasks) == 20)
            for got in await asyncio.gather(*tasks):
                assert len(got) == 5 * 10 * 50_000
        await server.aclose()

    run_anywhere(main())


def test_a_program_takes_no_wakeup_of_create_stream(run_anywhere, files):
    async def main():
        go = asyncio.Event()
        handler, tasks = reading(go)
        server = await serving(files, handler)
        async with connecting(files, server) as session:
            session.tx_max_queued_bytes = MEBIBYTE
            stream = await session.create_stream()
            queued = await fill(session, stream)
            creating = asyncio.ensure_future(session.create_stream())
            await rounds(20)
            assert not creating.done()
            session.clear_tx_data_drain_pending(stream)
            go.set()
            for one in (stream, await asyncio.wait_for(creating, 20)):
                await session.send_stream_data_drained(one, b"", end_stream=True)
            await eventually(lambda: len(tasks) == 2)
            assert [len(got) for got in await asyncio.gather(*tasks)] == [queued, 0]
        await server.aclose()

    run_anywhere(main())


def test_without_progress_the_queues_are_not_recounted(run_anywhere, files, monkeypatch):
    looks = []
    count = Outboxes._count
    monkeypatch.setattr(Outboxes, "_count", lambda self: looks.append(self) or count(self))

    async def main():
        server = await serving(files, staying)
        async with connecting(files, server) as session:
            streams = [await session.create_stream() for _ in range(2)]
            for stream in streams:
                await fill(session, stream)
            creating = asyncio.ensure_future(session.create_stream())
            seen = -1
            while len(looks) != seen:
                # At first the peer's windows still accept data.
                seen = len(looks)
                await asyncio.sleep(0.2)
            assert seen > 0
            # A reset of any stream makes room.
            session.reset_stream(streams[1])
            await eventually(lambda: len(looks) > seen)
            assert not creating.done()
            session.reset_stream(streams[0])
            await asyncio.wait_for(creating, 20)
        await server.aclose()

    run_anywhere(main())


def test_short_streams_wait_for_those_before_them(run_anywhere, files):
    async def main():
        go = asyncio.Event()
        handler, tasks = reading(go)
        configuration = QuicConfiguration(is_client=False, max_data=MEBIBYTE)
        server = await serving(files, handler, configuration=configuration)
        async with connecting(files, server) as session:
            size, streams = 900_000, 0
            creating = asyncio.ensure_future(session.create_stream(bidir=False))
            while (await asyncio.wait([creating], timeout=1))[0]:
                session.send_stream_data(creating.result(), bytes(size), end_stream=True)
                streams += 1
                assert streams < 50
                await asyncio.sleep(0)
                creating = asyncio.ensure_future(session.create_stream(bidir=False))
            # The server accepts this much data that its program does not read.
            given = streams * size - MEBIBYTE
            assert session.tx_max_queued_bytes < given < session.tx_max_queued_bytes + 2 * size
            go.set()
            last = await asyncio.wait_for(creating, 20)
            session.send_stream_data(last, bytes(size), end_stream=True)
            await eventually(lambda: len(tasks) == streams + 1)
            for got in await asyncio.gather(*tasks):
                assert len(got) == size
        await server.aclose()

    run_anywhere(main())


def test_data_queued_in_quic_is_waited_for(run_anywhere, files):
    async def main():
        go = asyncio.Event()
        handler, tasks = reading(go)
        go.set()
        configuration = QuicConfiguration(is_client=False, max_data=64 * MEBIBYTE)
        server = await serving(files, handler, configuration=configuration)
        async with connecting(files, server) as session:
            streams = [await session.create_stream(bidir=False) for _ in range(30)]
            for stream in streams:
                session.send_stream_data(stream, bytes(900_000), end_stream=True)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            with_quic = session.session._link.quic.stats
            assert with_quic()["send_queue_bytes"] > 4 * session.tx_max_queued_bytes
            assert not any(session.tx_data_ring_used(stream) for stream in streams)
            last = await session.create_stream(bidir=False)
            assert with_quic()["send_queue_bytes"] <= session.tx_max_queued_bytes // 2
            session.send_stream_data(last, b"", end_stream=True)
            await eventually(lambda: len(tasks) == 31)
            await asyncio.gather(*tasks)
        await server.aclose()

    run_anywhere(main())


@pytest.mark.parametrize("most", [None, 0])
def test_a_program_may_do_without_that_wait(run_anywhere, files, most):
    async def main():
        server = await serving(files, staying)
        async with connecting(files, server) as session:
            session.tx_max_queued_bytes = most
            for _ in range(20):
                stream = await session.create_stream()
                session.send_stream_data(stream, bytes(900_000))
        await server.aclose()

    run_anywhere(main())


def test_a_task_that_waits_for_room_gets_the_end(run_anywhere, files):
    async def main():
        server = await serving(files, staying)
        async with connecting(files, server) as session:
            stream = await session.create_stream()
            await fill(session, stream)
            sending = asyncio.ensure_future(
                session.send_stream_data_drained(stream, bytes(MEBIBYTE))
            )
            creating = asyncio.ensure_future(session.create_stream())
            await rounds(20)
            assert not sending.done()
            assert not creating.done()
            server.close(3, "enough")
            await asyncio.wait_for(sending, 20)
            with pytest.raises(wt.WebTransportError, match="over"):
                await asyncio.wait_for(creating, 20)
        await server.wait_closed()

    run_anywhere(main())


@pytest.mark.parametrize("bidir", [True, False])
def test_drain_events_are_set_when_the_session_ends(run_anywhere, files, bidir):
    async def main():
        server = await serving(files, staying)
        async with connecting(files, server) as session:
            stream = await session.create_stream(bidir)
            session.send_stream_data(stream, b"x")
            await eventually(lambda: session.tx_sent_bytes(stream) == 1)
            drained = session.get_tx_data_drain_event(stream)
            drained.clear()
            session.set_tx_data_drain_pending(stream)
            server.close(3, "enough")
            await asyncio.wait_for(drained.wait(), 20)
        await server.wait_closed()

    run_anywhere(main())


@pytest.mark.parametrize("begins", [True, False])
def test_nothing_is_queued_on_a_stream_that_the_peer_has_stopped(run_anywhere, files, begins):
    """The stop also takes effect if the send would be the stream's first data."""

    async def main():
        async def handler(session):
            stream = await accepted(session)
            session.stop_stream(stream, 7)
            await session.wait_closed()

        served = []
        server = await serving(files, handler if begins else served.append)
        async with connecting(files, server) as session:
            stream = await session.create_stream()
            session.send_stream_data(stream, b"x")
            sender = session
            if not begins:
                session.stop_stream(stream, 7)
                await eventually(lambda: served)
                sender = served[0]
            event = await next_of(sender.events(), wt.WebTransportStopSending)
            assert event == wt.WebTransportStopSending(stream, 7)
            with pytest.raises(wt.WebTransportError, match="not open for sending"):
                sender.send_stream_data(stream, b"after the stop")
            with pytest.raises(wt.WebTransportError, match="not open for sending"):
                await sender.send_stream_data_drained(stream, b"after the stop")
            assert sender.get_tx_data_drain_event(stream).is_set()
            # Nothing is left to reset, and the calls raise no error.
            sender.reset_stream(stream)
            sender.set_stream_priority(stream, 1)
        await server.aclose()

    run_anywhere(main())


def test_a_stop_sets_the_drain_event(run_anywhere, files):
    async def main():
        served = []
        server = await serving(files, served.append)
        async with connecting(files, server) as session:
            stream = await session.create_stream()
            session.send_stream_data(stream, b"x")
            await eventually(lambda: served)
            await accepted(served[0])
            drained = session.get_tx_data_drain_event(stream)
            drained.clear()
            session.set_tx_data_drain_pending(stream)
            served[0].stop_stream(stream)
            await asyncio.wait_for(drained.wait(), 20)
        await server.aclose()

    run_anywhere(main())


def test_queued_items_are_counted_in_bytes(run_anywhere, files):
    async def main():
        go = asyncio.Event()
        handler, tasks = reading(go)
        go.set()
        server = await serving(files, handler)
        async with connecting(files, server) as session:
            stream = await session.create_stream(bidir=False)
            wide = array.array("I", range(10_000))
            session.send_stream_data(stream, memoryview(wide))
            assert session.tx_data_ring_used(stream) == 40_000
            with pytest.raises(ValueError, match="40000 bytes"):
                session.stream_ring_cap = 39_999
                session.send_stream_data(stream, memoryview(wide))
            # A later change does not affect the queued data.
            wide[0] = 1
            await eventually(lambda: session.tx_sent_bytes(stream) == 40_000)
            assert session.tx_data_ring_used(stream) == 0
            session.send_stream_data(stream, b"", end_stream=True)
            await eventually(lambda: tasks)
            assert await tasks[0] == array.array("I", range(10_000)).tobytes()
        await server.aclose()

    run_anywhere(main())
