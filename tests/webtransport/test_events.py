"""Sessions in events, in aiopquic's names."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.harness import eventually
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
    async for event in session.events():
        if isinstance(event, wt.WebTransportStreamDataReceived):
            await session.send_stream_data_drained(event.stream_id, event.data, event.end_stream)
        elif isinstance(event, wt.WebTransportDatagramReceived):
            session.send_datagram_frame(event.data)


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
            await next_of(events, wt.WebTransportSessionReady)
            stream = await session.create_stream()
            session.send_stream_data(stream, b"one ")
            session.send_stream_data(stream, b"two", end_stream=True)
            data = b""
            while True:
                event = await next_of(events, wt.WebTransportStreamDataReceived)
                assert event.stream_id == stream
                data += event.data
                if event.end_stream:
                    break
            assert data == b"one two"
            session.send_datagram_frame(b"datagram")
            event = await next_of(events, wt.WebTransportDatagramReceived)
            assert event.data == b"datagram"
            server.close(9, "enough")
            event = await next_of(events, wt.WebTransportSessionClosed)
            assert (event.error_code, event.reason) == (9, b"enough")
            assert session.session_closed.is_set()
        await server.wait_closed()

    run_anywhere(main())


def test_the_peers_doing_is_told(run_anywhere, files):
    async def main():
        async def handler(session):
            stream = await session.create_stream(bidir=True)
            await session.send_stream_data_drained(stream, b"x")
            # A reset takes back what has not arrived.
            async for event in session.events():
                if isinstance(event, wt.WebTransportStreamDataReceived):
                    break
            session.reset_stream(stream, 3)
            session.stop_stream(stream, 4)
            session.drain()
            await session.wait_closed()

        server = await serving(files, handler)
        options = {"ca_file": files[0]}
        async with wt.connect_webtransport(
            "127.0.0.1", server.address[1], "/wt", **options
        ) as session:
            events = session.events()
            seen = []
            wanted = {
                wt.WebTransportSessionReady,
                wt.WebTransportNewStream,
                wt.WebTransportStreamDataReceived,
                wt.WebTransportStreamReset,
                wt.WebTransportSessionDraining,
                wt.WebTransportStopSending,
            }
            while not wanted <= {type(event) for event in seen}:
                seen.append(await anext(events))
                if isinstance(seen[-1], wt.WebTransportNewStream):
                    session.send_stream_data(seen[-1].stream_id, b"it is here")
            (reset,) = (one for one in seen if isinstance(one, wt.WebTransportStreamReset))
            assert reset.error_code == 3
            (stop,) = (one for one in seen if isinstance(one, wt.WebTransportStopSending))
            assert (stop.stream_id, stop.error_code) == (reset.stream_id, 4)
            # Of what is over nothing is asked any more.
            session.send_stream_data(stop.stream_id, b"x")
            session.reset_stream(stop.stream_id)
            session.stop_stream(stop.stream_id)
        server.close()
        await server.wait_closed()

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
            events = session.events()
            for _ in range(200):
                stream = await session.create_stream()
                session.send_stream_data(stream, b"x")
                session.send_stream_data(stream, b"y", end_stream=True)
                while not (await next_of(events, wt.WebTransportStreamDataReceived)).end_stream:
                    pass
            for side in (session, served[0]):
                await eventually(lambda side=side: not side._streams._streams and not side._sends)
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
                await eventually(lambda number=number: _received(served) > number)
        await eventually(lambda: asyncio.all_tasks() == before)
        server.close()
        await server.wait_closed()

    run_anywhere(main())


def _received(served):
    return served[0].session.stats()["bytes_received"] if served else 0


def test_streams_that_there_are_not(run_anywhere, files):
    async def main():
        server = await serving(files, echo)
        async with wt.connect_webtransport(
            "127.0.0.1", server.address[1], "/wt", ca_file=files[0]
        ) as session:
            for ask in (
                lambda: session.send_stream_data(400, b"x"),
                lambda: session.reset_stream(400),
                lambda: session.stop_stream(400),
                lambda: session.set_stream_priority(400, 1),
            ):
                with pytest.raises(ValueError, match="no stream 400"):
                    ask()
            with pytest.raises(ValueError, match="no stream 400"):
                await session.send_stream_data_drained(400, b"x")
        server.close()
        await server.wait_closed()

    run_anywhere(main())


def test_another_path_is_refused(run_anywhere, files):
    async def main():
        server = await serving(files, echo)
        with pytest.raises(WebTransportRefused):
            async with wt.connect_webtransport(
                "127.0.0.1", server.address[1], "/other", ca_file=files[0]
            ):
                raise AssertionError("it was not refused")
        server.close()
        await server.wait_closed()

    run_anywhere(main())
