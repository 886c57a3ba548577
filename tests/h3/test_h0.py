"""HTTP/0.9 for the interoperability tests, with both sides joined in memory."""

from __future__ import annotations

from typing import Any

import pytest

from uringcore.h0.connection import REQUEST_SIZE_MAX, REQUESTS_MAX, H0Connection
from uringcore.h3.events import DataReceived, HeadersReceived
from uringcore.quic import events

from .test_h3_faults import FakeQuic, data

GET = [(b":method", b"GET"), (b":path", b"/index.html")]


def make(is_client: bool) -> tuple[H0Connection, FakeQuic]:
    quic = FakeQuic(is_client)
    return H0Connection(quic), quic


def deliver(quic: FakeQuic, http: H0Connection) -> list[Any]:
    return [event for call in quic.take() for event in http.handle_event(data(*call[1:]))]


def test_a_request_and_its_response() -> None:
    client, client_quic = make(is_client=True)
    server, server_quic = make(is_client=False)
    client.send_headers(0, GET, end_stream=True)
    assert client_quic.calls == [("send", 0, b"GET /index.html\r\n", True)]
    assert deliver(client_quic, server) == [
        HeadersReceived(GET, 0, False),
        DataReceived(b"", 0, True),
    ]
    server.send_headers(0, [(b":status", b"200")])
    server.send_data(0, b"hello ", False)
    server.send_data(0, b"world", True)
    assert deliver(server_quic, client) == [
        HeadersReceived([], 0, False),
        DataReceived(b"hello ", 0, False),
        DataReceived(b"world", 0, True),
    ]


def test_a_request_in_pieces() -> None:
    server, quic = make(is_client=False)
    for piece in (b"G", b"ET /ind", b"ex.html"):
        assert server.handle_event(data(0, piece)) == []
    assert server.handle_event(data(0, b"\r\n", end_stream=True)) == [
        HeadersReceived(GET, 0, False),
        DataReceived(b"", 0, True),
    ]
    assert quic.take() == []


def test_an_invalid_request_closes_the_connection() -> None:
    for request in (b"GET\r\n", b"\r\n", b"x" * (REQUEST_SIZE_MAX + 1)):
        server, quic = make(is_client=False)
        assert server.handle_event(data(0, request, end_stream=True)) == []
        assert [call[0] for call in quic.take()] == ["close"]


def test_other_streams_and_events_are_ignored() -> None:
    server, quic = make(is_client=False)
    assert server.handle_event(data(2, b"GET /\r\n")) == []
    assert server.handle_event(object()) == []
    assert quic.take() == []


@pytest.mark.parametrize("end", [events.StreamReset(1, 0), data(0, b"", end_stream=True)])
def test_a_request_that_is_over_is_forgotten(end: Any) -> None:
    for first in (b"GET /unfinished", b"GET /\r\n"):
        server, _ = make(is_client=False)
        server.handle_event(data(0, first))
        assert server._incomplete or server._headers_received
        server.handle_event(end)
        assert not server._incomplete and not server._headers_received
    client, _ = make(is_client=True)
    client.handle_event(data(0, b"response"))
    client.handle_event(end)
    assert not client._headers_received


def test_the_state_of_requests_is_bounded() -> None:
    server, quic = make(is_client=False)
    for number in range(REQUESTS_MAX + 1):
        assert quic.take() == []
        server.handle_event(data(number * 4, b"GET /slow"))
    assert [call[0] for call in quic.take()] == ["close"]
    server, quic = make(is_client=False)
    for number in range(REQUESTS_MAX + 100):
        server.handle_event(data(number * 4, b"GET /\r\n"))
    assert len(server._headers_received) == REQUESTS_MAX
    server.handle_event(events.ConnectionTerminated(0, None, ""))
    assert not server._headers_received and quic.take() == []
