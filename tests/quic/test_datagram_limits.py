"""Size limits of DATAGRAM frames (RFC 9221 section 3): each side announces its own and observes the
peer's.
"""

from __future__ import annotations

import pytest

from tests.quic.test_quic_sans_io import drained, pair  # noqa: F401 - a fixture
from tests.quic.test_quic_sans_io_aioquic import Link, configured, their_configuration, theirs
from uringcore.quic import events
from uringcore.quic.connection import QuicConnection, QuicErrorCode
from uringcore.quic.logger import QuicLogger


def announced(logger):
    """Returns the limits in the traces, keyed by their owner."""
    found = {}
    for trace in logger.to_dict()["traces"]:
        for event in trace["events"]:
            if event["name"] == "transport:parameters_set":
                data = event["data"]
                found[data["owner"]] = data.get("max_datagram_frame_size")
    return found


def connected(link):
    link.connect()
    link.run(lambda: link.client.is_established and link.server.is_established)
    link.run(limit=1.0)
    drained(link.client)
    drained(link.server)


@pytest.mark.parametrize(
    ("limit", "said", "room"),
    [
        (None, None, None),
        (0, None, None),
        (1, 1, None),
        (2, 2, 0),
        (100, 100, 91),
        (1000, 1000, 991),
        (65535, 65535, 1000),
        (65536, 65535, 1000),
        (1 << 20, 65535, 1000),
    ],
)
def test_the_limit_is_announced_as_it_was_given_and_kept_to(pair, limit, said, room):  # noqa: F811
    logger = QuicLogger()
    link = pair(max_datagram_frame_size=limit, quic_logger=logger)
    connected(link)
    assert announced(logger) == {"local": said, "remote": said}
    for side in (link.client, link.server):
        found = side.max_datagram_size
        assert (found if found is None else min(found, 1000)) == room
        if room is None:
            assert side._remote_max_datagram_frame_size is None
            with pytest.raises(ValueError, match="datagram"):
                side.send_datagram_frame(b"")
        else:
            side.send_datagram_frame(bytes(room))
    link.run(limit=1.0)
    assert not link.client.is_closed and not link.server.is_closed
    for side in (link.client, link.server):
        expected = [] if room is None else [events.DatagramFrameReceived(bytes(room))]
        assert [e for e in drained(side) if isinstance(e, events.DatagramFrameReceived)] == expected


@pytest.mark.parametrize("limit", [0, 1])
def test_datagrams_for_a_peer_without_support_are_dropped(
    server_configuration, client_configuration, limit
):
    from tests.quic.test_quic_sans_io import Pair

    link = Pair(
        client_configuration(server_name="localhost", max_datagram_frame_size=65536),
        server_configuration(max_datagram_frame_size=limit),
    )
    link.client.send_datagram_frame(b"")
    link.connect()
    link.run(lambda: link.client.is_established and link.server.is_established)
    link.run(limit=1.0)
    assert not link.client.is_closed and not link.server.is_closed
    assert link.client.stats()["datagram_frames_dropped"] == 1
    assert not [e for e in drained(link.server) if isinstance(e, events.DatagramFrameReceived)]


@pytest.mark.parametrize("we_are_client", [False, True])
@pytest.mark.parametrize(
    ("limit", "size", "is_taken"),
    [
        # aioquic's frame consists of a type, a length (two bytes from 64 on), and the data.
        (100, 97, True),
        (100, 98, False),
        (40, 38, True),
        (40, 39, False),
        (None, 0, False),
        (0, 0, False),
        (1, 0, False),
        (65536, 1_100, True),
    ],
)
def test_a_frame_beyond_what_was_announced_closes_the_connection(
    pki, client_configuration, server_configuration, we_are_client, limit, size, is_taken
):
    def their_connection(is_client, **options):
        made = configured(their_configuration, pki, is_client)
        return theirs.QuicConnection(configuration=made, **options)

    def their_server(data):
        odcid = data[6 : 6 + data[5]]
        return their_connection(False, original_destination_connection_id=odcid)

    if we_are_client:
        configuration = client_configuration(server_name="localhost", max_datagram_frame_size=limit)
        ours = client = QuicConnection(configuration=configuration)
        link = Link(client, their_server, seed=1, loss=0.0, reorder=0.0)
    else:
        ours = QuicConnection(configuration=server_configuration(max_datagram_frame_size=limit))
        client = their_connection(True)
        link = Link(client, lambda data: ours, seed=1, loss=0.0, reorder=0.0)
    our_side, their_side = ("client", "server") if we_are_client else ("server", "client")
    client.connect(("192.0.2.2", 4433), now=link.now)
    for side in ("client", "server"):
        link.run(lambda side=side: link.named(side, "HandshakeCompleted"))
    them = getattr(link, their_side)
    # The peer ignores the limit.
    them._remote_max_datagram_frame_size = 65536
    them.send_datagram_frame(bytes(size))
    if is_taken:
        link.run(lambda: link.named(our_side, "DatagramFrameReceived"))
        assert not ours.is_closed
        return
    link.run(lambda: link.named(their_side, "ConnectionTerminated"))
    [end] = link.named(their_side, "ConnectionTerminated")
    # RFC 9221 section 3.
    assert end.error_code == QuicErrorCode.PROTOCOL_VIOLATION
    assert "datagram" in end.reason_phrase.lower()
    assert not link.named(our_side, "DatagramFrameReceived")
