"""``connect(wait_connected=False)``: nothing is sent before the program sends data."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from tests.quic.harness import connecting, serving, ticket_of
from uringcore.asyncio import _held_first_flight as first_flight
from uringcore.quic import events
from uringcore.quic.logger import QuicLogger

pytestmark = pytest.mark.either_backend


@pytest.fixture
def patient(monkeypatch):
    """The delayed start of the handshake never happens by itself."""
    monkeypatch.setattr(first_flight, "_STEP", 3600.0)


def test_early_data_leaves_with_the_hello(run_anywhere, server_configuration, client_configuration):
    async def main():
        async with serving(server_configuration(early_data=True)) as (port, servers):
            ticket = await ticket_of(port, client_configuration())
            logger = QuicLogger()
            configuration = client_configuration(session_ticket=ticket, quic_logger=logger)
            async with connecting(port, configuration) as client:
                # A busy machine: a few turns of the loop take longer than the delay.
                for _ in range(3):
                    time.sleep(0.05)
                    await asyncio.sleep(0)
                assert client.stats()["datagrams_sent"] == 0
                stream_id = client._quic.get_next_available_stream_id()
                client._quic.send_stream_data(stream_id, b"early", end_stream=True)
                client.transmit()
                await client.wait_for(events.StreamDataReceived, end_stream=True)
                assert client.data == {stream_id: b"early"}
                await client.wait_for(
                    events.HandshakeCompleted, session_resumed=True, early_data_accepted=True
                )
        (trace,) = logger.to_dict()["traces"]
        names = [event["name"] for event in trace["events"]]
        # Both are in the first datagram, well before any packet of the server.
        first = names.index("transport:datagrams_sent")
        assert first < names.index("transport:packet_received")
        kinds = [
            event["data"]["header"]["packet_type"]
            for event in trace["events"][:first]
            if event["name"] == "transport:packet_sent"
        ]
        assert kinds == ["initial", "0RTT"]

    run_anywhere(main())


async def _write(client):
    _, writer = await client.create_stream()
    writer.write(b"something")


WAYS = {
    "transmit": lambda client: client.transmit(),
    "writer": _write,
    "wait_connected": lambda client: client.wait_connected(),
    "ping": lambda client: client.ping(),
    "drain": lambda client: client.drain(),
    "migrate": lambda client: client.migrate(("127.0.0.1", 0)),
}


def test_each_call_that_needs_the_server_starts_the_handshake(
    run_anywhere, patient, server_configuration, client_configuration
):
    async def main():
        async with serving(server_configuration()) as (port, _):
            for name, way in WAYS.items():
                if name == "migrate" and run_anywhere.kind == "asyncio":
                    continue
                async with connecting(port, client_configuration()) as client:
                    begun = way(client)
                    if begun is not None:
                        await begun
                    await client.wait_for(events.HandshakeCompleted)
            async with connecting(port, client_configuration()) as client:
                waiter = asyncio.ensure_future(client.wait_closed())
                await client.wait_for(events.HandshakeCompleted)
                client.close()
                await waiter

    run_anywhere(main())


def test_a_client_that_only_listens_begins_soon(
    run_anywhere, server_configuration, client_configuration
):
    """A client that leaves the sending to the loop starts its handshake soon, too."""

    async def main():
        async with serving(server_configuration()) as (port, _):
            async with connecting(port, client_configuration()) as client:
                client._quic.send_stream_data(0, b"echo", end_stream=True)
                await client.wait_for(events.HandshakeCompleted)
                if run_anywhere.kind == "asyncio":
                    client.transmit()
                await client.wait_for(events.StreamDataReceived, end_stream=True)
                assert client.data == {0: b"echo"}

    run_anywhere(main())


@pytest.mark.parametrize("way", ["leave", "close", "abort"])
def test_a_connection_that_is_closed_before_has_never_been(run_anywhere, client_configuration, way):
    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
            server.bind(("127.0.0.1", 0))
            server.setblocking(False)
            port = server.getsockname()[1]
            async with connecting(port, client_configuration()) as client:
                client._quic.send_stream_data(0, b"unsent")
                await asyncio.sleep(0)
                if way == "close":
                    client.close(error_code=7, reason_phrase="changed my mind")
                    client.transmit()
                    await client.wait_closed()
                elif way == "abort":
                    client._transport.abort()
                    await client.wait_closed()
            assert [type(event) for event in client.events].count(events.ConnectionTerminated) == 1
            if way == "close":
                (end,) = (e for e in client.events if isinstance(e, events.ConnectionTerminated))
                assert (end.error_code, end.reason_phrase) == (7, "changed my mind")
            assert client.stats()["datagrams_sent"] == 0
            await client._transport.wait_closed()
            with pytest.raises(BlockingIOError):
                server.recv(2048)

    run_anywhere(main())


def test_all_kinds_of_data_can_be_queued_before_the_handshake(
    run_anywhere, patient, server_configuration, client_configuration
):
    async def main():
        fields = {"max_datagram_frame_size": 1200}
        async with serving(server_configuration(**fields)) as (port, servers):
            async with connecting(port, client_configuration(**fields)) as client:
                quic = client._quic
                assert quic.get_next_available_stream_id() == 0
                assert quic.get_next_available_stream_id(is_unidirectional=True) == 2
                quic.send_stream_data(0, b"first")
                quic.send_stream_data(4, b"second", end_stream=True)
                quic.send_stream_data(8, b"third")
                quic.reset_stream(8, 5)
                assert quic.get_next_available_stream_id() == 12
                client.set_stream_priority(4, 1)
                quic.send_datagram_frame(b"frame")
                quic.send_ping(77)
                assert client.get_send_buffer_size(0) == 5
                assert client.stats()["packets_sent"] == 0
                assert quic.get_peer_address() == ("127.0.0.1", port)
                with pytest.raises(ValueError):
                    quic.send_stream_data(1, b"a server's")
                with pytest.raises(RuntimeError):
                    quic.send_stream_data(4, b"finished")
                with pytest.raises(RuntimeError):
                    client.connect(("127.0.0.1", port), transmit=False)
                for _ in range(3):
                    await asyncio.sleep(0)
                assert client.stats()["datagrams_sent"] == 0
                client.transmit()
                await client.wait_for(events.StreamDataReceived, stream_id=4, end_stream=True)
                await client.wait_for(events.StreamDataReceived, stream_id=0)
                await client.wait_for(events.DatagramFrameReceived, data=b"frame")
                await client.wait_for(events.PingAcknowledged, uid=77)
                assert client.data == {0: b"first", 4: b"second"}
            assert servers[0].data == client.data

    run_anywhere(main())
