"""Server push between uringcore and aioquic in every combination of sides."""

from __future__ import annotations

import itertools

import pytest

from tests.h3.aioquic_pair import LIBRARIES, Pair, needs_current_aioquic, plain
from uringcore.h3.connection import H3Connection
from uringcore.h3.events import DataReceived, HeadersReceived, PushPromiseReceived
from uringcore.h3.exceptions import NoAvailablePushIDError

SIDES = [sides for sides in itertools.product(LIBRARIES, repeat=2) if "uringcore" in sides]
every_side = pytest.mark.parametrize(("client", "server"), SIDES)

GET = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":authority", b"localhost"),
    (b":path", b"/"),
]
STYLE = [*GET[:3], (b":path", b"/style.css")]
OK = [(b":status", b"200")]


@needs_current_aioquic
@every_side
def test_pushes_go_along(quic_pair: Pair, client: str, server: str) -> None:
    http_client, http_server = quic_pair.add_http(client, server)
    http_client.send_headers(0, GET, end_stream=True)
    quic_pair.transfer()
    pushed = []
    for number in range(9):
        stream_id = http_server.send_push_promise(stream_id=0, headers=STYLE)
        http_server.send_headers(stream_id, OK)
        http_server.send_data(stream_id, b"style %d" % number, True)
        pushed.append(stream_id)
    assert pushed == [15 + 4 * number for number in range(9)]
    with pytest.raises(Exception) as failed:
        http_server.send_push_promise(0, STYLE)
    assert type(failed.value).__name__ == "NoAvailablePushIDError"
    http_server.send_headers(0, OK)
    http_server.send_data(0, b"page", True)
    quic_pair.transfer()
    events = [plain(event) for event in quic_pair.take("client")]
    for number, stream_id in enumerate(pushed):
        for event in (
            PushPromiseReceived(STYLE, number, 0),
            HeadersReceived(OK, stream_id, False, number),
            DataReceived(b"style %d" % number, stream_id, True, number),
        ):
            assert plain(event) in events
    assert plain(DataReceived(b"page", 0, True)) in events
    assert len(events) == 3 * 9 + 2
    assert quic_pair.take("server")[1:] == []


@needs_current_aioquic
def test_a_client_may_refuse_pushes(quic_pair: Pair) -> None:
    quic_pair.http["client"] = H3Connection(quic_pair.client, max_push_id=None)
    quic_pair.http["server"] = LIBRARIES["aioquic"](quic_pair.server)
    quic_pair.transfer()
    quic_pair.http["client"].send_headers(0, GET, end_stream=True)
    quic_pair.transfer()
    with pytest.raises(Exception) as failed:
        quic_pair.http["server"].send_push_promise(0, STYLE)
    assert type(failed.value).__name__ == "NoAvailablePushIDError"


def test_the_limit_is_checked(quic_pair: Pair) -> None:
    with pytest.raises(ValueError, match="max_push_id: must be at most 1023"):
        H3Connection(quic_pair.client, max_push_id=1024)
    client, server = quic_pair.add_http("uringcore", "uringcore", max_push_id=None)
    client.send_headers(0, GET, end_stream=True)
    quic_pair.transfer()
    with pytest.raises(NoAvailablePushIDError):
        server.send_push_promise(0, STYLE)
