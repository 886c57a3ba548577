"""WebSocket over HTTP/3 (RFC 9220), against wsproto's frames on aioquic's HTTP/3."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from tests.client.test_connection_pool import client_for
from tests.server.harness import ROOT, environment
from tests.support.child_processes import bound
from tests.support.close_argument_checks import BAD_REASONS, refusal
from tests.support.free_ports import free_port
from uringcore._uringcore import (
    WebSocketFault,
    WebSocketReader,
    websocket_close_frame,
    websocket_frame,
)
from uringcore.http3 import (
    ConnectError,
    ConnectionLostError,
    ReadTimeoutError,
    RequestResetError,
    Timeouts,
    URLError,
    WebSocketClosedError,
    WebSocketRefusedError,
)

pytestmark = pytest.mark.either_backend


def chat(peer):
    return f"wss://localhost:{peer.port}/chat"


def test_messages(peer, run):
    async def main():
        async with client_for(peer) as pool:
            async with pool.websocket(chat(peer), subprotocols=["first", "second"]) as websocket:
                assert websocket.subprotocol == "second"
                for message in ("text", "", "ü" * 200, b"bytes", b"", os.urandom(300_000)):
                    await websocket.send(message)
                    received = await websocket.receive()
                    while len(received) < len(message):
                        received += await websocket.receive()
                    assert received == message
                await websocket.ping(b"x")
                await websocket.send("ping")
                await websocket.send("pieces")
                assert await websocket.receive() == "abc"
            # The connection serves other requests, during and after the WebSocket.
            assert (await pool.get(peer.url + "/")).content == b"hello"
            assert len(peer.connections) == 1

    run(main())


def test_headers_may_be_a_mapping(peer, run):
    async def main():
        async with client_for(peer) as client:
            async with client.websocket(chat(peer), headers={"X-One": "1"}) as websocket:
                await websocket.send("hello")
                assert await websocket.receive() == "hello"

    run(main())


def test_a_close_that_is_refused_closes_nothing(peer, run):
    async def main():
        async with client_for(peer) as pool:
            async with pool.websocket(chat(peer)) as websocket:
                for code in (-1, 999, 1004, 1005, 1006, 1015, 5000, 1 << 16, 1 << 70, None, "1000"):
                    with refusal("code"):
                        await websocket.close(code)
                for reason in BAD_REASONS:
                    with refusal("reason"):
                        await websocket.close(1000, reason)
                await websocket.send("still open")
                assert await websocket.receive() == "still open"
                await websocket.close(4999, "enough")
                with refusal("code"):
                    await websocket.close(-1)

    run(main())


def test_the_server_closes(peer, run):
    async def main():
        async with client_for(peer) as pool:
            async with pool.websocket(chat(peer)) as websocket:
                await websocket.send("one")
                await websocket.send("leave")
                assert [message async for message in websocket] == ["one"]
                with pytest.raises(WebSocketClosedError, match=r"1001 \(bye\)") as raised:
                    await websocket.receive()
                assert (raised.value.code, raised.value.reason) == (1001, "bye")
                with pytest.raises(WebSocketClosedError):
                    await websocket.send("more")

    run(main())


@pytest.mark.parametrize(
    ("word", "error", "said"),
    [
        ("end", WebSocketClosedError, "1006"),
        ("reset", RequestResetError, "H3_INTERNAL_ERROR"),
        ("reserved", WebSocketClosedError, "1002 .*reserved bit"),
        ("large", WebSocketClosedError, "1009 .*too big"),
    ],
)
def test_bad_ends(peer, run, word, error, said):
    async def main():
        async with client_for(peer) as pool:
            async with pool.websocket(chat(peer)) as websocket:
                await websocket.send(word)
                with pytest.raises(error, match=said):
                    async for _ in websocket:
                        raise AssertionError("nothing is said")
            assert (await pool.get(peer.url + "/")).content == b"hello"
            assert len(peer.connections) == 1

    run(main())


def test_messages_are_received_after_the_server_stops_reading(peer, run):
    """STOP_SENDING ends one direction only."""

    async def main():
        async with client_for(peer) as pool:
            async with pool.websocket(chat(peer)) as websocket:
                await websocket.send("full")
                for _ in range(2):
                    with pytest.raises(WebSocketClosedError, match="1006"):
                        while True:
                            await websocket.send("more")
                            await asyncio.sleep(0)
                assert await websocket.receive() == "last"
                for _ in range(2):
                    with pytest.raises(WebSocketClosedError, match=r"1009 \(too big\)"):
                        await websocket.receive()
                with pytest.raises(WebSocketClosedError, match="1009"):
                    await websocket.send("more")
            assert (await pool.get(peer.url + "/")).content == b"hello"

    run(main())


def test_a_program_that_raises_leaves_no_stream_behind(peer, run):
    async def main():
        async with client_for(peer) as pool:
            with pytest.raises(LookupError):
                async with pool.websocket(chat(peer)):
                    raise LookupError
            (line,) = pool._pools.values()
            assert [one.streams for one in line.connections] == [0]

    run(main())


def test_refusals(peer, run):
    async def main():
        async with client_for(peer) as pool:
            with pytest.raises(WebSocketRefusedError, match="403") as raised:
                async with pool.websocket(f"wss://localhost:{peer.port}/refused"):
                    raise AssertionError("it was refused")
            assert raised.value.status == 403
            with pytest.raises(URLError):
                async with pool.websocket("ws://localhost/"):
                    raise AssertionError("that needs no TLS")

    run(main())


def test_a_server_without_extended_connect(peer, run):
    """The server's SETTINGS exclude it, and the client sends no request that the server would not
    understand.
    """
    peer.has_websockets = False

    async def main():
        async with client_for(peer) as pool:
            with pytest.raises(WebSocketRefusedError, match="does not offer") as raised:
                async with pool.websocket(chat(peer)):
                    raise AssertionError("there is none")
            assert raised.value.status is None
            assert (await pool.get(peer.url + "/")).content == b"hello"
            assert peer.paths == [(0, "/")]

    run(main())


@pytest.mark.parametrize("where", ["settings", "answer"])
def test_a_silent_server(peer, run, where):
    """The time-out of a pool covers the opening of its WebSockets too, but not their messages."""
    peer.is_mute = where == "settings"

    async def main():
        async with client_for(peer, timeouts=Timeouts(connect=None, read=0.3)) as pool:
            with pytest.raises(ReadTimeoutError, match=r"0\.3 s"):
                async with pool.websocket(f"wss://localhost:{peer.port}/unanswered"):
                    raise AssertionError("nobody has answered")
            (line,) = pool._pools.values()
            assert [one.streams for one in line.connections] == [0]

    run(main())


def test_hypercorn(certificate, tmp_path, run_ours):
    """A third-party server in its usual configuration."""
    pytest.importorskip("hypercorn")
    (tmp_path / "app.py").write_text(
        "async def app(scope, receive, send):\n"
        "    if scope['type'] == 'http':\n"
        "        head = {'type': 'http.response.start', 'status': 200, 'headers': []}\n"
        "        await send(head)\n"
        "        await send({'type': 'http.response.body', 'body': b'hello'})\n"
        "    elif scope['type'] == 'websocket':\n"
        "        await receive()\n"
        "        await send({'type': 'websocket.accept'})\n"
        "        while (message := await receive())['type'] == 'websocket.receive':\n"
        "            await send({'type': 'websocket.send', 'text': message['text']})\n"
        "    else:\n"
        "        while True:\n"
        "            message = await receive()\n"
        "            await send({'type': message['type'] + '.complete'})\n"
    )
    port = free_port()
    bind = ["--quic-bind", f"127.0.0.1:{port}", "--bind", f"unix:{tmp_path}/socket"]
    tls = ["--certfile", certificate[0], "--keyfile", certificate[1]]
    command = [sys.executable, "-m", "hypercorn", "--workers", "0", *bind, *tls, "app:app"]
    process = subprocess.Popen(
        bound(command),
        cwd=tmp_path,
        env=environment() | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    class Hypercorn:
        url = f"https://localhost:{port}"

    Hypercorn.port, Hypercorn.certificate = port, certificate[0]

    async def main():
        async with client_for(Hypercorn) as pool:
            while True:
                assert process.poll() is None
                try:
                    assert (await pool.get(Hypercorn.url + "/")).content == b"hello"
                    break
                except ConnectError:
                    await asyncio.sleep(0.1)
            async with pool.websocket(chat(Hypercorn)) as websocket:
                await websocket.send("over HTTP/3")
                assert await websocket.receive() == "over HTTP/3"

    try:
        run_ours(main())
    finally:
        process.kill()
        process.wait()


def test_a_connection_that_ends_under_it(peer, run):
    async def main():
        async with client_for(peer) as pool:
            with pytest.raises(ConnectionLostError):
                async with pool.websocket(chat(peer)) as websocket:
                    ending = asyncio.ensure_future(
                        pool.request("POST", peer.url + "/closed-once", content=b"x")
                    )
                    try:
                        await websocket.receive()
                    finally:
                        await asyncio.gather(ending, return_exceptions=True)

    run(main())


# Frames without a connection. `src/http` tests how they are read.


def read(reader, data):
    reader.feed(data)
    return list(iter(reader.next, None))


def test_a_servers_frames_come_in_any_pieces():
    whole = (
        b"\x81\x05hello" + b"\x82\x7e\x01\x00" + bytes(256) + b"\x89\x02hi\x8a\x00\x88\x02\x03\xe8"
    )
    expected = [
        ("text", "hello"),
        ("binary", bytes(256)),
        ("ping", b"hi"),
        ("pong", b""),
        ("close", 1000, ""),
    ]
    assert read(WebSocketReader(1 << 20), whole) == expected
    reader = WebSocketReader(1 << 20)
    assert [found for byte in whole for found in read(reader, bytes([byte]))] == expected


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xc1\x00", 1002),
        (b"\x81\x80" + bytes(4), 1002),
        (b"\x82\x7e\x10\x01", 1009),
        (b"\x81\x01\xff", 1007),
        (b"\x88\x02\x03\xed", 1002),
    ],
)
def test_frames_that_may_not_be(data, code):
    with pytest.raises(WebSocketFault) as raised:
        read(WebSocketReader(4096), data)
    assert raised.value.args[0] == code


def test_a_clients_frames_are_masked():
    for size in (0, 1, 125, 126, 65535, 65536):
        data, key = os.urandom(size), os.urandom(4)
        frame = websocket_frame("binary", data, key)
        head = 2 if size < 126 else 4 if size < 65536 else 10
        assert frame[0] == 0x82
        assert frame[1] & 0x80
        mask, masked = frame[head : head + 4], frame[head + 4 :]
        assert mask == key
        assert bytes(byte ^ mask[at % 4] for at, byte in enumerate(masked)) == data
    close = websocket_close_frame(1000, "ü" * 100, bytes(4))
    assert close[:6] == b"\x88" + bytes([0x80 | 124]) + bytes(4)
    assert close[6:] == b"\x03\xe8" + "ü".encode() * 61
