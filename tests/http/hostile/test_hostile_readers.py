"""Clients hostile with responses: they read nothing or nearly nothing, or forbid the responses to
their own requests.
"""

import asyncio
import contextlib

from tests.http import http3_bytes
from tests.http.hostile.attacked_server import SEND_TIMEOUT, attacked_server, run
from tests.http.raw_client import Close, connect_raw, needs_recent_aioquic
from uringcore.h3.connection import ErrorCode

pytestmark = needs_recent_aioquic

FLOOD = "/flood/8000000"


@contextlib.asynccontextmanager
async def greedy(server, path=FLOOD, count=100, **configuration):
    """A connection with this many downloads and PINGs that keep it alive; it never extends its
    windows.
    """

    def prepare(quic):
        quic.grants = False
        # The server's own streams are not limited.
        quic._local_max_stream_data_uni = 1 << 20

    async with connect_raw(server, prepare=prepare, **configuration) as raw:
        raw.control()
        downloads = [raw.request(path) for _ in range(count)]
        pings = asyncio.ensure_future(raw.keep_alive())
        yield raw, downloads
        pings.cancel()


def test_qpack_streams_without_credit_close_the_connection(besiege):
    """The server's decoder acknowledges each request, on a stream that has no credit."""
    server = besiege()
    # Refers to the first entry of the table.
    lines = (
        http3_bytes.section(http3_bytes.fields(), insert_count=http3_bytes.prefixed(2, 8)) + b"\x80"
    )
    request = http3_bytes.frame(http3_bytes.HEADERS, lines)

    def prepare(quic):
        quic.grants = False
        quic._local_max_stream_data_uni = 100

    def has_room(quic):
        return quic._remote_max_streams_bidi > quic.get_next_available_stream_id() // 4

    async def attack():
        async with attacked_server(server, memory_mib=8) as attacked:
            async with connect_raw(server, prepare=prepare, max_data=100 << 20) as raw:
                raw.control()
                inserted = http3_bytes.capacity(4096) + http3_bytes.insert(b"x", b"y")
                raw.uni(http3_bytes.varint(http3_bytes.QPACK_ENCODER) + inserted)
                # The entry has arrived; more requests than may be blocked could overtake it.
                await raw.wait_answer(raw.bidi(request, fin=True))
                for _ in range(20_000):
                    await raw.wait(lambda: raw.closed or has_room(raw.quic))
                    if raw.closed is not None:
                        break
                    # It gets a response, and leaves an acknowledgement queued.
                    raw.bidi(request, fin=True)
                assert raw.closed == Close(ErrorCode.H3_EXCESSIVE_LOAD)
            await attacked.others_served()

    run(attack())


def test_downloads_without_credit_take_little(besiege):
    server = besiege()

    async def attack():
        # For each of the three at most a connection's queue, 4 MiB, and a part for each stream.
        async with (
            attacked_server(server, memory_mib=80) as attacked,
            contextlib.AsyncExitStack() as stack,
        ):
            for _ in range(3):
                await stack.enter_async_context(greedy(server, max_stream_data=16))
            await attacked.wait_state("flood", running=300)
            await attacked.others_served()

    run(attack())


def test_a_client_that_takes_nothing_is_given_up(besiege):
    """It acknowledges all packets and grants no credit: neither loss nor silence ends it."""
    server = besiege(SEND_TIMEOUT, "2")

    async def attack():
        async with (
            attacked_server(server, memory_mib=80) as attacked,
            contextlib.AsyncExitStack() as stack,
        ):
            clients = [
                await stack.enter_async_context(greedy(server, max_stream_data=16))
                for _ in range(3)
            ]
            for raw, downloads in clients:
                for stream_id in downloads:
                    assert (await raw.wait_over(stream_id)).codes == {
                        ErrorCode.H3_REQUEST_CANCELLED
                    }
            found = await attacked.wait_state("flood", running=0)
            assert (found["returned"], found["disconnects"]) == (300, 300)
            await attacked.others_served()

    run(attack())


def test_a_client_without_credit_for_the_whole_connection_is_given_up(besiege):
    server = besiege(SEND_TIMEOUT, "2")

    async def attack():
        async with attacked_server(server, memory_mib=40) as attacked:
            async with greedy(server, max_data=20_000) as (raw, downloads):
                for stream_id in downloads:
                    stream = raw.incoming(stream_id)
                    await raw.wait(lambda stream=stream: stream.over or raw.closed)
                await attacked.wait_state("flood", running=0)
            await attacked.others_served()

    run(attack())


def test_a_slow_reader_is_slow_and_no_more(besiege):
    """An occasional byte on each of 100 streams: the client is served, and costs little."""
    server = besiege(SEND_TIMEOUT, "5")

    async def attack():
        async with attacked_server(server, memory_mib=40) as attacked:
            async with greedy(server, max_stream_data=16) as (raw, downloads):
                streams = [raw.incoming(stream_id) for stream_id in downloads]
                # Longer than the time-out in total.
                for allowed in range(17, 41):
                    for stream_id in downloads:
                        raw.quic._streams[stream_id].max_stream_data_local = allowed
                    grants = [
                        http3_bytes.varints(0x11, stream_id, allowed) for stream_id in downloads
                    ]
                    raw.say(*grants)
                    await raw.wait(
                        lambda allowed=allowed: all(len(one.data) == allowed for one in streams)
                    )
                    await asyncio.sleep(0.25)
                assert not any(stream.over for stream in streams)
                await attacked.others_served()

    run(attack())


def test_a_reader_below_the_least_rate_is_given_up(besiege):
    """An occasional byte on each of 20 streams, none of which waits for long."""
    options = ["--http3-send-rate", "1000", "--http3-send-rate-grace", "3"]
    server = besiege(*options, "--metrics-path", "/metrics")

    async def attack():
        async with attacked_server(server, memory_mib=40) as attacked:
            async with greedy(server, count=20, max_stream_data=16) as (raw, downloads):
                streams = [raw.incoming(stream_id) for stream_id in downloads]
                allowed = 16
                while not all(stream.over for stream in streams):
                    allowed += 1
                    grants = []
                    for stream_id in downloads:
                        stream = raw.quic._streams.get(stream_id)
                        if stream is not None and not raw.incoming(stream_id).over:
                            stream.max_stream_data_local = allowed
                            grants.append(http3_bytes.varints(0x11, stream_id, allowed))
                    raw.say(*grants)
                    assert allowed < 400, "no response was given up"
                    await asyncio.sleep(0.1)
                for stream in streams:
                    assert stream.codes == {ErrorCode.H3_REQUEST_CANCELLED}
                found = await attacked.wait_state("flood", running=0)
                assert (found["returned"], found["disconnects"]) == (20, 20)
            await attacked.others_served()

    run(attack())
    text = server.get("/metrics").content.decode()
    reason = 'uringcore_http3_responses_given_up_total{worker="0",reason="little_taken"} 20'
    assert reason in text, [line for line in text.splitlines() if "given_up" in line]


def test_sending_after_a_disconnect_gives_way(besiege):
    """`send` returns at once then, but an application in a loop of sends must let other tasks run."""
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=40) as attacked:
            async with greedy(server, "/endless", 3, max_stream_data=100_000) as (raw, downloads):
                for stream_id in downloads:
                    await raw.wait(lambda stream_id=stream_id: raw.incoming(stream_id).data)
                raw.stop(downloads[0], ErrorCode.H3_REQUEST_CANCELLED)
                assert (await raw.wait_answer(raw.request())).status == 200
            await attacked.others_served()

    run(attack())


def test_a_client_that_allows_no_response_fields(besiege):
    """SETTINGS_MAX_FIELD_SECTION_SIZE of 0: every response exceeds it."""
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=8, log_lines=12) as attacked:
            async with connect_raw(server) as raw:
                raw.control({http3_bytes.MAX_FIELD_SECTION_SIZE: 0})
                for _ in range(2):
                    for stream_id in [raw.request("/tells") for _ in range(50)]:
                        stream = await raw.wait_over(stream_id)
                        assert (stream.reset, stream.data) == (ErrorCode.H3_INTERNAL_ERROR, b"")
                found = await attacked.wait_state("tells", running=0)
                assert found["disconnects"] == 100
            await attacked.others_served()

    run(attack())
    assert "The response to GET /tells was not sent: the header section takes" in server.log()


def test_a_table_as_large_as_the_client_likes_is_not_ours(besiege):
    """The client offers a gigabyte for our encoder's table, lets streams block, and acknowledges
    nothing.
    """
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=24) as attacked, connect_raw(server) as raw:
            offer = {
                http3_bytes.QPACK_MAX_TABLE_CAPACITY: 1 << 30,
                http3_bytes.QPACK_BLOCKED_STREAMS: 1 << 16,
            }
            raw.control(offer)
            for number in range(3000):
                if not number % 50:
                    await raw.wait_room(50)
                raw.request(f"/fields/{number}")
            await attacked.wait_state("fields", returned=3000)
            await attacked.others_served()

    run(attack())
