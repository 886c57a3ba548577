"""Clients that fill the log: with requests that they cancel at every moment, from many addresses.

The lines that a client causes have a budget, whatever applications and frameworks log.
"""

import asyncio
import contextlib
import itertools
import re
import time

import pytest

from tests.http import http3_bytes
from tests.http.hostile.attacked_server import LOG_LINES, attacked_server, run
from tests.http.raw_client import WAIT_SECONDS, connect_raw, needs_recent_aioquic
from uringcore.h3.connection import ErrorCode

pytestmark = [pytest.mark.either_backend, needs_recent_aioquic]

DESERTED = "tests.http.hostile.abandoned_applications:app"
CANCELLED = ErrorCode.H3_REQUEST_CANCELLED
# Texts that no log may contain, whatever clients send.
FAULTS = (
    "Traceback",
    "never retrieved",
    "never awaited",
    "was destroyed",
    "unraisable",
    "Exception ignored",
)
MOMENTS = (
    "with the request",
    "inside its head",
    "before its content",
    "inside its content",
    "late",
)
ACTIONS = ("stop", "reset", "both", "malformed", "close")
PATHS = (
    "/",
    "/stream",
    "/file",
    "/body",
    "/slow",
    "/background",
    "/broken",
    "/api/items",
    "/through/",
    "/through/stream",
    "/through/body",
)


@pytest.fixture
def desert(start, backend):
    """Starts a server of the frameworks' applications with these options."""

    def start_server(*options):
        return start(*options, "--no-access-log", backend=backend, app=DESERTED)

    return start_server


@pytest.mark.parametrize("path", ["/", "/waits", "/tells"])
def test_requests_stopped_until_the_connection_is_closed(besiege, path):
    """Applications that respond after their client has left, and after its connection was closed
    for it.
    """
    server = besiege("--http3-max-early-resets", "10", "--http3-early-reset-rate", "1")

    async def attack():
        async with attacked_server(server, memory_mib=24):
            for _ in range(12):
                async with connect_raw(server) as raw:
                    raw.control()
                    with contextlib.suppress(AssertionError):
                        while raw.closed is None:
                            batch = [raw.request(path) for _ in range(await raw.wait_room(5))]
                            for stream_id in batch:
                                raw.quic.stop_stream(stream_id, CANCELLED)
                            raw.transmit()
                            await asyncio.sleep(0)

    run(attack())
    check(server)


@pytest.mark.parametrize("action", ACTIONS)
def test_requests_given_up_at_every_moment(desert, action):
    """Requests end by STOP_SENDING, RESET_STREAM, invalid frames or the end of the connection, with each
    application.
    """
    server = desert()

    async def attack():
        async with attacked_server(server, memory_mib=48):
            for moment in MOMENTS:
                if (moment, action) == ("inside its head", "malformed"):
                    # An unreadable field section is an error of the whole connection.
                    continue
                if action == "close":
                    for path in PATHS:
                        async with connect_raw(server) as raw:
                            raw.control()
                            await give_up(raw, path, moment, action)
                    continue
                async with connect_raw(server) as raw:
                    raw.control()
                    for path in PATHS:
                        await give_up(raw, path, moment, action)
                    answer = await raw.wait_answer(raw.request("/"))
                    assert answer.body == b"hello"

    run(attack())
    check(server)


async def give_up(raw, path, moment, action):
    """Makes one request and abandons it."""
    method = "GET" if moment == "late" and path != "/api/items" else "POST"
    lines = ((b"content-length", b"100"),) if method == "POST" else ()
    head = http3_bytes.request(path, (b"content-type", b"application/json"), *lines, method=method)
    content = http3_bytes.frame(http3_bytes.DATA, b'["' + bytes(20))
    if moment == "with the request":
        act(raw, queue(raw, head), action)
    elif moment == "inside its head":
        stream_id = raw.bidi(head[:-7])
        await round_trip(raw)
        act(raw, stream_id, action)
        with contextlib.suppress(Exception):
            # aioquic accepts no more data on a stream that it has reset.
            raw.write(stream_id, head[-7:], fin=True)
    elif moment == "before its content":
        stream_id = raw.bidi(head)
        await round_trip(raw)
        act(raw, stream_id, action)
    elif moment == "inside its content":
        stream_id = raw.bidi(head + content)
        await round_trip(raw)
        act(raw, stream_id, action)
    else:
        stream_id = raw.bidi(head, fin=method == "GET")
        stream = raw.incoming(stream_id)
        if method == "GET":
            await raw.wait(lambda: stream.data or stream.over)
        act(raw, stream_id, action)
    await round_trip(raw)


def queue(raw, data):
    """Opens a stream with these bytes, which leave in the next packet."""
    stream_id = raw.quic.get_next_available_stream_id()
    raw.quic.send_stream_data(stream_id, data)
    return stream_id


def act(raw, stream_id, action):
    known = stream_id in raw.quic._streams
    if action in ("stop", "both") and known:
        raw.quic.stop_stream(stream_id, CANCELLED)
    if action in ("reset", "both") and known:
        with contextlib.suppress(AssertionError):
            raw.quic.reset_stream(stream_id, CANCELLED)
    if action == "malformed" and known:
        # The server may have responded already, and have stopped the request.
        with contextlib.suppress(AssertionError, RuntimeError):
            raw.quic.send_stream_data(
                stream_id, http3_bytes.frame(http3_bytes.DATA, bytes(200)), True
            )
    if action == "close":
        raw.close(ErrorCode.H3_NO_ERROR)
    raw.transmit()


async def round_trip(raw):
    """Waits until the server has acknowledged a PING, if the connection is open."""
    if raw.quic._close_event is not None or raw.quic._close_pending:
        return
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(raw.ping(), WAIT_SECONDS)


@pytest.mark.parametrize("action", [*ACTIONS, "farewell", "end"])
def test_websockets_that_are_left(desert, action):
    """Clients leave with and without a Close frame, before the accept and after it, while their application
    sends.
    """
    server = desert()

    async def attack():
        async with attacked_server(server, memory_mib=48):
            for path, accepted in itertools.product(("/echo", "/flood"), (False, True) * 8):
                async with connect_raw(server) as raw:
                    raw.control()
                    await leave_socket(raw, path, accepted, action)

    run(attack())
    check(server)


async def leave_socket(raw, path, accepted, action):
    version = (b"sec-websocket-version", b"13")
    head = http3_bytes.request(path, version, method="CONNECT", protocol="websocket")
    stream_id = raw.bidi(head) if accepted else queue(raw, head)
    if accepted:
        stream = raw.incoming(stream_id)
        await raw.wait(lambda: stream.data or stream.over)
    if action == "farewell":
        # RFC 6455 section 5.5.1, masked with zeros: 1001.
        word = b"\x88\x82" + bytes(4) + (1001).to_bytes(2, "big")
        raw.write(stream_id, http3_bytes.frame(http3_bytes.DATA, word), fin=True)
    elif action == "end":
        raw.write(stream_id, b"", fin=True)
    else:
        act(raw, stream_id, action)
    await round_trip(raw)


@pytest.mark.parametrize("action", [*ACTIONS, "end", "goaway"])
def test_sessions_that_are_left(desert, action):
    """WebTransport sessions, with streams and datagrams on them, before they are accepted and
    after.
    """
    server = desert()

    async def attack():
        async with attacked_server(server, memory_mib=48):
            for accepted in (False, True) * 8:
                async with connect_raw(server, max_datagram_frame_size=65536) as raw:
                    control = raw.control(SESSION_SETTINGS)
                    await leave_session(raw, control, accepted, action)

    run(attack())
    check(server)


# draft-ietf-webtrans-http3-02: SETTINGS_ENABLE_WEBTRANSPORT.
SESSION_SETTINGS = {
    http3_bytes.H3_DATAGRAM: 1,
    http3_bytes.ENABLE_CONNECT_PROTOCOL: 1,
    0x2B603742: 1,
}


async def leave_session(raw, control, accepted, action):
    head = http3_bytes.request("/session", method="CONNECT", protocol="webtransport")
    stream_id = raw.bidi(head) if accepted else queue(raw, head)
    if accepted:
        stream = raw.incoming(stream_id)
        await raw.wait(lambda: stream.data or stream.over)
        assert raw.answer(stream_id).status == 200
    raw.datagram(stream_id, b"datagram")
    raw.bidi(http3_bytes.varints(0x41, stream_id) + b"stream")
    raw.uni(http3_bytes.varints(0x54, stream_id) + b"stream")
    if action == "end":
        raw.write(stream_id, b"", fin=True)
    elif action == "goaway":
        raw.write(control, http3_bytes.frame(http3_bytes.GOAWAY, http3_bytes.varint(0)))
    else:
        act(raw, stream_id, action)
    await round_trip(raw)


@pytest.mark.parametrize("limit", ["header section", "datagram"])
def test_sessions_of_clients_that_take_next_to_nothing(desert, limit):
    """An application sends more than they accept, and does not handle that."""
    server = desert()
    takes = {http3_bytes.MAX_FIELD_SECTION_SIZE: 60} if limit == "header section" else {}
    longest = 60 if limit == "datagram" else 65536

    async def attack():
        async with attacked_server(server, memory_mib=48):
            for _ in range(20):
                async with connect_raw(server, max_datagram_frame_size=longest) as raw:
                    raw.control({**SESSION_SETTINGS, **takes})
                    head = http3_bytes.request(
                        "/session", method="CONNECT", protocol="webtransport"
                    )
                    stream_id = raw.bidi(head)
                    stream = raw.incoming(stream_id)
                    await raw.wait(lambda stream=stream: stream.data or stream.over)
                    if limit == "datagram":
                        assert raw.answer(stream_id).status == 200
                        raw.datagram(stream_id, bytes(500))
                    await raw.wait_over(stream_id)

    run(attack())
    check(server)


def test_clients_of_many_addresses(besiege):
    """Each address belongs to another client: 60 of them, each with a budget of ten lines."""
    server = besiege("--http3-log-lines", "10")
    begin = time.monotonic()

    def total():
        """The lines of all networks: 200 at once, and one more every three seconds."""
        return 10 * 20 + int((time.monotonic() - begin) / 3) + 1

    async def attack():
        async with attacked_server(server, memory_mib=24, log_lines=lambda: total() + LOG_LINES):
            for number in range(60):
                async with connect_raw(server, source=f"127.0.{number}.7") as raw:
                    raw.control()
                    wrong = [raw.request("/", scheme="ftp") for _ in range(12)]
                    for stream_id in wrong:
                        assert (await raw.wait_answer(stream_id)).status == 400

    run(attack())
    log = server.log()
    said = log.count("Invalid HTTP/3 request")
    assert 100 <= said <= total(), said
    check(server)
    # Suppressed lines are counted, at the latest at the end.
    counts = re.findall(r"(\d+) lines about clients were left out", server.log())
    assert sum(map(int, counts)) == 60 * 12 - said, server.log()[-2000:]


def check(server):
    """The log contains no error of the server itself, neither now nor when it stops."""
    assert server.stop() == 0
    log = server.log()
    found = [line for line, fault in itertools.product(log.splitlines(), FAULTS) if fault in line]
    assert not found, log[-4000:]
