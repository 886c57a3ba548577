"""Retries: the requests that are sent again, their connections, and the scope of an error: the
request, or the connection.
"""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.client.scripted_server import Peer, until
from tests.client.test_connection_pool import client_for
from tests.support.free_ports import free_port
from uringcore.http3 import (
    ConnectionLostError,
    Limits,
    MalformedResponseError,
    RequestFailedError,
    RequestResetError,
    Timeouts,
)
from uringcore.http3 import _pooled_connection as pooled
from uringcore.http3._resumption_cache import Route
from uringcore.http3._unpooled_connection import connect
from uringcore.http3._url import parse_url

pytestmark = pytest.mark.either_backend


@pytest.fixture
def others():
    """Servers that a test starts in place of another one."""
    started = []
    yield started
    for other in started:
        other.stop()


@pytest.mark.parametrize("path", ["/rejected-once", "/goaway-once"])
def test_unprocessed_requests_are_sent_again(peer, run, path):
    async def main():
        async with client_for(peer) as pool:
            response = await pool.request("POST", peer.url + path, content=b"body")
            assert response.content == b"body"
            assert peer.paths == [(0, path), (1, path)]
            # The second connection serves all further requests.
            await pool.get(peer.url + "/")
            assert peer.paths[2:] == [(1, "/")]

    run(main())


def test_a_body_that_was_read_is_not_sent_again(peer, run):
    async def parts():
        yield b"once"

    async def main():
        async with client_for(peer) as pool:
            with pytest.raises(RequestResetError, match="H3_REQUEST_REJECTED") as raised:
                await pool.request("POST", peer.url + "/rejected-once", content=parts())
            assert raised.value.retryable

    run(main())


def test_a_second_rejection_raises(peer, run):
    async def main():
        async with client_for(peer) as pool:
            with pytest.raises(RequestResetError, match="H3_REQUEST_REJECTED"):
                await pool.get(peer.url + "/rejected")
            assert peer.paths == [(0, "/rejected"), (1, "/rejected")]

    run(main())


def test_after_a_lost_connection_an_idempotent_request_is_sent_again(peer, run):
    async def main():
        async with client_for(peer) as pool:
            assert (await pool.get(peer.url + "/closed-once")).status == 200
            assert peer.paths == [(0, "/closed-once"), (1, "/closed-once")]

    run(main())


def test_after_a_lost_connection_another_request_is_not(peer, run):
    async def main():
        async with client_for(peer) as pool:
            with pytest.raises(ConnectionLostError, match="enough") as raised:
                await pool.request("POST", peer.url + "/closed-once", content=b"order")
            assert not raised.value.retryable
            assert (await pool.get(peer.url + "/")).status == 200
            assert peer.paths == [(0, "/closed-once"), (1, "/")]

    run(main())


def test_a_connection_that_ended_while_idle_is_not_used(peer, run):
    async def main():
        async with client_for(peer) as pool:
            await pool.get(peer.url + "/")
            peer.close_connections()
            await until(lambda: not pool._pools)
            response = await pool.request("POST", peer.url + "/echo", content=b"body")
            assert response.content == b"body"
            assert peer.paths == [(0, "/"), (1, "/echo")]

    run(main())


def test_a_connection_that_died_while_idle_is_found_out(certificate, run, others, monkeypatch):
    """The server was killed and sent no close; another one has taken its address."""
    monkeypatch.setattr(pooled, "PROBE_AFTER_IDLE_SECONDS", 0.0)
    monkeypatch.setattr(pooled, "SILENCE_SECONDS", 0.2)
    # The port is needed again, and no other process may take it meanwhile.
    dead = Peer(certificate, port=free_port())

    async def main():
        async with client_for(dead) as pool:
            await pool.get(dead.url + "/")
            dead.vanish()
            others.append(Peer(certificate, port=dead.port))
            assert (await pool.get(dead.url + "/")).content == b"hello"
            assert others[0].paths == [(0, "/")]

    run(main())


def test_late_packets_of_a_dead_server_do_not_count_as_a_response(
    certificate, run, others, monkeypatch
):
    """The dead server's last packets are read after the request has begun."""
    monkeypatch.setattr(pooled, "PROBE_AFTER_IDLE_SECONDS", 0.0)
    monkeypatch.setattr(pooled, "SILENCE_SECONDS", 0.2)
    dead = Peer(certificate, port=free_port())

    async def main():
        async with client_for(dead) as pool:
            await pool.get(dead.url + "/")
            # The loop is blocked from here on: the packet waits in its socket.
            dead.speak()
            dead.vanish()
            others.append(Peer(certificate, port=dead.port))
            timeouts = Timeouts(read=10.0)
            answer = await pool.request("GET", dead.url + "/", timeouts=timeouts)
            assert answer.content == b"hello"
            assert others[0].paths == [(0, "/")]

    run(main())


def test_one_dead_connection_is_enough_to_find_out(certificate, run, others, monkeypatch):
    """The idle connections beside it are dead too: the retry uses none of them."""
    # The port is needed again, and no other process may take it meanwhile.
    dead = Peer(certificate, port=free_port())

    async def main():
        limits = Limits(streams_per_connection=1, connections_per_origin=4)
        async with client_for(dead, limits=limits) as pool:
            gated = [asyncio.ensure_future(pool.get(dead.url + "/gate")) for _ in range(3)]
            await dead.wait_gated(3)
            dead.release()
            await asyncio.gather(*gated)
            dead.vanish()
            # Not earlier: on a busy machine a peer may be silent for that long.
            monkeypatch.setattr(pooled, "PROBE_AFTER_IDLE_SECONDS", 0.0)
            monkeypatch.setattr(pooled, "SILENCE_SECONDS", 0.2)
            others.append(Peer(certificate, port=dead.port))
            assert (await pool.get(dead.url + "/")).content == b"hello"

    run(main())


def test_after_a_silence_a_request_that_is_not_repeatable_waits_alone(peer, run, monkeypatch):
    monkeypatch.setattr(pooled, "PROBE_AFTER_IDLE_SECONDS", 0.0)
    monkeypatch.setattr(pooled, "SILENCE_SECONDS", 0.0)

    async def main():
        async with client_for(peer) as pool:
            await pool.get(peer.url + "/")
            slow = asyncio.ensure_future(
                pool.request("POST", peer.url + "/echo", content=b"once only")
            )
            assert (await slow).content == b"once only"
            await pool.get(peer.url + "/")
            # The client doubted the first connection, rightly or not, and may have sent the last
            # request twice.
            assert [path for _, path in peer.paths].count("/echo") == 1

    run(main())


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/upper-case", MalformedResponseError),
        ("/too-short", MalformedResponseError),
        ("/no-status", MalformedResponseError),
        ("/no-response", RequestFailedError),
        ("/reset", RequestResetError),
    ],
)
def test_a_bad_response_fails_its_request_and_no_other(peer, run, path, error):
    async def main():
        async with connect(peer.url, cafile=peer.certificate) as client:
            other = asyncio.ensure_future(client.get("/gate"))
            await peer.wait_gated(1)
            with pytest.raises(error):
                await client.get(path)
            peer.release()
            assert (await other).content == b"released"
            assert (await client.get("/")).content == b"hello"
            assert len(peer.connections) == 1

    run(main())


def test_an_error_of_the_connection_fails_all(peer, run):
    async def main():
        async with connect(peer.url, cafile=peer.certificate) as client:
            other = asyncio.ensure_future(client.get("/gate"))
            await peer.wait_gated(1)
            for failing in (client.get("/data-first"), other, client.get("/")):
                with pytest.raises(
                    ConnectionLostError, match="DATA frame outside of content"
                ) as raised:
                    await failing
            # No byte of the last request was sent.
            assert raised.value.retryable

    run(main())


def test_interim_responses(peer, run):
    async def main():
        interim = []
        async with client_for(peer) as pool:
            response = await pool.request(
                "GET",
                peer.url + "/hints",
                on_interim=lambda status, fields: interim.append((status, fields)),
            )
            assert (response.status, response.content) == (200, b"hinted")
            assert interim == [(103, [(b"link", b"</x>")])]
            with pytest.raises(ZeroDivisionError):
                await pool.request("GET", peer.url + "/hints", on_interim=lambda *_: 1 / 0)
            with pytest.raises(RequestFailedError, match="more than 64 interim"):
                await pool.get(peer.url + "/endless-hints")

    run(main())


# Early data

FORGETFUL = Limits(idle_timeout=0.1)


def test_safe_requests_of_the_next_connection_are_early(peer, run):
    async def main():
        async with client_for(peer, limits=FORGETFUL) as pool:
            assert not (await pool.get(peer.url + "/")).was_early
            await until(lambda: not pool._pools)
            early = asyncio.ensure_future(pool.get(peer.url + "/"))
            posted = asyncio.ensure_future(
                pool.request("POST", peer.url + "/echo", content=b"not early")
            )
            assert (await early).was_early
            assert not (await posted).was_early
            assert (await posted).content == b"not early"
            assert sorted(peer.log) == [(0, "/", False), (1, "/", True), (1, "/echo", False)]

    run(main())


def test_a_request_that_was_too_early_is_sent_again(peer, run):
    async def main():
        async with client_for(peer, limits=FORGETFUL) as pool:
            await pool.get(peer.url + "/")
            await until(lambda: not pool._pools)
            response = await pool.get(peer.url + "/early")
            assert (response.status, response.was_early) == (200, False)
            assert peer.log[1:] == [(1, "/early", True), (1, "/early", False)]

    run(main())


def test_early_data_that_the_server_does_not_take_is_sent_again(peer, run):
    async def main():
        async with client_for(peer, limits=FORGETFUL) as pool:
            await pool.get(peer.url + "/")
            await until(lambda: not pool._pools)
            peer._tickets.clear()
            assert (await pool.get(peer.url + "/")).content == b"hello"

    run(main())


@pytest.mark.parametrize("silent", [True, False])
def test_an_address_that_has_changed_costs_no_request(peer, run, silent):
    """Early data goes to the last connection's address; if it does not respond, the name is looked
    up.
    """

    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            # A port that the kernel did not choose: it may assign a chosen one again after the
            # close.
            other.bind(("127.0.0.1", free_port()))
            address = other.getsockname()
            if not silent:
                other.close()
            async with client_for(peer, limits=FORGETFUL) as pool:
                await pool.get(peer.url + "/")
                await until(lambda: not pool._pools)
                route = Route.direct(parse_url(peer.url)[0])
                pool._resumption_cache.of(route).address = address
                posted = pool.request("POST", peer.url + "/echo", content=b"waits")
                got, posted = await asyncio.gather(pool.get(peer.url + "/"), posted)
                assert (got.content, posted.content) == (b"hello", b"waits")

    run(main())
