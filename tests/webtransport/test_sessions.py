"""Sessions from their request to their end, with both roles in one process, on every loop."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.loop.harness import rounds
from tests.quic.harness import eventually, patterned
from tests.webtransport.session_pairs import (
    accepting,
    connecting,
    serving,
    session_pair,
    stream_pair,
    url_of,
)
from uringcore import quic
from uringcore._uringcore import WebTransportLimits
from uringcore.quic import StreamClosedError, StreamResetError, StreamStoppedError
from uringcore.webtransport import (
    SessionClosedError,
    SessionRefusedError,
    WebTransportError,
    connect_webtransport,
)

pytestmark = pytest.mark.either_backend


async def echo(session):
    async for stream in session.streams():
        async with stream:
            await stream.send_all(await stream.read())


def test_a_stream_is_echoed(run_anywhere, certificate):
    async def main():
        async with serving(certificate, handler=echo) as server:
            async with connecting(certificate, server) as session:
                for message in (b"", b"hello", patterned(2_000_000)):
                    async with session.open_stream() as stream:
                        await stream.send_all(message)
                        await stream.finish()
                        assert await stream.read() == message

    run_anywhere(main())


def test_streams_of_both_kinds_are_opened_by_both_sides(run_anywhere, certificate):
    async def main():
        async with session_pair(certificate) as (one, other):
            for here, there in ((one, other), (other, one)):
                async with here.open_uni_stream() as stream:
                    await stream.send(b"one way")
                assert await (await there.accept_uni_stream()).read() == b"one way"
                stream = await here.open_stream()
                await stream.send(b"there")
                answering = await there.accept_stream()
                assert await answering.readexactly(5) == b"there"
                await answering.send(b"and back")
                await answering.finish()
                assert await stream.read() == b"and back"
                assert stream.connection is here

    run_anywhere(main())


def test_a_stream_without_data_is_accepted(run_anywhere, certificate):
    async def main():
        async with session_pair(certificate) as (one, other):
            stream = await one.open_uni_stream()
            await stream.finish()
            assert await (await other.accept_uni_stream()).read() == b""

    run_anywhere(main())


def test_many_streams_at_once(run_anywhere, certificate):
    async def main():
        async def ask(session, number):
            async with session.open_stream() as stream:
                await stream.send(b"%d" % number)
                await stream.finish()
                assert await stream.read() == b"%d" % number

        async with serving(certificate, handler=echo) as server:
            async with connecting(certificate, server) as session:
                await asyncio.gather(*(ask(session, number) for number in range(500)))

    run_anywhere(main())


def test_a_slow_reader_holds_up_the_writer_and_nothing_is_lost(run_anywhere, certificate):
    async def main():
        async with stream_pair(certificate) as (here, there):
            message = patterned(5_000_000)
            sending = asyncio.ensure_future(here.send_all(message))
            done, _ = await asyncio.wait([sending], timeout=0.2)
            assert not done
            got = bytearray(await there.readexactly(1_000_000))
            while len(got) < len(message):
                got += await there.read(100_000)
            assert got == message
            await sending

    run_anywhere(main())


def test_datagrams_go_both_ways_alone_and_in_lists(run_anywhere, certificate):
    async def main():
        async with session_pair(certificate) as (one, other):
            for here, there in ((one, other), (other, one)):
                here.send_datagram(b"alone")
                assert await there.receive_datagram() == b"alone"
                here.send_datagrams([b"%d" % number for number in range(10)])
                got = []
                while len(got) < 10:
                    got += await there.receive_datagrams()
                assert got == [b"%d" % number for number in range(10)]
                size = here.max_datagram_size
                here.send_datagram(bytes(size))
                assert len(await there.receive_datagram()) == size
                with pytest.raises(ValueError, match="1"):
                    here.send_datagram(bytes(here.max_datagram_size + 1))

    run_anywhere(main())


def test_both_sides_have_the_requests_fields(run_anywhere, certificate):
    async def main():
        async with serving(certificate, protocols=["b", "a"]) as server:
            options = {"origin": "https://page.example", "protocols": ["a", "b"]}
            headers = [("X-Token", "secret")]
            connection = connecting(
                certificate, server, "/some/where?x=1", headers=headers, **options
            )
            asking = asyncio.ensure_future(connection)
            request = await anext(server)
            assert request.path == "/some/where?x=1"
            assert request.authority == f"127.0.0.1:{server.address[1]}"
            assert request.origin == "https://page.example"
            assert (b"x-token", b"secret") in list(request.headers)
            assert request.protocols == ("a", "b")
            other = await request.accept(headers=[("x-answer", "yes")])
            one = await asking
            assert one.protocol == other.protocol == "b"
            assert (b"x-answer", b"yes") in list(one.response_headers)
            assert one.path == other.path
            assert one.draft == other.draft
            assert one.peer_address == server.address
            assert other.peer_address[0] == "127.0.0.1"
            assert one.peer_certificate is not None
            assert server.stats()["sessions_open"] == 1
            assert set(one.stats()) == set(other.stats())
            async with one, other:
                pass

    run_anywhere(main())


def test_the_same_code_and_reason_on_both_sides(run_anywhere, certificate):
    async def main():
        for closer in (0, 1):
            async with session_pair(certificate) as pair:
                pair[closer].close(4_000_000_000, "thät's it")
                for session in pair:
                    await session.wait_closed()
                    assert session.is_closed
                    assert session.close_code == 4_000_000_000
                    assert session.close_reason == "thät's it"
                    with pytest.raises(SessionClosedError) as caught:
                        await session.accept_stream()
                    assert (caught.value.code, caught.value.reason) == (4_000_000_000, "thät's it")
                    with pytest.raises(SessionClosedError):
                        await session.open_stream()
                    with pytest.raises(SessionClosedError):
                        session.send_datagram(b"x")
                    session.close(1)
                    assert session.close_code == 4_000_000_000

    run_anywhere(main())


def test_iterations_end_with_a_session_that_is_closed_well(run_anywhere, certificate):
    async def main():
        async with session_pair(certificate) as (one, other):
            tasks = [
                asyncio.ensure_future(_all_of(iterator))
                for iterator in (other.streams(), other.uni_streams(), other.datagrams())
            ]
            await asyncio.sleep(0)
            one.close()
            assert await asyncio.gather(*tasks) == [[], [], []]

    run_anywhere(main())


async def _all_of(iterator):
    return [item async for item in iterator]


def test_a_close_ends_all_waiting_calls(run_anywhere, certificate):
    async def main():
        async with session_pair(certificate) as (one, other):
            here = await one.open_stream()
            await here.send(b"x")
            there = await other.accept_stream()
            await there.readexactly(1)
            unread = await one.open_stream()
            waits = [
                here.read(),
                there.read(),
                unread.send_all(bytes(10_000_000)),
                one.accept_stream(),
                other.accept_uni_stream(),
                other.receive_datagram(),
            ]
            tasks = [asyncio.ensure_future(wait) for wait in waits]
            await rounds(20)
            assert not [task for task in tasks if task.done()]
            one.close(7, "over")
            await asyncio.wait(tasks)
            for task in tasks:
                error = task.exception()
                assert isinstance(error, quic.QuicError), error
            assert tasks[0].exception().code == 7
            assert tasks[3].exception().reason == "over"

    run_anywhere(main())


def test_finished_streams_arrive_before_the_end_of_async_with(run_anywhere, certificate):
    async def main():
        got = []

        async def handler(session):
            async for stream in session.uni_streams():
                got.append(await stream.read())

        async with serving(certificate, handler=handler) as server:
            for _ in range(3):
                async with connecting(certificate, server) as session:
                    async with session.open_uni_stream() as stream:
                        await stream.send_all(patterned(300_000))
        assert got == [patterned(300_000)] * 3

    run_anywhere(main())


def test_codes_of_reset_and_stop_are_the_applications(run_anywhere, certificate):
    async def main():
        async with session_pair(certificate) as (one, other):
            for code in (0, 29, 30, 255, 0xFFFFFFFF):
                stream = await one.open_stream()
                await stream.send(b"x")
                there = await other.accept_stream()
                await there.readexactly(1)
                stream.reset(code)
                with pytest.raises(StreamResetError) as caught:
                    await there.read()
                assert caught.value.code == code
                stream.stop(code)
                with pytest.raises(StreamStoppedError) as stopped:
                    while True:
                        await there.send(b"x")
                        await asyncio.sleep(0)
                assert stopped.value.code == code
                with pytest.raises(StreamClosedError):
                    await stream.send(b"x")
            stream = await one.open_stream()
            with pytest.raises(ValueError, match="32 bits"):
                stream.reset(1 << 32)
            with pytest.raises(ValueError, match="32 bits"):
                one.close(1 << 32)
            with pytest.raises(ValueError, match="1024 bytes"):
                one.close(0, "x" * 1025)

    run_anywhere(main())


def test_draining_reaches_the_other_side(run_anywhere, certificate):
    async def main():
        async with session_pair(certificate) as (one, other):
            assert not other.is_draining
            one.drain()
            await other.wait_draining()
            assert other.is_draining and not one.is_draining
            assert not other.is_closed
            # The peer may start draining as well.
            other.drain()
            await one.wait_draining()
            async with other.open_uni_stream() as stream:
                await stream.send(b"still")
            assert await (await one.accept_uni_stream()).read() == b"still"

    run_anywhere(main())


def test_a_server_that_drains_drains_all_its_sessions(run_anywhere, certificate):
    async def main():
        accepted = []
        async with serving(certificate) as server, accepting(server, accepted):
            async with connecting(certificate, server) as one:
                draining = asyncio.ensure_future(server.drain())
                await one.wait_draining()
                assert not one.is_closed and not draining.done()
                with pytest.raises(quic.QuicConnectionError):
                    await connecting(certificate, server)
                one.close()
                await draining
                assert server.is_closed

    run_anywhere(main())


def test_counters_are_there_when_a_session_is_over(run_anywhere, certificate):
    async def main():
        async with session_pair(certificate) as (one, other):
            stream = await one.open_uni_stream()
            await stream.send(patterned(1_000))
            there = await other.accept_uni_stream()
            assert await there.readexactly(1_000) == patterned(1_000)
            one.close(3)
            await other.wait_closed()
            assert one.stats()["bytes_sent"] == other.stats()["bytes_received"] == 1_000
            assert one.stats()["uni_streams_opened"] == other.stats()["uni_streams_accepted"] == 1
            assert one.stats()["streams_open"] == other.stats()["streams_open"] == 0
        # The counters agree even if the connection ends first.
        async with session_pair(certificate) as (one, other):
            stream = await one.open_uni_stream()
            await stream.send(patterned(1_000))
            there = await other.accept_uni_stream()
            assert await there.readexactly(1_000) == patterned(1_000)
            one._link.quic.close(error_code=1)
            with pytest.raises(quic.QuicError):
                # On other projects' loops this call sends the close.
                one.send_datagram(b"x")
            await one.wait_closed()
            await other.wait_closed()
            assert one.stats()["bytes_sent"] == other.stats()["bytes_received"] == 1_000

    run_anywhere(main())


def test_a_client_leaves_a_server_that_listens_no_more(run_anywhere, certificate, monkeypatch):
    def impatient(config):
        return WebTransportLimits(patience=0.1)

    monkeypatch.setattr("uringcore.webtransport._connect.session_limits", impatient)

    async def main():
        accepted = []
        async with serving(certificate) as server, accepting(server, accepted):
            one = await connecting(certificate, server)
            other = accepted[0]
            # Stop the CONNECT stream, without a close capsule.
            other._link.quic.stop_stream(other.id, 0x100)
            other.send_datagram(b"which sends it")
            await one.wait_closed()
            assert one.close_code is None
            await other.wait_closed()

    run_anywhere(main())


def test_streams_that_are_reset_at_once_are_accepted(run_anywhere, certificate):
    async def main():
        options = {"config": {"max_uni_streams": 8}}
        async with session_pair(certificate, server=options) as (one, other):

            async def reset(count):
                for _ in range(count):
                    (await one.open_uni_stream()).reset(7)

            resetting = asyncio.ensure_future(reset(100))
            for _ in range(100):
                with pytest.raises(StreamResetError) as caught:
                    await (await other.accept_uni_stream()).read()
                assert caught.value.code == 7
            await resetting
            stream = await one.open_uni_stream()
            await stream.send(b"x")
            assert await (await other.accept_uni_stream()).readexactly(1) == b"x"

    run_anywhere(main())


@pytest.mark.parametrize("status", [301, 403, 404, 500])
def test_a_refusal_has_a_status_and_headers(run_anywhere, certificate, status):
    async def main():
        async with serving(certificate) as server:
            asking = asyncio.ensure_future(connecting(certificate, server))
            request = await anext(server)
            request.refuse(status, [("x-why", "because")])
            with pytest.raises(SessionRefusedError) as caught:
                await asking
            assert caught.value.status == status
            assert (b"x-why", b"because") in list(caught.value.headers)
            with pytest.raises(RuntimeError, match="answered"):
                request.refuse()
            with pytest.raises(RuntimeError, match="answered"):
                await request.accept()

    run_anywhere(main())


def test_an_invalid_refusal_leaves_the_request_unanswered(run_anywhere, certificate):
    async def main():
        async with serving(certificate) as server:
            asking = asyncio.ensure_future(connecting(certificate, server))
            request = await anext(server)
            with pytest.raises(ValueError, match="a b"):
                request.refuse(403, [("a b", "")])
            assert not request.is_answered
            request.refuse(404)
            with pytest.raises(SessionRefusedError) as caught:
                await asking
            assert caught.value.status == 404

    run_anywhere(main())


def test_other_paths_and_origins_are_refused(run_anywhere, certificate):
    async def main():
        allowed = {"paths": ["/a", "/b"], "origins": ["https://good.example"]}
        async with serving(certificate, handler=echo, **allowed) as server:
            good = {"origin": "https://good.example"}
            async with connecting(certificate, server, "/a?x=1", **good):
                pass
            for path, origin, status in (
                ("/c", "https://good.example", 404),
                ("/a/", "https://good.example", 404),
                ("/b", "https://bad.example", 403),
                ("/b", None, 403),
            ):
                with pytest.raises(SessionRefusedError) as caught:
                    await connecting(certificate, server, path, origin=origin)
                assert caught.value.status == status
            assert server.stats()["sessions_refused"] == 4
            assert server.stats()["sessions_asked"] == 5

    run_anywhere(main())


def test_a_request_that_is_forgotten_is_refused(run_anywhere, certificate):
    async def main():
        async with serving(certificate) as server:
            asking = asyncio.ensure_future(connecting(certificate, server))
            request = await anext(server)
            del request
            with pytest.raises(SessionRefusedError) as caught:
                await asking
            assert caught.value.status == 500

    run_anywhere(main())


def test_a_client_that_gives_up_is_gone(run_anywhere, certificate):
    async def main():
        async with serving(certificate) as server:
            asking = asyncio.ensure_future(connecting(certificate, server))
            request = await anext(server)
            asking.cancel()
            await asyncio.wait([asking])
            await eventually(lambda: request.is_gone)
            with pytest.raises(WebTransportError):
                await request.accept()

    run_anywhere(main())


def test_a_client_does_not_wait_for_ever(run_anywhere, certificate):
    async def main():
        async with serving(certificate) as server:
            with pytest.raises(TimeoutError):
                await connecting(certificate, server, timeout=0.3)

    run_anywhere(main())


def test_more_requests_than_may_wait_are_refused(run_anywhere, certificate):
    async def main():
        async with serving(certificate, {"backlog": 2}) as server:
            asking = [asyncio.ensure_future(connecting(certificate, server)) for _ in range(4)]
            done, waiting = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            while len(done) < 2:
                more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done |= more
            assert {task.exception().status for task in done} == {503}
            for _ in range(2):
                (await anext(server)).refuse(404)
            await asyncio.wait(waiting)

    run_anywhere(main())


def test_a_handler_that_raises_is_logged_and_closes_its_session(run_anywhere, certificate, caplog):
    async def main():
        async def handler(session):
            await session.accept_stream()
            raise LookupError("of the handler's own")

        async with serving(certificate, handler=handler) as server:
            async with connecting(certificate, server) as session:
                async with session.open_stream() as stream:
                    await stream.send(b"x")
                    await session.wait_closed()
                assert session.close_code == 1

    with caplog.at_level(logging.ERROR, "uringcore.webtransport"):
        run_anywhere(main())
    assert "of the handler's own" in caplog.text


def test_a_session_that_its_client_closes_is_no_fault_of_the_handlers(
    run_anywhere, certificate, caplog
):
    async def main():
        async with serving(certificate, handler=lambda session: session.accept_stream()) as server:
            async with connecting(certificate, server) as session:
                session.close(3)

    run_anywhere(main())
    assert not caplog.records


def test_a_server_that_closes_ends_its_sessions_with_its_code(run_anywhere, certificate):
    async def main():
        accepted = []
        async with serving(certificate) as server, accepting(server, accepted):
            one = await connecting(certificate, server)
            server.close(5, "good night")
            await one.wait_closed()
            assert (one.close_code, one.close_reason) == (5, "good night")
            await server.wait_closed()
            assert accepted[0].is_closed

    run_anywhere(main())


@pytest.mark.parametrize("end", [(1 << 32, ""), (-1, ""), (0, "x" * 1025)])
def test_a_close_with_an_invalid_argument_leaves_the_server_open(run_anywhere, certificate, end):
    async def main():
        async with serving(certificate, handler=echo) as server:
            with pytest.raises(ValueError):
                server.close(*end)
            assert not server.is_closed
            async with connecting(certificate, server):
                pass

    run_anywhere(main())


def test_a_connection_that_is_lost_ends_its_session(run_anywhere, certificate):
    async def main():
        accepted = []
        config = {"idle_timeout": 1.0}
        async with serving(certificate, config) as server, accepting(server, accepted):
            one = await connecting(certificate, server)
            waiting = asyncio.ensure_future(one.accept_stream())
            await asyncio.sleep(0)
            one._link.quic.close(error_code=0x100, reason_phrase="gone")
            await one.wait_closed()
            await accepted[0].wait_closed()
            for session in (one, accepted[0]):
                assert session.close_code is None
                with pytest.raises(quic.QuicError):
                    await session.open_stream()
            await asyncio.wait([waiting])
            assert isinstance(waiting.exception(), quic.QuicConnectionError)

    run_anywhere(main())


def test_each_kind_of_unsuitable_server_has_its_own_error(run_anywhere, certificate):
    async def main():
        identity = (certificate.certificate_pem, certificate.key_pem)
        hashes = {"server_certificate_hashes": [certificate.sha256]}
        async with quic.listen("127.0.0.1", 0, certificate=identity, alpn=["other"]) as listener:
            with pytest.raises(quic.QuicAlpnError):
                await connect_webtransport(url_of(listener), **hashes)
        async with serving(certificate, handler=echo) as server:
            with pytest.raises(quic.QuicCertificateError):
                await connect_webtransport(url_of(server), server_certificate_hashes=[bytes(32)])
            with pytest.raises(quic.QuicCertificateError):
                await connect_webtransport(url_of(server))

    run_anywhere(main())


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/",
        "https:///",
        "localhost:4433",
        "https://a/#b",
        "https://a/ü",
        "https://a:0/",
        "https://a:65536/",
        "https://a:b/",
    ],
)
def test_invalid_urls(url):
    with pytest.raises(ValueError, match="url"):
        connect_webtransport(url)


@pytest.mark.parametrize("overflow", ["oldest", "newest"])
def test_datagram_overflow_chooses_the_dropped_datagrams(run_anywhere, certificate, overflow):
    async def main():
        server = {"config": {"datagram_buffer": 3 * 1032, "datagram_overflow": overflow}}
        async with session_pair(certificate, server=server) as (one, other):
            for number in range(5):
                one.send_datagram(bytes([number]) * 1000)
            await eventually(lambda: other.stats()["datagrams_received"] == 5)
            kept = [data[0] for data in await other.receive_datagrams()]
            assert kept == ([2, 3, 4] if overflow == "oldest" else [0, 1, 2])
            assert other.stats()["datagrams_dropped"] == other.datagrams_dropped == 2

    run_anywhere(main())
