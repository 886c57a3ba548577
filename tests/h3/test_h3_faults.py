"""Violations of the protocol by the peer, or by the program itself."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from aioquic.quic.events import StopSendingReceived, StreamDataReceived, StreamReset

from tests.h3.aioquic_pair import Pair
from uringcore.h3._qpack import QpackEncoder
from uringcore.h3.connection import (
    ErrorCode,
    FrameUnexpected,
    H3Connection,
    ProtocolError,
    Setting,
)
from uringcore.h3.events import (
    DataReceived,
    GoAwayReceived,
    HeadersReceived,
    MessageAborted,
)
from uringcore.h3.exceptions import (
    GoingAwayError,
    H3Error,
    InvalidStreamTypeError,
    NoAvailablePushIDError,
)

GET = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":authority", b"localhost"),
    (b":path", b"/"),
]


class FakeConfiguration:
    def __init__(self, is_client: bool) -> None:
        self.is_client = is_client


class FakeQuic:
    """The interface that H3Connection needs, with a record of the calls."""

    def __init__(self, is_client: bool) -> None:
        self.configuration = FakeConfiguration(is_client)
        self.calls: list[tuple[Any, ...]] = []
        self._next = {False: 0 if is_client else 1, True: 2 if is_client else 3}

    def get_next_available_stream_id(self, is_unidirectional: bool = False) -> int:
        return self._next[is_unidirectional]

    def send_stream_data(self, stream_id: int, data: bytes, end_stream: bool = False) -> None:
        kind = bool(stream_id & 2)
        if (stream_id & 1) != self.configuration.is_client and stream_id >= self._next[kind]:
            self._next[kind] = stream_id + 4
        self.calls.append(("send", stream_id, data, end_stream))

    def send_datagram_frame(self, data: bytes) -> None:
        self.calls.append(("datagram", data))

    def reset_stream(self, stream_id: int, error_code: int) -> None:
        self.calls.append(("reset", stream_id, error_code))

    def stop_stream(self, stream_id: int, error_code: int) -> None:
        self.calls.append(("stop", stream_id, error_code))

    def close(
        self, error_code: int = 0, frame_type: int | None = None, reason_phrase: str = ""
    ) -> None:
        self.calls.append(("close", error_code, frame_type, reason_phrase))

    def take(self) -> list[tuple[Any, ...]]:
        calls, self.calls = self.calls, []
        return calls


def make(is_client: bool, **options: Any) -> tuple[H3Connection, FakeQuic]:
    quic = FakeQuic(is_client)
    http = H3Connection(quic, **options)
    quic.take()
    return http, quic


class CountingQuic(FakeQuic):
    """Returns each stream ID once, used or not."""

    def get_next_available_stream_id(self, is_unidirectional: bool = False) -> int:
        stream_id = self._next[is_unidirectional]
        self._next[is_unidirectional] += 4
        return stream_id

    def send_stream_data(self, stream_id: int, data: bytes, end_stream: bool = False) -> None:
        self.calls.append(("send", stream_id, data, end_stream))


@pytest.mark.parametrize("kind", [FakeQuic, CountingQuic])
def test_every_stream_has_a_number_of_its_own(kind: type[FakeQuic]) -> None:
    quic = kind(is_client=True)
    http = H3Connection(quic, enable_webtransport=True)
    opened = {call[1] for call in quic.take() if call[0] == "send"}
    # The decoder stream is opened when it has data to send.
    assert opened <= {2, 6, 10}
    assert http.create_webtransport_stream(0, is_unidirectional=True) == 14


def data(stream_id: int, data: bytes, end_stream: bool = False) -> StreamDataReceived:
    return StreamDataReceived(data=data, end_stream=end_stream, stream_id=stream_id)


def literal_headers(*fields: tuple[bytes, bytes]) -> bytes:
    """A HEADERS frame of literals (RFC 9204 section 4.5.6), each part shorter than seven bytes."""
    section = b"\x00\x00"
    for name, value in fields:
        assert len(name) < 7
        assert len(value) < 127
        section += bytes([0x20 | len(name)]) + name + bytes([len(value)]) + value
    return bytes([0x01, len(section)]) + section


def test_a_peers_fault_closes_the_quic_connection(quic_pair: Pair) -> None:
    quic_pair.add_http("aioquic", "uringcore")
    # A DATA frame before any HEADERS.
    quic_pair.client.send_stream_data(0, b"\x00\x01a", end_stream=False)
    quic_pair.wait_closed()
    closed = quic_pair.closed["client"]
    assert closed.error_code == ErrorCode.H3_FRAME_UNEXPECTED
    assert closed.reason_phrase == "DATA frame outside of content"


def test_after_a_fault_input_is_ignored_and_commands_do_nothing() -> None:
    http, quic = make(is_client=True)
    assert http.handle_event(data(3, b"\x00\x07\x00")) == []
    [close] = quic.take()
    assert close[:3] == ("close", ErrorCode.H3_MISSING_SETTINGS, None)
    http.send_headers(0, GET, end_stream=True)
    http.send_data(0, b"x", True)
    assert http.handle_event(data(3, b"\x00")) == []
    assert quic.take() == []


def test_a_malformed_message_closes_the_connection_by_default() -> None:
    malformed = literal_headers((b"X", b"y"))
    http, quic = make(is_client=False)
    assert http.handle_event(data(0, malformed)) == []
    assert [call[:2] for call in quic.take()] == [("close", ErrorCode.H3_MESSAGE_ERROR)]

    http, quic = make(is_client=False, close_on_malformed=False)
    assert http.handle_event(data(0, malformed)) == [], "nobody saw the request"
    code = ErrorCode.H3_MESSAGE_ERROR
    assert quic.take()[:2] == [("reset", 0, code), ("stop", 0, code)]
    assert http.open_requests == 0


def test_a_message_that_turns_out_malformed_is_aborted() -> None:
    client, client_quic = make(is_client=True)
    client.send_headers(0, [*GET, (b"content-length", b"3")])
    [(_, _, headers, _)] = client_quic.take()
    server, quic = make(is_client=False, close_on_malformed=False)
    [event] = server.handle_event(data(0, headers))
    assert isinstance(event, HeadersReceived)
    assert server.handle_event(data(0, b"\x00\x02ab")) == [DataReceived(b"ab", 0, False)]
    aborted = server.handle_event(data(0, b"", end_stream=True))
    assert aborted == [MessageAborted(0, ErrorCode.H3_MESSAGE_ERROR)]
    assert ("reset", 0, ErrorCode.H3_MESSAGE_ERROR) in quic.take()


def test_misuse_raises_and_sends_nothing() -> None:
    http, quic = make(is_client=True)
    with pytest.raises(FrameUnexpected, match="DATA frame is not allowed in this state"):
        http.send_data(0, b"x", False)
    with pytest.raises(InvalidStreamTypeError):
        http.send_headers(2, GET)
    with pytest.raises(InvalidStreamTypeError):
        http.send_datagram(3, b"x")
    with pytest.raises(InvalidStreamTypeError):
        http.create_webtransport_stream(0)
    with pytest.raises(ValueError, match='headers: field name "X-Upper" is not in lower case'):
        http.send_headers(0, [*GET, (b"X-Upper", b"1")])
    with pytest.raises(ValueError, match="headers: .* forbidden characters"):
        http.send_headers(0, [*GET, (b"x", b"a\r\nb")])
    with pytest.raises(TypeError, match="a field's value must be bytes, not str"):
        http.send_headers(0, [*GET, (b"x", "text")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="pairs"):
        http.send_headers(0, [*GET, (b"x",)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="bytes-like"):
        http.send_data(0, "text", False)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="Only servers"):
        http.send_push_promise(0, GET)
    assert quic.take() == []
    http.send_headers(0, GET, end_stream=True)
    with pytest.raises(FrameUnexpected):
        http.send_headers(0, GET)
    server, _ = make(is_client=False)
    with pytest.raises(NoAvailablePushIDError):
        server.send_push_promise(0, GET)
    with pytest.raises(InvalidStreamTypeError):
        server.send_push_promise(1, GET)
    assert issubclass(FrameUnexpected, ProtocolError)
    for error in (InvalidStreamTypeError, NoAvailablePushIDError, GoingAwayError):
        assert issubclass(error, H3Error)


def test_any_iterable_of_pairs_and_any_buffer_will_do() -> None:
    http, quic = make(is_client=True)
    http.send_headers(0, ([name, value] for name, value in GET))  # type: ignore[misc]
    http.send_data(0, bytearray(b"ab"), False)
    http.send_data(0, memoryview(b"cd"), True)
    assert [call[2:] for call in quic.take()[1:]] == [(b"\0\x02ab", False), (b"\0\x02cd", True)]


def test_large_content_is_passed_on_as_the_same_object() -> None:
    http, quic = make(is_client=True)
    http.send_headers(0, GET)
    content = bytes(100_000)
    http.send_data(0, content, True)
    header, payload = quic.take()[1:]
    assert header == ("send", 0, b"\x00\x80\x01\x86\xa0", False)
    assert payload[2] is content
    assert payload[3] is True
    server, _ = make(is_client=False)
    server.handle_event(data(0, b"\x01\x03\x00\x00\xd1"))
    chunk = bytes(50_000)
    client, client_quic = make(is_client=True)
    client.send_headers(0, GET)
    [(_, _, headers, _)] = client_quic.take()
    server, _ = make(is_client=False)
    server.handle_event(data(0, headers + header[2]))
    [event] = server.handle_event(data(0, chunk))
    assert event.data is chunk


def test_goaway() -> None:
    client, client_quic = make(is_client=True)
    server, server_quic = make(is_client=False)
    client.send_headers(0, GET, end_stream=True)
    for call in client_quic.take():
        server.handle_event(data(*call[1:]))
    assert server.send_goaway() == 4
    with pytest.raises(ValueError, match="stream_id: a later GOAWAY cannot have a higher ID"):
        server.send_goaway(8)
    [(_, control, goaway, _)] = server_quic.take()
    client.handle_event(data(control, b"\x00\x04\x00"))
    client.handle_event(data(control, goaway))
    with pytest.raises(GoingAwayError):
        client.send_headers(4, GET)
    # Requests that cross the GOAWAY are rejected.
    late, late_quic = make(is_client=True)
    late.send_headers(4, GET, end_stream=False)
    for call in late_quic.take():
        assert server.handle_event(data(*call[1:])) == []
    code = ErrorCode.H3_REQUEST_REJECTED
    assert server_quic.take() == [("reset", 4, code), ("stop", 4, code)]


def test_the_servers_goaway_is_an_event_each_time_it_comes() -> None:
    client, client_quic = make(is_client=True)
    assert client.handle_event(data(3, b"\x00\x04\x00\x07\x01\x08")) == [GoAwayReceived(8)]
    assert client.handle_event(data(3, b"\x07\x01\x04")) == [GoAwayReceived(4)]
    assert client_quic.take() == []
    client.handle_event(data(3, b"\x07\x01\x08"))
    assert [call[:2] for call in client_quic.take()] == [("close", ErrorCode.H3_ID_ERROR)]


def test_a_clients_goaway_names_a_push_and_is_no_event() -> None:
    server, quic = make(is_client=False)
    assert server.handle_event(data(2, b"\x00\x04\x00\x07\x01\x03")) == []
    assert quic.take() == []


def test_goaway_again_keeps_its_limit() -> None:
    server, quic = make(is_client=False)
    assert server.send_goaway() == 0
    server.handle_event(data(8, b"\x01"))
    server.handle_event(StreamReset(error_code=0x10C, stream_id=4))
    assert server.send_goaway() == 0
    assert not any(call[0] == "close" for call in quic.take())


def test_extended_connect_is_announced_as_by_aioquic_unless_switched_off() -> None:
    cases: list[tuple[dict[str, bool], bool]] = [
        ({}, True),
        ({"enable_connect_protocol": True}, True),
        ({"enable_webtransport": True, "enable_connect_protocol": False}, True),
        ({"enable_webtransport": False, "enable_connect_protocol": False}, False),
    ]
    for options, announced in cases:
        http, _ = make(is_client=False, **options)
        expected = 1 if announced else None
        assert http.sent_settings.get(Setting.ENABLE_CONNECT_PROTOCOL) == expected
    with pytest.raises(TypeError, match="positional"):
        H3Connection(FakeQuic(is_client=False), False, True, True)  # type: ignore[call-arg]


def encoded_headers(fields: list[tuple[bytes, bytes]]) -> bytes:
    """A HEADERS frame with any fields: QPACK does not validate them."""
    instructions, section = QpackEncoder(0).encode(0, fields)
    assert instructions == b""
    assert len(section) < 64
    return bytes([0x01, len(section)]) + section


def test_a_host_that_differs_or_comes_twice_is_malformed() -> None:
    good, evil = (b"host", b"localhost"), (b"host", b"evil")
    for extra in ([good, evil], [evil, good], [good, good], [evil]):
        malformed = encoded_headers([*GET, *extra])
        http, quic = make(is_client=False)
        assert http.handle_event(data(0, malformed, end_stream=True)) == []
        assert [call[:2] for call in quic.take()] == [("close", ErrorCode.H3_MESSAGE_ERROR)]
        http, quic = make(is_client=False, close_on_malformed=False)
        assert http.handle_event(data(0, malformed, end_stream=True)) == []
        assert ("reset", 0, ErrorCode.H3_MESSAGE_ERROR) in quic.take()
        client, _ = make(is_client=True)
        with pytest.raises(ValueError, match="host"):
            client.send_headers(0, [*GET, *extra])
    server, _ = make(is_client=False)
    [event] = server.handle_event(data(0, encoded_headers([*GET, good])))
    assert event == HeadersReceived([*GET, good], 0, False)


def test_a_stream_reset_before_its_data_is_ended_once_on_our_side() -> None:
    server, quic = make(is_client=False)
    server.handle_event(data(4, encoded_headers(GET), end_stream=True))
    for _ in range(2):
        assert server.handle_event(StreamReset(error_code=0x10C, stream_id=0)) == []
    assert quic.take() == [("reset", 0, ErrorCode.H3_REQUEST_INCOMPLETE)]


def test_white_space_around_values_is_not_sent() -> None:
    client, quic = make(is_client=True)
    client.send_headers(0, [*GET, (b"x-note", b" \ta b\t ")], end_stream=True)
    server, _ = make(is_client=False)
    [(_, _, headers, _)] = quic.take()
    [event] = server.handle_event(data(0, headers))
    assert event.headers == [*GET, (b"x-note", b"a b")]
    with pytest.raises(ValueError, match=":path"):
        client.send_headers(4, [*GET[:3], (b":path", b" /")])


def test_fields_about_a_connection_are_not_sent() -> None:
    """RFC 9114 section 4.2; frameworks put them into responses of any version."""
    server, quic = make(is_client=False)
    server.handle_event(data(0, encoded_headers(GET), end_stream=True))
    fields = [(b":status", b"500"), (b"content-length", b"0"), (b"connection", b"close")]
    server.send_headers(0, [*fields, (b"transfer-encoding", b"chunked")], end_stream=True)
    client, theirs = make(is_client=True)
    client.send_headers(0, GET, end_stream=True)
    theirs.take()
    [(_, _, headers, _)] = quic.take()
    [event] = client.handle_event(data(0, headers, end_stream=True))
    assert event.headers == fields[:2]


def test_a_204_is_sent_without_content_length() -> None:
    server, quic = make(is_client=False)
    server.handle_event(data(0, encoded_headers(GET), end_stream=True))
    response = [(b":status", b"204"), (b"content-length", b"0"), (b"x", b"y")]
    server.send_headers(0, response, end_stream=True)
    client, _ = make(is_client=True)
    client.send_headers(0, GET, end_stream=True)
    [(_, _, headers, end_stream)] = quic.take()
    [event] = client.handle_event(data(0, headers, end_stream))
    assert event.headers == [response[0], response[2]]


def test_cancel_request_and_the_peers_resets_free_the_state() -> None:
    client, quic = make(is_client=True)
    client.send_headers(0, GET)
    assert client.open_requests == 1
    quic.take()
    client.cancel_request(0)
    code = ErrorCode.H3_REQUEST_CANCELLED
    calls = quic.take()
    assert ("reset", 0, code) in calls
    assert ("stop", 0, code) in calls
    assert client.open_requests == 0
    client.cancel_request(0)
    assert quic.take() == []

    client.send_headers(4, GET)
    client.handle_event(StreamReset(error_code=code, stream_id=4))
    client.handle_event(StopSendingReceived(error_code=code, stream_id=4))
    assert client.open_requests == 0


def test_critical_streams() -> None:
    for event in (
        StreamReset(error_code=0, stream_id=2),
        StopSendingReceived(error_code=0, stream_id=3),
        data(2, b"", end_stream=True),
    ):
        http, quic = make(is_client=False)
        http.handle_event(data(2, b"\x00\x04\x00"))
        http.handle_event(event)
        assert [call[:2] for call in quic.take()] == [
            ("close", ErrorCode.H3_CLOSED_CRITICAL_STREAM)
        ]


def test_settings_that_need_quic_datagrams() -> None:
    for size, closes in ((None, True), (65536, False)):
        quic = FakeQuic(is_client=False)
        quic._remote_max_datagram_frame_size = size  # type: ignore[attr-defined]
        http = H3Connection(quic)
        quic.take()
        http.handle_event(data(2, b"\x00\x04\x02\x33\x01"))
        codes = [call[1] for call in quic.take() if call[0] == "close"]
        assert codes == ([ErrorCode.H3_SETTINGS_ERROR] if closes else [])


def test_an_exception_of_the_quic_connection_reaches_the_caller() -> None:
    class Failing(FakeQuic):
        def send_stream_data(self, *args: Any) -> None:
            if self.calls and args[0] == 0:
                raise RuntimeError("no more")
            super().send_stream_data(*args)

    http = H3Connection(Failing(is_client=True))
    with pytest.raises(RuntimeError, match="no more"):
        http.send_headers(0, GET)


def test_a_cycle_through_the_quic_connection_is_collected() -> None:
    quic = FakeQuic(is_client=True)
    quic.http = H3Connection(quic)  # type: ignore[attr-defined]
    gone = weakref.ref(quic)
    del quic
    gc.collect()
    assert gone() is None


def test_an_unknown_event_is_ignored() -> None:
    http, quic = make(is_client=True)
    assert http.handle_event(object()) == []
    assert quic.take() == []
