"""Private names of aioquic's that public programs use, and their equivalents here."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.harness import Recorder, serving
from tests.quic.test_quic_sans_io import drained, pair  # noqa: F401 - a fixture
from uringcore.asyncio import connect
from uringcore.h3.connection import H3Connection
from uringcore.quic import events
from uringcore.quic.connection import (
    QuicConnection,
    QuicConnectionState,
    QuicErrorCode,
    pull_quic_header,
)
from uringcore.tls import HandshakeType

pytestmark = pytest.mark.either_backend


def test_names_are_where_programs_look_for_them():
    assert QuicErrorCode.NO_ERROR == 0
    assert pull_quic_header.__module__ == "uringcore.quic._packet_headers"
    assert HandshakeType.CLIENT_HELLO == 1


def test_the_private_state_of_a_connection_and_its_end(pair):  # noqa: F811
    link = pair()
    client, server = link.client, link.server
    assert client._state is QuicConnectionState.FIRSTFLIGHT
    link.connect()
    assert client._state is QuicConnectionState.FIRSTFLIGHT
    assert client._loss._rtt_smoothed == 0.0 and not client._loss._rtt_initialized
    link.run(lambda: client.is_established and server.is_established)
    link.run(limit=1.0)
    assert client._state is server._state is QuicConnectionState.CONNECTED
    assert client._close_event is None and not client._close_pending
    for side in (client, server):
        assert 0.019 < side._loss._rtt_smoothed < 0.1
        assert side._loss._rtt_min <= side._loss._rtt_smoothed
        assert side._loss._rtt_latest > 0 and side._loss._rtt_variance >= 0
        assert side._loss.congestion_window == side._loss._cc.congestion_window > 1200
        assert side._loss.bytes_in_flight == 0
        assert side._loss.ssthresh is None
    assert client.tls.key_schedule.cipher_suite.name.startswith(("AES", "CHACHA20"))
    drained(client)

    client.close(error_code=7, reason_phrase="enough")
    assert client._close_event == events.ConnectionTerminated(7, None, "enough")
    assert client._close_event.kind == "local" and client._close_pending
    link.run(lambda: server.is_closed)
    assert client._state is QuicConnectionState.CLOSING and not client._close_pending
    drained(server)
    assert server._close_event == events.ConnectionTerminated(7, None, "enough")
    assert server._state is QuicConnectionState.DRAINING
    link.run(limit=60.0)
    assert client._state is server._state is QuicConnectionState.TERMINATED


def test_the_peers_connection_ids_are_counted(pair):  # noqa: F811
    link = pair()
    assert link.client._peer_cid.cid == b""
    link.connect()
    link.run(lambda: link.client.is_established and link.server.is_established)
    link.run(limit=1.0)
    client = link.client
    assert client._peer_cid.cid == link.server.host_cid
    assert client._peer_cid.sequence_number == 0
    count = len(client._peer_cid_available)
    assert count > 0 and client._peer_cid_sequence_numbers == set(range(count + 1))
    client.change_connection_id()
    link.run(limit=1.0)
    assert client._peer_cid.sequence_number == 1
    assert client._peer_cid_available[0].sequence_number == 2
    assert max(client._peer_cid_sequence_numbers) > count, "the peer replaced the retired id"


def test_get_or_create_stream_opens_a_stream(pair):  # noqa: F811
    link = pair()
    link.connect()
    link.run(lambda: link.client.is_established and link.server.is_established)
    client = link.client
    stream = client._get_or_create_stream_for_send(0)
    assert stream.stream_id == 0 and stream.sender._reset_error_code is None
    assert client.get_next_available_stream_id() == 4
    assert client._get_or_create_stream_for_send(0).stream_id == 0
    client.send_stream_data(0, b"x", end_stream=True)
    with pytest.raises(ValueError, match="stream"):
        client._get_or_create_stream_for_send(3)
    with pytest.raises(ValueError, match="stream"):
        client._get_or_create_stream_for_send(1)


@pytest.mark.parametrize("is_reset_first", [True, False])
def test_a_request_given_up_through_quic_leaves_no_state_in_http3(pair, is_reset_first):  # noqa: F811
    link = pair()
    link.connect()
    link.run(lambda: link.client.is_established and link.server.is_established)
    client, server = H3Connection(link.client), H3Connection(link.server)
    request = [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":authority", b"localhost"),
        (b":path", b"/"),
    ]

    def exchange():
        link.run(limit=1.0)
        for quic, http in ((link.client, client), (link.server, server)):
            for event in drained(quic):
                http.handle_event(event)

    exchange()
    for _ in range(20):
        stream_id = link.client.get_next_available_stream_id()
        client.send_headers(stream_id, request, end_stream=is_reset_first)
        exchange()
        server.send_headers(stream_id, [(b":status", b"200")])
        server.send_data(stream_id, b"begin", end_stream=False)
        exchange()
        assert client.open_requests == server.open_requests == 1
        if is_reset_first:
            link.server.reset_stream(stream_id, 0x10C)
        else:
            link.client.stop_stream(stream_id, 0x10C)
            link.client.reset_stream(stream_id, 0x10C)
        exchange()
        assert client.open_requests == server.open_requests == 0
    assert not link.client.is_closed and not link.server.is_closed


def test_names_on_a_loop(run, server_configuration, client_configuration):
    async def main():
        async with serving(server_configuration()) as (port, _):
            async with connect(
                "127.0.0.1", port, configuration=client_configuration(), create_protocol=Recorder
            ) as client:
                assert client._connected_waiter is None
                reader, writer = await client.create_stream()
                assert client._stream_readers == {0: reader}
                assert client._quic._state is QuicConnectionState.CONNECTED
                await client.ping()
                assert client._quic._loss._rtt_smoothed > 0
                client.close(3, "bye")
                assert client._quic._close_event.error_code == 3
                await client.wait_closed()
                assert client._quic._state is QuicConnectionState.TERMINATED
                assert not client._quic._close_pending
                writer.close()
        protocol = Recorder(QuicConnection(configuration=client_configuration()))
        waiting = asyncio.ensure_future(protocol.wait_connected())
        await asyncio.sleep(0)
        assert isinstance(protocol._connected_waiter, asyncio.Future)
        protocol.close()
        with pytest.raises(ConnectionError):
            await waiting

    run(main())
