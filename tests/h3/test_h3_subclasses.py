"""H3Connection as a base class, as public programs for aioquic use it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from aioquic.buffer import encode_uint_var

from tests.h3.aioquic_pair import LIBRARIES, Pair
from tests.h3.test_h3_faults import FakeQuic, data
from uringcore.h3.connection import (
    FrameType,
    H3Connection,
    HeadersState,
    Setting,
    StreamType,
    encode_frame,
    encode_settings,
)
from uringcore.h3.events import DataReceived, H3Event, HeadersReceived

REQUEST = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":authority", b"localhost"),
    (b":path", b"/"),
]


def test_a_subclass_has_an_init_of_its_own_and_attributes() -> None:
    class Layered(H3Connection):
        def __init__(self, name: str, is_client: bool) -> None:
            self.name = name
            super().__init__(FakeQuic(is_client), enable_webtransport=True)
            self.after = self.sent_settings[Setting.ENABLE_WEBTRANSPORT]

    http = Layered("proxy", True)
    assert (http.name, http.after) == ("proxy", 1)
    plain = H3Connection(FakeQuic(True))
    plain.note = "mine"  # type: ignore[attr-defined]
    assert plain.note == "mine"  # type: ignore[attr-defined]


def test_settings_are_those_of_get_local_settings() -> None:
    class Sessions(H3Connection):
        def _get_local_settings(self) -> dict[int, int]:
            return {**super()._get_local_settings(), 0xC671706A: 16, Setting.H3_DATAGRAM: 1}

    quic = FakeQuic(is_client=False)
    http = Sessions(quic)
    expected = {
        Setting.QPACK_MAX_TABLE_CAPACITY: 4096,
        Setting.MAX_FIELD_SECTION_SIZE: 65536,
        Setting.QPACK_BLOCKED_STREAMS: 16,
        Setting.ENABLE_CONNECT_PROTOCOL: 1,
        Setting.DUMMY: 1,
        0xC671706A: 16,
        Setting.H3_DATAGRAM: 1,
    }
    assert http.sent_settings == expected
    sent = b"".join(call[2] for call in quic.take() if call[0] == "send" and call[1] == 3)
    assert sent == b"\x00" + encode_frame(FrameType.SETTINGS, encode_settings(expected))


@pytest.mark.parametrize("value", [-1, 1 << 62, "1"])
def test_an_invalid_setting_is_refused(value: Any) -> None:
    class Odd(H3Connection):
        def _get_local_settings(self) -> dict[int, int]:
            return {0x21: value}

    with pytest.raises(ValueError, match="settings: value"):
        Odd(FakeQuic(is_client=False))


def test_a_table_capacity_that_is_a_property_is_announced() -> None:
    class Plain(H3Connection):
        @property
        def _max_table_capacity(self) -> int:  # type: ignore[override]
            return 0

        @_max_table_capacity.setter
        def _max_table_capacity(self, value: int) -> None:
            """The base class's attribute."""

        @property
        def _max_push_id(self) -> int | None:  # type: ignore[override]
            return None

        @_max_push_id.setter
        def _max_push_id(self, value: int | None) -> None:
            """The base class's attribute."""

    quic = FakeQuic(is_client=True)
    assert Plain(quic).sent_settings[Setting.QPACK_MAX_TABLE_CAPACITY] == 0
    sent = b"".join(call[2] for call in quic.take() if call[0] == "send" and call[1] == 2)
    assert sent.endswith(encode_settings({Setting.DUMMY: 1})), "no MAX_PUSH_ID follows"


def test_a_subclass_that_opens_the_streams_itself_sends_its_own_settings() -> None:
    class Own(H3Connection):
        def _init_connection(self) -> None:
            self._local_control_stream_id = self._create_uni_stream(StreamType.CONTROL)
            self._quic.send_stream_data(
                self._local_control_stream_id,
                encode_frame(FrameType.SETTINGS, encode_settings({0x2B603742: 1, 0x33: 1})),
            )

    quic = FakeQuic(is_client=False)
    http = Own(quic)
    calls = quic.take()
    sent = dict.fromkeys((3, 7, 11), b"")
    for _, number, content, _ in calls:
        sent[number] += content
    assert sent == {3: b"\x00\x04\x07\xab\x60\x37\x42\x01\x33\x01", 7: b"\x02", 11: b"\x03"}
    [event] = http.handle_event(data(0, request_frame(), end_stream=True))
    assert isinstance(event, HeadersReceived)
    http.send_headers(0, [(b":status", b"200")], end_stream=True)
    assert [call[:2] for call in quic.take() if call[1] == 0] == [("send", 0)]


def test_a_subclass_checks_and_changes_the_peers_settings() -> None:
    class Datagrams(H3Connection):
        def _validate_settings(self, settings: dict[int, int]) -> None:
            if settings.get(0xFFD277) == 1:
                settings[Setting.H3_DATAGRAM] = 1

    class Strict(H3Connection):
        def _validate_settings(self, settings: dict[int, int]) -> None:
            super()._validate_settings(settings)

    settings = {0xFFD277: 1, Setting.ENABLE_WEBTRANSPORT: 1}
    frame = b"\x00" + encode_frame(FrameType.SETTINGS, encode_settings(settings))
    quic = FakeQuic(is_client=True)
    http = Datagrams(quic)
    assert http.handle_event(data(3, frame)) == []
    assert http.received_settings == {**settings, Setting.H3_DATAGRAM: 1}
    assert not [call for call in quic.take() if call[0] == "close"]

    quic = FakeQuic(is_client=True)
    strict = Strict(quic)
    assert strict.handle_event(data(3, frame)) == []
    [close] = [call for call in quic.take() if call[0] == "close"]
    assert close[1] == 0x109
    assert strict._is_done


def test_a_subclass_makes_events_of_its_own_of_frames(quic_pair: Pair) -> None:
    class Trailers(H3Event):
        def __init__(self, trailers: Any, stream_id: int) -> None:
            self.trailers = trailers
            self.stream_id = stream_id

    class Layered(H3Connection):
        seen: list[tuple[int, bytes | None, bool]]

        def __init__(self, quic: Any) -> None:
            self.seen = []
            super().__init__(quic)

        def _handle_request_or_push_frame(
            self, frame_type: int, frame_data: bytes | None, stream: Any, stream_ended: bool
        ) -> list[H3Event]:
            events = super()._handle_request_or_push_frame(
                frame_type, frame_data, stream, stream_ended
            )
            self.seen.append((frame_type, frame_data, stream_ended))
            for index, event in enumerate(events):
                is_last = stream.headers_recv_state is HeadersState.AFTER_TRAILERS
                if isinstance(event, HeadersReceived) and is_last:
                    events[index] = Trailers(event.headers, event.stream_id)
            return events

    client = quic_pair.http["client"] = LIBRARIES["aioquic"](quic_pair.client)
    server = quic_pair.http["server"] = Layered(quic_pair.server)
    client.send_headers(0, REQUEST)
    client.send_data(0, b"content", end_stream=False)
    client.send_headers(0, [(b"checksum", b"1")], end_stream=True)
    quic_pair.transfer()
    head, content, trailers = quic_pair.take("server")
    assert isinstance(head, HeadersReceived) and isinstance(content, DataReceived)
    assert isinstance(trailers, Trailers) and trailers.trailers == [(b"checksum", b"1")]
    assert server.seen[1:] == [(FrameType.DATA, b"content", False), (FrameType.HEADERS, None, True)]
    assert server._stream[0].ended
    assert list(server._stream) == [0]


def test_an_error_of_a_subclass_in_a_frame_closes_the_connection() -> None:
    from uringcore.h3.connection import MessageError

    class Picky(H3Connection):
        def _handle_request_or_push_frame(self, *frame: Any) -> list[H3Event]:
            raise MessageError("not today")

    quic = FakeQuic(is_client=False)
    http = Picky(quic)
    assert http.handle_event(data(0, request_frame(), end_stream=True)) == []
    [close] = [call for call in quic.take() if call[0] == "close"]
    assert (close[1], close[3]) == (0x10E, "not today")
    assert http.handle_event(data(4, request_frame(), end_stream=True)) == []


def test_a_subclass_over_a_stand_in_makes_the_calls_that_aioquic_makes() -> None:
    calls: dict[str, list[tuple[Any, ...]]] = {}
    for name, library in LIBRARIES.items():
        quic = FakeQuic(is_client=False)
        quic._quic_logger = None  # type: ignore[attr-defined]
        quic._remote_max_datagram_frame_size = None  # type: ignore[attr-defined]

        class Layered(library):  # type: ignore[misc, valid-type]
            def _get_local_settings(self) -> dict[int, int]:
                return {1: 0, 7: 0, 8: 1}

        http = Layered(quic)
        module = __import__("aioquic.quic.events" if name == "aioquic" else "uringcore.quic.events")
        events = module.quic.events
        for stream_id, content, fin in [
            (2, b"\x00" + encode_frame(FrameType.SETTINGS, b""), False),
            (6, b"\x02", False),
            (10, b"\x03", False),
            (0, request_frame(), True),
        ]:
            http.handle_event(events.StreamDataReceived(content, fin, stream_id))
        http.send_headers(0, [(b":status", b"200")])
        http.send_data(0, b"x" * 10000, end_stream=False)
        http.send_data(0, b"", end_stream=True)
        calls[name] = [call if call[1] != 0 else call[:2] for call in quic.take()]
    assert calls["uringcore"] == calls["aioquic"]


def test_the_table_of_streams_shows_and_takes_states() -> None:
    class Layered(H3Connection):
        pass

    http = Layered(FakeQuic(is_client=False))
    with pytest.raises(KeyError):
        http._stream[0]
    http.handle_event(data(0, request_frame()))
    with http._get_or_create_stream(0) as stream:
        assert stream.headers_recv_state is HeadersState.AFTER_HEADERS
        assert stream.headers_send_state is HeadersState.INITIAL
        assert (stream.ended, stream.sending_ended, stream.is_ended()) == (False, False, False)
    http.send_headers(0, [(b":status", b"200")])
    assert http._stream[0].headers_send_state is HeadersState.AFTER_HEADERS
    http._stream[0].headers_send_state = HeadersState.AFTER_TRAILERS
    http._stream[0].ended = True
    assert http.open_requests == 0
    assert http._stream[0].is_ended()
    assert http._get_or_create_stream(3).stream_type is StreamType.CONTROL
    http._is_done = True
    assert http.handle_event(data(4, request_frame())) == []


def test_streams_that_were_looked_up_are_forgotten_in_time() -> None:
    http = H3Connection(FakeQuic(is_client=False))
    for number in range(3000):
        http.handle_event(data(4 * number, request_frame(), end_stream=True))
        assert http._stream[4 * number].ended
        http.send_headers(4 * number, [(b":status", b"200")], end_stream=True)
    assert len(http._stream) <= 1025


def test_without_the_init_of_the_base_class_an_error_is_raised() -> None:
    class Forgetful(H3Connection):
        def __init__(self) -> None:
            pass

    with pytest.raises(RuntimeError, match="__init__"):
        Forgetful().handle_event(data(0, b""))


def test_a_subclass_is_collected_with_its_cycle() -> None:
    class Layered(H3Connection):
        pass

    quic = FakeQuic(is_client=False)
    http = Layered(quic)
    quic.http = http  # type: ignore[attr-defined]
    seen = weakref.ref(http)
    del http, quic
    gc.collect()
    assert seen() is None


def request_frame() -> bytes:
    """A HEADERS frame of the static table alone, so that any decoder reads it."""
    section = b"\x00\x00\xd1\xd7\xc1\x50\x09localhost"
    return bytes(encode_uint_var(1) + encode_uint_var(len(section)) + section)
