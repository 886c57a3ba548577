"""Bodies and headers in their API forms, and responses before the request is complete."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import sys
import traceback

import pytest

from tests.client.scripted_server import BODY, until
from tests.client.test_connection_pool import client_for
from uringcore._time_limit import within
from uringcore.http3 import (
    HTTP3Error,
    InvalidRequestError,
    ReadTimeoutError,
    RequestResetError,
    Timeouts,
    WebSocketClosedError,
)

pytestmark = pytest.mark.either_backend


@pytest.mark.parametrize("code", ["0", "100", "102", "10c", "1234"])
def test_a_response_after_stop_sending_is_read_for_every_code(peer, run, code):
    """RFC 9114 section 4.1: a client must not discard it."""

    async def endless():
        while True:
            yield bytes(10_000)

    async def main():
        async with client_for(peer) as pool:
            for content in (endless(), bytes(10 << 20)):
                response = await pool.request(
                    "POST", peer.url + "/enough", headers={"x-code": code}, content=content
                )
                assert (response.status, response.content) == (200, b"enough")
            assert (await pool.get(peer.url + "/")).content == b"hello"
            assert len(peer.connections) == 1

    run(main())


def test_without_an_answer_behind_stop_sending_the_read_timeout_ends_the_request(peer, run):
    async def endless():
        while True:
            yield bytes(10_000)

    async def main():
        timeouts = Timeouts(read=0.3)
        async with client_for(peer, timeouts=timeouts) as pool:
            with pytest.raises(ReadTimeoutError):
                await pool.request(
                    "POST", peer.url + "/stops", headers={"x-code": "0"}, content=endless()
                )
            with pytest.raises(RequestResetError) as caught:
                await pool.request(
                    "POST", peer.url + "/stops", headers={"x-code": "10b"}, content=endless()
                )
            assert caught.value.retryable

    run(main())


@pytest.mark.parametrize("saying", ["large", "huge"])
def test_a_message_that_is_too_large_closes_with_1009(peer, run, saying):
    async def main():
        async with client_for(peer) as pool:
            async with pool.websocket(f"wss://localhost:{peer.port}/chat") as websocket:
                await websocket.send(saying)
                for _ in range(3):
                    with pytest.raises(WebSocketClosedError) as closed:
                        await websocket.receive()
                    assert closed.value.code == 1009
                    with pytest.raises(WebSocketClosedError):
                        await websocket.send("more")
            assert (await pool.get(peer.url + "/")).content == b"hello"

    run(main())


def test_a_response_that_is_read_after_its_block_raises(peer, run):
    async def main():
        async with client_for(peer) as pool:
            async with pool.stream("GET", peer.url + "/stalls") as response:
                pass
            with pytest.raises(RuntimeError, match="closed"):
                await within(response.read(), 30)
            # The data received until then is available.
            async with pool.stream("GET", peer.url + "/") as response:
                await until(lambda: response._exchange.ended)
            assert await within(response.read(), 30) == b"hello"

    run(main())


def test_a_body_that_was_begun_in_parts_is_not_taken_for_whole(peer, run):
    async def main():
        async with client_for(peer) as pool:
            async with pool.stream("GET", peer.url + "/body") as response:
                async with contextlib.aclosing(response.iter_bytes()) as parts:
                    first = await parts.__anext__()
                with pytest.raises(RuntimeError, match="iter_bytes"):
                    await response.read()
                assert response.content == b""
                rest = b"".join([part async for part in response.iter_bytes()])
                assert first + rest == BODY

    run(main())


def test_a_body_that_was_read_is_read_again(peer, run):
    async def main():
        async with client_for(peer) as pool:
            async with pool.stream("GET", peer.url + "/body") as response:
                assert await response.read() == BODY
                assert await response.read() == BODY
                assert [part async for part in response.iter_bytes()] == [BODY]
            empty = await pool.request("POST", peer.url + "/echo", content=b"")
            assert await empty.read() == b""
            assert [part async for part in empty.iter_bytes()] == []

    run(main())


CONTENTS = {
    "bytes": b"caf\xc3\xa9",
    "bytearray": bytearray(b"caf\xc3\xa9"),
    "memoryview": memoryview(b"_caf\xc3\xa9_")[1:-1],
    "str": "café",
    "list": [b"ca", bytearray(b"f"), memoryview(b"\xc3\xa9")],
    "text in parts": ["caf", "é"],
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_content_of_every_kind(peer, run, kind):
    async def main():
        async with client_for(peer) as pool:
            response = await pool.request("POST", peer.url + "/echo", content=CONTENTS[kind])
            assert response.content == b"caf\xc3\xa9"

    run(main())


def test_content_that_cannot_be_sent_is_named(peer, run):
    async def main():
        async with client_for(peer) as pool:
            for content in (5, [1, 2], [None], object()):
                with pytest.raises(InvalidRequestError, match="content"):
                    await pool.request("POST", peer.url + "/echo", content=content)

    run(main())


class Multi(collections.UserDict):
    def multi_items(self):
        return [("x-many", "1"), ("x-many", "2")]


def fields_of(request):
    return [(name, value) for name, value in request.fields if not name.startswith(b":")]


def test_headers_are_pairs_or_a_mapping():
    from uringcore.http3._request import Request

    url = "https://localhost/"
    expected = [(b"x-one", b"1"), (b"ab", b"c")]
    for headers in (
        {"X-One": "1", b"ab": b"c"},
        [("X-One", "1"), ("ab", "c")],
        collections.OrderedDict([("x-one", b"1"), ("ab", bytearray(b"c"))]),
        (pair for pair in [["x-one", "1"], ("ab", "c")]),
    ):
        assert fields_of(Request.to("GET", url, headers)) == expected
    assert fields_of(Request.to("GET", url, Multi())) == [(b"x-many", b"1"), (b"x-many", b"2")]
    for headers in (["ab", "cd"], [("a",)], [("a", "b", "c")], [("a", 5)], {"a": None}, [b"ab"]):
        with pytest.raises(InvalidRequestError, match="headers"):
            Request.to("GET", url, headers)


@pytest.mark.parametrize("headers", [(), [(":protocol", "websocket")]])
def test_a_tunnel_is_refused_before_there_is_a_connection(headers):
    from uringcore.http3._request import Request

    with pytest.raises(InvalidRequestError, match="CONNECT asks for a tunnel"):
        Request.to("CONNECT", "https://localhost/", headers)


# Content that ends late or never.


def test_a_limit_in_time_lets_a_cancellation_through(run):
    """CPython before 3.12: if `asyncio.wait_for` is cancelled when its result is available, it
    returns the result.
    """

    async def main():
        ready = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(within(ready, 30))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ready.set_result(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await within(asyncio.sleep(0, "done"), 30) == "done"
        with pytest.raises(asyncio.TimeoutError):
            await within(asyncio.sleep(30), 0.01)
        with pytest.raises(ZeroDivisionError):
            await within(failing(), 30)
        assert await within(asyncio.sleep(0, "done"), None) == "done"

    async def failing():
        return 1 / 0

    run(main())


def test_a_limit_in_time_may_be_thrown_away_with_its_loop():
    """The only report is that the program has abandoned its task."""
    kept = []

    async def main():
        kept.append(within(asyncio.sleep(30), 30))
        kept[0].send(None)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    # From CPython 3.12 on it creates no task.
    tasks = asyncio.all_tasks(loop)
    assert len(tasks) == (1 if sys.version_info < (3, 12) else 0)
    loop.close()
    kept.pop().close()
    for inner in tasks:
        assert not inner.done()
        # Like a program that abandons it; asyncio logs the warning.
        inner._log_destroy_pending = False


def frames_of(error):
    return len(traceback.extract_tb(error.__traceback__))


def test_an_exception_that_is_raised_again_and_again_does_not_grow(peer, run):
    async def main():
        async with client_for(peer) as pool:
            lengths = []
            async with pool.websocket(f"wss://localhost:{peer.port}/chat") as websocket:
                await websocket.send("leave")
                for _ in range(5):
                    with pytest.raises(WebSocketClosedError) as closed:
                        await websocket.receive()
                    lengths.append(frames_of(closed.value))
            async with pool.stream("GET", peer.url + "/stalls") as response:
                peer.close_connections()
                with pytest.raises(HTTP3Error):
                    await response.read()
                for _ in range(5):
                    with pytest.raises(HTTP3Error) as failed:
                        await response.read()
                    lengths.append(frames_of(failed.value))
            return lengths

    assert max(run(main())) < 12
