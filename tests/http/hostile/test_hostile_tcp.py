"""Hostile requests over native HTTP/1.1 and HTTP/2: bodies, slow readers, heads, disconnects.

Each case has its counterpart over HTTP/3 in other files of this folder. The ordinary client beside them
uses HTTP/3, on the same loop of the server.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.http.hostile.attacked_server import (
    BODY_TIMEOUT,
    HEADER_TIMEOUT,
    MIB,
    SEND_TIMEOUT,
    attacked_server,
    run,
)
from tests.http.hostile.tcp_clients import (
    CANCEL,
    DATA,
    HEADERS,
    SETTINGS,
    Connection,
    clients,
    literal,
    request_block,
    until,
)
from tests.http.hostile.test_hostile_files import (
    SPARE,
    descriptors,
    fetch_over_tcp,
    limit_descriptors,
    open_files,
    sent,
)
from tests.http.http2.client import PREFACE, frame

__all__ = ["sent"]

pytestmark = [
    pytest.mark.either_backend,
    pytest.mark.peer_input,
    pytest.mark.parametrize("version", ["http1", "http2"]),
]

PART = bytes(16_000)

START = PREFACE + frame(SETTINGS, 0, 0)
REQUESTS = {
    "http1": b"POST /upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"5\r\nhello\r\n0\r\n\r\n",
    "http2": START
    + frame(HEADERS, 4, 1, request_block("POST", "/upload"))
    + frame(DATA, 0, 1, b"hello")
    + frame(DATA, 1, 1),
}
"""A whole request of each version."""

LARGE_REQUESTS = {
    "http1": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"x-large: " + b"y" * 60_000,
    # Frames of the largest size, and one that is not complete.
    "http2": START
    + frame(HEADERS, 0, 1, request_block("GET", "/") + literal(b"x", bytes(60_000))[:16_000])
    + frame(9, 0, 1, b"y" * 16_384) * 2
    + frame(9, 0, 1, b"y" * 16_384),
}
"""Heads that are never complete."""

MALFORMED = {
    "http1": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "http2": START + frame(HEADERS, 5, 1, request_block("GET", "/", [(b"X", b"y")])),
}


async def pour(exchange, size=1 << 40):
    """Sends content without end, as far as the server takes it."""
    done = 0
    while done < size and not exchange.is_over:
        await exchange.send(PART)
        done += len(PART)


async def on_each(exchanges, action):
    await asyncio.gather(*(action(exchange) for exchange in exchanges))


# Bodies


def test_unread_bodies_take_what_is_granted(besiege_native, version):
    server = besiege_native()

    async def attack():
        async with (
            attacked_server(server, memory_mib=40) as attacked,
            clients(server, version) as hostile,
        ):
            held = await hostile.exchanges(32, "/hang", "POST", content=True)
            pours = [asyncio.ensure_future(pour(one)) for one in held]
            await attacked.wait_state("hang", running=32)
            for _ in range(5):
                await asyncio.sleep(0.3)
                await attacked.others_served()
            for task in pours:
                task.cancel()

    run(attack())


def test_a_body_without_end_that_is_read_takes_little(besiege_native, version):
    server = besiege_native()

    async def attack():
        async with (
            attacked_server(server, memory_mib=24) as attacked,
            clients(server, version) as hostile,
        ):
            (one,) = await hostile.exchanges(1, "/upload", "POST", content=True)
            await pour(one, 24 * MIB)
            await attacked.others_served()
            await one.finish()
            await until(lambda: one.status)
            assert one.status == 200

    run(attack())


def test_a_body_that_does_not_come_is_waited_for_so_long(besiege_native, version):
    server = besiege_native(BODY_TIMEOUT, "1")

    async def attack():
        async with (
            attacked_server(server, memory_mib=24) as attacked,
            clients(server, version) as hostile,
        ):
            held = await hostile.exchanges(60, "/upload", "POST", content=True)
            for one in held[::2]:
                await one.send(b"some")
            for one in held:
                await until(lambda one=one: one.is_over)
                assert one.status in (0, 408)
            found = await attacked.wait_state("upload", running=0)
            assert found["disconnects"] == len(held)

    run(attack())


def test_a_body_drop_by_drop_is_a_body(besiege_native, version):
    """In parts of ten bytes it takes longer than the time-out, and never pauses."""
    server = besiege_native(BODY_TIMEOUT, "5")

    async def attack():
        async with attacked_server(server, memory_mib=24), clients(server, version) as hostile:
            held = await hostile.exchanges(8, "/upload", "POST", content=True)
            for _ in range(30):
                for _ in range(30):
                    await on_each(held, lambda one: one.send(bytes(10)))
                await asyncio.sleep(0.2)
            await on_each(held, lambda one: one.finish())
            for one in held:
                await until(lambda one=one: one.status)
                assert one.status == 200

    run(attack())


def test_a_body_that_trickles_is_given_up(besiege_native, version):
    server = besiege_native(BODY_TIMEOUT, "1")

    async def attack():
        async with (
            attacked_server(server, memory_mib=16) as attacked,
            clients(server, version) as hostile,
        ):
            held = await hostile.exchanges(32, "/upload", "POST", content=True)
            while not all(one.is_over for one in held):
                await on_each([one for one in held if not one.is_over], lambda one: one.send(b"x"))
                await asyncio.sleep(0.3)
            await attacked.wait_state("upload", running=0)

    run(attack())


def test_content_in_the_smallest_parts_takes_little(besiege_native, version):
    """Chunks and DATA frames of one byte, each of them many times larger than its content."""
    server = besiege_native()

    async def attack():
        async with (
            attacked_server(server, memory_mib=24) as attacked,
            clients(server, version) as hostile,
        ):
            (one,) = await hostile.exchanges(1, "/hang", "POST", content=True)
            await attacked.wait_state("hang", running=1)

            async def drops():
                while not one.is_over:
                    await one.send(b"x")

            drop = asyncio.ensure_future(drops())
            for _ in range(8):
                await asyncio.sleep(0.3)
                await attacked.others_served()
            drop.cancel()

    run(attack())


# Readers


def test_unread_responses_take_little(besiege_native, version):
    server = besiege_native()

    async def attack():
        # HTTP/1.1 has for each connection the part that the application sends, and what waits in the server,
        # to be encrypted, and in the transport; HTTP/2 has 4 MiB for a connection.
        async with (
            attacked_server(server, memory_mib=80) as attacked,
            clients(server, version) as hostile,
        ):
            await hostile.exchanges(100, "/flood/20000000", reads=False)
            await attacked.wait_state("flood", running=100)
            await attacked.others_served()

    run(attack())


def test_a_client_that_reads_nothing_is_given_up(besiege_native, version):
    server = besiege_native(SEND_TIMEOUT, "2")

    async def attack():
        async with (
            attacked_server(server, memory_mib=80) as attacked,
            clients(server, version) as hostile,
        ):
            held = await hostile.exchanges(100, "/flood/20000000", reads=False)
            found = await attacked.wait_state("flood", running=0, returned=100)
            assert found["disconnects"] == 100
            if version == "http2":
                await until(lambda: all(one.is_over for one in held))
                assert {one.code for one in held} == {CANCEL}

    run(attack())


def test_a_slow_reader_is_slow_and_no_more(besiege_native, version):
    """It is served for longer than the time-out."""
    server = besiege_native(SEND_TIMEOUT, "4")

    async def attack():
        async with (
            attacked_server(server, memory_mib=60) as attacked,
            clients(server, version) as hostile,
        ):
            # The kernel has a few MiB for each connection, and takes more when a third of them is free.
            size = 10 if version == "http2" else 600_000
            held = await hostile.exchanges(5, "/flood/20000000", reads=False)
            for _ in range(16):
                await on_each(held, lambda one: take_all(one, size))
                await asyncio.sleep(0.4)
            assert not any(one.is_over for one in held)
            assert (await attacked.state("flood"))["running"] == 5

    run(attack())


async def take_all(one, size):
    wanted = one.received_bytes + size
    while one.received_bytes < wanted and not one.is_over:
        await one.take(wanted - one.received_bytes)


def test_a_reader_below_the_least_rate_is_given_up(besiege_native, version):
    options = ["--http3-send-rate", "1000000", "--http3-send-rate-grace", "3"]
    # The kernel of a client that reads little tells its server rarely.
    server = besiege_native(*options, "--http3-send-timeout", "5")

    async def attack():
        async with (
            attacked_server(server, memory_mib=60) as attacked,
            clients(server, version) as hostile,
        ):
            held = await hostile.exchanges(10, "/flood/20000000", reads=False)
            while (await attacked.state("flood")).get("running", 0):
                await on_each([one for one in held if not one.is_over], lambda one: one.take(100))
                await asyncio.sleep(0.1)
            found = await attacked.state("flood")
            assert (found["returned"], found["disconnects"]) == (10, 10)

    run(attack())


def test_sending_after_a_disconnect_gives_way(besiege_native, version):
    server = besiege_native()

    async def attack():
        async with (
            attacked_server(server, memory_mib=40) as attacked,
            clients(server, version) as hostile,
        ):
            held = await hostile.exchanges(3, "/endless", reads=False, window=100_000)
            await attacked.wait_state("endless", running=3)
            held[0].cancel()
            await attacked.others_served()

    run(attack())


@pytest.fixture
def large_file(tmp_path):
    """Returns a file that is larger than the buffers of the kernel."""
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.truncate(16 * MIB)
    return path


def test_slow_readers_of_files_leave_descriptors_for_others(besiege_native, large_file, version):
    server = besiege_native()
    most = max(descriptors(server)) + SPARE + (64 if version == "http1" else 0)
    limit_descriptors(server, most)

    async def attack():
        async with (
            attacked_server(server, memory_mib=80) as attacked,
            clients(server, version) as hostile,
        ):
            await hostile.exchanges(64, f"/file{large_file}", reads=False, window=1000)
            await attacked.wait_state("file", started=64)
            assert 0 < open_files(server, large_file) <= most // 4
            await asyncio.to_thread(fetch_over_tcp, server)
            response = await asyncio.to_thread(server.get, f"/file{large_file}")
            assert (response.status, response.content) == (200, large_file.read_bytes())
            await attacked.others_served()

    run(attack())


# Disconnects


@pytest.mark.parametrize("path", ["/waits", "/upload", "/flood/20000000", "/tells"])
def test_clients_that_disconnect_leave_nothing(besiege_native, version, path):
    """Before the content, within it, while the application waits, and within the response."""
    server = besiege_native()
    name = path.split("/")[1]

    async def attack():
        async with attacked_server(server, memory_mib=40) as attacked:
            for number in range(4):
                async with clients(server, version) as hostile:
                    content = number % 2 == 0
                    held = await hostile.exchanges(25, path, "POST", content=content)
                    if number == 2:
                        await on_each(held, lambda one: one.send(PART))
                    for connection in hostile.connections:
                        connection.abort()
            found = await attacked.wait_state(name, running=0)
            assert "failed" not in found

    run(attack())


def test_requests_that_are_cut_anywhere_leave_nothing(besiege_native, version):
    """A connection ends behind each byte of a request: with a FIN, or with a reset."""
    server = besiege_native()

    async def attack():
        async with attacked_server(server, memory_mib=24) as attacked:
            request = REQUESTS[version]
            before = len(descriptors(server))
            for end in range(0, len(request), 3):
                connection = Connection()
                await connection.open(server, "h2" if version == "http2" else "http/1.1")
                await connection.write(request[:end])
                if end % 2:
                    connection.abort()
                else:
                    connection.writer.close()
            await until(lambda: len(descriptors(server)) <= before + 2)
            await attacked.wait_state("upload", running=0)

    run(attack())


def test_heads_have_to_be_complete_in_time(besiege_native, version):
    """A byte now and then does not keep a connection, and heads of many clients take little."""
    server = besiege_native(HEADER_TIMEOUT, "2")

    async def attack():
        async with attacked_server(server, memory_mib=40):
            request = LARGE_REQUESTS[version]
            connections = []
            for _ in range(100):
                connection = Connection()
                await connection.open(server, "h2" if version == "http2" else "http/1.1")
                await connection.write(request[:50_000])
                connections.append(connection)
            at = 50_000
            begun = asyncio.get_running_loop().time()
            while not all(one.reader.at_eof() for one in connections):
                for one in connections:
                    await one.write(request[at : at + 1])
                    with contextlib.suppress(TimeoutError, asyncio.TimeoutError, OSError):
                        await asyncio.wait_for(one.reader.read(65_536), 0.001)
                at += 1
                assert asyncio.get_running_loop().time() < begun + 40
                await asyncio.sleep(0.1)

    run(attack())


def test_handshakes_that_do_not_end_leave_nothing(besiege_native, version):
    """Clients that send half a ClientHello, or nothing."""
    server = besiege_native(HEADER_TIMEOUT, "2")

    async def attack():
        async with attacked_server(server, memory_mib=24):
            before = len(descriptors(server))
            pairs = []
            for number in range(100):
                pair = await asyncio.open_connection("127.0.0.1", server.port)
                if number % 2:
                    pair[1].write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(number))
                pairs.append(pair)
            # A handshake has its own time-out, of ten seconds.
            for reader, writer in pairs:
                with contextlib.suppress(OSError):
                    await asyncio.wait_for(reader.read(), 40)
                writer.close()
            await until(lambda: len(descriptors(server)) <= before + 2)

    run(attack())


def test_malformed_requests_write_few_lines(besiege_native, version):
    """Each may cause a line; hundreds of one client cause no more than ten do."""
    server = besiege_native()

    async def attack():
        async with attacked_server(server, memory_mib=16):
            for _ in range(200):
                connection = Connection()
                await connection.open(server, "h2" if version == "http2" else "http/1.1")
                await connection.write(MALFORMED[version])
                connection.writer.close()

    run(attack())
