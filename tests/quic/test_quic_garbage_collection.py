"""The garbage collector collects the reference cycles that contain QUIC and HTTP/3 objects."""

from __future__ import annotations

import asyncio
import gc
import io
import weakref

import pytest

from tests.quic.harness import Echo, Recorder, serving
from tests.quic.test_quic_sans_io import Pair
from uringcore.asyncio import connect
from uringcore.h3.connection import H3Connection
from uringcore.quic.connection import QuicConnection
from uringcore.quic.events import ConnectionTerminated


class Owner:
    """A program's object that is part of a reference cycle."""

    kept: object


def _owned_by(refs, kept):
    owner = Owner()
    owner.kept = kept
    refs.append(weakref.ref(owner))
    return owner


async def _alive(refs):
    # The latest turn, and the endpoint that is closing, may keep the last objects for a moment.
    for _ in range(100):
        gc.collect()
        if not any(ref() for ref in refs):
            break
        await asyncio.sleep(0.02)
    return sum(ref() is not None for ref in refs)


class WithHttp(Recorder):
    """A protocol that keeps its HTTP/3 connection, which keeps the QUIC connection."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)


def test_connections_and_their_protocols_go(
    run_anywhere, server_configuration, client_configuration
):
    server = server_configuration(alpn_protocols=["h3"])
    client = client_configuration(alpn_protocols=["h3"])

    async def main():
        refs = []

        def create(*args, **kwargs):
            protocol = WithHttp(*args, **kwargs)
            protocol.owner = _owned_by(refs, protocol)
            return protocol

        async with serving(server, create) as (port, protocols):
            for _ in range(10):
                async with connect(
                    "127.0.0.1", port, configuration=client, create_protocol=create
                ) as protocol:
                    await protocol.ping()
                del protocol
                for one in protocols:
                    await one.wait_for(ConnectionTerminated)
                protocols.clear()
                gc.collect()
            del one
        assert len(refs) == 20
        assert await _alive(refs) == 0

    run_anywhere(main())


def test_servers_go(run_anywhere, server_configuration):
    async def main():
        refs = []

        class Kept(Echo):
            pass

        for _ in range(5):
            async with serving(server_configuration(), Kept) as (_, protocols):
                # The protocol factory keeps the list, and the list now keeps an object that keeps the list.
                protocols.append(_owned_by(refs, protocols))
            protocols.pop()
            del protocols
        assert await _alive(refs) == 0

    run_anywhere(main())


def test_connections_without_a_loop_go(client_configuration):
    refs = []
    for _ in range(20):
        owner = Owner()

        def keep(ticket, owner=owner):
            """A handler that keeps its connection."""

        connection = QuicConnection(
            configuration=client_configuration(), session_ticket_handler=keep
        )
        owner.kept = (connection, H3Connection(connection))
        connection.connect(("127.0.0.1", 4433), now=0.0)
        refs.append(weakref.ref(owner))
        del owner, connection, keep
    gc.collect()
    assert sum(ref() is not None for ref in refs) == 0


class KeptFile(io.StringIO):
    """A key log object with attributes."""


class KeptStore:
    """A program's session store with attributes."""

    def __init__(self, may_block=False):
        self.may_block = may_block
        self.sessions = {}

    def put(self, ticket, session):
        self.sessions[ticket] = session
        return True

    def take(self, ticket):
        return self.sessions.pop(ticket, None)


@pytest.mark.parametrize("what", ["client key log", "server key log", "store"])
def test_cycles_through_a_configuration_are_collected(
    server_configuration, client_configuration, what
):
    refs = []
    for _ in range(20):
        if what == "store":
            kept = KeptStore()
            configuration = server_configuration(session_store=kept)
        else:
            kept = KeptFile()
            make = client_configuration if what.startswith("client") else server_configuration
            configuration = make(secrets_log_file=kept)
        kept.owner = configuration
        configuration.setup()
        refs += [weakref.ref(kept), weakref.ref(configuration)]
        del kept, configuration
    gc.collect()
    assert sum(ref() is not None for ref in refs) == 0


def test_cycles_through_a_connection_are_collected(server_configuration, client_configuration):
    refs = []
    for _ in range(20):
        log, store = KeptFile(), KeptStore()
        link = Pair(
            client_configuration(server_name="localhost", secrets_log_file=log),
            server_configuration(secrets_log_file=log, session_store=store),
        )
        client, server = link.client, link.server
        link.connect()
        link.run(limit=1.0)
        assert client.is_established and server.is_established
        assert "CLIENT_TRAFFIC_SECRET_0" in log.getvalue()
        log.owner, store.owner = (client, server), server
        refs += [weakref.ref(one) for one in (log, store, client, server)]
        del client, server, log, store, link
    gc.collect()
    assert sum(ref() is not None for ref in refs) == 0
