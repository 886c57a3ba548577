"""Requests in 0-RTT data: a program that serves them has to see that they are early (RFC 8470)."""

from __future__ import annotations

from types import SimpleNamespace

from tests.http import http3_bytes
from uringcore.h3.connection import H3Connection
from uringcore.h3.events import DataReceived, HeadersReceived
from uringcore.quic.events import StreamDataReceived


class Quic:
    """A server's connection that sends nothing."""

    def __init__(self) -> None:
        self.configuration = SimpleNamespace(is_client=False, quic_logger=None)
        self._next = 3

    def get_next_available_stream_id(self, is_unidirectional: bool) -> int:
        return self._next

    def send_stream_data(self, stream_id: int, data: bytes, end_stream: bool = False) -> None:
        pass


def heard(http: H3Connection, data: bytes, early: bool, stream_id: int = 0) -> list[object]:
    event = StreamDataReceived(data, end_stream=False, stream_id=stream_id, early_data=early)
    return http.handle_event(event)


def test_headers_are_early_if_any_part_was_early() -> None:
    request = http3_bytes.request("/")
    http = H3Connection(Quic())
    for stream_id, first, second in ((0, True, True), (4, True, False), (8, False, False)):
        assert heard(http, request[:10], first, stream_id) == []
        (event,) = heard(http, request[10:], second, stream_id)
        assert isinstance(event, HeadersReceived)
        assert event.early_data is first
        assert ("early_data=True" in repr(event)) is first


def test_content_and_trailers_after_early_headers_are_not_marked_early() -> None:
    http = H3Connection(Quic())
    request = http3_bytes.request("/", method="POST")
    (headers,) = heard(http, request, early=True)
    assert headers.early_data
    (content,) = heard(http, http3_bytes.frame(http3_bytes.DATA, b"x"), early=True)
    assert isinstance(content, DataReceived)
    trailers = http3_bytes.frame(http3_bytes.HEADERS, http3_bytes.section([(b"a", b"b")]))
    (last,) = heard(http, trailers, early=False)
    assert not last.early_data


def test_events_with_and_without_the_flag_differ() -> None:
    early = HeadersReceived([], 0, True, early_data=True)
    assert early != HeadersReceived([], 0, True)
    assert HeadersReceived([], 0, True).early_data is False
    assert HeadersReceived.__match_args__ == ("headers", "stream_id", "stream_ended", "push_id")
