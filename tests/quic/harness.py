"""Helpers of the QUIC tests: echoing servers, recording clients, waits for idle connections."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time

from uringcore.asyncio import QuicConnectionProtocol, connect, serve
from uringcore.quic import events


class Recorder(QuicConnectionProtocol):
    """Records every event and lets a test wait for one."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.events = []
        self.data = {}
        self._changed = asyncio.Event()

    def quic_event_received(self, event):
        self.events.append(event)
        if isinstance(event, events.StreamDataReceived):
            self.data[event.stream_id] = self.data.get(event.stream_id, b"") + event.data
        self._changed.set()
        super().quic_event_received(event)

    async def wait_for(self, kind, **fields):
        """Returns the first event of ``kind`` with these fields; waits until it arrives."""
        while True:
            for event in self.events:
                if isinstance(event, kind) and all(
                    getattr(event, name) == value for name, value in fields.items()
                ):
                    return event
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 50)


class Echo(Recorder):
    """Echoes received data through raw events without stream readers, as aioquic programs do."""

    def quic_event_received(self, event):
        super().quic_event_received(event)
        if isinstance(event, events.StreamDataReceived) and not event.stream_id & 2:
            self._quic.send_stream_data(event.stream_id, event.data, event.end_stream)
            self.transmit()
        elif isinstance(event, events.DatagramFrameReceived):
            self._quic.send_datagram_frame(event.data)
            self.transmit()


@contextlib.asynccontextmanager
async def serving(configuration, create_protocol=Echo, host="127.0.0.1", **options):
    """Runs a server on a free port; yields ``(port, protocols)``."""
    protocols = []

    def create(*args, **kwargs):
        protocol = create_protocol(*args, **kwargs)
        protocols.append(protocol)
        return protocol

    server = await serve(host, 0, configuration=configuration, create_protocol=create, **options)
    try:
        yield server.sockname[1], protocols
    finally:
        server.close()
        server.close_clients()
        await asyncio.wait_for(server.wait_closed(), 30)


def connecting(port, configuration):
    """A client whose handshake starts with its first data."""
    return connect(
        "127.0.0.1",
        port,
        configuration=configuration,
        create_protocol=Recorder,
        wait_connected=False,
    )


async def ticket_of(port, configuration, **options):
    """Opens a connection and returns the session ticket that the server issues."""
    tickets = []
    async with connect(
        "127.0.0.1",
        port,
        configuration=configuration,
        session_ticket_handler=tickets.append,
        create_protocol=Recorder,
        **options,
    ) as client:
        await client.ping()
        await eventually(lambda: tickets)
    return tickets[0]


def completed(protocol):
    """Returns two flags of the completed handshake: the session was resumed, the 0-RTT data was accepted."""
    (event,) = (e for e in protocol.events if isinstance(e, events.HandshakeCompleted))
    return event.session_resumed, event.early_data_accepted


async def early_echo(port, configuration, data):
    """Sends ``data`` before the handshake is complete and waits for the echo; returns the flags of
    `completed`.
    """
    async with connecting(port, configuration) as client:
        client._quic.send_stream_data(0, data, end_stream=True)
        client.transmit()
        await client.wait_for(events.StreamDataReceived, stream_id=0, end_stream=True)
        assert client.data[0] == data
        await client.wait_connected()
        return completed(client)


async def eventually(condition, limit=30.0):
    """Waits until ``condition()`` is true. Fails after ``limit`` seconds."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("the condition did not become true in time")
        await asyncio.sleep(0.01)


async def still(protocol, measure):
    """Waits until three exchanges in a row (acknowledged PINGs) leave ``measure()`` unchanged.

    By then all sent data has arrived, and so has the credit that the peer grants for it.
    """
    last = measure()
    unchanged = 0
    while unchanged < 3:
        await protocol.ping()
        now = measure()
        unchanged = unchanged + 1 if now == last else 0
        last = now


async def kept(path, ticket):
    """Waits until the file of a ``SharedSessionStore`` contains the session of ``ticket``. A server writes it
    while its client already continues.
    """

    def found():
        with contextlib.closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT 1 FROM sessions WHERE ticket = ?", (ticket.ticket,))
            return rows.fetchone() is not None

    await eventually(found)


def patterned(size, seed=0):
    """Returns ``size`` bytes that differ by position and seed, so that mixed-up data is detected."""
    block = bytes((index * 7 + seed * 13) % 251 for index in range(251 * 16))
    return (block * (size // len(block) + 1))[:size]
