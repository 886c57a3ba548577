"""WebSocket over HTTP/3: an ended WebSocket leaves no waiter, and a waiting application piles up no
data.
"""

from __future__ import annotations

import asyncio

import pytest
from websockets.frames import Opcode

from tests.http import http3_bytes
from tests.http.features.websocket_client import Socket, frame, run, wait_events
from tests.http.raw_client import needs_recent_aioquic
from uringcore.h3.connection import ErrorCode

pytestmark = [pytest.mark.either_backend, needs_recent_aioquic]


async def fill(raw, path):
    """Opens a socket whose application waits in `send`: its client never extends the initial
    window.
    """
    raw.quic.grants = False
    socket = Socket(raw, path)
    await socket.wait_answer()
    window = raw.quic._local_max_stream_data_bidi_local
    await raw.wait(lambda: len(socket.stream.data) >= window)
    # At most this much more waits on the server.
    for _ in range(5):
        await raw.wait_answer(raw.request("/scope"))
    return socket


def told(server, name):
    """Returns once the application has received the disconnect."""
    return asyncio.to_thread(wait_events, server, name, 1)


@pytest.mark.parametrize(
    "last",
    [frame(Opcode.CLOSE, b"\x03\xe8"), frame(Opcode.CONT, b"x")],
    ids=["close", "fault"],
)
def test_a_send_that_waits_for_its_client_ends_with_the_connection(server, last, request):
    name = f"waits-{request.node.callspec.id}"

    async def client(raw):
        socket = await fill(raw, f"/sends-for-ever/{name}")
        socket.write(last)
        return await told(server, name)

    assert run(server, client, max_data=1 << 24, max_stream_data=1 << 16) == ["told"]


def test_a_send_that_waits_for_a_deaf_client_ends(start_features):
    server = start_features("--ws-ping-interval", "0.2", "--ws-ping-timeout", "0.5")

    async def client(raw):
        await fill(raw, "/sends-for-ever/deaf")
        return await told(server, "deaf")

    assert run(server, client, max_data=1 << 24, max_stream_data=1 << 16) == ["told"]


def test_data_before_the_handshakes_answer_is_flow_controlled(server):
    async def client(raw):
        socket = Socket(raw, "/accepts-late/before")
        for _ in range(200):
            socket.send(bytes(100_000))
        sender = raw.quic._streams[socket.stream_id].sender
        await raw.wait(lambda: sender.highest_offset >= 1 << 20)
        for _ in range(100):
            assert (await raw.wait_answer(raw.request("/scope"))).status == 200
        assert sender._buffer_start < 4 << 20
        await raw.wait_answer(raw.request("/release/before"))
        socket.close()
        await socket.wait_closed()

    run(server, client)
    assert wait_events(server, "before", 1)[0][:2] == ["bytes", 100_000]


def test_an_error_of_another_sockets_send_is_a_failure(server):
    async def client(raw):
        gone = Socket(raw, "/sends-for-ever/anothers")
        await gone.wait_frames(1)
        raw.give_up(gone.stream_id, ErrorCode.H3_REQUEST_CANCELLED)
        await told(server, "anothers")
        socket = Socket(raw, "/raises-anothers/here")
        await socket.wait_answer()
        await raw.wait_answer(raw.request("/release/here"))
        return await socket.wait_closed()

    assert run(server, client)[0] == 1011
    server.wait_log("the client has gone")


def test_a_stream_that_ends_with_its_request_is_1006(start_features):
    server = start_features("--ws-ping-interval", "1000")

    async def client(raw):
        version = (b"sec-websocket-version", b"13")
        request = http3_bytes.request("/echo/cut", version, method="CONNECT", protocol="websocket")
        stream_id = raw.bidi(request, fin=True)
        assert (await raw.wait_over(stream_id)).ended
        assert raw.answer(stream_id).status == 200

    run(server, client)
    assert wait_events(server, "cut", 2) == [["connect"], ["disconnect", 1006, ""]]
