"""Events are values like aioquic's dataclasses: they can be copied, pickled, replaced, and listed by
field.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys

import pytest

from uringcore.h3 import events as h3
from uringcore.quic import events as quic

HEADERS = [(b":status", b"200")]
EVENTS = [
    quic.ConnectionIdIssued(b"id"),
    quic.ConnectionIdRetired(b"id"),
    quic.ConnectionTerminated(0x12E, 6, "no"),
    quic.ConnectionTerminated(5, None, "no", kind="local"),
    quic.ConnectionTerminated(0, 0, "", kind="unreachable", errno=111),
    quic.ConnectionWritable(5),
    quic.DatagramFrameReceived(b"data", early_data=True),
    quic.HandshakeCompleted("h3", False, True),
    quic.MigrationFinished(True),
    quic.PingAcknowledged(7),
    quic.ProtocolNegotiated(None),
    quic.StopSendingReceived(1, 2),
    quic.StreamAbandoned(4),
    quic.StreamDataReceived(b"data", True, 4),
    quic.StreamDataReceived(b"data", False, 4, early_data=True),
    quic.StreamFinished(4),
    quic.StreamReset(1, 2),
    quic.StreamWritable(4),
    h3.DataReceived(b"data", 0, True),
    h3.DataReceived(b"data", 15, False, push_id=3),
    h3.DatagramReceived(b"data", 0),
    h3.GoAwayReceived(4),
    h3.HeadersReceived(HEADERS, 0, False, early_data=True),
    h3.MessageAborted(0, 0x10E),
    h3.PushPromiseReceived(HEADERS, 1, 0),
    h3.WebTransportStreamDataReceived(b"data", 4, False, 0),
]


def everything(event):
    return {name: getattr(event, name) for name in FIELDS[type(event).__name__]}


FIELDS = {
    type(event).__name__: [field.name for field in dataclasses.fields(event)] for event in EVENTS
}


def test_every_event_class_is_looked_at():
    listed = {name for module in (quic, h3) for name in module.__all__}
    assert set(FIELDS) == listed - {"QuicEvent", "H3Event", "Headers"}


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_an_event_is_copied_and_pickled_with_all_fields(event):
    event.note = ["mine"]
    for twin in (
        copy.copy(event),
        copy.deepcopy(event),
        *(pickle.loads(pickle.dumps(event, protocol)) for protocol in range(6)),
    ):
        assert type(twin) is type(event) and twin == event
        assert everything(twin) == everything(event)
        assert twin.note == ["mine"]
    assert copy.copy(event).note is event.note
    assert copy.deepcopy(event).note is not event.note


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_an_event_passes_for_a_dataclass(event):
    assert dataclasses.is_dataclass(event) and dataclasses.is_dataclass(type(event))
    assert dataclasses.asdict(event) == everything(event)
    assert dataclasses.astuple(event) == tuple(everything(event).values())
    twin = dataclasses.replace(event)
    assert twin == event and everything(twin) == everything(event)
    positional = type(event).__match_args__
    fields = dataclasses.fields(event)
    assert tuple(f.name for f in fields if not f.kw_only) == tuple(positional)
    for field in fields:
        changed = dataclasses.replace(event, **{field.name: getattr(event, field.name)})
        assert everything(changed) == everything(event)
    if sys.version_info >= (3, 13):
        assert copy.replace(event) == event


def test_replace_changes_one_field():
    event = dataclasses.replace(quic.StreamDataReceived(b"a", False, 4, early_data=True), data=b"b")
    assert event == quic.StreamDataReceived(b"b", False, 4, early_data=True)
    with pytest.raises(TypeError):
        dataclasses.replace(event, nothing=1)
    with pytest.raises(ValueError, match="kind"):
        quic.ConnectionTerminated(0, None, "", kind="odd")


@pytest.mark.parametrize("base", [quic.QuicEvent, h3.H3Event])
def test_programs_have_events_of_their_own(base):
    @dataclasses.dataclass
    class Trailers(base):
        trailers: list
        stream_id: int

    event = Trailers([], 4)
    assert event == Trailers(trailers=[], stream_id=4) and isinstance(event, base)
    assert pickle.loads(pickle.dumps(base())) is not None
    assert not dataclasses.is_dataclass(base)


def test_the_fields_of_an_event_stay_as_they_are():
    event = quic.StreamDataReceived(b"a", False, 4)
    with pytest.raises(AttributeError):
        event.data = b"b"


def test_fields_are_those_of_aioquic():
    aioquic = pytest.importorskip("aioquic.quic.events")
    from aioquic.h3 import events as aioquic_h3

    for ours, theirs in ((quic, aioquic), (h3, aioquic_h3)):
        for name, cls in vars(theirs).items():
            if dataclasses.is_dataclass(cls):
                expected = [(f.name, f.default) for f in dataclasses.fields(cls)]
                found = dataclasses.fields(getattr(ours, name))
                assert [(f.name, f.default) for f in found if not f.kw_only] == expected, name
