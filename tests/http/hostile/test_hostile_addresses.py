"""Clients that send from forged addresses: the addresses that servers accept for a client, and the
bytes that they send there (RFC 9000 sections 8, 9.3 and 21.5).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl

import pytest
from aioquic.quic.configuration import QuicConfiguration

from tests.http import http3_bytes
from tests.http.hostile.attacked_server import run
from tests.http.raw_client import WAIT_SECONDS, RawConnection, connect_raw, needs_recent_aioquic

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input, needs_recent_aioquic]

FORGED = "127.0.0.66"
"""An address whose forwarding headers the server trusts."""
INVENTED = "10.11.12.13"
PATH_CHALLENGE = b"\x1a"
FLOOD_PATH = "/flood/1000000"


@pytest.fixture
def server(start, backend):
    return start("--forwarded-allow-ips", FORGED, backend=backend)


def forwarded(name):
    """Returns a request that names its client, as a proxy's do."""
    return http3_bytes.request(f"/scope?{name}", (b"x-forwarded-for", INVENTED.encode()))


def own_address(raw):
    return list(raw._transport.get_extra_info("sockname"))


def logged(server, name):
    """The access log's line of a request."""
    line = server.wait_log(rf".*GET /scope\?{name} .*").group()
    assert INVENTED not in line and FORGED not in line, line
    return line


async def served(raw, name="served"):
    """Returns the scope of a request that is sent now: the server has processed all earlier data."""
    return json.loads((await raw.wait_answer(raw.bidi(forwarded(name), fin=True))).body)


def test_a_request_from_a_forged_address_is_taken_for_its_clients(server):
    async def attack():
        async with connect_raw(server) as raw:
            raw.control()
            await raw.confirmed()
            here = own_address(raw)
            with raw.elsewhere(FORGED) as there:
                stream_id = raw.bidi(forwarded("moved"), fin=True)
                # The request has arrived: the server acknowledges its datagram to that address.
                await asyncio.wait_for(there.wait_received(), WAIT_SECONDS)
            raw.say()
            scope = json.loads((await raw.wait_answer(stream_id)).body)
            assert scope["client"] == here
            assert f"{here[0]}:{here[1]}" in logged(server, "moved")

    run(attack())


def first_flight(server, ticket, request):
    """Returns the datagrams of a client that resumes a session and sends a request in 0-RTT data."""
    configuration = QuicConfiguration(
        is_client=True,
        server_name="localhost",
        verify_mode=ssl.CERT_NONE,
        alpn_protocols=["h3"],
        session_ticket=ticket,
    )
    quic = RawConnection(configuration=configuration)
    quic.connect(("127.0.0.1", server.port), 0.0)
    quic.send_stream_data(2, http3_bytes.varint(http3_bytes.CONTROL) + http3_bytes.settings({}))
    quic.send_stream_data(0, request, end_stream=True)
    return [datagram for datagram, _ in quic.datagrams_to_send(0.0)]


def test_a_request_in_a_first_flight_from_a_forged_address_is_not_run(server):
    """The host at that address receives the server's answer and sends nothing, so the handshake
    never ends.
    """

    async def attack():
        tickets = []
        async with connect_raw(server, ticket_handler=tickets.append) as raw:
            raw.control()
            await served(raw, "before")
            await raw.wait(lambda: tickets)
        flight = first_flight(server, tickets[0], forwarded("early"))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
            there.setblocking(False)
            there.bind((FORGED, 0))
            for datagram in flight:
                there.sendto(datagram, ("127.0.0.1", server.port))
            answer = asyncio.get_running_loop().sock_recv(there, 65536)
            await asyncio.wait_for(answer, WAIT_SECONDS)
            async with connect_raw(server) as raw:
                raw.control()
                assert (await served(raw, "after"))["client"] == own_address(raw)
        logged(server, "after")
        assert "?early" not in server.log()

    run(attack())


def test_a_client_that_answers_at_its_new_address_is_there(server):
    async def move():
        loop = asyncio.get_running_loop()
        async with connect_raw(server) as raw:
            raw.control()
            await raw.confirmed()
            here, old = own_address(raw), raw._transport
            assert (await served(raw))["client"] == here
            transport, _ = await loop.create_datagram_endpoint(
                lambda: Forward(raw), local_addr=("127.0.0.67", 0)
            )
            raw._transport = transport
            try:
                there = own_address(raw)
                for _ in range(100):
                    # Repeat until the server has the response to its challenge.
                    if (await served(raw))["client"] == there:
                        break
                assert (await served(raw))["client"] == there
            finally:
                transport.close()
                raw._transport = old

    run(move())


class Forward(asyncio.DatagramProtocol):
    """Delivers datagrams from another socket to a client."""

    def __init__(self, raw):
        self._raw = raw

    def datagram_received(self, data, addr):
        self._raw.datagram_received(data, addr)


class Nowhere:
    """A transport whose datagrams are lost."""

    def sendto(self, data, addr):
        pass


ANSWERED = 5
"""The number of changes of address that a server answers at once, one after the other."""
SMALL_PACKET = 80
"""Larger than each of the packets below."""

# Each of these is sent repeatedly from an address where no host responds. PADDING comes first:
# aioquic expands a datagram that begins with a PATH_CHALLENGE to 1,200 bytes.
SMALL_CHALLENGE = b"\0" + PATH_CHALLENGE + bytes(8)
SAID = {
    "a PING": [b"\x01"],
    "a PATH_CHALLENGE": [SMALL_CHALLENGE],
    "both": [SMALL_CHALLENGE, b"\x01"],
}


async def free_to_send(raw):
    """Waits until the client's next packet leaves at once and contains nothing that is left over.

    The server puts its PATH_CHALLENGE into every packet until it has the response. aioquic answers each
    with a datagram of 1,200 bytes. On a busy machine several arrive at once. Then the responses fill the
    congestion window, which the losses of `Nowhere` have reduced to two or three of them.
    """

    def is_free():
        loss = raw.quic._loss
        has_room = loss.congestion_window - loss.bytes_in_flight >= raw.quic._max_datagram_size
        return has_room and not raw.quic._network_paths[0].remote_challenges

    while not is_free():
        # Datagrams may arrive between the end of this wait and the next line.
        await raw.wait(is_free)


@pytest.mark.parametrize("what", SAID)
def test_a_forged_address_gets_no_more_than_three_times_what_came_from_it(server, what):
    async def attack():
        async with connect_raw(server) as raw:
            raw.control()
            await raw.confirmed()
            # The server has data that it could send there.
            flood = raw.request(FLOOD_PATH)
            here = raw._transport
            with raw.elsewhere(FORGED) as there:
                for number in range(40):
                    await free_to_send(raw)
                    sent_before = there.sent_bytes
                    raw._transport = there
                    raw.say(*(frame.replace(bytes(8), os.urandom(8)) for frame in SAID[what]))
                    assert there.sent_bytes > sent_before
                    if number < ANSWERED:
                        # Before that, no datagram of the client may lead the server back.
                        raw._transport = Nowhere()
                        await asyncio.wait_for(there.wait_received(), WAIT_SECONDS)
                    raw._transport = here
                    await served(raw)
                await raw.wait_over(flood)
                assert there.sent_bytes < 40 * SMALL_PACKET
                assert 0 < there.received_bytes <= 3 * there.sent_bytes

    run(attack())


def test_a_forged_client_hello_gets_no_more_than_three_times_its_bytes(server):
    """Sent once, and repeated as a client repeats it. No host responds, so the server retransmits
    too.
    """

    async def attack():
        for copies in (1, 3):
            flight = first_flight(server, None, b"")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
                there.setblocking(False)
                there.bind((FORGED, 0))
                sent = received = 0
                for _ in range(copies):
                    for datagram in flight:
                        sent += there.sendto(datagram, ("127.0.0.1", server.port))
                    async with connect_raw(server) as raw:
                        raw.control()
                        await served(raw)
                # When an honest client's handshake has had its time, the server's probe time-outs
                # have expired too.
                async with connect_raw(server) as raw:
                    raw.control()
                    await raw.wait_over(raw.request("/slow-flood/3"))
                with contextlib.suppress(BlockingIOError):
                    while True:
                        received += len(there.recv(65536))
            assert 1_200 <= received <= 3 * sent, (received, sent)

    run(attack())
