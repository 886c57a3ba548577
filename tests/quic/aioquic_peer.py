"""aioquic as the peer: its protocols, servers and clients, set up for tests."""

from __future__ import annotations

import contextlib

import pytest

from tests.quic.harness import eventually

aioquic_asyncio = pytest.importorskip("aioquic.asyncio")
aioquic_configuration = pytest.importorskip("aioquic.quic.configuration")
aioquic_events = pytest.importorskip("aioquic.quic.events")


class AioquicEcho(aioquic_asyncio.QuicConnectionProtocol):
    def quic_event_received(self, event):
        if isinstance(event, aioquic_events.StreamDataReceived):
            if not event.stream_id & 2:
                self._quic.send_stream_data(event.stream_id, event.data, event.end_stream)
        elif isinstance(event, aioquic_events.DatagramFrameReceived):
            self._quic.send_datagram_frame(event.data)
        self.transmit()


class AioquicRecorder(aioquic_asyncio.QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.events = []

    def quic_event_received(self, event):
        self.events.append(event)
        super().quic_event_received(event)


def verifying(*algorithms):
    """Returns a protocol factory whose client offers only these signature algorithms."""

    def create(quic, *args, **kwargs):
        initialize = quic._initialize

        def initialized(peer_cid):
            initialize(peer_cid)
            quic.tls._signature_algorithms = list(algorithms)

        quic._initialize = initialized
        return AioquicRecorder(quic, *args, **kwargs)

    return create


@contextlib.asynccontextmanager
async def aioquic_serving(pki, create_protocol=AioquicEcho, *, handlers=None, **fields):
    """Runs an aioquic server on a free port; ``handlers`` are arguments of its ``serve()``."""
    fields.setdefault("alpn_protocols", ["test"])
    configuration = aioquic_configuration.QuicConfiguration(is_client=False, **fields)
    configuration.load_cert_chain(str(pki.server.certfile), str(pki.server.keyfile))
    server = await aioquic_asyncio.serve(
        "127.0.0.1",
        0,
        configuration=configuration,
        create_protocol=create_protocol,
        **(handlers or {}),
    )
    try:
        yield server._transport.get_extra_info("sockname")[1]
    finally:
        server.close()


def aioquic_client(pki, **fields):
    fields.setdefault("alpn_protocols", ["test"])
    configuration = aioquic_configuration.QuicConfiguration(is_client=True, **fields)
    configuration.load_verify_locations(str(pki.authority.certfile))
    return configuration


async def aioquic_ticket_of(
    port, configuration, create_protocol=aioquic_asyncio.QuicConnectionProtocol
):
    """Opens a connection and returns the session ticket that aioquic's client receives."""
    tickets = []
    async with aioquic_asyncio.connect(
        "127.0.0.1",
        port,
        configuration=configuration,
        create_protocol=create_protocol,
        session_ticket_handler=tickets.append,
    ) as client:
        await client.ping()
        await eventually(lambda: tickets)
    return tickets[0]


class AioquicTelling(AioquicEcho):
    completed = ()

    def quic_event_received(self, event):
        if isinstance(event, aioquic_events.HandshakeCompleted):
            type(self).completed += ((event.session_resumed, event.early_data_accepted),)
        super().quic_event_received(event)


class AioquicStore:
    """A session ticket store like the one in aioquic's examples."""

    def __init__(self):
        self.tickets = {}

    def add(self, ticket):
        self.tickets[ticket.ticket] = ticket

    def pop(self, label):
        return self.tickets.pop(label, None)


def telling_class():
    return type("Telling", (AioquicTelling,), {"completed": ()})
