"""Sessions in events, in aiopquic's names."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.harness import eventually
from uringcore.quic.configuration import QuicConfiguration
from uringcore.webtransport import WebTransportRefused
from uringcore.webtransport import events as wt


@pytest.fixture
def files(certificate, tmp_path):
    return certificate.write(tmp_path)


def serving(files, handler, **options):
    cert, key = files
    return wt.serve_webtransport(
        "127.0.0.1", 0, "/wt", handler=handler, cert_file=cert, key_file=key, **options
    )


async def echo(session):
    running = set()

    async def back(stream):
        async for event in session.receive_stream_data(stream):
            if isinstance(event, wt.WebTransportStreamDataReceived):
                await session.send_stream_data_drained(stream, event.data, event.end_stream)

    async for event in session.events():
        if isinstance(event, wt.WebTransportNewStream):
            task = asyncio.ensure_future(back(event.stream_id))
            running.add(task)
            task.add_done_callback(running.discard)
        elif isinstance(event, wt.WebTransportDatagramReceived):
            assert session.send_datagram_frame(event.data) == len(event.data)


async def read_all(session, stream):
    return b"".join([bytes(event.data) async for event in session.receive_stream_data(stream)])


async def next_of(events, kind):
    async for event in events:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__}")


def test_events_of_a_session(run_anywhere, files):
    async def main():
        server = await serving(files, echo, wt_supported_protocols=["moq"])
        options = {"ca_file": files[0], "wt_available_protocols": ["x", "moq"]}
        async with wt.connect_webtransport(
            "127.0.0.1", server.address[1], "/wt", **options
        ) as session:
            assert session.is_client
            assert session.negotiated_protocol == "moq"
            events = session.events()
            assert session.session_ready is True
            assert session.session_closed is False
            assert session.local_address()[1] != session.peer_address()[1]
            stream = await session.create_stream()
            session.send_stream_data(stream, b"one ")
            session.send_stream_data(stream, b"two", end_stream=True)
            assert await read_all(session, stream) == b"one two"
            session.send_datagram_frame(b"datagram")
            event = await next_of(events, wt.WebTransportDatagramReceived)
            assert event.data == b"datagram"
            server.close(9, "enough")
            event = await next_of(events, wt.WebTransportSessionClosed)
            assert (event.error_code, event.reason) == (9, b"enough")
            assert session.session_closed is True
            assert session.local_address() is None
            with pytest.raises(wt.WebTransportError):
                session.send_datagram_frame(b"x")
        await server.wait_closed()

    run_anywhere(main())


def test_the_peers_doing_is_told(run_anywhere, files):
    async def main():
        async def handler(session):
            stream = await session.create_stream(bidir=True)
            await session.send_stream_data_drained(stream, b"x")
            # A reset takes back what has not arrived.
            await anext(session.receive_stream_data(stream))
            session.reset_stream(stream, 3)
            session.stop_stream(stream, 4)
            session.drain()
            assert session.is_draining
            await session.wait_closed()

        server = await serving(files, handler)
        options = {"ca_file": files[0]}
        async with wt.connect_webtransport(
            "127.0.0.1", server.address[1], "/wt", **options
        ) as session:
            events = session.events()
            stream = (await next_of(events, wt.WebTransportNewStream)).stream_id
            session.send_stream_data(stream, b"it is here")
            *data, reset = [one async for one in session.receive_stream_data(stream)]
            assert b"".join(bytes(one.data) for one in data) == b"x"
            assert reset == wt.WebTransportStreamReset(stream, 3)
            seen = []
            while len(seen) < 2:
                seen.append(await anext(events))
            assert wt.WebTransportSessionDraining() in seen
            assert wt.WebTransportStopSending(stream, 4) in seen
            # Of what is over nothing is asked any more.
            await eventually(lambda: not session._streams._streams)
            with pytest.raises(wt.WebTransportError, match="or no more"):
                session.send_stream_data(stream, b"x")
            session.reset_stream(stream)
            session.stop_stream(stream)
        await server.aclose()

    run_anywhere(main())


def test_a_plain_function_keeps_the_session_that_a_factory_has_made(run_anywhere, files):
    class Own(wt.WebTransportServerSession):
        def __init__(self, transport, state):
            super().__init__(transport, state)
            self.own = True

    async def main():
        served = []
        server = await serving(files, served.append, session_factory=Own)
        async with wt.connect_webtransport(
            "127.0.0.1", server.address[1], "/wt", ca_file=files[0]
        ) as session:
            await eventually(lambda: served)
            assert served[0].own
            assert served[0].local_address() == server.address
            stream = await served[0].create_stream(bidir=False)
            served[0].send_stream_data(stream, b"later", end_stream=True)
            assert await read_all(session, stream_of(await anext(session.events()))) == b"later"
            await server.aclose()
            await session.wait_closed(5)
            assert session.session_closed

    run_anywhere(main())


def stream_of(event):
    assert isinstance(event, wt.WebTransportNewStream)
    return event.stream_id


def test_what_is_queued_has_a_bound(run_anywhere, files):
    async def main():
        served = []
        server = await serving(files, served.append)
        async with wt.connect_webtransport(
            "127.0.0.1", server.address[1], "/wt", ca_file=files[0]
        ) as session:
            session.stream_ring_cap = 1 << 20
            stream = await session.create_stream()
            with pytest.raises(ValueError, match="stream_ring_cap"):
                session.send_stream_data(stream, bytes((1 << 20) + 1))
            queued = 0
            with pytest.raises(BufferError):
                while queued < 100 << 20:
                    session.send_stream_data(stream, bytes(1 << 18))
                    queued += 1 << 18
                    await asyncio.sleep(0.01)
            assert 0 < session.tx_data_ring_used(stream) <= 1 << 20
            drained = session.get_tx_data_drain_event(stream)
            drained.clear()
            await eventually(lambda: served)
            reading = asyncio.ensure_future(read_all(served[0], await accepted(served[0])))
            await drained.wait()
            await session.send_stream_data_drained(stream, b"end", end_stream=True)
            assert len(await reading) == queued + 3
        await server.aclose()

    run_anywhere(main())


async def accepted(session):
    return (await next_of(session.events(), wt.WebTransportNewStream)).stream_id


def test_priorities_are_aiopquics(run_anywhere, files):
    async def main():
        server = await serving(files, echo)
        async with wt.connect_webtransport(
            "127.0.0.1", server.address[1], "/wt", ca_file=files[0]
        ) as session:
            stream = await session.create_stream()
            assert [session.set_stream_priority(stream, one) for one in (0, 9, 255)] == [0, 0, 0]
            with pytest.raises(ValueError, match="priority"):
                session.set_stream_priority(stream, 256)
        await server.aclose()

    run_anywhere(main())


def test_a_configuration_is_honoured_or_refused(run_anywhere, files):
    async def main():
        configuration = QuicConfiguration(is_client=False, max_streams_bidi=1)
        server = await serving(files, echo, configuration=configuration)
        client = QuicConfiguration(cafile=files[0])
        async with wt.connect_webtransport(
            "127.0.0.1", server.address[1], "/wt", configuration=client
        ) as session:
            await session.create_stream()
            with pytest.raises(TimeoutError):
                await session.create_stream(timeout=0.1)
        await server.aclose()
        client.initial_rtt = 0.5
        with pytest.raises(ValueError, match="configuration: initial_rtt"):
            async with wt.connect_webtransport("127.0.0.1", 1, "/", configuration=client):
                raise AssertionError("it was not refused")
        for name in ("transport", "web_folder"):
            with pytest.raises(ValueError, match=name):
                await serving(files, echo, **{name: "x"})

    run_anywhere(main())


def test_streams_that_are_over_are_let_go(run_anywhere, files):
    async def main():
        served = []

        async def handler(session):
            served.append(session)
            await echo(session)

        server = await serving(files, handler)
        async with wt.connect_webtransport(
            "127.0.0.1", server.address[1], "/wt", ca_file=files[0]
        ) as session:
            for _ in range(200):
                stream = await session.create_stream()
                session.send_stream_data(stream, b"x")
                session.send_stream_data(stream, b"y", end_stream=True)
                assert await read_all(session, stream) == b"xy"
            for side in (session, served[0]):
                await eventually(
                    lambda side=side: not side._streams._streams and not side._outboxes
                )
        server.close()
        await server.wait_closed()

    run_anywhere(main())


def test_a_session_whose_events_nobody_asks_for_leaves_no_task(run_anywhere, files):
    async def main():
        served = []

        async def handler(session):
            served.append(session)
            await session.wait_closed()

        server = await serving(files, handler)
        before = asyncio.all_tasks()
        async with wt.connect_webtransport(
            "127.0.0.1", server.address[1], "/wt", ca_file=files[0]
        ) as session:
            for number in range(wt.EVENTS_MAX):
                stream = await session.create_stream()
                await session.send_stream_data_drained(stream, b"x")
                await eventually(lambda number=number: _told(served) > number)
        await eventually(lambda: asyncio.all_tasks() == before)
        server.close()
        await server.wait_closed()

    run_anywhere(main())


def _told(served):
    return len(served[0]._streams._messages) if served else 0


def test_streams_that_there_are_not(run_anywhere, files):
    async def main():
        server = await serving(files, echo)
        async with wt.connect_webtransport(
            "127.0.0.1", server.address[1], "/wt", ca_file=files[0]
        ) as session:
            for ask in (
                lambda: session.reset_stream(400),
                lambda: session.stop_stream(400),
                lambda: session.set_stream_priority(400, 1),
            ):
                with pytest.raises(ValueError, match="no stream 400"):
                    ask()
            with pytest.raises(wt.WebTransportError, match="no stream 400"):
                await session.send_stream_data_drained(400, b"x")
        server.close()
        await server.wait_closed()

    run_anywhere(main())


def test_another_path_is_refused(run_anywhere, files):
    async def main():
        server = await serving(files, echo)
        with pytest.raises(wt.WebTransportError) as refused:
            async with wt.connect_webtransport(
                "127.0.0.1", server.address[1], "/other", ca_file=files[0]
            ):
                raise AssertionError("it was not refused")
        assert isinstance(refused.value.__cause__, WebTransportRefused)
        server.close()
        await server.wait_closed()

    run_anywhere(main())
