"""A session's events, with aiopquic's names."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from tests.quic.harness import eventually
from tests.webtransport.aiopquic_pairs import connecting, echo, next_of, read_all, serving, staying
from uringcore.contrib import aiopquic as wt
from uringcore.quic.configuration import QuicConfiguration
from uringcore.webtransport import SessionRefusedError

pytestmark = pytest.mark.either_backend


def test_events_of_a_session(run_anywhere, files):
    async def main():
        server = await serving(files, echo, wt_supported_protocols=["moq"])
        async with connecting(files, server, wt_available_protocols=["x", "moq"]) as session:
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


def test_events_of_the_peers_actions(run_anywhere, files):
    async def main():
        async def handler(session):
            stream = await session.create_stream(bidir=True)
            await session.send_stream_data_drained(stream, b"x")
            # A reset discards data that has not arrived, so wait for the data.
            await anext(session.receive_stream_data(stream))
            session.reset_stream(stream, 3)
            session.stop_stream(stream, 4)
            session.drain()
            assert session.is_draining
            await session.wait_closed()

        server = await serving(files, handler)
        async with connecting(files, server) as session:
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
            # Calls on finished streams are ignored or refused.
            await eventually(lambda: not session._streams._streams)
            with pytest.raises(wt.WebTransportError, match="not open for sending"):
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
        async with connecting(files, server) as session:
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


def test_priorities_are_aiopquics(run_anywhere, files):
    async def main():
        server = await serving(files, echo)
        async with connecting(files, server) as session:
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
        async with connecting(files, server) as session:
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


def test_a_session_with_unread_events_leaves_no_task(run_anywhere, files):
    async def main():
        served = []

        async def handler(session):
            served.append(session)
            await session.wait_closed()

        server = await serving(files, handler)
        before = asyncio.all_tasks()
        async with connecting(files, server) as session:
            for number in range(wt._EVENTS_MAX):
                stream = await session.create_stream()
                await session.send_stream_data_drained(stream, b"x")
                await eventually(lambda number=number: _told(served) > number)
        await eventually(lambda: asyncio.all_tasks() == before)
        server.close()
        await server.wait_closed()

    run_anywhere(main())


def _told(served):
    return len(served[0]._streams._messages) if served else 0


def test_unknown_streams(run_anywhere, files):
    async def main():
        server = await serving(files, echo)
        async with connecting(files, server) as session:
            for ask in (
                lambda: session.reset_stream(400),
                lambda: session.stop_stream(400),
                lambda: session.set_stream_priority(400, 1),
            ):
                with pytest.raises(ValueError, match="no stream 400"):
                    ask()
            with pytest.raises(wt.WebTransportError, match="stream 400 is not open"):
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
        assert isinstance(refused.value.__cause__, SessionRefusedError)
        server.close()
        await server.wait_closed()

    run_anywhere(main())


SAID_TOO_LATE = {
    "datagram": lambda session, stream: session.send_datagram_frame(b"x"),
    "stream data": lambda session, stream: session.send_stream_data(stream, b"x"),
    "stream": lambda session, stream: session.create_stream(),
    "priority": lambda session, stream: session.set_stream_priority(stream, 1),
}


@pytest.mark.parametrize("said", SAID_TOO_LATE)
def test_a_client_that_leaves_is_no_fault_of_the_handlers(run_anywhere, files, caplog, said):
    async def main():
        served, heard = [], []

        async def handler(session):
            stream = await session.create_stream()
            served.append(session.session)
            await session.wait_closed()
            # Events from before the end are still delivered.
            async for event in session.events():
                heard.append(event)
                told = SAID_TOO_LATE[said](session, stream)
                await (told or asyncio.sleep(0))

        server = await serving(files, handler)
        async with connecting(files, server) as session:
            await eventually(lambda: served)
            session.send_datagram_frame(b"the last word")
            await eventually(lambda: served[0].stats()["datagrams_received"])
        await server.aclose()
        assert heard == [wt.WebTransportDatagramReceived(b"the last word")]

    run_anywhere(main())
    assert not caplog.records


def test_an_error_of_a_handler_in_an_open_session_is_logged(run_anywhere, files, caplog):
    async def main():
        async def handler(session):
            raise wt.WebTransportError("of the handler's own")

        server = await serving(files, handler)
        async with connecting(files, server) as session:
            event = await next_of(session.events(), wt.WebTransportSessionClosed)
            assert (event.error_code, event.reason) == (1, b"")
        await server.aclose()

    with caplog.at_level(logging.ERROR, "uringcore.webtransport"):
        run_anywhere(main())
    assert "of the handler's own" in caplog.text


def lose_connection(link):
    link.quic.close(error_code=0x102, reason_phrase="a fault of the server's")


def reset_session(link):
    link.quic.reset_stream(link.core.id, 0x10C)


@pytest.mark.parametrize(
    ("lose", "code", "reason"),
    [
        (lose_connection, 0x102, b"a fault of the server's"),
        (reset_session, wt.WT_SESSION_GONE, None),
    ],
)
def test_a_lost_session_is_not_reported_as_closed(run_anywhere, files, lose, code, reason):
    async def main():
        served = []
        server = await serving(files, served.append)
        async with connecting(files, server) as session:
            await eventually(lambda: served)
            lose(served[0].session._link)
            event = await next_of(session.events(), wt.WebTransportSessionClosed)
            assert event.error_code == code
            assert reason in (None, event.reason)
        await server.aclose()

    run_anywhere(main())


def test_a_silent_peer_is_a_lost_session(run_anywhere, files):
    async def main():
        server = await serving(files, staying)
        configuration = QuicConfiguration(cafile=files[0], idle_timeout=0.5)
        async with connecting(files, server, configuration=configuration) as session:
            event = await next_of(session.events(), wt.WebTransportSessionClosed)
            assert event.error_code != 0
        await server.aclose()

    run_anywhere(main())


def test_a_session_that_ends_without_a_close_capsule_is_closed(run_anywhere, files):
    async def main():
        async def handler(session):
            session.close()

        server = await serving(files, handler)
        async with connecting(files, server) as session:
            event = await next_of(session.events(), wt.WebTransportSessionClosed)
            assert (event.error_code, event.reason) == (0, b"")
        await server.aclose()

    run_anywhere(main())


@pytest.mark.parametrize("protocols", ["moq", b"moq"])
def test_one_protocol_instead_of_several_is_refused(run_anywhere, files, protocols):
    async def main():
        with pytest.raises(TypeError, match="wt_supported_protocols"):
            await serving(files, staying, wt_supported_protocols=protocols)
        server = await serving(files, staying)
        with pytest.raises(TypeError, match="wt_available_protocols"):
            async with connecting(files, server, wt_available_protocols=protocols):
                raise AssertionError("it was not refused")
        await server.aclose()

    run_anywhere(main())


@pytest.mark.parametrize("path", ["wt", "/w t", "/wt#here", "/ü"])
def test_an_invalid_path_is_refused_by_name(run_anywhere, files, path):
    async def main():
        with pytest.raises(ValueError, match="^path: "):
            await serving(files, staying, path=path)
        server = await serving(files, staying)
        with pytest.raises(ValueError, match="^path: "):
            async with connecting(files, server, path=path):
                raise AssertionError("it was not refused")
        await server.aclose()

    run_anywhere(main())


def test_the_client_chooses_the_query(run_anywhere, files):
    async def main():
        with pytest.raises(ValueError, match="^path: "):
            await serving(files, staying, path="/wt?x")
        served = []
        server = await serving(files, served.append)
        async with connecting(files, server, path="/wt?x"):
            await eventually(lambda: served)
            assert served[0].session.path == "/wt?x"
        await server.aclose()

    run_anywhere(main())


def test_an_empty_path_is_the_root(run_anywhere, files):
    async def main():
        server = await serving(files, staying, path="")
        async with connecting(files, server, path="") as session:
            assert session.session.path == "/"
        await server.aclose()

    run_anywhere(main())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_data", -1),
        ("max_stream_data", -1),
        ("max_streams_bidi", -1),
        ("max_streams_uni", -1),
        ("congestion_control_algorithm", "none"),
        ("secrets_log_file", "no file"),
        ("quic_logger", "no logger"),
        ("send_buffer_high", 0),
        ("idle_timeout", -1.0),
    ],
)
def test_an_invalid_value_is_reported_under_the_programs_name(run_anywhere, files, field, value):
    async def main():
        configuration = QuicConfiguration(**{field: value})
        with pytest.raises(ValueError, match=f"^{field}: "):
            await serving(files, staying, configuration=configuration)
        with pytest.raises(ValueError, match=f"^{field}: "):
            async with wt.connect_webtransport("127.0.0.1", 1, "/", configuration=configuration):
                raise AssertionError("it was not refused")

    run_anywhere(main())


def test_missing_authorities_are_reported_under_their_arguments_name(run_anywhere, tmp_path):
    async def main():
        nowhere = str(tmp_path / "nowhere")
        for name, options in (
            ("cafile", {"configuration": QuicConfiguration(cafile=nowhere)}),
            ("ca_file", {"ca_file": nowhere}),
        ):
            with pytest.raises(ValueError, match=f"^{name}: "):
                async with wt.connect_webtransport("127.0.0.1", 1, "/", **options):
                    raise AssertionError("it was not refused")

    run_anywhere(main())


def test_an_unknown_name_raises_the_resolvers_error(run_anywhere):
    async def main():
        with pytest.raises(socket.gaierror):
            async with wt.connect_webtransport("no.such.name.invalid", 1, "/"):
                raise AssertionError("it was found")

    run_anywhere(main())


def test_clients_of_a_programs_own_making_are_refused():
    class Own(wt.WebTransportClient):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)

    for args, options in (
        ((None, "localhost", 4433, "/wt"), {"sni": "localhost"}),
        ((), {"transport": None, "host": "localhost", "port": 4433, "path": "/wt"}),
    ):
        with pytest.raises(TypeError, match="connect_webtransport"):
            Own(*args, **options)
