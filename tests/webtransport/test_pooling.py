"""Several sessions on one connection: each ends on its own, and the connection ends with the last."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import ClassVar

import pytest
from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import HeadersReceived, WebTransportStreamDataReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated

import uringcore
from tests.quic.harness import eventually
from tests.quic.native.connection_pairs import cancelled_after
from tests.quic.native.test_garbage_collection import gone
from tests.webtransport.session_pairs import accepting, connecting, serving, session_pair
from tests.webtransport.test_sessions import echo
from uringcore import quic
from uringcore.webtransport import (
    SessionClosedError,
    SessionRefusedError,
    WebTransportError,
    connect_webtransport,
)

pytestmark = pytest.mark.either_backend


@contextlib.asynccontextmanager
async def first_session(certificate, **options):
    """Yields a server, its accepted sessions, and a client's first session with it."""
    accepted = []
    async with serving(certificate, **options) as server, accepting(server, accepted):
        async with connecting(certificate, server, "/first") as first:
            yield server, accepted, first


async def reaches(one, other):
    """Checks that data of one side reaches the other."""
    async with one.open_uni_stream() as stream:
        await stream.send(b"%d" % one.id)
    assert await (await other.accept_uni_stream()).read() == b"%d" % one.id


def test_sessions_share_a_connection_and_nothing_else(run_anywhere, certificate):
    async def main():
        async with first_session(certificate, protocols=["b"]) as (_, accepted, first):
            options = {"origin": "https://page.example", "protocols": ["a", "b"]}
            path = "/second?x=1"
            async with first.open_session(path, headers=[("X-One", "1")], **options) as second:
                there = accepted[1]
                assert (there.path, there.authority) == (path, first.authority)
                assert (there.origin, there.protocol) == ("https://page.example", "b")
                assert (b"x-one", b"1") in list(there.headers)
                assert second.protocol == "b"
                assert there.peer_address == accepted[0].peer_address
                for one, other in zip((first, second), accepted, strict=True):
                    await reaches(one, other)
                    await reaches(other, one)
                    one.send_datagram(b"%d" % one.id)
                    assert await other.receive_datagram() == b"%d" % one.id
                second.close(7, "done")
                await there.wait_closed()
                assert (there.close_code, there.close_reason) == (7, "done")
            await reaches(first, accepted[0])

    run_anywhere(main())


def test_a_connection_ends_with_its_last_session(run_anywhere, certificate):
    async def main():
        accepted = []
        async with serving(certificate) as server, accepting(server, accepted):
            first = await connecting(certificate, server)
            second = await first.open_session()
            first.close()
            await first.wait_closed()
            # Any open session can open further ones, even after the first has closed.
            third = await second.open_session("/third")
            await reaches(third, accepted[2])
            assert len(server._transports) == 1
            second.close()
            third.close()
            await asyncio.gather(second.wait_closed(), third.wait_closed())
            await eventually(lambda: not server._transports)

    run_anywhere(main())


def test_a_thousand_sessions_on_one_connection(certificate):
    async def main():
        async def ask(first, number):
            async with first.open_session(f"/{number}") as session:
                async with session.open_stream() as stream:
                    await stream.send(b"%d" % number)
                    await stream.finish()
                    assert await stream.read() == b"%d" % number
                open_now.append(session)
                if len(open_now) == 1_100:
                    all_open.set()
                await all_open.wait()

        open_now, all_open = [], asyncio.Event()
        async with serving(certificate, handler=echo, max_sessions=1_101) as server:
            async with connecting(certificate, server) as first:
                await asyncio.gather(*(ask(first, number) for number in range(1_100)))
                assert server.stats()["sessions_asked"] == 1_101
                assert len(server._transports) == 1
                await eventually(lambda: server.stats()["sessions_open"] == 1)

    uringcore.run(main())


def test_one_session_too_many_is_rejected(run_anywhere, certificate):
    async def main():
        async with first_session(certificate, max_sessions=2) as (server, accepted, first):
            second = await first.open_session()
            for _ in range(3):
                with pytest.raises(WebTransportError, match="accepts no further session"):
                    await first.open_session()
            # The limit counts the sessions of one connection.
            async with connecting(certificate, server):
                pass
            second.close()
            await accepted[1].wait_closed()
            third = await first.open_session()
            await reaches(third, accepted[-1])
            third.close()

    run_anywhere(main())


@pytest.mark.parametrize("number", [0, -1, 1 << 33])
def test_an_invalid_number_of_sessions(certificate, number):
    with pytest.raises(ValueError, match=f"max_sessions: .*{number}"):
        serving(certificate, max_sessions=number)


def test_a_server_that_goes_away_takes_no_further_sessions(run_anywhere, certificate):
    async def main():
        async with first_session(certificate) as (server, accepted, first):
            draining = asyncio.ensure_future(server.drain())
            await first.wait_draining()
            with pytest.raises(WebTransportError, match="going away"):
                await first.open_session()
            await reaches(first, accepted[0])
            assert not draining.done()
            first.close()
            await draining

    run_anywhere(main())


def test_a_session_that_is_refused_leaves_the_others(run_anywhere, certificate):
    async def main():
        async with serving(certificate, handler=echo, paths=["/"]) as server:
            async with connecting(certificate, server) as first:
                with pytest.raises(SessionRefusedError) as caught:
                    await first.open_session("/nowhere")
                assert caught.value.status == 404
                async with first.open_session() as second, second.open_stream() as stream:
                    await stream.send(b"x")
                    await stream.finish()
                    assert await stream.read() == b"x"
                assert not first.is_closed

    run_anywhere(main())


def test_cancelled_at_any_step_no_session_is_left(run_anywhere, certificate):
    async def main():
        async with first_session(certificate) as (server, accepted, first):
            for turns in range(0, 20, 2):
                session = await cancelled_after(turns, first.open_session())
                if session is not None:
                    session.close()
            async with first.open_session("/last") as last:
                await eventually(lambda: accepted[-1].path == "/last")
                await reaches(last, accepted[-1])
                await eventually(lambda: server.stats()["sessions_open"] == 2)
                await eventually(lambda: len(last._link.connection._sessions) == 2)

    run_anywhere(main())


def test_an_unanswered_session_is_abandoned(run_anywhere, certificate):
    async def main():
        async with serving(certificate) as server:
            asking = asyncio.ensure_future(connecting(certificate, server))
            there = await (await anext(server)).accept()
            async with await asking as first:
                with pytest.raises(TimeoutError):
                    await first.open_session(timeout=0.2)
                await reaches(first, there)

    run_anywhere(main())


def test_invalid_calls_of_open_session(run_anywhere, certificate):
    async def main():
        async with session_pair(certificate) as (one, other):
            with pytest.raises(RuntimeError, match="client"):
                other.open_session()
            for path in ("", "second", "/a b", "/a#b", "/ü", "https://elsewhere.example/"):
                with pytest.raises(ValueError, match="path"):
                    one.open_session(path)
            with pytest.raises(ValueError, match="protocols"):
                one.open_session(protocols="a")
            with pytest.raises(ValueError, match="field name"):
                await one.open_session(headers=[("a b", "c")])
            async with one.open_session() as second:
                one.close(3, "enough")
                with pytest.raises(SessionClosedError, match="enough"):
                    await one.open_session()
                assert not second.is_closed

    run_anywhere(main())


def test_a_connection_that_is_lost_ends_all_its_sessions(run_anywhere, certificate):
    async def main():
        async with first_session(certificate) as (server, accepted, first):
            second = await first.open_session()
            waiting = asyncio.ensure_future(second.accept_stream())
            await asyncio.sleep(0)
            first._link.connection.close(0x100, "gone")
            await asyncio.gather(first.wait_closed(), second.wait_closed())
            with pytest.raises(quic.QuicConnectionError):
                await waiting
            with pytest.raises(quic.QuicConnectionError):
                await first.open_session()
            await asyncio.gather(*(session.wait_closed() for session in accepted))
            await eventually(lambda: not server._transports)

    run_anywhere(main())


def test_forgotten_sessions_end_their_connection(run_anywhere, certificate):
    async def main():
        accepted = []
        async with serving(certificate) as server, accepting(server, accepted):
            first = await connecting(certificate, server)
            second = await first.open_session()
            refs = [weakref.ref(first), weakref.ref(first._link)]
            del first
            await gone(refs)
            await reaches(second, accepted[1])
            refs = [weakref.ref(second), weakref.ref(second._link)]
            del second
            await gone(refs)
            await eventually(lambda: not server._transports)

    run_anywhere(main())


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("number", [0, 2])
def test_few_streams_of_sessions_are_not_http3s(run_anywhere, certificate, side, number):
    """HTTP/3 needs a control stream and two QPACK streams besides them."""

    async def main():
        few = {side: {"config": {"max_streams": number, "max_uni_streams": number}}}
        async with session_pair(certificate, **few) as pair:
            limited, other = pair if side == "client" else pair[::-1]
            for opens, accepts in (
                (lambda: limited.open_stream(), lambda: other.accept_stream()),
                (lambda: limited.open_uni_stream(), lambda: other.accept_uni_stream()),
            ):
                async with opens() as stream:
                    await stream.send(b"x")
                assert await (await accepts()).readexactly(1) == b"x"
            for opens in (other.open_stream, other.open_uni_stream):
                streams = [await opens() for _ in range(number)]
                another = asyncio.ensure_future(opens())
                done, _ = await asyncio.wait([another], timeout=0.05)
                assert not done
                another.cancel()
                await asyncio.wait([another])
                for stream in streams:
                    await stream.send(b"x")

    run_anywhere(main())


class OtherServer(QuicConnectionProtocol):
    """aioquic as a server, which accepts every session and echoes stream data."""

    settings: ClassVar[dict[int, int]] = {}

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = OtherSettings(self._quic, enable_webtransport=True)
        for told in self.http.handle_event(event):
            if isinstance(told, HeadersReceived):
                self.http.send_headers(told.stream_id, [(b":status", b"200")])
            elif isinstance(told, WebTransportStreamDataReceived):
                self._quic.send_stream_data(told.stream_id, told.data, told.stream_ended)
        self.transmit()


class OtherSettings(H3Connection):
    def _get_local_settings(self):
        settings = {8: 1, 0x33: 1}
        settings.update(OtherServer.settings)
        return settings


@pytest.mark.parametrize(
    ("settings", "draft", "most"),
    [
        ({0x2B603742: 1}, "02", None),
        ({0xC671706A: 2}, "07", 2),
        # Without flow control of sessions, the newer drafts allow one session at a time.
        ({0x14E9CD29: 1}, "14", 1),
        ({0x2C7CF000: 1}, "15", 1),
    ],
)
def test_a_servers_settings_limit_the_sessions(
    run_anywhere, certificate, tmp_path, settings, draft, most
):
    async def main():
        OtherServer.settings = settings
        configuration = QuicConfiguration(
            is_client=False, alpn_protocols=["h3"], max_datagram_frame_size=65536
        )
        configuration.load_cert_chain(*certificate.write(tmp_path))
        server = await serve(
            "127.0.0.1", 0, configuration=configuration, create_protocol=OtherServer
        )
        port = server._transport.get_extra_info("sockname")[1]
        hashes = {"server_certificate_hashes": [certificate.sha256]}
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(server.close)
            first = connect_webtransport(f"https://127.0.0.1:{port}/", **hashes)
            sessions = [await stack.enter_async_context(first)]
            assert sessions[0].draft == draft
            for number in range(1, most or 5):
                opening = sessions[0].open_session(f"/{number}")
                sessions.append(await stack.enter_async_context(opening))
            for session in sessions:
                async with session.open_stream() as stream:
                    await stream.send(b"%d" % session.id)
                    await stream.finish()
                    assert await stream.read() == b"%d" % session.id
            if most is not None:
                with pytest.raises(WebTransportError, match=f"accepts {most} session"):
                    await sessions[-1].open_session()

    run_anywhere(main())
