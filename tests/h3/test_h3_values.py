"""Events, enumerations and the rest of the API, compared with aioquic's."""

from __future__ import annotations

import aioquic.h3.connection
import aioquic.h3.events
import aioquic.h3.exceptions
import pytest

import uringcore.h3.connection
import uringcore.h3.events
import uringcore.h3.exceptions
from tests.h3.aioquic_pair import needs_current_aioquic
from uringcore.h3 import events
from uringcore.h3.events import DataReceived, GoAwayReceived, H3Event, HeadersReceived

EXAMPLES = {
    "DataReceived": {"data": b"x", "stream_id": 4, "stream_ended": True, "push_id": None},
    "DatagramReceived": {"data": b"x", "stream_id": 4},
    "HeadersReceived": {
        "headers": [(b"a", b"b")],
        "stream_id": 4,
        "stream_ended": False,
        "push_id": 7,
    },
    "PushPromiseReceived": {"headers": [(b"a", b"b")], "push_id": 1, "stream_id": 4},
    "WebTransportStreamDataReceived": {
        "data": b"x",
        "stream_id": 4,
        "stream_ended": True,
        "session_id": 0,
    },
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_events_have_aioquics_shape(name: str) -> None:
    fields = EXAMPLES[name]
    ours = getattr(events, name)(**fields)
    theirs = getattr(aioquic.h3.events, name)(**fields)
    assert isinstance(ours, H3Event)
    assert repr(ours) == repr(theirs)
    assert type(ours).__match_args__ == type(theirs).__match_args__
    for field, value in fields.items():
        assert getattr(ours, field) == value
    assert ours == getattr(events, name)(*fields.values())
    assert ours != getattr(events, name)(**{**fields, "stream_id": 8})
    assert ours != theirs
    with pytest.raises(TypeError):
        hash(ours)
    with pytest.raises(AttributeError):
        ours.stream_id = 8
    with pytest.raises(TypeError):
        getattr(events, name)()


def test_push_id_is_optional() -> None:
    assert DataReceived(b"", 0, True).push_id is None
    assert HeadersReceived([], 0, True).push_id is None


def test_our_own_events_are_values_too() -> None:
    assert repr(GoAwayReceived(stream_id=4)) == "GoAwayReceived(stream_id=4)"
    assert GoAwayReceived(4) == GoAwayReceived(4)
    assert GoAwayReceived(4) != GoAwayReceived(8)
    assert GoAwayReceived.__match_args__ == ("stream_id",)
    assert isinstance(GoAwayReceived(4), H3Event)
    assert "GoAwayReceived" in events.__all__


def test_events_match() -> None:
    match DataReceived(b"text", 4, True):
        case DataReceived(data, stream_id, stream_ended=True):
            assert (data, stream_id) == (b"text", 4)
        case _:
            pytest.fail("no match")


@needs_current_aioquic
@pytest.mark.parametrize("name", ["ErrorCode", "FrameType", "Setting", "StreamType"])
def test_numbers_are_aioquics(name: str) -> None:
    ours = getattr(uringcore.h3.connection, name)
    theirs = getattr(aioquic.h3.connection, name)
    assert {item.name: item.value for item in ours} == {item.name: item.value for item in theirs}


@needs_current_aioquic
def test_error_classes_are_aioquics() -> None:
    base = aioquic.h3.connection.ProtocolError
    theirs = {
        name: value.error_code
        for name, value in vars(aioquic.h3.connection).items()
        if isinstance(value, type) and issubclass(value, base)
    }
    ours = {name: getattr(uringcore.h3.connection, name).error_code for name in theirs}
    assert ours == theirs
    error = uringcore.h3.connection.FrameUnexpected("why")
    assert (error.reason_phrase, str(error)) == ("why", "why")
    for name in ("H3Error", "InvalidStreamTypeError", "NoAvailablePushIDError"):
        assert hasattr(uringcore.h3.exceptions, name)
        assert hasattr(aioquic.h3.exceptions, name)
    assert uringcore.h3.connection.H3_ALPN == aioquic.h3.connection.H3_ALPN
    for name in ("RESERVED_FRAME_TYPES", "RESERVED_SETTINGS"):
        theirs_values = getattr(aioquic.h3.connection, name)
        assert getattr(uringcore.h3.connection, name) == theirs_values
