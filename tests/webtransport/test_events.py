"""Sessions in events, in aiopquic's names."""

from __future__ import annotations

import asyncio

import pytest

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
            }
            while not wanted <= {type(event) for event in seen}:
                seen.append(await anext(events))
                if isinstance(seen[-1], wt.WebTransportNewStream):
                    session.send_stream_data(seen[-1].stream_id, b"it is here")
            (reset,) = (one for one in seen if isinstance(one, wt.WebTransportStreamReset))
            assert reset.error_code == 3
            while True:
                session.send_stream_data(reset.stream_id, b"x")
                await asyncio.sleep(0.01)
                stopped = [
                    event
                    for event in list(session._events._queue)
                    if isinstance(event, wt.WebTransportStopSending)
                ]
                if stopped:
                    break
            assert stopped[0].error_code == 4
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
