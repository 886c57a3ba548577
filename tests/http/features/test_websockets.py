"""WebSocket over HTTP/3 (RFC 9220): handshake, messages, closing, and violations by a client."""

from __future__ import annotations

import json
import signal

import pytest
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Opcode

from tests.http import http3_bytes
from tests.http.features.websocket_client import Socket, frame, run, wait_events
from tests.http.raw_client import needs_recent_aioquic
from uringcore.h3.connection import ErrorCode

pytestmark = [pytest.mark.either_backend, needs_recent_aioquic]

MASK_BIT = 0x80


def test_settings_announce_extended_connect(server):
    async def client(raw):
        return await raw.wait_settings()

    assert run(server, client)[http3_bytes.ENABLE_CONNECT_PROTOCOL] == 1


def test_messages_of_all_sizes_come_back(server):
    messages = [
        "",
        "grün",
        b"",
        b"\x00\xff" * 10,
        "x" * 125,
        "y" * 126,
        b"z" * 65_536,
        "ä" * 300_000,
    ]

    async def client(raw):
        socket = Socket(raw, "/echo/sizes")
        answer = await socket.wait_answer()
        assert answer.status == 200
        assert dict(answer.fields)[b"x-mine"] == b"yes"
        assert b"sec-websocket-accept" not in dict(answer.fields)
        for message in messages:
            socket.send(message)
            assert await socket.wait_messages(1) == [message]
        for message in messages:
            socket.send(message)
        assert await socket.wait_messages(len(messages)) == messages
        socket.close(4321, "good bye")
        assert await socket.wait_closed() == (4321, "good bye")
        assert socket.stream.reset is None

    run(server, client)
    seen = wait_events(server, "sizes", 2 + 2 * len(messages))
    assert seen[0] == ["connect"]
    assert seen[-1] == ["disconnect", 4321, "good bye"]
    lengths = [size for _, size, _ in seen[1:-1]]
    assert lengths == [len(message) for message in messages] * 2


OFFER = b"permessage-deflate; client_max_window_bits"
AGREED = b"permessage-deflate; server_max_window_bits=12; client_max_window_bits=12"


def test_messages_may_be_compressed(server):
    messages = ["", b"short", *[b"again and " * 10_000] * 3, "\u00e4" * 300_000]

    async def client(raw):
        socket = Socket(raw, "/echo/deflate", (b"sec-websocket-extensions", OFFER))
        answer = await socket.wait_answer()
        assert dict(answer.fields)[b"sec-websocket-extensions"] == AGREED
        socket.protocol.extensions = [PerMessageDeflate(False, False, 12, 12)]
        for message in messages:
            socket.send(message)
            assert await socket.wait_messages(1) == [message]
        assert len(answer.body) < 10_000
        for message in messages:
            socket.send(message)
        assert await socket.wait_messages(len(messages)) == messages
        socket.close()
        await socket.wait_closed()

    run(server, client)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\xc1\x84\0\0\0\0\xff\xff\xff\xff", 1007),
        (b"\xc1\x80\0\0\0\0" * 2, 1007),
        (b"\xc9\x80\0\0\0\0", 1002),
        (b"\xa1\x80\0\0\0\0", 1002),
    ],
    ids=["malformed", "empty", "compressed-ping", "other-reserved-bit"],
)
def test_a_violation_of_the_compression_closes(server, sent, code):
    async def client(raw):
        socket = Socket(raw, "/echo/bad-deflate", (b"sec-websocket-extensions", OFFER))
        await socket.wait_answer()
        socket.write(sent)
        found = await socket.wait_closed()
        assert found[0] == code, found

    run(server, client)


def test_a_message_that_exceeds_the_limit_after_decompression_is_closed_with_1009(start_features):
    server = start_features("--ws-max-size", "100000")

    async def client(raw):
        socket = Socket(raw, "/echo/bomb", (b"sec-websocket-extensions", OFFER))
        await socket.wait_answer()
        socket.protocol.extensions = [PerMessageDeflate(False, False, 12, 12)]
        socket.send(bytes(100_000))
        assert await socket.wait_messages(1) == [bytes(100_000)]
        socket.send(bytes(100_001))
        assert (await socket.wait_closed())[0] == 1009

    run(server, client)


def test_messages_are_not_compressed_if_the_option_is_off(start_features):
    server = start_features("--ws-per-message-deflate", "false")

    async def client(raw):
        socket = Socket(raw, "/echo/plain", (b"sec-websocket-extensions", OFFER))
        answer = await socket.wait_answer()
        assert b"sec-websocket-extensions" not in dict(answer.fields)
        socket.send("x" * 100_000)
        assert await socket.wait_messages(1) == ["x" * 100_000]

    run(server, client)


def test_fragments_are_one_message_and_pings_between_them_are_answered(server):
    async def client(raw):
        socket = Socket(raw, "/echo/fragments")
        pieces = [
            frame(Opcode.TEXT, "grü".encode()[:3], fin=False),
            frame(Opcode.PING, b"between"),
            frame(Opcode.CONT, b"", fin=False),
            frame(Opcode.PONG, b"unasked"),
            frame(Opcode.CONT, "ü!".encode()[1:]),
        ]
        # Before the response has arrived, and split at every byte.
        for byte in b"".join(pieces):
            socket.write(bytes([byte]))
        pong, text = await socket.wait_frames(2)
        assert (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"between")
        assert bytes(text.data).decode() == "grü!"
        socket.close()
        await socket.wait_closed()

    run(server, client)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(Opcode.TEXT, b"x", mask=False), 1002),
        (b"\xc1\x80abcd", 1002),
        (frame(Opcode.CONT, b"x"), 1002),
        (b"\x83\x80abcd", 1002),
        (frame(Opcode.CLOSE, b"\x03"), 1002),
        (frame(Opcode.CLOSE, b"\x03\xee"), 1002),
        (frame(Opcode.TEXT, b"\xc3\x28"), 1007),
        (b"\x82\xff" + (1 << 40).to_bytes(8, "big") + b"abcd", 1009),
    ],
    ids=[
        "unmasked",
        "reserved-bit",
        "continuation",
        "opcode",
        "close",
        "code-1006",
        "utf-8",
        "size",
    ],
)
def test_a_protocol_error_closes_with_the_code_of_its_rule(server, sent, code, request):
    name = request.node.callspec.id

    async def client(raw):
        socket = Socket(raw, f"/echo/{name}")
        await socket.wait_answer()
        socket.send("before")
        assert await socket.wait_messages(1) == ["before"]
        socket.write(sent)
        found = await socket.wait_closed()
        assert found[0] == code, found
        # The connection continues.
        answer = await raw.wait_answer(raw.request("/scope"))
        assert answer.status == 200

    run(server, client)
    assert wait_events(server, name, 3)[-1][:2] == ["disconnect", code]


def test_the_end_of_the_stream_without_a_close_is_1006(server):
    async def client(raw):
        for ending in ("fin", "reset", "connection"):
            socket = Socket(raw, f"/echo/ends-by-{ending}")
            await socket.wait_answer()
            if ending == "fin":
                socket.write(b"", fin=True)
                await raw.wait_over(socket.stream_id)
            elif ending == "reset":
                raw.give_up(socket.stream_id, ErrorCode.H3_REQUEST_CANCELLED)

    run(server, client)
    for ending in ("fin", "reset", "connection"):
        assert wait_events(server, f"ends-by-{ending}", 2)[1] == ["disconnect", 1006, ""]


def test_a_close_without_a_code_is_1005(server):
    async def client(raw):
        socket = Socket(raw, "/echo/codeless")
        await socket.wait_answer()
        socket.write(frame(Opcode.CLOSE, b""))
        await socket.wait_closed()

    run(server, client)
    assert wait_events(server, "codeless", 2)[1] == ["disconnect", 1005, ""]


def test_the_scope_is_that_of_a_websocket(server):
    async def client(raw):
        socket = Socket(raw, "/scope/%C3%A4?b=c", (b"origin", b"https://a"))
        (text,) = await socket.wait_messages(1)
        assert await socket.wait_closed() == (4001, "shown")
        return json.loads(text)

    scope = run(server, client)
    assert scope["type"] == "websocket"
    assert "method" not in scope
    assert (scope["scheme"], scope["http_version"]) == ("wss", "3")
    assert scope["asgi"]["spec_version"] == "2.4"
    assert (scope["path"], scope["raw_path"]) == ("/scope/ä", "/scope/%C3%A4")
    assert scope["query_string"] == "b=c"
    assert scope["subprotocols"] == []
    assert ["origin", "https://a"] in scope["headers"]
    assert ["host", "localhost"] in scope["headers"]
    # Engine.IO and others refuse a WebSocket without these fields of HTTP/1.1.
    assert scope["headers"][-2:] == [["connection", "Upgrade"], ["upgrade", "websocket"]]
    assert set(scope["extensions"]) == {"websocket.http.response", "tls"}


def test_the_application_chooses_a_subprotocol(server):
    async def client(raw):
        offered = [(b"sec-websocket-protocol", b"a, b"), (b"sec-websocket-protocol", b"c")]
        socket = Socket(raw, "/choose/x", *offered)
        answer = await socket.wait_answer()
        assert dict(answer.fields)[b"sec-websocket-protocol"] == b"c"
        assert await socket.wait_messages(1) == ["a,b,c"]
        assert await socket.wait_closed() == (1000, "")

    run(server, client)


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("deny", 403, b""),
        ("deny-with-response", 401, b"who are you?"),
        ("returns-at-once", 500, b"Internal Server Error"),
        ("raises", 500, b"Internal Server Error"),
    ],
)
def test_a_denied_handshake_is_an_ordinary_response(server, path, status, body):
    async def client(raw):
        socket = Socket(raw, f"/{path}/{path}")
        answer = await raw.wait_answer(socket.stream_id)
        assert (answer.status, answer.body) == (status, body)
        if status == 401:
            assert dict(answer.fields)[b"x-why"] == b"because"
        # A client may have sent messages before it received the rejection.
        socket = Socket(raw, f"/{path}/{path}")
        socket.send("early")
        assert (await raw.wait_answer(socket.stream_id)).status == status

    run(server, client)
    if status in (401, 403):
        assert wait_events(server, path, 1)[0][:2] == ["disconnect", 1006]


@pytest.mark.parametrize(("path", "code"), [("returns-open", 1000), ("raises-open", 1011)])
def test_a_socket_that_the_application_leaves_open_is_closed(server, path, code):
    async def client(raw):
        return await Socket(raw, f"/{path}/x").wait_closed()

    assert run(server, client)[0] == code
    if code == 1011:
        server.wait_log("the application's own fault, later")


def test_messages_in_the_wrong_order_are_the_applications_fault(server):
    async def client(raw):
        socket = Socket(raw, "/wrong-order/order")
        (text,) = await socket.wait_messages(1)
        assert await socket.wait_closed() == (1000, "")
        return json.loads(text)

    first, second, third = run(server, client)
    assert "'websocket.accept'" in first
    assert "'websocket.send' or 'websocket.close'" in second
    assert "1005" in third
    assert wait_events(server, "order", 1) == [4]


@pytest.mark.parametrize(("version", "status"), [("8", 400), (None, 400), ("13", 200)])
def test_another_version_of_the_protocol_is_refused(server, version, status):
    async def client(raw):
        return (await Socket(raw, "/echo/version", version=version).wait_answer()).status

    assert run(server, client) == status


def test_another_protocol_is_not_known(server):
    async def client(raw):
        request = http3_bytes.request("/", method="CONNECT", protocol="connect-udp")
        return (await raw.wait_answer(raw.bidi(request, fin=True))).status

    assert run(server, client) == 501


def test_sending_to_a_client_that_has_gone_is_an_os_error(server):
    async def client(raw):
        socket = Socket(raw, "/sends-for-ever/gone")
        await socket.wait_frames(3)
        raw.give_up(socket.stream_id, ErrorCode.H3_REQUEST_CANCELLED)
        socket = Socket(raw, "/sends-for-ever/closed")
        await socket.wait_frames(3)
        socket.close()
        await socket.wait_closed()

    run(server, client)
    for name in ("gone", "closed"):
        assert wait_events(server, name, 1) == ["told"]
    # The application received the event; this is no error to be logged.
    assert "ClientDisconnected" not in server.log()


def test_a_client_that_does_not_read_holds_its_application_up_and_no_other(server):
    async def client(raw):
        raw.quic.grants = False
        idle = Socket(raw, "/sends-for-ever/unread")
        await idle.wait_answer()
        # All credit that the client has given on this stream.
        window = raw.quic._local_max_stream_data_bidi_local
        await raw.wait(lambda: len(idle.stream.data) >= window)
        raw.quic.grants = True
        assert (await raw.wait_answer(raw.request("/scope"))).status == 200

    run(server, client, max_data=1 << 24, max_stream_data=1 << 16)
    assert wait_events(server, "unread", 1) == ["told"]


def test_unread_messages_are_flow_controlled(server):
    async def client(raw):
        socket = Socket(raw, "/reads-late/late")
        await socket.wait_answer()
        count = 200
        for number in range(count):
            socket.send(b"%d" % number + bytes(100_000))
        # The stream's window is a mebibyte, and the server buffers less.
        sender = raw.quic._streams[socket.stream_id].sender
        await raw.wait(lambda: sender.highest_offset >= 1 << 20)
        for _ in range(20):
            answer = await raw.wait_answer(raw.request("/scope"))
            assert answer.status == 200
        assert sender._buffer_start < 4 << 20
        await raw.wait_answer(raw.request("/release/late"))
        socket.close()
        await socket.wait_closed()
        return count

    count = run(server, client)
    seen = wait_events(server, "late", 2 * count + 1)
    sizes = [event[2].rstrip("\0") for event in seen if event[0] == "bytes"]
    assert sizes == [str(number) for number in range(count)]


def test_so_many_large_messages_of_a_connection_are_on_their_way_at_once(start_features):
    server = start_features("--http3-max-large-messages", "2")
    size = 5 << 19

    async def client(raw):
        sockets = [Socket(raw, f"/sizes/large-{number}") for number in range(4)]
        for socket in sockets:
            await socket.wait_answer()

        def sent(socket):
            return raw.quic._streams[socket.stream_id].sender.highest_offset

        # A frame that lacks one byte, masked with zeros.
        head = bytes([0x82, 0x80 | 127]) + size.to_bytes(8, "big") + bytes(4)
        for socket in sockets:
            socket.write(head + bytes(size - 1))
        await raw.wait(lambda: sum(sent(socket) >= size for socket in sockets) == 2)
        # Of the other messages the server reads at most the stream's window, a mebibyte, and 256 KiB of each.
        for _ in range(10):
            assert (await raw.wait_answer(raw.request("/scope"))).status == 200
        waiting = [socket for socket in sockets if sent(socket) < size]
        assert len(waiting) == 2
        assert all(sent(socket) < 2 << 20 for socket in waiting)
        for socket in sockets:
            socket.write(bytes(1))
        for socket in sockets:
            assert await socket.wait_messages(1) == [str(size)]
            socket.close()
            await socket.wait_closed()

    run(server, client, max_data=1 << 26, max_stream_data=1 << 23)


def test_many_small_messages_wait_in_a_queue_of_limited_length(start_features):
    server = start_features("--ws-max-queue", "3")

    async def client(raw):
        socket = Socket(raw, "/reads-late/queue")
        await socket.wait_answer()
        for number in range(500):
            socket.send(str(number))
        # A ping behind a full queue gets no pong.
        socket.write(frame(Opcode.PING, b"late"))
        for _ in range(5):
            await raw.wait_answer(raw.request("/scope"))
        assert socket.pump() == []
        await raw.wait_answer(raw.request("/release/queue"))
        (pong,) = await socket.wait_frames(1)
        assert bytes(pong.data) == b"late"
        socket.close()
        await socket.wait_closed()

    run(server, client)
    texts = [event[2] for event in wait_events(server, "queue", 1001) if event[0] == "text"]
    assert texts == [str(number) for number in range(500)]


def test_the_largest_message_is_an_option(start_features):
    server = start_features("--ws-max-size", "1000")

    async def client(raw):
        socket = Socket(raw, "/echo/max")
        socket.send("x" * 1000)
        assert await socket.wait_messages(1) == ["x" * 1000]
        socket.send("x" * 1001)
        return await socket.wait_closed()

    assert run(server, client)[0] == 1009


def test_pings_are_sent_and_one_that_is_not_answered_ends_the_connection(start_features):
    # Longer than a busy machine may delay the client's pong.
    server = start_features("--ws-ping-interval", "0.2", "--ws-ping-timeout", "3")

    async def client(raw):
        alive, dead = Socket(raw, "/echo/alive"), Socket(raw, "/echo/dead")
        # `pump` answers pings.
        await raw.wait(lambda: (alive.pump(), dead.stream.over)[1])
        pings = [frame for frame in alive.received if frame.opcode is Opcode.PING]
        assert len(pings) >= 2
        alive.received.clear()
        alive.send("still there")
        while (frame := (await alive.wait_frames(1))[0]).opcode is Opcode.PING:
            pass
        assert bytes(frame.data) == b"still there"
        alive.close()
        await alive.wait_closed()

    run(server, client)
    assert wait_events(server, "dead", 2)[1][:2] == ["disconnect", 1006]


def test_a_client_whose_application_does_not_read_is_not_deaf(start_features):
    server = start_features(
        "--ws-ping-interval", "0.1", "--ws-ping-timeout", "3", "--ws-max-queue", "1"
    )

    async def client(raw):
        socket, other = Socket(raw, "/reads-late/busy"), Socket(raw, "/echo/other")
        await socket.wait_answer()
        socket.send("first")
        socket.send("second")
        # Its time-out passes on the server, which closes another unresponsive client.
        await raw.wait(lambda: (socket.pump(), other.stream.over)[1])
        await raw.wait_answer(raw.request("/release/busy"))
        socket.send("third")
        socket.close()
        await raw.wait(lambda: (socket.pump(), socket.stream.over)[1])

    run(server, client)
    texts = [event[2] for event in wait_events(server, "busy", 7) if event[0] == "text"]
    assert texts == ["first", "second", "third"]


def test_very_many_small_messages_in_one_piece_arrive(start_features):
    server = start_features("--ws-max-queue", "1")
    count = 20_000

    async def client(raw):
        socket = Socket(raw, "/reads-late/many")
        await socket.wait_answer()
        socket.write(frame(Opcode.TEXT, b"x") * count)
        await raw.wait_sent()
        await raw.wait_answer(raw.request("/release/many"))
        socket.close()
        await socket.wait_closed()

    run(server, client)
    assert len(wait_events(server, "many", 2 * count + 1)) == 2 * count + 1


@pytest.mark.parametrize("options", [("--ws", "none"), ("--interface", "wsgi")])
def test_ws_none_and_wsgi_take_no_websockets(start_features, options):
    server = start_features(*options, "--no-http3-webtransport")

    async def client(raw):
        assert http3_bytes.ENABLE_CONNECT_PROTOCOL not in await raw.wait_settings()
        socket = Socket(raw, "/echo/none")
        return await raw.wait_over(socket.stream_id)

    assert ErrorCode.H3_MESSAGE_ERROR in run(server, client).codes


def test_ws_none_takes_no_websockets_beside_sessions(start_features):
    server = start_features("--ws", "none")

    async def client(raw):
        return (await Socket(raw, "/echo/none").wait_answer()).status

    assert run(server, client) == 501


def test_a_server_that_stops_closes_with_1012(start_features):
    server = start_features()

    async def client(raw):
        socket = Socket(raw, "/echo/stopped")
        await socket.wait_answer()
        server.send_signal(signal.SIGTERM)
        return await socket.wait_closed()

    assert run(server, client)[0] == 1012
    assert server.wait_stopped() == 0


def test_a_handshake_is_logged_as_uvicorn_does(server):
    async def client(raw):
        socket = Socket(raw, "/echo/logged?a=b")
        await socket.wait_answer()
        await raw.wait_answer(Socket(raw, "/deny/logged").stream_id)

    run(server, client)
    server.wait_log(r'127\.0\.0\.1:\d+ - "WebSocket /echo/logged\?a=b" \[accepted\]')
    server.wait_log(r'127\.0\.0\.1:\d+ - "WebSocket /deny/logged" 403')


def test_on_asyncios_own_loop_sockets_and_files_work_as_well(start_features, tmp_path):
    server = start_features("--loop", "asyncio")
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 4096)

    async def client(raw):
        socket = Socket(raw, "/echo/asyncio")
        socket.send("x" * 300_000)
        assert await socket.wait_messages(1) == ["x" * 300_000]
        socket.close()
        await socket.wait_closed()

    run(server, client)
    assert wait_events(server, "asyncio", 3)[-1] == ["disconnect", 1000, ""]
    for how in ("path/unannounced", "counted/x"):
        assert server.get(f"/{how}?{path}").content == path.read_bytes()
