"""Clients hostile with request bodies: without an end, without a beginning, byte by byte."""

import asyncio
import contextlib
import json

import pytest

from tests.http import http3_bytes
from tests.http.hostile.attacked_server import BODY_TIMEOUT, MIB, attacked_server, run
from tests.http.raw_client import connect_raw, needs_recent_aioquic
from uringcore.h3.connection import ErrorCode

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input, needs_recent_aioquic]

PART = bytes(60_000)


async def pour(raw, stream_id, size=1 << 40):
    """Sends a body without end, as far as the server gives credit."""
    sent = 0
    while sent < size:
        stream = raw.quic._streams.get(stream_id)
        if stream is None or raw.incoming(stream_id).over:
            return
        if len(stream.sender._buffer) < 4 * len(PART):
            raw.write(stream_id, http3_bytes.frame(http3_bytes.DATA, PART))
            sent += len(PART)
        await asyncio.sleep(0.001)


def test_unread_bodies_take_the_granted_credit(besiege):
    server = besiege()

    async def attack():
        # A connection's credit is 8 MiB.
        async with (
            attacked_server(server, memory_mib=32) as attacked,
            contextlib.AsyncExitStack() as stack,
        ):
            pours = []
            for _ in range(2):
                raw = await stack.enter_async_context(connect_raw(server))
                raw.control()
                for _ in range(16):
                    stream_id = raw.bidi(http3_bytes.request("/hang", method="POST"))
                    pours.append(asyncio.ensure_future(pour(raw, stream_id)))
            await attacked.wait_state("hang", running=32)
            for _ in range(5):
                await asyncio.sleep(0.3)
                await attacked.others_served()
            for task in pours:
                task.cancel()

    run(attack())


def test_a_body_without_end_that_is_read_takes_little(besiege):
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=24) as attacked, connect_raw(server) as raw:
            raw.control()
            stream_id = raw.bidi(http3_bytes.request("/upload", method="POST"))
            await pour(raw, stream_id, 24 * MIB)
            await attacked.others_served()
            raw.write(stream_id, b"", fin=True)
            assert json.loads((await raw.wait_answer(stream_id)).body)["bytes"] >= 24 * MIB

    run(attack())


def test_a_body_that_does_not_come_is_waited_for_so_long(besiege):
    """The server sends 408 to a client that can still receive it, and ends the stream."""
    server = besiege(BODY_TIMEOUT, "1")

    async def attack():
        async with attacked_server(server, memory_mib=8) as attacked, connect_raw(server) as raw:
            raw.control()
            pings = asyncio.ensure_future(raw.keep_alive())
            head = http3_bytes.request("/upload", method="POST")
            bodies = (
                b"",
                http3_bytes.varints(http3_bytes.DATA, 1000),
                http3_bytes.frame(http3_bytes.DATA, b"some"),
            )
            held = [raw.bidi(head + body) for body in bodies * 30]
            for stream_id in held:
                stream = await raw.wait_over(stream_id)
                await raw.wait(lambda stream=stream: stream.codes)
                # RFC 9114 section 4.1: the response is complete, and the server needs no more of
                # the request.
                assert stream.codes == {ErrorCode.H3_NO_ERROR}
                if stream.reset is None:
                    assert raw.answer(stream_id).status == 408
            found = await attacked.wait_state("upload", running=0)
            assert found["disconnects"] == len(held)
            # The connection still works.
            assert (await raw.wait_answer(raw.request())).status == 200
            await attacked.others_served()
            pings.cancel()

    run(attack())


def test_a_body_drop_by_drop_is_a_body(besiege):
    """A slow client's body, in frames of ten bytes: it takes longer than the time-out, and never
    pauses.
    """
    server = besiege(BODY_TIMEOUT, "5")

    async def attack():
        async with attacked_server(server, memory_mib=24) as attacked, connect_raw(server) as raw:
            raw.control()
            held = [raw.bidi(http3_bytes.request("/upload", method="POST")) for _ in range(64)]
            # Longer than the time-out in total.
            for _ in range(30):
                for stream_id in held:
                    raw.quic.send_stream_data(
                        stream_id, http3_bytes.frame(http3_bytes.DATA, b"0123456789") * 30
                    )
                raw.transmit()
                await asyncio.sleep(0.2)
            await attacked.others_served()
            for stream_id in held:
                raw.write(stream_id, b"", fin=True)
            for stream_id in held:
                assert json.loads((await raw.wait_answer(stream_id)).body)["bytes"] == 9000

    run(attack())


def test_a_body_that_trickles_is_given_up(besiege):
    """An occasional byte does not keep a request open for ever."""
    server = besiege(BODY_TIMEOUT, "1")

    async def attack():
        async with attacked_server(server, memory_mib=8) as attacked, connect_raw(server) as raw:
            raw.control()
            held = [raw.bidi(http3_bytes.request("/upload", method="POST")) for _ in range(64)]
            open_streams = set(held)
            while open_streams:
                for stream_id in open_streams:
                    raw.quic.send_stream_data(stream_id, http3_bytes.frame(http3_bytes.DATA, b"x"))
                raw.transmit()
                await asyncio.sleep(0.3)
                open_streams = {one for one in held if not raw.incoming(one).codes}
            for stream_id in held:
                assert raw.incoming(stream_id).codes == {ErrorCode.H3_NO_ERROR}
            await attacked.wait_state("upload", running=0)
            assert (await raw.wait_answer(raw.request())).status == 200

    run(attack())
