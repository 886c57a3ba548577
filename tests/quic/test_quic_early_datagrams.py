"""DATAGRAM frames in 0-RTT data (RFC 9221 section 3), also with aioquic on the other side."""

from __future__ import annotations

import pytest

from tests.quic.aioquic_peer import (
    AioquicRecorder,
    AioquicStore,
    aioquic_client,
    aioquic_serving,
    aioquic_ticket_of,
)
from tests.quic.harness import Echo, completed, connecting, eventually, serving, ticket_of
from uringcore.quic import events

pytestmark = pytest.mark.either_backend

aioquic_asyncio = pytest.importorskip("aioquic.asyncio")
aioquic_events = pytest.importorskip("aioquic.quic.events")


async def _early(port, configuration, *said):
    """Sends datagrams before the handshake is complete; returns the client when all were echoed."""
    async with connecting(port, configuration) as client:
        for data in said:
            client._quic.send_datagram_frame(data)
        client.transmit()
        await eventually(lambda: len(_arrived(client)) == len(said))
        await client.wait_connected()
        return client


def _arrived(protocol, kind=events.DatagramFrameReceived):
    return [event for event in protocol.events if isinstance(event, kind)]


def test_datagrams_go_out_early_and_are_marked(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        configuration = server_configuration(early_data=True, max_datagram_frame_size=65536)
        async with serving(configuration, Echo) as (port, servers):
            configuration = client_configuration(max_datagram_frame_size=65536)
            configuration.session_ticket = await ticket_of(port, configuration)
            client = await _early(port, configuration, b"one", b"two")
            assert completed(client) == (True, True)
            kinds = [type(event) for event in servers[-1].events]
            first = kinds.index(events.DatagramFrameReceived)
            assert first < kinds.index(events.HandshakeCompleted)
            assert servers[-1].events[first].early_data
            assert repr(servers[-1].events[first]).endswith(", early_data=True)")
            assert not any(event.early_data for event in _arrived(client))

            # The ticket is used up: the same early data is rejected, and then sent again.
            client = await _early(port, configuration, b"one", b"two")
            assert completed(client) == (False, False)
            expected = [events.DatagramFrameReceived(data) for data in (b"one", b"two")]
            assert _arrived(servers[-1]) == expected

    run_anywhere(main())


def test_our_client_sends_early_datagrams_to_their_server(run, pki, client_configuration):
    heard = []

    class Server(AioquicRecorder):
        def quic_event_received(self, event):
            super().quic_event_received(event)
            if isinstance(event, aioquic_events.DatagramFrameReceived):
                done = (type(e) is aioquic_events.HandshakeCompleted for e in self.events)
                heard.append((event.data, any(done)))
                self._quic.send_datagram_frame(event.data)
                self.transmit()

    async def main():
        store = AioquicStore()
        handlers = {"session_ticket_fetcher": store.pop, "session_ticket_handler": store.add}
        async with aioquic_serving(
            pki, Server, handlers=handlers, max_datagram_frame_size=65536
        ) as port:
            configuration = client_configuration(max_datagram_frame_size=65536)
            configuration.session_ticket = await ticket_of(port, configuration)
            client = await _early(port, configuration, b"early")
            assert completed(client) == (True, True)
            assert heard == [(b"early", False)]

    run(main())


def test_their_client_sends_early_datagrams_to_our_server(run, pki, server_configuration):
    async def main():
        configuration = server_configuration(early_data=True, max_datagram_frame_size=65536)
        async with serving(configuration, Echo) as (port, servers):
            fields = {"max_datagram_frame_size": 65536, "server_name": "localhost"}
            ticket = await aioquic_ticket_of(port, aioquic_client(pki, **fields))
            async with aioquic_asyncio.connect(
                "127.0.0.1",
                port,
                configuration=aioquic_client(pki, session_ticket=ticket, **fields),
                create_protocol=AioquicRecorder,
                wait_connected=False,
            ) as client:
                client._quic.send_datagram_frame(b"early")
                client.transmit()
                await eventually(lambda: _arrived(client, aioquic_events.DatagramFrameReceived))
            (heard,) = _arrived(servers[-1])
            assert heard == events.DatagramFrameReceived(b"early", early_data=True)

    run(main())
