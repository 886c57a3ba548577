"""Clients hostile by number: reset requests, unknown streams and frames, tunnels."""

import asyncio

import pytest

from tests.http import http3_bytes
from tests.http.hostile.attacked_server import KEEP_ALIVE, REQUESTS, attacked_server, run
from tests.http.raw_client import Close, connect_raw, needs_recent_aioquic
from uringcore.h3.connection import ErrorCode

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input, needs_recent_aioquic]

EXCESSIVE = Close(ErrorCode.H3_EXCESSIVE_LOAD)


@pytest.mark.parametrize("path", ["/hang", "/waits"])
def test_rapid_reset(besiege, path):
    """10,000 requests, each reset as soon as it is made: CVE-2023-44487 with QUIC's frames."""
    # Even if a busy machine takes long, the bucket hardly refills.
    server = besiege("--http3-early-reset-rate", "1")
    name = path[1:]

    async def attack():
        async with attacked_server(server, memory_mib=24) as attacked, connect_raw(server) as raw:
            raw.control()
            made = 0
            while raw.closed is None and made < 10_000:
                room = min(await room_or_close(raw), 10_000 - made)
                made += room
                batch = [raw.request(path) for _ in range(room)]
                # aioquic drops queued data of a stream that it resets.
                await raw.wait_sent()
                for stream_id in batch:
                    raw.give_up(stream_id, ErrorCode.H3_REQUEST_CANCELLED)
            assert await raw.wait(lambda: raw.closed, 10) == EXCESSIVE
            found = await attacked.wait_state(name, running=0)
            # The number that a client may reset before the close: the bucket, and the resets that
            # crossed the close.
            assert found["started"] < 1500
            await attacked.others_served()

    run(attack())


def test_made_you_reset(besiege):
    """Resets by the server itself: each request is valid until its content is too long, and then
    the server resets the stream (CVE-2025-8671 with HTTP/3's rules).
    """
    server = besiege()
    wrong = http3_bytes.request("/hang", (b"content-length", b"1"), method="POST")
    wrong += http3_bytes.frame(http3_bytes.DATA, b"more than that")

    async def attack():
        async with attacked_server(server, memory_mib=24) as attacked, connect_raw(server) as raw:
            raw.control()
            made = 0
            while raw.closed is None and made < 2000:
                room = min(await room_or_close(raw), 2000 - made)
                made += room
                for stream_id in [raw.bidi(wrong) for _ in range(room)]:
                    stream = raw.incoming(stream_id)
                    await raw.wait(lambda stream=stream: raw.closed or stream.over)
                    raw.give_up(stream_id, ErrorCode.H3_NO_ERROR)
            assert raw.closed in (None, EXCESSIVE)
            # As many requests as a connection may have at once; the resets allow no more.
            while (await attacked.state("hang")).get("running", 0) > 100:
                await asyncio.sleep(0.1)
            await attacked.others_served()

    run(attack())


async def room_or_close(raw):
    """Waits until it may open streams, or the connection has been closed."""

    def room():
        quic = raw.quic
        return quic._remote_max_streams_bidi - quic.get_next_available_stream_id() // 4

    await raw.wait(lambda: raw.closed or room() > 0)
    return room()


def test_requests_that_are_given_up_now_and_then_are_no_attack(besiege):
    """A user who browses pages: 100 cancelled requests between 100 that are served."""
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=8) as attacked, connect_raw(server) as raw:
            raw.control()
            for _ in range(100):
                given_up = raw.request("/waits")
                raw.stop(given_up, ErrorCode.H3_REQUEST_CANCELLED)
                assert (await raw.wait_answer(raw.request())).status == 200
            await attacked.wait_state("waits", running=0)
            assert raw.closed is None

    run(attack())


def test_streams_of_unknown_types(besiege):
    """RFC 9114 section 6.2.3: they are ignored, and there may be thousands."""
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=8) as attacked, connect_raw(server) as raw:
            raw.control()
            for number in range(5000):
                raw.quic.send_stream_data(
                    raw.quic.get_next_available_stream_id(is_unidirectional=True),
                    http3_bytes.varint(http3_bytes.GREASE + 0x1F * number) + bytes(100),
                    True,
                )
                if not number % 100:
                    raw.transmit()
                    await asyncio.sleep(0)
            raw.transmit()
            await still_served(raw, attacked)

    run(attack())


def test_streams_without_a_type(besiege):
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=8) as attacked, connect_raw(server) as raw:
            raw.control()
            for _ in range(1000):
                raw.uni(b"\xc0")
            await still_served(raw, attacked)

    run(attack())


@pytest.mark.parametrize("where", ["control stream", "request"])
def test_unknown_frames(besiege, where):
    """RFC 9114 section 9: they are ignored, both empty ones and those of a terabyte."""
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=8) as attacked, connect_raw(server) as raw:
            control = raw.control()
            held = (
                raw.bidi(http3_bytes.request("/upload", method="POST"))
                if where == "request"
                else control
            )
            for _ in range(50):
                raw.write(held, http3_bytes.frame(http3_bytes.GREASE) * 1000)
                await asyncio.sleep(0.002)
            raw.write(held, http3_bytes.varints(http3_bytes.GREASE, 1 << 40))
            for _ in range(100):
                raw.write(held, bytes(60_000))
                await asyncio.sleep(0.002)
            await still_served(raw, attacked)

    run(attack())


async def still_served(raw, attacked):
    """The connection still works, or was closed for this; others are served."""
    stream_id = raw.request()
    await raw.wait(lambda: raw.closed or raw.incoming(stream_id).over)
    if raw.closed is None:
        assert raw.answer(stream_id).status == 200
    else:
        assert raw.closed == EXCESSIVE
    await attacked.others_served()


TUNNELS = {
    "plain": {"method": "CONNECT", "scheme": None, "path": None},
    "websocket": {"method": "CONNECT", "protocol": "websocket"},
    "webtransport": {"method": "CONNECT", "protocol": "webtransport"},
    "udp": {"method": "CONNECT", "protocol": "connect-udp"},
}


@pytest.mark.parametrize("pseudo", TUNNELS.values(), ids=list(TUNNELS))
def test_tunnels_are_refused_and_not_read(besiege, pseudo):
    """Each carries data that no code reads; if each caused a log line, the client could fill the
    log.
    """
    server = besiege()
    # A WebSocket is rejected for a missing field: it names no version.
    refusal = 400 if pseudo.get("protocol") == "websocket" else 501
    resets = {ErrorCode.H3_MESSAGE_ERROR}
    if pseudo.get("protocol") == "webtransport":
        resets.add(ErrorCode.H3_EXCESSIVE_LOAD)

    async def attack():
        async with attacked_server(server, memory_mib=24) as attacked, connect_raw(server) as raw:
            raw.control()
            path = pseudo.get("path", "/")
            others = {name: value for name, value in pseudo.items() if name != "path"}
            for _ in range(6):
                await raw.wait_room(64)
                tunnel = (
                    http3_bytes.request(path, **others)
                    + http3_bytes.frame(http3_bytes.DATA, bytes(5000)) * 4
                )
                tunnels = [raw.bidi(tunnel) for _ in range(64)]
                for stream_id in tunnels:
                    stream = await raw.wait_over(stream_id)
                    if stream.reset is None:
                        assert raw.answer(stream_id).status == refusal
                        await raw.wait(lambda stream=stream: stream.codes)
                    else:
                        # RFC 9220 section 3: the server announced no extended CONNECT. Or a session
                        # sent more than the server buffers before the response.
                        assert stream.reset in resets
                    raw.reset(stream_id, ErrorCode.H3_REQUEST_CANCELLED)
            await attacked.others_served()

    run(attack())


def test_malformed_requests_write_few_lines(besiege):
    """Each may cause a line; a thousand from one client cause no more than ten do."""
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=8) as attacked, connect_raw(server) as raw:
            raw.control()
            for _ in range(20):
                await raw.wait_room(50)
                for stream_id in [raw.request("/", scheme="ftp") for _ in range(50)]:
                    stream = await raw.wait_over(stream_id)
                    assert stream.reset or raw.answer(stream_id).status == 400
            await attacked.others_served()

    run(attack())


PRIORITIES = [b"u=99", b"u=-1, i=?7", b"\xf0\x9f\x92\xa5", b"u=" + b"9" * 1000, b"i" * 4000, b"((("]


def test_an_invalid_priority_is_ignored(besiege):
    """RFC 9218 section 4: an invalid priority is ignored."""
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=8), connect_raw(server) as raw:
            raw.control()
            for value in PRIORITIES:
                answer = await raw.wait_answer(raw.request("/", (b"priority", value)))
                assert answer.status == 200, value

    run(attack())


def test_priorities_of_requests_that_do_not_come(besiege):
    """RFC 9218 section 7.1: they are kept for future requests, up to the stream limit."""
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=8) as attacked, connect_raw(server) as raw:
            control = raw.control()
            for _ in range(100):
                updates = [
                    http3_bytes.frame(
                        http3_bytes.PRIORITY_UPDATE, http3_bytes.varint(4 * number) + b"u=0, i"
                    )
                    for number in range(100)
                ]
                raw.write(control, b"".join(updates))
                await asyncio.sleep(0.002)
            await still_served(raw, attacked)

    run(attack())


def test_a_connection_without_requests_is_closed_in_spite_of_pings(besiege):
    server = besiege(KEEP_ALIVE, "1")

    async def attack():
        async with attacked_server(server, memory_mib=8), connect_raw(server) as raw:
            raw.control()
            assert (await raw.wait_answer(raw.request())).status == 200
            pings = asyncio.ensure_future(raw.keep_alive())
            assert await raw.wait_closed_by_server() == Close(ErrorCode.H3_NO_ERROR)
            pings.cancel()

    run(attack())


def test_a_connection_has_so_many_requests(besiege):
    """Then GOAWAY; earlier requests get responses."""
    server = besiege(REQUESTS, "5")

    async def attack():
        async with connect_raw(server) as raw:
            raw.control()
            for stream_id in [raw.request() for _ in range(5)]:
                assert (await raw.wait_answer(stream_id)).status == 200
            await raw.wait(lambda: raw.goaways()[1:])
            assert raw.goaways() == [http3_bytes.HIGHEST_REQUEST, 4 * 5]

    # The ordinary client beside it gets a GOAWAY as well, and is not checked.
    asyncio.run(asyncio.wait_for(attack(), 60))
