"""The server's sessions: ASGI messages, the scope, frameworks, workers, and the stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import ssl
from pathlib import Path

import fastapi
import pytest

import uringcore
from tests.quic.harness import patterned
from tests.server.conftest import backends, certificate, start
from tests.server.harness import Server
from uringcore.contrib.starlette import add_webtransport_route
from uringcore.quic import ClientConfig, StreamResetError
from uringcore.webtransport import (
    SessionClosedError,
    SessionRefusedError,
    WebTransportError,
    connect_webtransport,
)

__all__ = ["certificate", "start"]

APPLICATION = "tests.webtransport.application:app"


@pytest.fixture(scope="module", params=backends())
def server(request, certificate, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    running = Server(folder, certificate, backend=request.param, app=APPLICATION)
    yield running
    running.kill()
    running.check_log()


def connecting(server, path, **options):
    config = ClientConfig(authorities=server.certificate)
    return connect_webtransport(server.url + path, config, **options)


def test_streams_and_datagrams_go_through_an_application(server):
    async def main():
        async with connecting(server, "/echo", protocols=["a", "b"]) as session:
            assert session.protocol == "b"
            assert (b"x-hello", b"there") in list(session.response_headers)
            for message in (b"", b"hello", patterned(1_000_000)):
                async with session.open_stream() as stream:
                    sending = asyncio.ensure_future(_send(stream, message))
                    assert await stream.read() == message
                    await sending
            async with session.open_uni_stream() as one_way:
                await one_way.send(b"one way")
            assert await (await session.accept_uni_stream()).read() == b"one way"
            session.send_datagram(b"datagram")
            assert await session.receive_datagram() == b"datagram"

    uringcore.run(main())


async def _send(stream, message):
    await stream.send_all(message)
    await stream.finish()


async def _ask(session, message=b"x"):
    async with session.open_stream() as stream:
        await stream.send(message)
        return await stream.read()


def test_the_scope_of_a_session(server):
    async def main():
        path = "/told?a=1&b=%20"
        options = {"protocols": ["one", "two"], "origin": "https://page.example"}
        async with connecting(server, path, headers=[("x-mine", "1")], **options) as session:
            seen = json.loads(await _ask(session))
        assert seen["type"] == "webtransport"
        assert (seen["path"], seen["raw_path"], seen["query"]) == ("/told", "/told", "a=1&b=%20")
        assert (seen["scheme"], seen["http_version"]) == ("https", "3")
        assert seen["client"] == "127.0.0.1"
        assert seen["subprotocols"] == ["one", "two"]
        assert seen["state"] == 42
        assert {"tls", "uringcore.webtransport"} <= set(seen["extensions"])
        assert seen["headers"]["x-mine"] == "1"
        assert seen["headers"]["origin"] == "https://page.example"
        assert seen["headers"]["host"] == f"localhost:{server.port}"

    uringcore.run(main())


@pytest.mark.parametrize(("path", "status"), [("/refused", 418), ("/silent", 500)])
def test_an_application_refuses(server, path, status):
    async def main():
        with pytest.raises(SessionRefusedError) as caught:
            await connecting(server, path)
        assert caught.value.status == status

    uringcore.run(main())


def test_a_failure_closes_the_session_and_is_logged(server):
    async def main():
        async with connecting(server, "/failing") as session:
            with pytest.raises((SessionClosedError, StreamResetError)):
                await _ask(session)
            await session.wait_closed()
            assert session.close_code == 1

    uringcore.run(main())
    server.wait_log("of the application's own")


def test_a_failure_before_the_answer_is_logged_where_the_session_itself_was_wanted(server):
    async def main():
        with pytest.raises(SessionRefusedError) as caught:
            await connecting(server, "/lost")
        assert caught.value.status == 500

    uringcore.run(main())
    server.wait_log("LookupError: /lost")


@pytest.mark.parametrize("path", ["/unanswered", "/late"])
def test_a_client_that_gives_up_before_the_answer_is_no_fault(server, path):
    before = len(server.log())

    async def main():
        asking = asyncio.ensure_future(connecting(server, path))
        await asyncio.to_thread(server.wait_log, f"asked for {path}")
        asking.cancel()
        await asyncio.wait([asking])

    uringcore.run(main())
    server.wait_log(f"heard the end of {path}")
    assert server.get("/").content == b"http"
    log = server.log()[before:]
    assert "ERROR" not in log, log
    assert f"CONNECT {path}" not in log, log


def test_sent_data_arrives_before_a_close(server):
    async def main():
        async with connecting(server, "/closing") as session:
            stream = await session.open_stream()
            await stream.send(b"x")
            assert await stream.readexactly(8) == b"good bye"
            await session.wait_closed()
            assert (session.close_code, session.close_reason) == (77, "said all")

    uringcore.run(main())


def test_resets_are_received_and_sent(server):
    async def main():
        async with connecting(server, "/resets") as session:
            stream = await session.open_stream()
            await stream.send(b"x")
            assert await stream.readexactly(1) == b"x"
            stream.reset(5)
            with pytest.raises(StreamResetError) as caught:
                await stream.read()
            assert caught.value.code == 6

    uringcore.run(main())


def test_a_paused_stream_makes_its_client_wait(server):
    async def main():
        async with connecting(server, "/pausing") as session:
            stream = await session.open_uni_stream()
            sending = asyncio.ensure_future(_send(stream, bytes(8_000_000)))
            count = before = None
            while count is None or count != before:
                before = count
                await asyncio.sleep(0.1)
                count = int(await _answered(session, b"count"))
            assert count < 1_000_000
            assert not sending.done()
            # A late answer may have the old count, and the end is reported only once, by a datagram that may
            # be lost.
            session.send_datagram(b"resume")
            while (said := await _answered(session, b"count")) not in (b"8000000", b"end 8000000"):
                if int(said) == count:
                    session.send_datagram(b"resume")
            await sending

    uringcore.run(asyncio.wait_for(main(), 60))


async def _answered(session, question):
    """Repeats the question until an answer arrives, because a datagram may be lost."""
    while True:
        session.send_datagram(question)
        with contextlib.suppress(asyncio.TimeoutError):
            return await asyncio.wait_for(session.receive_datagram(), 0.5)


def test_an_application_may_have_the_session_itself(server):
    async def main():
        async with connecting(server, "/native") as session:
            async with session.open_stream() as stream:
                await _send(stream, patterned(200_000))
                assert await stream.read() == patterned(200_000)

    uringcore.run(main())


def test_http_is_served_beside_sessions(server):
    async def main():
        async with connecting(server, "/echo") as session:
            async with server.connect() as client:
                assert (await client.request("GET", "/")).content == b"http"
            assert await _ask_and_end(session) == b"x"

    uringcore.run(main())
    with server.http1() as connection:
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"http"


async def _ask_and_end(session):
    async with session.open_stream() as stream:
        await _send(stream, b"x")
        return await stream.read()


def test_many_clients_at_once(server):
    async def client(number):
        async with connecting(server, "/echo") as session:
            message = b"%d" % number
            async with session.open_stream() as stream:
                await _send(stream, message)
                assert await stream.read() == message

    async def main():
        await asyncio.gather(*(client(number) for number in range(50)))

    uringcore.run(main())


def test_an_application_without_support_gets_no_session(start):
    server = start(app="tests.webtransport.application:plain")

    async def main():
        for _ in range(3):
            with pytest.raises(SessionRefusedError) as caught:
                await connecting(server, "/")
            assert caught.value.status == 501

    uringcore.run(main())
    assert server.get("/").content == b"http"
    assert "Traceback" not in server.log()
    assert server.log().count("WebTransport sessions are refused") == 1


def test_sessions_can_be_switched_off(start):
    server = start("--no-http3-webtransport", "--http3-max-sessions", "5", app=APPLICATION)
    said = "--http3-max-sessions does nothing: --no-http3-webtransport accepts no sessions."
    assert said in server.log()

    async def main():
        with pytest.raises(WebTransportError):
            await connecting(server, "/echo")

    uringcore.run(main())


def test_options_limit_the_sessions_and_streams_of_a_client(start):
    limits = ["--http3-max-sessions", "2", "--http3-max-session-streams", "3"]
    server = start(*limits, app=APPLICATION)

    async def main():
        async with connecting(server, "/native") as first:
            async with first.open_session("/native") as second:
                with pytest.raises(WebTransportError, match="accepts no further session"):
                    await first.open_session("/native")
                assert await _ask_and_end(second) == b"x"
            streams = [await first.open_stream() for _ in range(3)]
            fourth = asyncio.ensure_future(first.open_stream())
            done, _ = await asyncio.wait([fourth], timeout=0.1)
            assert not done
            for stream in streams:
                await _send(stream, b"one of three")
                assert await stream.read() == b"one of three"
            await _send(await fourth, b"the fourth")
            assert await (await fourth).read() == b"the fourth"

    uringcore.run(main())
    assert "Traceback" not in server.log()


@pytest.mark.parametrize(("app", "guarded"), [("starlette_app", 404), ("fastapi_app", 407)])
def test_frameworks_have_routes_for_sessions(start, app, guarded):
    server = start(app=f"tests.webtransport.frameworks:{app}")

    async def main():
        async with connecting(server, "/rooms/7?secret=yes") as session:
            session.send_datagram(b"I am")
            assert await session.receive_datagram() == b"I am in 7 at localhost"
        for path in ("/rooms/7", "/rooms/x?secret=yes", "/nowhere"):
            await refused(path, 401 if path == "/rooms/7" else 404)
        # Middleware that was added earlier runs first.
        await refused("/guarded", guarded)

    async def refused(path, status):
        with pytest.raises(SessionRefusedError) as caught:
            await connecting(server, path)
        assert caught.value.status == status

    uringcore.run(main())
    assert server.get("/").content == b"page"
    assert "Traceback" not in server.log()
    # An endpoint that raises before it answers gives status 500.
    uringcore.run(refused("/faulty", 500))
    server.wait_log("LookupError: of the endpoint's own")
    assert "sessions are refused" not in server.log()


def test_a_framework_that_runs_takes_no_first_route():
    started = fastapi.FastAPI()
    started.middleware_stack = started.build_middleware_stack()
    with pytest.raises(RuntimeError, match="middleware"):
        add_webtransport_route(started, "/", None)


def test_workers_serve_sessions(start):
    server = start("--workers", "2", app=APPLICATION)
    server.wait_log(r"(?s)(HTTP/3 running.*){2}")

    async def main():
        pids = set()
        for _ in range(60):
            async with connecting(server, "/told") as session:
                pids.add(json.loads(await _ask(session))["pid"])
            if len(pids) == 2:
                break
        assert len(pids) == 2

    uringcore.run(main())


def test_a_server_that_stops_closes_its_sessions(start):
    server = start(app=APPLICATION)

    async def main():
        async with connecting(server, "/echo") as session:
            assert await _ask_and_end(session) == b"x"
            server.send_signal(signal.SIGTERM)
            await session.wait_closed()
            assert session.close_code == 0

    uringcore.run(main())
    assert server.wait_stopped() == 0
    assert "Traceback" not in server.log()


def test_a_stop_does_not_wait_for_an_application_with_a_pending_request(start):
    server = start(app=APPLICATION)

    async def main():
        asking = asyncio.ensure_future(connecting(server, "/late"))
        await asyncio.to_thread(server.wait_log, "asked for /late")
        server.send_signal(signal.SIGTERM)
        with pytest.raises(SessionRefusedError) as caught:
            await asking
        assert caught.value.status == 503

    uringcore.run(main())
    assert server.wait_stopped() == 0
    assert "Traceback" not in server.log()


def test_a_browsers_hash_is_enough(server):
    der = ssl.PEM_cert_to_DER_cert(Path(server.certificate).read_text())

    async def main():
        import hashlib

        hashes = [hashlib.sha256(der).digest()]
        url = server.url + "/native"
        async with connect_webtransport(url, server_certificate_hashes=hashes) as session:
            assert await _ask_and_end(session) == b"x"

    uringcore.run(main())
