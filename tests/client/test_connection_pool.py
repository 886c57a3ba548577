"""The pool: its choice of a connection for a request, and its limits."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.client.scripted_server import BODY, until
from tests.loop.harness import rounds
from tests.support.free_ports import free_port
from uringcore.http3 import (
    Client,
    ConnectError,
    ConnectTimeoutError,
    HTTP3Error,
    InvalidRequestError,
    Limits,
    PoolTimeoutError,
    ReadTimeoutError,
    Timeouts,
    URLError,
    WriteTimeoutError,
)
from uringcore.quic._errors import QuicCertificateError, QuicConnectionRefusedError

pytestmark = pytest.mark.either_backend


def client_for(peer, **options):
    """Time-outs are off unless a test is about one: the machine may be busy."""
    options.setdefault("timeouts", Timeouts(None, None, None, None))
    return Client(cafile=peer.certificate, **options)


def test_requests_of_an_origin_share_a_connection(peer, run):
    async def main():
        async with client_for(peer) as pool:
            first = await pool.get(peer.url + "/")
            assert (first.status, first.content) == (200, b"hello")
            bodies = [b"%d" % number * 1000 for number in range(20)]
            answers = await asyncio.gather(
                *(pool.request("POST", peer.url + "/echo", content=body) for body in bodies)
            )
            assert [answer.content for answer in answers] == bodies
            assert len(peer.connections) == 1
            # Another host is another origin, even at an equal port.
            await pool.get(f"https://127.0.0.1:{peer.port}/")
            assert len(peer.connections) == 2

    run(main())


def test_methods(peer, run):
    async def main():
        async with client_for(peer, base_url=peer.url) as client:
            for name in ("get", "options", "delete"):
                response = await getattr(client, name)("/repeat")
                assert response.content == name.upper().encode() + b"|/repeat|"
            for name in ("post", "put", "patch"):
                response = await getattr(client, name)("/repeat", content="text")
                assert response.content == name.upper().encode() + b"|/repeat|text"
            assert (await client.head("/nothing")).status == 200
            assert peer.log[-1][1] == "/nothing"

    run(main())


def test_a_base_url_is_the_beginning_of_urls_without_a_scheme(peer, run):
    async def main():
        for base in (peer.url + "/api", peer.url + "/api/"):
            async with client_for(peer, base_url=base) as client:
                for url in ("repeat", "/repeat", "//repeat"):
                    assert (await client.get(url)).content == b"GET|/api/repeat|"
                assert (await client.get(peer.url + "/repeat")).content == b"GET|/repeat|"
        async with client_for(peer, base_url=peer.url) as client:
            async with client.websocket("/chat") as socket:
                await socket.send("hello")
                assert await socket.receive() == "hello"
            with pytest.raises(URLError):
                await client.get("http://localhost/")

    run(main())


@pytest.mark.parametrize("base", ["http://localhost", "/api", "https://h/?a=1", "https://h/#part"])
def test_an_invalid_base_url(base):
    with pytest.raises(URLError):
        Client(base_url=base)


def test_a_clients_headers_give_way_to_those_of_a_request(peer, run):
    async def main():
        async with client_for(peer, headers={"X-One": "1", "X-Two": "2"}) as client:
            url = peer.url + "/repeat"
            assert (await client.get(url)).content == b"GET|/repeat|1|2|"
            headers = [("x-two", "b"), (b"X-Three", b"c")]
            assert (await client.get(url, headers=headers)).content == b"GET|/repeat|1|c|b|"
            assert (await client.get(url, headers=iter(headers))).content == b"GET|/repeat|1|c|b|"

    run(main())
    with pytest.raises(InvalidRequestError):
        Client(headers=["ab"])


def test_streaming_both_ways(peer, run):
    async def parts():
        for start in range(0, len(BODY), 100_000):
            yield BODY[start : start + 100_000]

    async def main():
        async with client_for(peer) as pool:
            async with pool.stream("POST", peer.url + "/echo", content=parts()) as response:
                received = [part async for part in response.iter_bytes()]
            assert b"".join(received) == BODY
            assert len(received) > 1
            async with pool.stream("GET", peer.url + "/body") as response:
                assert await response.read() == BODY
                assert response.trailers == [(b"x-trailer", b"yes")]

    run(main())


def test_a_body_that_raises_ends_the_request_with_that(peer, run):
    async def parts():
        yield b"some"
        raise LookupError("no more")

    async def main():
        async with client_for(peer) as pool:
            with pytest.raises(LookupError, match="no more"):
                await pool.request("POST", peer.url + "/echo", content=parts())
            assert (await pool.get(peer.url + "/")).status == 200
            assert len(peer.connections) == 1

    run(main())


def test_streams_beyond_a_connections_get_another_and_then_wait(peer, run):
    limits = Limits(streams_per_connection=1, connections_per_origin=2)

    async def main():
        async with client_for(peer, limits=limits) as pool:
            url = peer.url + "/gate"
            busy = [asyncio.ensure_future(pool.get(url)) for _ in range(2)]
            await peer.wait_gated(2)
            assert len(peer.connections) == 2
            with pytest.raises(
                PoolTimeoutError, match=r"no stream was free within 0\.05 s"
            ) as raised:
                await pool.request("GET", url, timeouts=Timeouts(pool=0.05))
            assert raised.value.retryable
            later = asyncio.ensure_future(pool.get(peer.url + "/"))
            peer.release()
            assert [(await each).content for each in busy] == [b"released"] * 2
            assert (await later).content == b"hello"
            assert len(peer.connections) == 2

    run(main())


def test_more_requests_than_may_wait_are_refused_at_once(peer, run):
    limits = Limits(streams_per_connection=1, connections_per_origin=1, waiting=1)

    async def main():
        async with client_for(peer, limits=limits) as pool:
            busy = asyncio.ensure_future(pool.get(peer.url + "/gate"))
            await peer.wait_gated(1)
            waiting = asyncio.ensure_future(pool.get(peer.url + "/"))
            await asyncio.sleep(0)
            with pytest.raises(PoolTimeoutError, match="1 requests wait"):
                await pool.get(peer.url + "/")
            peer.release()
            await asyncio.gather(busy, waiting)

    run(main())


def test_an_idle_connection_is_closed_and_the_next_resumes(peer, run):
    async def main():
        async with client_for(peer, limits=Limits(idle_timeout=0.2), early_data=False) as pool:
            first = await pool.get(peer.url + "/")
            assert not first.get_extra_info("session_resumed")
            await until(lambda: not pool._pools)
            second = await pool.get(peer.url + "/")
            assert second.get_extra_info("session_resumed")
            assert len(peer.connections) == 2

    run(main())


def test_an_idle_connection_makes_room_for_another_origin(peer, run):
    async def main():
        async with client_for(peer, limits=Limits(connections=1, idle_timeout=600)) as pool:
            await pool.get(peer.url + "/")
            await pool.get(f"https://127.0.0.1:{peer.port}/")
            await until(lambda: len(pool._pools) == 1)
            # Long before `idle_timeout` has passed, which exceeds the duration of this test.
            busy = asyncio.ensure_future(pool.get(f"https://127.0.0.1:{peer.port}/gate"))
            await peer.wait_gated(1)
            connections = len(peer.connections)
            other = asyncio.ensure_future(pool.get(peer.url + "/"))
            await rounds(20)
            assert not other.done(), "the only connection is in use"
            begun = [one for slots in pool._pools.values() for one in slots.connections]
            assert len(begun) == 1, "no second connection is begun"
            assert len(peer.connections) == connections
            peer.release()
            await busy
            assert (await other).content == b"hello"
            assert len(peer.connections) == connections + 1

    run(main())


def test_a_cancelled_request_frees_its_stream(peer, run):
    limits = Limits(streams_per_connection=1, connections_per_origin=1)

    async def main():
        async with client_for(peer, limits=limits) as pool:
            for _ in range(3):
                task = asyncio.ensure_future(pool.get(peer.url + "/silent"))
                await until(lambda: any(path == "/silent" for _, path in peer.paths))
                peer.log.clear()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            waiting = [asyncio.ensure_future(pool.get(peer.url + "/gate")) for _ in range(3)]
            await peer.wait_gated(1)
            # One request has the stream, one waits, and one is last in the queue.
            waiting[1].cancel()
            peer.release()
            assert (await waiting[0]).content == b"released"
            await peer.wait_gated(1)
            peer.release()
            assert (await waiting[2]).content == b"released"
            assert len(peer.connections) == 1

    run(main())


def test_closing_the_pool_ends_its_requests(peer, run):
    async def main():
        pool = client_for(peer)
        task = asyncio.ensure_future(pool.get(peer.url + "/silent"))
        await until(lambda: peer.log)
        await pool.aclose()
        with pytest.raises(HTTP3Error):
            await task
        with pytest.raises(RuntimeError, match="closed"):
            await pool.get(peer.url + "/")

    run(main())


def test_a_pool_serves_one_loop_after_the_other(peer, run):
    pool = client_for(peer)

    async def main():
        return (await pool.get(peer.url + "/")).content

    assert run(main()) == b"hello"
    assert run(main()) == b"hello"
    assert len(peer.connections) == 2


def test_a_port_without_a_listener(run):
    url = f"https://127.0.0.1:{free_port()}/"

    async def main():
        async with Client() as pool:
            results = await asyncio.gather(
                *(pool.get(url) for _ in range(3)), return_exceptions=True
            )
            assert {type(result) for result in results} == {ConnectError}
            assert all(result.retryable for result in results)
            assert isinstance(results[0].__cause__, QuicConnectionRefusedError)

    run(main())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_server_that_takes_no_requests(peer, run, host):
    """The server completes handshakes and closes: the requests fail, and do not move from one
    connection to the next.
    """
    peer.leaves_at_once = True

    async def main():
        async with client_for(peer) as pool:
            url = f"https://{host}:{peer.port}/"
            for error in await asyncio.gather(
                *(pool.request("POST", url, content=b"x") for _ in range(3)), return_exceptions=True
            ):
                assert isinstance(error, HTTP3Error)
            assert len(peer.connections) < 10

    run(main())


def test_a_certificate_that_is_not_trusted(peer, run):
    async def main():
        async with Client() as pool:
            with pytest.raises(ConnectError, match="certificate") as raised:
                await pool.get(peer.url + "/")
            assert isinstance(raised.value.__cause__, QuicCertificateError)
        async with Client(verify=False) as pool:
            assert (await pool.get(peer.url + "/")).status == 200

    run(main())


def test_invalid_requests_of_the_client(peer, run):
    async def main():
        async with client_for(peer) as pool:
            with pytest.raises(URLError):
                await pool.get("http://localhost/")
            for name, value in (("bad name", "x"), ("x", "a\nb"), ("te", "gzip")):
                with pytest.raises(InvalidRequestError):
                    await pool.get(peer.url + "/", headers=[(name, value)])
            with pytest.raises(InvalidRequestError):
                await pool.request("BAD METHOD", peer.url + "/")
            with pytest.raises(InvalidRequestError, match="host"):
                await pool.get(peer.url + "/", headers=[("host", "a"), ("Host", "b")])
            # A Host field sets the authority of the request.
            asked = await pool.get(peer.url + "/authority", headers=[("Host", "example.org")])
            assert asked.content == b"example.org"

    run(main())


def test_time_to_connect(run):
    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
            async with Client(timeouts=Timeouts(connect=0.1)) as pool:
                with pytest.raises(ConnectTimeoutError, match=r"0\.1 s"):
                    await pool.get(url)
                # A longer time-out applies to its own request only, beside requests with shorter
                # ones.
                patient = pool.request("GET", url, timeouts=Timeouts(connect=0.4))
                results = await asyncio.gather(pool.get(url), patient, return_exceptions=True)
                assert [str(result) for result in results] == [
                    "no connection within 0.1 s",
                    "no connection within 0.4 s",
                ]

    run(main())


def test_time_to_read(peer, run):
    async def main():
        timeouts = Timeouts(connect=None, read=0.2)
        async with client_for(peer, timeouts=timeouts) as pool:
            with pytest.raises(ReadTimeoutError, match=r"nothing for 0\.2 s"):
                await pool.get(peer.url + "/silent")
            # A slow server and a dead one look alike: the next request gets another connection. The
            # time-out is long enough for data that does arrive, on a busy machine too.
            patient = Timeouts(connect=None, read=2.0)
            async with pool.stream("GET", peer.url + "/stalls", timeouts=patient) as response:
                parts = response.iter_bytes()
                assert await parts.__anext__() == b"some"
                with pytest.raises(ReadTimeoutError):
                    await parts.__anext__()
            await pool.request("GET", peer.url + "/", timeouts=patient)
            assert peer.paths == [(0, "/silent"), (1, "/stalls"), (2, "/")]

    run(main())


def test_a_body_that_is_slow_to_come_is_no_slow_server(peer, run):
    async def parts():
        yield b"begin "
        await asyncio.sleep(2.5)
        yield b"end"

    async def main():
        async with client_for(peer, timeouts=Timeouts(connect=None, read=2.0)) as pool:
            response = await pool.request("POST", peer.url + "/echo", content=parts())
            assert response.content == b"begin end"

    run(main())


def test_time_to_write(server, run):
    async def main():
        async with client_for(
            server, timeouts=Timeouts(connect=None, read=None, write=0.3)
        ) as pool:
            with pytest.raises(WriteTimeoutError, match=r"no data for 0\.3 s"):
                await pool.request("POST", server.url + "/hold", content=bytes(64 << 20))
            await pool.get(server.url + "/release")

    run(main())


def test_a_download_goes_no_faster_than_it_is_read(server, run):
    size = 256 << 20

    async def main():
        async with client_for(server) as pool:
            async with pool.stream("GET", f"{server.url}/flood/{size}") as response:
                parts = response.iter_bytes()
                await parts.__anext__()
                received = []
                while len(received) < 4 or received[-1] != received[-4]:
                    await asyncio.sleep(0.1)
                    received.append(response.get_extra_info("stats")["bytes_received"])
                assert received[-1] < size // 4
                await parts.aclose()

    run(main())


def test_a_connection_that_is_waited_on_is_kept_open(server, run_ours):
    async def main():
        async with client_for(server) as pool:
            pool._configuration.idle_timeout = 1.5
            pool._configuration.keep_alive = 0.3
            response = await pool.request("POST", server.url + "/sleep/2.5", content=b"")
            assert response.content == b"first last"

    run_ours(main())


def test_invalid_limits_of_the_client():
    for options in ({"connections": 0}, {"streams_per_connection": 0}, {"waiting": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            Limits(**options)


def test_requests_that_cross_a_graceful_end_are_served(start, run):
    """None of them may be sent again: their content is consumed."""
    server = start("--http3-max-requests-per-connection", "5")

    async def once(number):
        yield b"%d" % number * 1000

    async def main():
        async with Client(cafile=server.certificate, limits=Limits(connections=4)) as pool:
            answers = await asyncio.gather(
                *(
                    pool.request("POST", server.url + "/echo", content=once(number))
                    for number in range(60)
                )
            )
            assert [answer.content for answer in answers] == [
                b"%d" % number * 1000 for number in range(60)
            ]

    run(main())
