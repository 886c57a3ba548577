"""The order of responses (RFC 9218), over real sockets. `src/h3` and `src/http` test each rule."""

from __future__ import annotations

import pytest

import uringcore
from tests.http import http3_bytes
from tests.http.raw_client import connect_raw, needs_recent_aioquic

pytestmark = [pytest.mark.either_backend, needs_recent_aioquic]

SIZE = 3_000_000


async def ask(server, priorities, more=b"", queries=("", "")):
    """Requests two large responses at once; returns how much of the first had arrived when the
    second was complete.
    """
    async with connect_raw(server, max_data=1 << 26, max_stream_data=1 << 25) as raw:
        raw.control()
        await raw.wait_settings()
        received = {}

        def note(event, heard=raw.quic_event_received):
            heard(event)
            second = raw.streams.get(4)
            if second is not None and second.ended and not received:
                received["first"] = len(raw.incoming(0).data)

        raw.quic_event_received = note
        if more:
            raw.quic.send_stream_data(2, more)
        for stream_id, priority, query in zip((0, 4), priorities, queries, strict=True):
            lines = () if priority is None else ((b"priority", priority.encode()),)
            request = http3_bytes.request(f"/flood/{SIZE}{query}", *lines)
            raw.quic.send_stream_data(stream_id, request, True)
        raw.transmit()
        for stream_id in (0, 4):
            assert len((await raw.wait_answer(stream_id)).body) == SIZE
        return received["first"]


def update(stream_id, value):
    payload = http3_bytes.varint(stream_id) + value
    return http3_bytes.frame(http3_bytes.PRIORITY_UPDATE, payload)


@pytest.mark.parametrize(
    ("priorities", "more", "queries"),
    [
        (("u=5", "u=1"), b"", ("", "")),
        # A priority that arrives before its request, and differs from the request's.
        (("u=5", "u=7"), update(4, b"u=1"), ("", "")),
        # The application's priority.
        (("u=2", "u=7"), b"", ("", "?u=1")),
    ],
    ids=["field", "update", "application"],
)
def test_the_urgent_response_overtakes_the_other(server, priorities, more, queries):
    received = uringcore.run(ask(server, priorities, more, queries))
    assert received < SIZE // 2


def test_responses_without_priorities_share_the_bandwidth(server):
    assert uringcore.run(ask(server, (None, None))) > SIZE // 4
