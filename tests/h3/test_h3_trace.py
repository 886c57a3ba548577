"""HTTP/3 in qlog traces: ours contain the events of aioquic's H3Connection, over equal QUIC
connections.
"""

from __future__ import annotations

from typing import Any

from aioquic.quic.logger import QuicLogger

from tests.h3.aioquic_pair import Pair, needs_current_aioquic

GET = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":authority", b"localhost"),
    (b":path", b"/"),
]
STYLE = [*GET[:3], (b":path", b"/style.css")]
OK = [(b":status", b"200")]

Events = list[tuple[str, dict[str, Any]]]


def _exchange(certificate: Any, library: str) -> dict[str, Events]:
    """Sends a pushed response beside a response in two pieces; returns the events of both sides'
    traces.
    """
    logger = QuicLogger()
    pair = Pair(certificate, quic_logger=logger)
    client, server = pair.add_http(library, library, enable_webtransport=True)
    client.send_headers(0, GET, end_stream=True)
    pair.transfer()
    pushed = server.send_push_promise(stream_id=0, headers=STYLE)
    server.send_headers(pushed, OK)
    server.send_data(pushed, b"style", True)
    server.send_headers(0, OK)
    server.send_data(0, b"x" * 20_000, False)
    server.send_data(0, b"end", True)
    pair.transfer()
    client.create_webtransport_stream(0)
    client.create_webtransport_stream(0, is_unidirectional=True)
    pair.client.send_stream_data(4, b"data")
    pair.transfer()
    assert not pair.surprises
    traces = logger.to_dict()["traces"]
    return {
        trace["vantage_point"]["type"]: [
            (event["name"], event["data"])
            for event in trace["events"]
            if event["name"].startswith("http:")
        ]
        for trace in traces
    }


def _comparable(name: str, data: dict[str, Any]) -> str:
    """Drops values that may differ: the compressed size, and extra fields for qvis."""
    data = {key: value for key, value in data.items() if key != "byte_length"}
    if data.get("frame", {}).get("frame_type") in ("headers", "push_promise"):
        assert data.pop("length") > 0
    return f"{name} {sorted(data.items())}"


@needs_current_aioquic
def test_events_of_aioquics_trace_are_written(certificate: Any) -> None:
    ours, theirs = (_exchange(certificate, library) for library in ("uringcore", "aioquic"))
    for side in ("client", "server"):
        written = [_comparable(*event) for event in ours[side]]
        wanted = [_comparable(*event) for event in theirs[side]]
        assert len(wanted) > 8
        missing = [event for event in wanted if event not in written]
        assert not missing, f"{side}: {written}"
        # The one extra event: the promise that a server sends.
        more = [event for event in written if event not in wanted]
        assert len(more) == (side == "server"), more
        assert all("push_promise" in event for event in more)
    for sender, receiver in (("client", "server"), ("server", "client")):
        sent = [data for name, data in ours[sender] if name == "http:frame_created"]
        parsed = [data for name, data in ours[receiver] if name == "http:frame_parsed"]
        assert sorted(map(repr, sent)) == sorted(map(repr, parsed))
