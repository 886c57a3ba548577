"""Attacks with frames of HTTP/2: floods, resets, header sections, windows, and clients that read nothing."""

from __future__ import annotations

import asyncio
import contextlib
import struct

import pytest

from tests.http.hostile.attacked_server import SEND_TIMEOUT, attacked_server, run
from tests.http.hostile.tcp_clients import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_HEADER_LIST_SIZE,
    PING,
    PRIORITY,
    PRIORITY_UPDATE,
    REFUSED_STREAM,
    SETTINGS,
    STREAMS,
    WINDOW_UPDATE,
    Connection,
    clients,
    literal,
    request_block,
    until,
)
from tests.http.http2.client import PREFACE, frame

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input]

WHOLE = END_HEADERS | END_STREAM
START = PREFACE + frame(SETTINGS, 0, 0)


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


# Floods

FLOODS = {
    "ping": frame(PING, 0, 0, bytes(8)),
    "settings": frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 70_000)),
    "settings that change the table": frame(
        SETTINGS, 0, 0, struct.pack(">HI", HEADER_TABLE_SIZE, 0)
    )
    + frame(SETTINGS, 0, 0, struct.pack(">HI", HEADER_TABLE_SIZE, 4096)),
    "settings with many values": frame(SETTINGS, 0, 0, struct.pack(">HI", 0x0A0A, 1) * 2000),
    "priority": frame(PRIORITY, 0, 1, number(0) + b"\x10"),
    "priority of idle streams": frame(PRIORITY, 0, 99, number(3) + b"\x10"),
    "priority update": frame(PRIORITY_UPDATE, 0, 0, number(1) + b"u=1"),
    "window update": frame(WINDOW_UPDATE, 0, 1, number(1)),
    "window update of the connection": frame(WINDOW_UPDATE, 0, 0, number(1)),
    "empty data": frame(DATA, 0, 1),
    "padding alone": frame(DATA, 8, 1, b"\xff" + bytes(255)),
    "unknown frames": frame(0x42, 0, 0, bytes(100)),
    "large unknown frames": frame(0x42, 0, 0, bytes(16_384)),
}


@pytest.mark.parametrize("reads", [True, False], ids=["reading", "not reading"])
@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_ends_the_connection_and_takes_little(besiege_native, flood, reads):
    """The answers to a client that does not read them do not pile up."""
    server = besiege_native()

    async def attack():
        async with attacked_server(server, memory_mib=16):
            connection = Connection()
            await connection.open(server, "h2", reads=reads)
            request = frame(HEADERS, END_HEADERS, 1, request_block("POST", "/upload"))
            await connection.write(START + request)
            if reads:
                connection.received = lambda data: None
                connection.start_reading()
            part = FLOODS[flood] * max(1, 16_000 // len(FLOODS[flood]))
            is_over = asyncio.ensure_future(pour(connection, part))
            # A connection that is not read either is closed, or read no more.
            await asyncio.wait({is_over}, timeout=4)
            if reads:
                await asyncio.wait_for(is_over, 40)
                await until(lambda: connection.is_closed)
            is_over.cancel()
            connection.abort()
            await connection.close()

    run(attack())


@contextlib.asynccontextmanager
async def attacked_connection(server, memory_mib, settings=None):
    """Yields a server that has to stay below its memory, and a connection to it."""
    async with (
        attacked_server(server, memory_mib=memory_mib) as attacked,
        clients(server, "http2") as hostile,
    ):
        yield attacked, await hostile.http2(settings)


async def pour(connection, part):
    """Writes until the server has closed the connection."""
    while not connection.is_closed and not connection.writer.is_closing():
        await connection.write(part)


# Resets


@pytest.mark.parametrize("path", ["/hang", "/waits"])
def test_rapid_reset(besiege_native, path):
    """CVE-2023-44487: 10,000 requests, each reset as soon as it is made."""
    server = besiege_native("--http3-early-reset-rate", "1")

    async def attack():
        async with attacked_connection(server, 24) as (attacked, connection):
            for _ in range(1000):
                # The server reads requests with their resets, or calls the applications before.
                pairs = [connection.prepare("GET", path) for _ in range(10)]
                await connection.write(b"".join(request for _, request in pairs))
                await asyncio.sleep(0.001)
                for exchange, _ in pairs:
                    exchange.cancel()
                if connection.goaways or connection.is_closed:
                    break
            await until(lambda: connection.is_closed)
            assert connection.goaways[-1] == ENHANCE_YOUR_CALM
            # As in uvicorn, an application that ignores its client is not ended; their number is limited.
            ends = {"running": 0} if path == "/waits" else {}
            found = await attacked.wait_state(path[1:], **ends)
            assert 0 < found["started"] < 1500

    run(attack())


# Each frame makes the server reset the stream of a request that is at work.
RESETTING = {
    "more content than announced": lambda stream: frame(DATA, 0, stream, b"more than that"),
    "a window update of 0": lambda stream: frame(WINDOW_UPDATE, 0, stream, number(0)),
    "a window that overflows": lambda stream: frame(WINDOW_UPDATE, 0, stream, number(2**31 - 1)),
    "a stream that depends on itself": lambda stream: frame(
        PRIORITY, 0, stream, number(stream) + b"\0"
    ),
    "trailers without an end": lambda stream: frame(
        HEADERS, END_HEADERS, stream, literal(b"x", b"y")
    ),
    "trailers in capitals": lambda stream: frame(HEADERS, WHOLE, stream, literal(b"X", b"y")),
}


@pytest.mark.parametrize("fault", RESETTING)
def test_made_you_reset(besiege_native, fault):
    """CVE-2025-8671: the client makes the server reset its requests, while their applications run on."""
    server = besiege_native("--http3-early-reset-rate", "1")

    async def attack():
        async with attacked_connection(server, 24) as (attacked, connection):
            for _ in range(3000):
                fields = [(b"content-length", b"1")] if "content" in fault else []
                exchange, request = connection.prepare("POST", "/hang", fields, end=False)
                await connection.write(request + RESETTING[fault](exchange.stream_id))
                if connection.goaways or connection.is_closed:
                    break
            if not connection.goaways:
                # The frame is no fault in RFC 9113, and streams above the limit are refused.
                assert fault == "a stream that depends on itself"
            # As many applications as a connection may have at once, and those that resets have left.
            assert (await attacked.state("hang")).get("running", 0) <= 8 * STREAMS
            await attacked.others_served()

    run(attack())


def test_requests_that_are_given_up_now_and_then_are_no_attack(besiege_native):
    server = besiege_native()

    async def attack():
        async with attacked_connection(server, 16) as (attacked, connection):
            for _ in range(100):
                (await connection.ask("GET", "/waits")).cancel()
                served = await connection.ask("GET", "/")
                assert (await served.over()).status == 200
            await attacked.wait_state("waits", running=0)
            assert not connection.goaways

    run(attack())


def test_streams_above_the_limit_are_refused(besiege_native):
    server = besiege_native()

    async def attack():
        async with attacked_connection(server, 16) as (attacked, connection):
            held = [await connection.ask("GET", "/waits") for _ in range(STREAMS + 200)]
            await until(lambda: all(one.code is not None for one in held[STREAMS:]))
            assert {one.code for one in held[STREAMS:]} == {REFUSED_STREAM}
            assert (await attacked.state("waits"))["running"] == STREAMS

    run(attack())


# Header sections


def test_sections_without_end_are_bounded_together(besiege_native):
    """Fifty connections, each with the frames of a section that has no end."""
    server = besiege_native()

    async def attack():
        async with attacked_server(server, memory_mib=24) as attacked:
            connections = []
            for _ in range(50):
                connection = Connection()
                await connection.open(server, "h2")
                section = frame(HEADERS, END_STREAM, 1, request_block("GET", "/"))
                section += frame(CONTINUATION, 0, 1, literal(b"x", bytes(100)) * 100) * 7
                await connection.write(START + section)
                connections.append(connection)
            await attacked.others_served()
            for connection in connections:
                await connection.close()

    run(attack())


def test_a_flood_of_continuations_takes_little(besiege_native):
    """CVE-2024-27316 and others: empty frames, and frames whose fields are dropped."""
    server = besiege_native()

    async def attack():
        async with attacked_server(server, memory_mib=16):
            for part in (b"", literal(b"x", b"y"), b"\x82"):
                connection = Connection()
                await connection.open(server, "h2")
                connection.received = lambda data: None
                connection.start_reading()
                await connection.write(START + frame(HEADERS, END_STREAM, 1, part))
                flood = frame(CONTINUATION, 0, 1, part) * 100
                await asyncio.wait_for(pour(connection, flood), 40)
                await connection.close()

    run(attack())


def test_a_section_that_is_large_only_when_decoded_is_refused(besiege_native):
    """One entry of 4 KB in the table, and ten thousand references of one byte to it, again and again."""
    server = besiege_native()

    async def attack():
        async with attacked_connection(server, 16) as (_, connection):
            for _ in range(50):
                exchange, _ = connection.prepare("GET", "/")
                entry = literal(b"x", bytes(4000).replace(b"\0", b"y"), 0x40)
                block = request_block("GET", "/") + entry + b"\xbe" * 10_000
                await connection.write(frame(HEADERS, WHOLE, exchange.stream_id, block))
                assert (await exchange.over()).status == 431

    run(attack())


def test_a_table_that_is_filled_for_ever_stays_small(besiege_native):
    server = besiege_native()

    async def attack():
        async with attacked_connection(server, 16) as (_, connection):
            for at in range(1000):
                exchange, _ = connection.prepare("GET", "/")
                entries = b"".join(
                    literal(b"x-%d-%d" % (at, each), b"y" * 500, 0x40) for each in range(20)
                )
                block = request_block("GET", "/") + entries
                await connection.write(frame(HEADERS, WHOLE, exchange.stream_id, block))
                assert (await exchange.over()).status == 200

    run(attack())


def test_a_table_as_large_as_the_client_likes_is_not_ours(besiege_native):
    """The client offers a gigabyte for our encoder's table."""
    server = besiege_native()

    async def attack():
        async with attacked_connection(server, 16, {HEADER_TABLE_SIZE: 1 << 30}) as (_, connection):
            for at in range(1000):
                exchange = await connection.ask("GET", f"/fields/{at}")
                assert (await exchange.over()).status == 200

    run(attack())


def test_a_client_that_allows_no_response_fields(besiege_native):
    """SETTINGS_MAX_HEADER_LIST_SIZE of 0 is advisory (RFC 9113 section 6.5.2): the connection goes on."""
    server = besiege_native()

    async def attack():
        async with attacked_connection(server, 16, {MAX_HEADER_LIST_SIZE: 0}) as (_, connection):
            for _ in range(20):
                exchange = await connection.ask("GET", "/")
                await exchange.over()
            assert not connection.is_closed

    run(attack())


# Windows


@pytest.mark.parametrize("window", [0, 1, 16_384], ids=["none", "tiny", "of a frame"])
def test_responses_without_credit_take_little_and_are_given_up(besiege_native, window):
    server = besiege_native(SEND_TIMEOUT, "2")

    async def attack():
        # A connection has up to 4 MiB, and a part for each stream.
        async with (
            attacked_server(server, memory_mib=80) as attacked,
            clients(server, "http2") as hostile,
        ):
            held = await hostile.exchanges(300, "/flood/1000000", reads=False, window=window)
            await until(lambda: all(one.is_over for one in held))
            found = await attacked.wait_state("flood", running=0)
            assert found["returned"] == 300

    run(attack())


def test_a_connection_without_credit_is_given_up(besiege_native):
    """Each stream has credit; all together have 65,535 bytes."""
    server = besiege_native(SEND_TIMEOUT, "2")

    async def attack():
        async with (
            attacked_server(server, memory_mib=40) as attacked,
            clients(server, "http2") as hostile,
        ):
            held = await hostile.exchanges(100, "/flood/1000000", reads=False, window=1 << 30)
            await until(lambda: all(one.is_over for one in held))
            await attacked.wait_state("flood", running=0)

    run(attack())


def test_a_window_that_shrinks_and_grows_is_followed(besiege_native):
    """SETTINGS_INITIAL_WINDOW_SIZE makes the windows of open streams negative, again and again."""
    server = besiege_native()

    async def attack():
        async with attacked_connection(server, 24, {INITIAL_WINDOW_SIZE: 10_000}) as (
            _,
            connection,
        ):
            exchange = await connection.ask("GET", "/flood/1000000")
            await until(lambda: exchange.received_bytes >= 10_000)
            for _ in range(100):
                for size in (0, 10_000):
                    values = struct.pack(">HI", INITIAL_WINDOW_SIZE, size)
                    await connection.write(frame(SETTINGS, 0, 0, values))
            # The answer to a PING follows those to all SETTINGS.
            await connection.write(frame(PING, 0, 0, bytes(8)))
            await until(lambda: connection.frames.get(PING))
            assert exchange.received_bytes == 10_000
            credit = number(1_000_000)
            frames = (frame(WINDOW_UPDATE, 0, stream, credit) for stream in (0, exchange.stream_id))
            await connection.write(b"".join(frames))
            await exchange.over()
            assert (exchange.received_bytes, exchange.code) == (1_000_000, None)

    run(attack())


# Priorities


def test_priorities_are_ignored_or_followed_and_never_an_error(besiege_native):
    server = besiege_native()

    async def attack():
        async with attacked_connection(server, 16) as (_, connection):
            for value in (b"u=9", b"u=-1, i", b"i=?2", b"\xff", b"u" * 5000, b"u=1.5, u=0, x;y=z"):
                exchange = await connection.ask("GET", "/", [(b"priority", value)])
                update = frame(PRIORITY_UPDATE, 0, 0, number(exchange.stream_id + 2) + value)
                await connection.write(update)
                assert (await exchange.over()).status == 200
            # Of requests that do not come.
            for stream in range(1001, 5001, 2):
                await connection.write(frame(PRIORITY_UPDATE, 0, 0, number(stream) + b"u=0"))
            exchange = await connection.ask("GET", "/")
            assert (await exchange.over()).status == 200

    run(attack())


# Connections


def test_a_connection_without_requests_is_closed_in_spite_of_pings(besiege_native):
    server = besiege_native("--timeout-keep-alive", "1")

    async def attack():
        async with attacked_connection(server, 16) as (_, connection):
            await connection.ask("GET", "/")
            while not connection.is_closed:
                await connection.write(frame(PING, 0, 0, bytes(8)))
                await asyncio.sleep(0.2)
            assert set(connection.goaways) == {0}

    run(attack())
