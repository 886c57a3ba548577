"""Clients hostile with field sections: without an end, too large, and larger when decoded."""

import asyncio
import contextlib

import pytest

from tests.http import http3_bytes
from tests.http.hostile.attacked_server import HEADER_BYTES, HEADER_TIMEOUT, attacked_server, run
from tests.http.raw_client import Close, connect_raw, needs_recent_aioquic
from uringcore.h3.connection import ErrorCode

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input, needs_recent_aioquic]

EXCESSIVE = Close(ErrorCode.H3_EXCESSIVE_LOAD)
# A HEADERS frame with a length greater than the data that follows.
UNFINISHED = http3_bytes.varints(http3_bytes.HEADERS, 60_000)


def test_field_sections_without_end_are_bounded_together(besiege):
    """Ten connections, each with 100 streams of an unfinished section, kept alive by PINGs."""
    server = besiege()

    async def hold(raw):
        raw.control()
        pings = asyncio.ensure_future(raw.keep_alive())
        try:
            while raw.closed is None and raw.quic.get_next_available_stream_id() < 4 * 100:
                raw.bidi(UNFINISHED + bytes(55_000))
                # They are read as fast as they are sent.
                await asyncio.sleep(0.01)
            return await raw.wait_closed_by_server()
        finally:
            pings.cancel()

    async def attack():
        async with (
            attacked_server(server, memory_mib=40) as attacked,
            contextlib.AsyncExitStack() as stack,
        ):
            raws = [await stack.enter_async_context(connect_raw(server)) for _ in range(10)]
            attackers = [asyncio.ensure_future(hold(raw)) for raw in raws]
            await attacked.others_served()
            assert await asyncio.gather(*attackers) == [EXCESSIVE] * 10

    run(attack())


def test_a_field_section_has_to_be_complete_in_time(besiege):
    """A few bytes on each stream use no memory, but each holds a stream."""
    server = besiege(HEADER_TIMEOUT, "1")

    async def attack():
        async with attacked_server(server, memory_mib=8) as attacked, connect_raw(server) as raw:
            raw.control()
            pings = asyncio.ensure_future(raw.keep_alive())
            # No data at all, half a frame header, half a section.
            held = [raw.bidi(data) for data in (b"\1", UNFINISHED, UNFINISHED + b"\0\0") * 40]
            for stream_id in held:
                stream = await raw.wait_over(stream_id)
                assert stream.codes == {ErrorCode.H3_REQUEST_REJECTED}
            # The connection still works.
            assert (await raw.wait_answer(raw.request())).status == 200
            await attacked.others_served()
            pings.cancel()

    run(attack())


def test_the_limit_of_field_sections_is_announced_and_held(besiege):
    server = besiege(HEADER_BYTES, "1024")

    async def attack():
        async with attacked_server(server, memory_mib=8), connect_raw(server) as raw:
            raw.control()
            assert (await raw.wait_settings())[http3_bytes.MAX_FIELD_SECTION_SIZE] == 1024
            assert (await raw.wait_answer(raw.request("/", (b"x", b"v" * 500)))).status == 200
            await refused(raw, raw.request("/", (b"x", b"v" * 2000)))
            # The part received so far is enough to reject it.
            await refused(
                raw, raw.bidi(http3_bytes.varints(http3_bytes.HEADERS, 60_000) + bytes(1500))
            )
            assert (await raw.wait_answer(raw.request())).status == 200

    run(attack())


async def refused(raw, stream_id):
    """The refusal comes with a response or without (RFC 9114 section 4.2.2, RFC 6585 section 5)."""
    stream = await raw.wait_over(stream_id)
    if stream.reset is None:
        assert raw.answer(stream_id).status == 431
    else:
        assert stream.reset == ErrorCode.H3_EXCESSIVE_LOAD


def test_too_many_fields_are_refused(besiege):
    """Each field is a pair of objects for the application, however short."""
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=8), connect_raw(server) as raw:
            raw.control()
            many = [(b"a", b"")] * 1000
            await refused(raw, raw.request("/", *many))
            assert (await raw.wait_answer(raw.request("/", *many[:200]))).status == 200

    run(attack())


def test_a_section_that_is_large_only_when_decoded_is_refused(besiege):
    """One entry of 4 KB in the table, and a thousand references of one byte to it, repeatedly."""
    server = besiege()
    bomb = http3_bytes.prefixed(2, 8) + b"\0" + b"\x80" * 10_000

    async def attack():
        async with attacked_server(server, memory_mib=12) as attacked, connect_raw(server) as raw:
            raw.control()
            raw.uni(
                http3_bytes.varint(http3_bytes.QPACK_ENCODER)
                + http3_bytes.capacity(4096)
                + http3_bytes.insert(b"x", b"v" * 4000)
            )
            for _ in range(50):
                if raw.closed is None:
                    await refused(
                        raw, raw.bidi(http3_bytes.frame(http3_bytes.HEADERS, bomb), fin=True)
                    )
            await attacked.others_served()

    run(attack())


def test_a_table_that_is_filled_for_ever_stays_as_large_as_was_announced(besiege):
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=12) as attacked, connect_raw(server) as raw:
            raw.control()
            encoder = raw.uni(
                http3_bytes.varint(http3_bytes.QPACK_ENCODER) + http3_bytes.capacity(4096)
            )
            for number in range(200):
                inserted = http3_bytes.insert(b"x-%d" % number, b"v" * 1000) * 20
                raw.write(encoder, inserted)
                await asyncio.sleep(0.005)
            assert raw.closed in (None, EXCESSIVE)
            await attacked.others_served()

    run(attack())


ENCODER_FAULTS = {
    "capacity above the limit": http3_bytes.capacity(1 << 30),
    "string of a gigabyte": http3_bytes.capacity(4096)
    + http3_bytes.prefixed(1, 5, 0x40)
    + b"x"
    + http3_bytes.prefixed(1 << 30, 7),
    "integer without end": b"\x3f" + b"\xff" * 100,
}


@pytest.mark.parametrize("data", ENCODER_FAULTS.values(), ids=list(ENCODER_FAULTS))
def test_an_encoder_stream_that_wants_memory_closes_the_connection(besiege, data):
    server = besiege()

    async def attack():
        async with attacked_server(server, memory_mib=8), connect_raw(server) as raw:
            raw.control()
            raw.uni(http3_bytes.varint(http3_bytes.QPACK_ENCODER) + data)
            assert await raw.wait_closed_by_server() == Close(ErrorCode.QPACK_ENCODER_STREAM_ERROR)

    run(attack())


def test_sections_that_wait_for_the_table_are_few(besiege):
    """RFC 9204 section 2.1.2: more streams than the decoder allows to be blocked are an error."""
    server = besiege()
    # Refers to an entry that never comes.
    blocked = http3_bytes.frame(
        http3_bytes.HEADERS, http3_bytes.prefixed(2, 8) + b"\0" + b"\x80" + bytes(50_000)
    )

    async def attack():
        async with attacked_server(server, memory_mib=12) as attacked, connect_raw(server) as raw:
            raw.control()
            for _ in range(100):
                raw.bidi(blocked, fin=True)
            close = await raw.wait_closed_by_server()
            assert close in (Close(ErrorCode.QPACK_DECOMPRESSION_FAILED), EXCESSIVE)
            await attacked.others_served()

    run(attack())


def test_a_section_that_waits_for_the_table_waits_no_longer_than_others(besiege):
    server = besiege(HEADER_TIMEOUT, "1")
    blocked = http3_bytes.frame(http3_bytes.HEADERS, http3_bytes.prefixed(2, 8) + b"\0" + b"\x80")

    async def attack():
        async with attacked_server(server, memory_mib=8), connect_raw(server) as raw:
            raw.control()
            pings = asyncio.ensure_future(raw.keep_alive())
            for stream_id in [raw.bidi(blocked, fin=True) for _ in range(8)]:
                stream = await raw.wait_over(stream_id)
                assert stream.codes == {ErrorCode.H3_REQUEST_REJECTED}
            assert (await raw.wait_answer(raw.request())).status == 200
            pings.cancel()

    run(attack())
