"""The examples of ``uringcore.quic`` with faulty peers, pages and files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import uringcore
from examples import crawler, game, media_relay
from tests.quic.aioquic_peer import aioquic_asyncio, aioquic_client
from tests.quic.harness import eventually
from tests.quic.native.test_examples import _crawled, _run, _serving, _started
from tests.support.free_ports import free_port
from uringcore import quic
from uringcore.devcert import DevelopmentCertificate


def _listening(pki, alpn):
    identity = (pki.server.certfile, pki.server.keyfile)
    return quic.listen("localhost", 0, certificate=identity, alpn=[alpn])


def _run_limited(main):
    uringcore.run(asyncio.wait_for(main, 60))


# The game --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size_max", [None, 5])
def test_a_player_without_datagrams_does_not_stop_the_game(pki, size_max):
    async def main(port, authority):
        configuration = aioquic_client(
            pki, alpn_protocols=["game"], max_datagram_frame_size=size_max
        )
        configuration.load_verify_locations(authority)
        address = ("localhost", int(port))
        config = quic.ClientConfig(alpn=["game"], authorities=authority)
        async with (
            aioquic_asyncio.connect(*address, configuration=configuration) as strange,
            quic.connect(*address, config) as player,
        ):
            strange._quic.send_datagram_frame(b"\x80\x80")
            strange.transmit()
            await strange.ping()
            # Several messages, so that the other task has had its turn.
            for _ in range(3):
                player.send_datagram(b"\x80\x80")
                assert len(await player.receive_datagram()) % 4 == 0

    with _serving("game", "serve", 0) as server:
        _run_limited(main(*server))


def test_a_world_that_fails_ends_its_server(monkeypatch):
    async def tick(self):
        raise ZeroDivisionError

    monkeypatch.setattr(game.World, "tick", tick)
    with pytest.raises(ZeroDivisionError):
        _run_limited(game.serve(0))


# The crawler ------------------------------------------------------------------------------------------


def test_a_page_that_is_no_html_is_a_broken_one(tmp_path, pki):
    crawled, url = _crawled(tmp_path, pki, "odd")
    first, *broken = crawled.stdout.splitlines()
    assert first.startswith("4 pages, ")
    # The parser's reaction to such a page depends on its version.
    refused = ["/odd", "/odder"] if _is_refused("<![foo[") else []
    assert [line.split(": ")[0] for line in broken] == [f"{url}{path}" for path in refused]
    assert crawled.returncode == bool(refused)


def _is_refused(page):
    try:
        HTMLParser().feed(page)
    except AssertionError:
        return True
    return False


def test_a_worker_that_fails_ends_the_crawl():
    class Failing(crawler.Crawl):
        async def read(self, url):
            raise ZeroDivisionError(url)

    async def main():
        before = asyncio.all_tasks()
        with pytest.raises(ZeroDivisionError):
            await Failing(None, "https://example.org/").run()
        assert asyncio.all_tasks() == before

    _run_limited(main())


# The proxy --------------------------------------------------------------------------------------------


def test_a_client_of_a_missing_server_gets_the_reason(pki):
    async def main(port, authority):
        config = quic.ClientConfig(alpn=["h3"], authorities=authority)
        async with quic.connect("localhost", int(port), config) as client:
            with pytest.raises(quic.ConnectionClosedError) as closed:
                await client.accept_stream()
        assert closed.value.code == 0x102

    upstream = f"*=127.0.0.1:{free_port()}"
    with _serving("http3_proxy", 0, pki.authority.certfile, upstream) as server:
        _run_limited(main(*server))


@contextlib.asynccontextmanager
async def _client_of_proxy(pki):
    """Yields a client of the proxy and the server behind it, which has not accepted a connection yet."""
    async with _listening(pki, "h3") as upstream:
        where = f"*=localhost:{upstream.address[1]}"
        with _serving("http3_proxy", 0, pki.authority.certfile, where) as (port, authority):
            config = quic.ClientConfig(alpn=["h3"], authorities=authority)
            async with quic.connect("localhost", int(port), config) as client:
                yield client, upstream


def test_a_stop_of_a_silent_stream_reaches_the_server(pki):
    async def main():
        async with (
            _client_of_proxy(pki) as (client, upstream),
            client.open_stream() as here,
            await upstream.accept() as server,
        ):
            await here.send(b"question")
            there = await server.accept_stream()
            await there.send(b"answer")
            assert await here.readexactly(6) == b"answer"
            here.stop(7)
            with pytest.raises(quic.StreamStoppedError) as stopped:
                await there.wait_finished()
            assert stopped.value.code == 7
            # The other direction continues to its own end.
            await here.finish()
            assert await there.read() == b"question"

    _run_limited(main())


def test_an_error_of_one_side_reaches_the_other(pki):
    async def main():
        async with (
            _client_of_proxy(pki) as (client, upstream),
            await upstream.accept() as server,
        ):
            server.close(0x107, "a flood")
            with pytest.raises(quic.ConnectionClosedError) as closed:
                await client.accept_stream()
            assert (closed.value.code, closed.value.reason) == (0x107, "a flood")

    _run_limited(main())


# The chat ---------------------------------------------------------------------------------------------


def test_a_member_whose_messages_are_not_read_gets_an_error(pki):
    async def main():
        async with _listening(pki, "chat") as listener:
            port, authority = listener.address[1], pki.authority.certfile
            with _started("chat", "join", "localhost", port, "ann", authority) as process:
                async with await listener.accept() as member, await member.accept_stream() as line:
                    assert await line.readuntil() == b"ann\n"
                    line.stop(3)

                    def has_ended():
                        with contextlib.suppress(BrokenPipeError):
                            process.stdin.write("hello?\n")
                            process.stdin.flush()
                        return process.poll() is not None

                    await eventually(has_ended)
                said = process.stderr.read()
                assert process.returncode == 1
                assert "has stopped it" in said and "Traceback" not in said

    _run_limited(main())


def test_a_terminal_stays_as_it_is():
    here, its = os.openpty()
    with (
        os.fdopen(here, "rb", buffering=0) as terminal,
        _serving("chat", "serve", 0, status=130) as (port, authority),
    ):
        arguments = ("join", "localhost", port, "ann", authority)
        with _started("chat", *arguments, stdin=its, stdout=its) as process:
            # From here on, only the process holds the other end of the terminal.
            os.close(its)
            assert terminal.readline() == b"* ann is here\r\n"
            os.write(here, b"hello\n")
            # The line appears twice: as the terminal's echo and as the chat's message.
            heard = {terminal.readline(), terminal.readline()}
            assert heard == {b"hello\r\n", b"ann: hello\r\n"}
            for descriptor in (0, 1):
                known = Path(f"/proc/{process.pid}/fdinfo/{descriptor}").read_text()
                assert not int(re.search(r"flags:\s+(\d+)", known)[1], 8) & os.O_NONBLOCK
            os.write(here, b"\x04")
            assert process.wait(60) == 0, process.stderr.read()


# Files ------------------------------------------------------------------------------------------------


def test_a_file_that_ends_too_early_is_not_taken_for_whole(pki, tmp_path):
    async def main():
        async with _listening(pki, "file-transfer") as listener:
            port, authority = listener.address[1], pki.authority.certfile
            with _started(
                "file_transfer", "get", "localhost", port, "name", authority, tmp_path
            ) as process:
                async with (
                    await listener.accept() as client,
                    await client.accept_stream() as stream,
                ):
                    await stream.send(b"100\nthis is all")
                    await stream.finish()
                    await client.wait_closed()
                await eventually(lambda: process.poll() is not None)
                said = process.stderr.read()
                assert process.returncode == 1
                assert "11 of 100 bytes; what has come is kept" in said
        assert (tmp_path / "name.part").read_bytes() == b"this is all"
        assert not (tmp_path / "name").exists()

    _run_limited(main())


def test_a_server_that_fails_to_start_keeps_no_certificate(tmp_path):
    async def main():
        identity = DevelopmentCertificate.make().write(tmp_path)
        async with quic.listen("::", 0, certificate=identity, alpn=["other"]) as other:
            served = await asyncio.to_thread(
                _run, "file_transfer", "serve", tmp_path, other.address[1]
            )
            assert served.returncode == 1
            assert "kept" not in served.stderr and served.stderr.strip()

    _run_limited(main())


# Media ------------------------------------------------------------------------------------------------


def test_groups_of_one_number_are_let_go_one_by_one():
    class Session:
        """Opens a stream when the test sets the gate; the subscriber then stops the stream."""

        def __init__(self):
            self.gates = []

        @contextlib.asynccontextmanager
        async def open_uni_stream(self):
            self.gates.append(asyncio.Event())
            await self.gates[-1].wait()
            raise quic.StreamStoppedError(3, 0)
            yield

    async def main():
        session = Session()
        subscriber = media_relay.Subscriber(session)
        before = len(asyncio.all_tasks())
        for _ in range(2):
            subscriber.begin(media_relay.Group(1, 5))
        await eventually(lambda: len(session.gates) == 2)
        session.gates[0].set()
        await eventually(lambda: len(asyncio.all_tasks()) == before + 1)
        # The second group is still queued and can be dropped.
        subscriber.begin(media_relay.Group(1, 9))
        assert subscriber.dropped == 1
        # The dropped group has not ended yet and does not count twice.
        subscriber.begin(media_relay.Group(1, 10))
        assert subscriber.dropped == 1

    _run_limited(main())
