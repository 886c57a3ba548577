"""``QuicConnection`` without a loop: the test moves the datagrams and the clock."""

from __future__ import annotations

import random

import pytest

from uringcore.buffer import Buffer
from uringcore.quic import events
from uringcore.quic.connection import QuicConnection
from uringcore.quic.packet import PACKET_TYPE_INITIAL, QuicProtocolVersion, pull_quic_header

VERSION_1, VERSION_2 = QuicProtocolVersion.VERSION_1, QuicProtocolVersion.VERSION_2
CLIENT = ("192.0.2.1", 40000)
SERVER = ("192.0.2.2", 4433)


class Pair:
    """A client and a server on a lossy link, with a clock that jumps to the next timer."""

    def __init__(self, client_configuration, server_configuration, loss=0.0, seed=1):
        self.client = QuicConnection(configuration=client_configuration)
        self.server = QuicConnection(configuration=server_configuration)
        self.now = 1000.0
        self.delay = 0.01
        self.loss = loss
        self.chance = random.Random(seed)
        self.flying = []
        self.datagrams = 0

    def connect(self):
        self.client.connect(SERVER, now=self.now)

    def run(self, until=lambda: False, limit=60.0):
        """Runs until the condition holds, or no packet and no timer is left."""
        end = self.now + limit
        while not until():
            self._take(self.client, CLIENT, self.server)
            self._take(self.server, SERVER, self.client)
            times = [at for at, *_ in self.flying[:1]]
            times += [
                at for at in (self.client.get_timer(), self.server.get_timer()) if at is not None
            ]
            if not times or min(times) > end:
                return
            self.now = max(self.now, min(times))
            while self.flying and self.flying[0][0] <= self.now:
                _, data, source, target = self.flying.pop(0)
                target.receive_datagram(data, source, now=self.now)
            for side in (self.client, self.server):
                due = side.get_timer()
                if due is not None and due <= self.now:
                    side.handle_timer(now=self.now)

    def _take(self, side, source, target):
        for data, addr in side.datagrams_to_send(now=self.now):
            assert addr == (SERVER if side is self.client else CLIENT)
            assert 0 < len(data) <= 1500
            self.datagrams += 1
            if self.chance.random() >= self.loss:
                self.flying.append((self.now + self.delay, data, source, target))


def drained(side):
    found = []
    while (event := side.next_event()) is not None:
        found.append(event)
    return found


@pytest.fixture
def pair(server_configuration, client_configuration):
    def make(loss=0.0, seed=1, **fields):
        client = client_configuration(server_name="localhost", **fields)
        return Pair(client, server_configuration(**fields), loss, seed)

    return make


def test_a_connection_in_memory(pair):
    link = pair()
    link.connect()
    link.run(lambda: link.client.is_established and link.server.is_established)
    client, server = drained(link.client), drained(link.server)
    assert [e for e in client if not isinstance(e, events.ConnectionIdIssued)] == [
        events.ProtocolNegotiated("test"),
        events.HandshakeCompleted("test", False, False),
    ]
    assert events.HandshakeCompleted("test", False, False) in server
    assert link.client.get_peer_address() == SERVER
    assert link.server.get_peer_address() == CLIENT

    stream_id = link.client.get_next_available_stream_id()
    link.client.send_stream_data(stream_id, b"ping", end_stream=True)
    link.client.send_ping(77)
    link.run(lambda: False, limit=1.0)
    assert events.StreamDataReceived(b"ping", True, 0) in drained(link.server)
    assert events.PingAcknowledged(uid=77) in drained(link.client)

    link.client.close(error_code=9, reason_phrase="done")
    link.run(lambda: link.server.is_closed, limit=5.0)
    link.run(limit=30.0)
    assert link.client.get_timer() is None and link.server.get_timer() is None
    assert drained(link.server)[-1] == events.ConnectionTerminated(9, None, "done")
    ended = drained(link.client)
    assert ended[-1] == events.ConnectionTerminated(9, None, "done") and ended[-1].kind == "local"


@pytest.mark.parametrize("seed", range(5))
def test_loss_costs_time_and_nothing_else(pair, seed):
    link = pair(loss=0.1, seed=seed)
    link.connect()
    sent = bytes(random.Random(seed).randbytes(300_000))
    link.client.send_stream_data(0, sent, end_stream=True)
    received = bytearray()

    def complete():
        for event in drained(link.server):
            if isinstance(event, events.StreamDataReceived):
                received.extend(event.data)
                if event.end_stream:
                    return True
        return False

    link.run(complete)
    assert bytes(received) == sent
    assert link.client.stats()["packets_lost"] > 0


def test_the_clock_is_the_callers(pair):
    """Half a minute of silence ends as soon as the caller's clock says so."""
    link = pair(idle_timeout=30.0)
    link.connect()
    link.run(lambda: link.client.is_established and link.server.is_established)
    link.run(limit=1.0)
    drained(link.client)
    before = link.now
    link.run(lambda: link.client.is_closed, limit=100.0)
    (end,) = [e for e in drained(link.client) if isinstance(e, events.ConnectionTerminated)]
    assert end.kind == "idle_timeout"
    assert 25 < link.now - before < 95


def test_a_server_ignores_what_is_not_for_it(pair):
    link = pair()
    link.server.receive_datagram(b"", CLIENT, now=1.0)
    link.server.receive_datagram(b"\x00" * 1200, CLIENT, now=1.0)
    link.server.receive_datagram(bytes(range(256)) * 5, CLIENT, now=1.0)
    assert link.server.next_event() is None
    link.connect()
    link.run(lambda: link.client.is_established and link.server.is_established)
    assert link.server.is_established


def test_before_the_beginning(pair, server_configuration):
    link = pair()
    assert link.client.next_event() is None
    assert link.client.get_timer() is None
    assert link.client.datagrams_to_send(now=0.0) == []
    assert link.client.get_peer_address() is None
    assert not link.client.is_established and not link.client.is_closed
    link.client.close()
    with pytest.raises(ValueError, match="stream 1"):
        link.client.send_stream_data(1, b"not ours")
    with pytest.raises(RuntimeError, match="clients"):
        link.server.connect(CLIENT, now=0.0)
    with pytest.raises(TypeError):
        link.client.connect(["localhost", 443], now=0.0)


def test_two_connections_do_not_share_their_ends(pair):
    """Many concurrent streams of both sides, with FINs, resets and flow control."""
    link = pair(max_stream_data=16384, max_data=65536)
    link.connect()
    for number in range(20):
        link.client.send_stream_data(number * 4, bytes([number]) * 50_000, end_stream=True)
    received = {}

    def complete():
        for event in drained(link.server):
            if isinstance(event, events.StreamDataReceived):
                received.setdefault(event.stream_id, bytearray()).extend(event.data)
        return sum(map(len, received.values())) == 20 * 50_000

    link.run(complete)
    assert {key: bytes(value) for key, value in received.items()} == {
        number * 4: bytes([number]) * 50_000 for number in range(20)
    }


def test_a_late_copy_of_the_first_packet_begins_nothing(pair):
    """A delaying path may deliver copies later; even after the end they start no second connection."""
    link = pair()
    link.connect()
    first = [data for data, _ in link.client.datagrams_to_send(now=link.now)]
    for data in first:
        link.server.receive_datagram(data, CLIENT, now=link.now)
    link.run(lambda: link.client.is_established and link.server.is_established)
    for data in first:
        link.server.receive_datagram(data, CLIENT, now=link.now)
    link.client.close()
    link.run(limit=30.0)
    assert link.server.is_closed
    drained(link.server)
    for data in first:
        link.server.receive_datagram(data, CLIENT, now=link.now)
    assert drained(link.server) == []


def test_the_timer_is_due_at_once_until_the_first_packet_is_taken(pair):
    """As with aioquic: programs sleep until the timer before they send for the first time."""
    link = pair()
    assert link.client.get_timer() is None
    link.connect()
    assert link.client.get_timer() == pytest.approx(link.now, abs=1e-3)
    link.client.handle_timer(now=link.now + 1e-3)
    assert link.client.datagrams_to_send(now=link.now)
    assert link.client.get_timer() > link.now + 0.01


def test_the_id_is_known_before_the_first_packet(pair):
    """As with aioquic: a server that routes packets itself enters the id into its table at once."""
    link = pair()
    ours, theirs = link.server.host_cid, link.client.host_cid
    assert len(ours) == len(theirs) == 8 and ours != theirs
    link.connect()
    link.run(lambda: link.client.is_established and link.server.is_established)
    assert (link.server.host_cid, link.client.host_cid) == (ours, theirs)
    link.client.send_stream_data(0, b"to that id")
    first, *_ = link.client.datagrams_to_send(now=link.now)
    assert first[0][1:9] == ours


@pytest.mark.parametrize("is_again", ["retry", "version"])
def test_the_id_stays_over_another_beginning(server_configuration, client_configuration, is_again):
    """The id survives a Retry (for a token that was used before) and a Version Negotiation."""

    class Store(dict):
        """A store that reports every token as used."""

        put = dict.__setitem__

        def take(self, ticket):
            return self.pop(ticket, None)

        def spend(self, token):
            return False

    token = []
    first = Pair(
        client_configuration(server_name="localhost"),
        server_configuration(token_key=b"k" * 64, session_store=Store()),
    )
    first.client._set_credential_handlers(None, token.append)
    first.connect()
    first.run(lambda: token)
    if is_again == "retry":
        ours = {"token": token[0]}
        theirs = {"token_key": b"k" * 64, "session_store": Store()}
    else:
        ours = {"original_version": VERSION_2, "supported_versions": [VERSION_2, VERSION_1]}
        theirs = {"supported_versions": [VERSION_1]}
    link = Pair(
        client_configuration(server_name="localhost", **ours), server_configuration(**theirs)
    )
    ids = link.server.host_cid, link.client.host_cid
    seen = {}
    receive = {side: side.receive_datagram for side in (link.client, link.server)}
    link.connect()
    for _ in range(20):
        for side, source, other in (
            (link.client, CLIENT, link.server),
            (link.server, SERVER, link.client),
        ):
            for data, _ in side.datagrams_to_send(now=link.now):
                if data[0] & 0x80:
                    header = pull_quic_header(Buffer(data=data))
                    seen.setdefault(side, []).append(header.source_cid)
                receive[other](data, source, now=link.now)
        link.now += 0.01
    assert link.client.is_established and link.server.is_established
    assert (link.server.host_cid, link.client.host_cid) == ids
    assert set(seen[link.client]) == {ids[1]}
    # A Version Negotiation packet has the requested id as its source.
    assert set(seen[link.server][1:]) == {ids[0]}


def test_a_server_of_many_connections_routes_by_headers(pair):
    """Like hypercorn: a table of ids, filled from the first packet and from events."""
    links = [pair() for _ in range(5)]
    table, servers = {}, []
    for link in links:
        link.connect()
    for _ in range(20):
        for number, link in enumerate(links):
            for data, _ in link.client.datagrams_to_send(now=link.now):
                header = pull_quic_header(Buffer(data=data), host_cid_length=8)
                if header.destination_cid not in table:
                    assert header.packet_type is PACKET_TYPE_INITIAL and len(data) >= 1200
                    server = QuicConnection(
                        configuration=link.server.configuration,
                        original_destination_connection_id=header.destination_cid,
                    )
                    servers.append(server)
                    table[header.destination_cid] = table[server.host_cid] = server
                table[header.destination_cid].receive_datagram(data, (CLIENT[0], number), link.now)
        for server in servers:
            for event in drained(server):
                if isinstance(event, events.ConnectionIdIssued):
                    table[event.connection_id] = server
                elif isinstance(event, events.ConnectionIdRetired):
                    del table[event.connection_id]
                elif isinstance(event, events.StreamDataReceived):
                    server.send_stream_data(event.stream_id, event.data, event.end_stream)
            for data, (_, number) in server.datagrams_to_send(now=links[0].now):
                links[number].client.receive_datagram(data, SERVER, links[number].now)
        for number, link in enumerate(links):
            if link.client.is_established and link.client.get_next_available_stream_id() == 0:
                link.client.send_stream_data(0, bytes([number]), end_stream=True)
    assert len(servers) == len(links)
    for number, link in enumerate(links):
        assert events.StreamDataReceived(bytes([number]), True, 0) in drained(link.client)


def test_a_server_gets_the_event_of_a_handshake_that_failed_at_once(pair, client_configuration):
    """Without the event, the server's program would keep the connection in its tables forever."""
    link = pair()
    known = link.server.host_cid
    other = QuicConnection(configuration=client_configuration(alpn_protocols=["unknown"]))
    other.connect(SERVER, now=link.now)
    for data, _ in other.datagrams_to_send(now=link.now):
        link.server.receive_datagram(data, CLIENT, now=link.now)
    (end,) = drained(link.server)
    assert isinstance(end, events.ConnectionTerminated) and end.error_code == 0x178
    assert link.server.is_closed and link.server.host_cid == known
    for data, _ in link.server.datagrams_to_send(now=link.now):
        other.receive_datagram(data, SERVER, now=link.now)
    other.handle_timer(now=link.now + 10.0)
    assert drained(other)[-1].error_code == 0x178
    # A closed connection ignores packets of another client too.
    link.connect()
    for data, _ in link.client.datagrams_to_send(now=link.now):
        link.server.receive_datagram(data, CLIENT, now=link.now)
    assert drained(link.server) == []


def test_ids_are_reported_before_a_packet_issues_them(pair):
    """The peer may use an id at once; a program whose event came later would drop the packet."""
    link = pair()
    link.connect()
    for data, _ in link.client.datagrams_to_send(now=link.now):
        link.server.receive_datagram(data, CLIENT, now=link.now)
    issued = [e for e in drained(link.server) if isinstance(e, events.ConnectionIdIssued)]
    assert len(issued) > 1
    for data, _ in link.server.datagrams_to_send(now=link.now):
        link.client.receive_datagram(data, SERVER, now=link.now)
    link.run(lambda: link.client.is_established and link.server.is_established)
    told = [e for e in drained(link.server) if isinstance(e, events.ConnectionIdIssued)]
    assert told == []


def test_a_program_that_routes_packets_itself_learns_the_ids(pair):
    """As with aioquic: the first id, then events for each issued and each retired id."""
    link = pair()
    link.connect()
    link.run(lambda: link.client.is_established and link.server.is_established)
    link.run(limit=1.0)
    told = drained(link.server)
    issued = [e.connection_id for e in told if isinstance(e, events.ConnectionIdIssued)]
    assert issued and len(set(issued)) == len(issued) and link.server.host_cid not in issued
    assert not [e for e in told if isinstance(e, events.ConnectionIdRetired)]

    link.client.change_connection_id()
    link.client.send_stream_data(0, b"on another id")
    datagrams = link.client.datagrams_to_send(now=link.now)
    length = len(link.server.host_cid)
    assert {data[1 : 1 + length] for data, _ in datagrams} <= set(issued)
    for data, _ in datagrams:
        link.server.receive_datagram(data, CLIENT, now=link.now)
    link.run(limit=1.0)
    told = drained(link.server)
    assert events.ConnectionIdRetired(link.server.host_cid) in told
    (fresh,) = [e.connection_id for e in told if isinstance(e, events.ConnectionIdIssued)]
    assert fresh not in issued
    assert events.StreamDataReceived(b"on another id", False, 0) in told
