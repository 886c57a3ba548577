"""Clients hostile before a connection exists: first flights without end, and replayed ones."""

import asyncio
import contextlib
import os
import socket

import pytest
from aioquic.buffer import Buffer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.crypto import CryptoPair

from tests.http.hostile.attacked_server import IDLE_TIMEOUT, attacked_server, run
from tests.http.raw_client import connect_raw, needs_recent_aioquic

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input, needs_recent_aioquic]

VERSION = 1
INITIALS = 12_000


def client_hello():
    """Returns a ClientHello, and the source connection ID in it."""
    configuration = QuicConfiguration(alpn_protocols=["h3"], server_name="localhost")
    quic = QuicConnection(configuration=configuration)
    quic.connect(("127.0.0.1", 1), 0.0)
    # From the first datagram, decrypted with the client's own keys: its CRYPTO frame comes first.
    ((datagram, _), *_) = quic.datagrams_to_send(0.0)
    head = Buffer(data=datagram)
    head.pull_bytes(5)
    destination = head.pull_bytes(head.pull_uint8())
    source = head.pull_bytes(head.pull_uint8())
    head.pull_bytes(head.pull_uint_var())
    size, start = head.pull_uint_var(), head.tell()
    keys = CryptoPair()
    keys.setup_initial(destination, is_client=False, version=VERSION)
    _, payload, _ = keys.decrypt_packet(datagram[: start + size], start, 0)
    return source, payload


def initial(source, payload):
    """Returns that ClientHello as another client's Initial."""
    destination = os.urandom(8)
    payload = payload.ljust(1160, b"\0")
    head = bytes([0xC1]) + VERSION.to_bytes(4, "big")
    for name in (destination, source):
        head += bytes([len(name)]) + name
    head += b"\0" + (0x4000 | len(payload) + 2 + 16).to_bytes(2, "big") + b"\0\0"
    keys = CryptoPair()
    keys.setup_initial(destination, is_client=True, version=VERSION)
    return keys.encrypt_packet(head, payload, 0)


def test_a_flood_of_initials_leaves_nothing_behind(besiege):
    """12,000 clients, from hundreds of addresses, that send a ClientHello and no more."""
    server = besiege(IDLE_TIMEOUT, "2")
    hello = client_hello()

    async def attack():
        async with attacked_server(server, memory_mib=96) as attacked:
            with contextlib.ExitStack() as stack:
                senders = []
                for number in range(400):
                    sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                    sender.setblocking(False)
                    sender.bind((f"127.0.{number % 100 + 1}.{number % 7 + 1}", 0))
                    senders.append(sender)
                for number in range(INITIALS):
                    datagram = initial(*hello)
                    with contextlib.suppress(BlockingIOError):
                        senders[number % 400].sendto(datagram, ("127.0.0.1", server.port))
                    if not number % 20:
                        await asyncio.sleep(0)
                    if not number % 2000:
                        await attacked.others_served()
                await attacked.others_served()
                await attacked.wait_small(24)

    run(attack())


def test_early_data_is_not_taken_where_it_is_off(besiege):
    """Any observer of 0-RTT data can replay it: a server with 0-RTT off accepts neither a client's
    unsolicited early data nor a recorded first flight.
    """
    server = besiege("--http3-early-data", "off")
    tickets = []

    async def attack():
        async with attacked_server(server, memory_mib=8) as attacked:
            async with connect_raw(server, ticket_handler=tickets.append) as raw:
                raw.control()
                assert (await raw.wait_answer(raw.request())).status == 200
                await raw.confirmed()
            for ticket in tickets:
                assert not ticket.max_early_data_size
            ticket = tickets[0]
            # A client that ignores the ticket's limit.
            ticket.max_early_data_size = 0xFFFFFFFF
            flight = []
            async with connect_raw(server, session_ticket=ticket, wait_connected=False) as raw:
                sendto = raw._transport.sendto
                raw._transport = Recorder(sendto, flight, raw._transport)
                raw.control()
                stream_id = raw.request("/count", method="POST")
                assert any(is_zero_rtt(datagram) for datagram in flight)
                await raw.wait(lambda: raw.quic._handshake_complete)
                assert not raw.quic.tls.early_data_accepted
                # Lost with the early keys; aioquic retransmits it with the connection's keys.
                assert (await raw.wait_answer(stream_id)).status == 200
            assert (await attacked.state("count"))["started"] == 1
            for _ in range(20):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
                    for datagram in flight:
                        again.sendto(datagram, ("127.0.0.1", server.port))
                await asyncio.sleep(0)
            await attacked.others_served()
            assert (await attacked.state("count"))["started"] == 1

    run(attack())


class Recorder:
    """A transport that records datagrams until the first answer."""

    def __init__(self, sendto, flight, transport):
        self._sendto, self._flight, self._transport = sendto, flight, transport
        self.recording = True

    def sendto(self, data, addr):
        if len(self._flight) < 10:
            self._flight.append(data)
        self._sendto(data, addr)

    def __getattr__(self, name):
        return getattr(self._transport, name)


def is_zero_rtt(datagram):
    """Returns true if a datagram contains a 0-RTT packet (RFC 9000 section 17.2.3)."""
    data = Buffer(data=datagram)
    while not data.eof():
        first = data.pull_uint8()
        if first & 0xC0 != 0xC0:
            return False
        if first & 0x30 == 0x10:
            return True
        data.pull_uint32()
        data.pull_bytes(data.pull_uint8())
        data.pull_bytes(data.pull_uint8())
        if first & 0x30 == 0:
            data.pull_bytes(data.pull_uint_var())
        data.pull_bytes(data.pull_uint_var())
    return False
