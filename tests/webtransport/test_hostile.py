"""A hostile client against a server that must keep nothing: sessions abandoned at every step, stopped
streams, answers that cannot be sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json

import pytest

from tests.http import http3_bytes as http
from tests.http.raw_client import connect_raw, needs_recent_aioquic
from tests.quic.harness import eventually
from tests.server.conftest import backends
from tests.server.conftest import certificate as server_certificate
from tests.server.harness import Server
from tests.webtransport import webtransport_bytes
from tests.webtransport.session_pairs import serving
from uringcore.h3.connection import ErrorCode
from uringcore.webtransport import WebTransportError

__all__ = ["server_certificate"]

pytestmark = needs_recent_aioquic

GIVEN_UP = ErrorCode.H3_REQUEST_CANCELLED


@pytest.fixture(scope="module", params=backends())
def server(request, server_certificate, tmp_path_factory):
    folder, app = tmp_path_factory.mktemp("server"), "tests.webtransport.application:app"
    running = Server(folder, server_certificate, backend=request.param, app=app)
    yield running
    running.kill()
    running.check_log()
    assert "Traceback" not in running.log(), running.log()


def alive(server):
    """Returns the number of sessions and streams in the server's process."""
    return json.loads(server.get("/alive").content)


async def left(server, **wanted):
    """Waits until this many sessions and streams are left in the server's process."""
    for _ in range(200):
        found = await asyncio.to_thread(alive, server)
        if found == wanted:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(found)


def run(main):
    asyncio.run(asyncio.wait_for(main, 100))


@contextlib.asynccontextmanager
async def connecting(server, draft="02", more=None):
    """Opens a connection that supports WebTransport."""
    async with connect_raw(server, max_datagram_frame_size=65536) as raw:
        raw.control({**webtransport_bytes.DRAFTS[draft], **(more or {})})
        await raw.wait_settings()
        yield raw


async def opened(raw, path):
    """Opens a session, and waits until the server has accepted it."""
    session = raw.bidi(webtransport_bytes.asked(path))
    await raw.wait(lambda: raw.answer(session).status == 200)
    return session


# Stages of a session. Each function returns the session's id.


async def asked(raw, path):
    return raw.bidi(webtransport_bytes.asked(path))


async def with_streams(raw, path):
    """A session with streams that are silent, half sent, finished, reset and stopped."""
    session = await opened(raw, path)
    for make, header in ((raw.bidi, webtransport_bytes.bidi), (raw.uni, webtransport_bytes.uni)):
        make(header(session))
        make(header(session, b"half of"))
        make(header(session, b"whole"), fin=True)
        given_up = make(header(session, b"some of"))
        await raw.wait_sent()
        raw.reset(given_up, 7)
    stopped = raw.bidi(webtransport_bytes.bidi(session, b"x"))
    await raw.wait_sent()
    raw.stop(stopped, 7)
    raw.datagram(session, b"x")
    return session


async def with_beginnings(raw, path):
    """A session with streams whose first bytes are incomplete, so that their session is unknown."""
    session = await opened(raw, path)
    raw.bidi(webtransport_bytes.bidi(session)[:1])
    raw.uni(webtransport_bytes.uni(session)[:1])
    return session


async def after_its_streams(raw, path):
    """A session whose streams and datagrams arrive before its request."""
    session = raw.quic.get_next_available_stream_id()
    raw.uni(webtransport_bytes.uni(session, b"early"))
    raw.datagram(session, b"early")
    assert raw.bidi(webtransport_bytes.asked(path)) == session
    return session


STEPS = [asked, opened, with_streams, with_beginnings, after_its_streams]

# Ends of a session.


async def reset(raw, session):
    await raw.wait_sent()
    raw.give_up(session, GIVEN_UP)


async def finished(raw, session):
    raw.write(session, b"", fin=True)


async def closed(raw, session):
    raw.write(session, webtransport_bytes.close(5, b"enough"), fin=True)


async def malformed(raw, session):
    raw.write(session, webtransport_bytes.capsule(webtransport_bytes.CLOSE_SESSION, b"x"), fin=True)


ENDS = [reset, finished, closed, malformed]


@pytest.mark.parametrize("draft", webtransport_bytes.DRAFTS)
def test_sessions_that_end_in_every_state_leave_nothing(server, draft):
    """Streams of an unknown session wait for ten seconds, or for the end of the connection."""

    async def main():
        async with connecting(server, draft) as raw:
            for path, steps in (
                ("/echo", STEPS),
                ("/opening", STEPS),
                ("/unanswered", [asked, after_its_streams]),
            ):
                for step, end in itertools.product(steps, ENDS):
                    await raw.wait_room(10)
                    await end(raw, await step(raw, path))
            await left(server, sessions=0, streams=0)
            assert raw.closed is None, raw.closed

    run(main())


def test_connections_that_end_in_every_state_leave_nothing(server):
    async def main():
        for step, path in itertools.product(STEPS, ("/echo", "/opening")):
            async with connecting(server) as raw:
                await step(raw, path)
        await left(server, sessions=0, streams=0)

    run(main())


def test_sessions_that_are_abandoned_in_the_packet_of_their_request(server):
    async def main():
        async with connecting(server) as raw:
            for path in ["/echo", "/unanswered", "/native"] * 20:
                await _ask_and_stop(raw, path)
            assert await opened(raw, "/echo")
            await left(server, sessions=1, streams=0)

    run(main())


async def _ask_and_stop(raw, path):
    session = raw.quic.get_next_available_stream_id()
    raw.quic.send_stream_data(session, webtransport_bytes.asked(path))
    raw.quic.stop_stream(session, GIVEN_UP)
    raw.transmit()
    assert (await raw.wait_over(session)).reset is not None


def test_several_sessions_that_are_given_up_in_one_packet(run_anywhere, certificate):
    async def main():
        async with serving(certificate) as server:
            server.port = server.address[1]
            async with connecting(server) as raw:
                for _ in range(10):
                    session = raw.quic.get_next_available_stream_id()
                    raw.quic.send_stream_data(session, webtransport_bytes.asked("/"))
                    raw.quic.stop_stream(session, GIVEN_UP)
                raw.transmit()
                await raw.wait_over(session)
                (carrier,) = server._transports
                assert not carrier.sessions
                assert server.stats()["sessions_asked"] == 0

    run_anywhere(main())


def test_a_session_accepted_after_the_drain_gets_the_drain_too(run_anywhere, certificate):
    async def main():
        async with serving(certificate) as server:
            server.port = server.address[1]
            async with connecting(server) as raw:
                session = raw.bidi(webtransport_bytes.asked("/"))
                request = await anext(server)
                draining = asyncio.ensure_future(server.drain())
                accepted = await request.accept()
                drain = http.varints(webtransport_bytes.DRAIN_SESSION, 0)
                await raw.wait(lambda: raw.answer(session).body == drain)
                # Both directions: if only one ends, the server waits for `patience`.
                raw.give_up(session, GIVEN_UP)
                await accepted.wait_closed()
                await draining

    run_anywhere(main())


def test_sessions_abandoned_with_their_request_take_no_place_in_the_backlog(
    run_anywhere, certificate
):
    async def main():
        async with serving(certificate, {"backlog": 3}) as server:
            server.port = server.address[1]
            async with connecting(server) as raw:
                for _ in range(10):
                    await _ask_and_stop(raw, "/")
                (carrier,) = server._transports
                session = raw.bidi(webtransport_bytes.asked("/"))
                request = await anext(server)
                assert server.stats()["sessions_asked"] == 1
                assert carrier.sessions == {request._link}
                request.refuse(404)
                await raw.wait(lambda: raw.answer(session).status == 404)
                await eventually(lambda: not carrier.sessions)

    run_anywhere(main())


def test_streams_that_their_client_stops_are_not_kept(server):
    async def main():
        async with connecting(server) as raw:
            session = await opened(raw, "/opening")
            for _ in range(150):
                await raw.wait_room()
                stream = raw.bidi(webtransport_bytes.bidi(session, b"x"), fin=True)
                await raw.wait_sent()
                raw.stop(stream, 7)
                await raw.wait(lambda stream=stream: raw.incoming(stream).over)
            # The application's own two streams.
            await left(server, sessions=1, streams=2)

    run(main())


@pytest.mark.parametrize("path", ["/refused", "/silent", "/native"])
def test_a_client_that_takes_no_header_fields_is_reset(server, path):
    """RFC 9114 section 4.2.2 lets a client limit the size of header sections."""
    small = {http.MAX_FIELD_SECTION_SIZE: 10}

    async def main():
        async with connecting(server, more=small) as raw:
            session = raw.bidi(webtransport_bytes.asked(path))
            assert (await raw.wait_over(session)).reset is not None
            await left(server, sessions=0, streams=0)

    run(main())


@pytest.mark.parametrize("options", [{"handler": None}, {}, {"paths": ["/other"]}])
def test_a_client_that_takes_no_header_fields_is_reset_by_a_server_of_sessions(
    run_anywhere, certificate, options
):
    async def main():
        kept = {"handler": lambda session: session.wait_closed(), **options}
        async with serving(certificate, **kept) as server:
            server.port = server.address[1]
            async with connecting(server, more={http.MAX_FIELD_SECTION_SIZE: 10}) as raw:
                session = raw.bidi(webtransport_bytes.asked("/"))
                if kept["handler"] is None:
                    with pytest.raises(WebTransportError):
                        await (await anext(server)).accept()
                assert (await raw.wait_over(session)).reset is not None
                (carrier,) = server._transports
                await eventually(lambda: not carrier.sessions and not carrier.leaving)

    run_anywhere(main())
