"""Our sans-IO ``QuicConnection`` with aioquic's, in memory, on a link that loses and reorders."""

from __future__ import annotations

import random

import pytest

from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection

theirs = pytest.importorskip("aioquic.quic.connection")
their_configuration = pytest.importorskip("aioquic.quic.configuration").QuicConfiguration

CLIENT = ("192.0.2.1", 40000)
SERVER = ("192.0.2.2", 4433)


class Link:
    """Two connections of either implementation, a clock, and datagrams that arrive late, twice or never."""

    def __init__(self, client, server_of, seed, loss, reorder):
        self.client, self._server_of = client, server_of
        self.server = None
        self.now = 50.0
        self.chance = random.Random(seed)
        self.loss, self.reorder = loss, reorder
        self.flying = []
        self.count = 0
        self.events = {"client": [], "server": []}

    def run(self, until, limit=60.0):
        end = self.now + limit
        while not until():
            for side, source in (("client", CLIENT), ("server", SERVER)):
                self._collect(side, source)
            if until():
                return
            times = [entry[0] for entry in self.flying]
            for side in (self.client, self.server):
                at = side.get_timer() if side is not None else None
                if at is not None:
                    times.append(at)
            assert times and min(times) <= end, "no datagram and no timer is left"
            # The clock must advance: aioquic adds a delay to a packet's time and later compares the
            # difference, which may be rounded to slightly below the delay.
            self.now = max(self.now + 1e-6, min(times))
            due = sorted(entry for entry in self.flying if entry[0] <= self.now)
            self.flying = [entry for entry in self.flying if entry[0] > self.now]
            for _, _, side, data, source in due:
                self._deliver(side, data, source)
            for side in (self.client, self.server):
                at = side.get_timer() if side is not None else None
                if at is not None and at <= self.now:
                    side.handle_timer(now=self.now)

    def _collect(self, side, source):
        connection = getattr(self, side)
        if connection is None:
            return
        while (event := connection.next_event()) is not None:
            self.events[side].append(event)
        other = "server" if side == "client" else "client"
        for data, _ in connection.datagrams_to_send(now=self.now):
            if self.chance.random() < self.loss:
                continue
            late = 0.05 if self.chance.random() < self.reorder else 0.0
            self.count += 1
            self.flying.append((self.now + 0.01 + late, self.count, other, data, source))
            if self.chance.random() < self.reorder / 2:
                self.flying.append((self.now + 0.03, -self.count, other, data, source))

    def _deliver(self, side, data, source):
        if side == "server" and self.server is None:
            self.server = self._server_of(data)
        getattr(self, side).receive_datagram(data, source, now=self.now)

    def named(self, side, name):
        return [event for event in self.events[side] if type(event).__name__ == name]

    def received(self, side, stream_id):
        pieces = [e for e in self.named(side, "StreamDataReceived") if e.stream_id == stream_id]
        return b"".join(e.data for e in pieces), bool(pieces) and pieces[-1].end_stream


def configured(kind, pki, is_client, **fields):
    """Returns one side's configuration, of uringcore's class or aioquic's."""
    made = kind(
        is_client=is_client,
        alpn_protocols=["test"],
        server_name="localhost" if is_client else None,
        max_datagram_frame_size=65536,
        **fields,
    )
    if is_client:
        made.load_verify_locations(cafile=str(pki.authority.certfile))
    else:
        made.load_cert_chain(pki.server.certfile, pki.server.keyfile)
    return made


@pytest.fixture
def link(pki):
    def make(client_is_ours, server_is_ours, seed, loss=0.0, reorder=0.0, **fields):
        def configuration(ours, is_client):
            kind = QuicConfiguration if ours else their_configuration
            return configured(kind, pki, is_client, **fields)

        make_client = QuicConnection if client_is_ours else theirs.QuicConnection
        client = make_client(configuration=configuration(client_is_ours, True))

        def server_of(data):
            make_server = QuicConnection if server_is_ours else theirs.QuicConnection
            # A long header contains the version, then the length and bytes of the destination id (RFC 8999).
            odcid = data[6 : 6 + data[5]]
            return make_server(
                configuration=configuration(server_is_ours, False),
                original_destination_connection_id=odcid,
            )

        return Link(client, server_of, seed, loss, reorder)

    return make


PAIRS = pytest.mark.parametrize(
    ("client_is_ours", "server_is_ours"),
    [(True, True), (True, False), (False, True)],
    ids=["ours-ours", "ours-aioquic", "aioquic-ours"],
)


def _exchange(link, size):
    """Exchanges streams in both directions, a reset, a ping, a datagram, and a close with a code."""
    chance = random.Random(size)
    up, down = chance.randbytes(size), chance.randbytes(size)
    client = link.client
    client.connect(SERVER, now=link.now)
    link.run(lambda: link.named("client", "HandshakeCompleted"))
    assert link.named("client", "ProtocolNegotiated")[0].alpn_protocol == "test"
    stream_id = client.get_next_available_stream_id()
    assert stream_id == 0
    client.send_stream_data(stream_id, up, end_stream=True)
    client.send_ping(42)
    link.run(lambda: link.received("server", 0)[1])
    assert link.received("server", 0)[0] == up
    server = link.server
    server.send_stream_data(0, down, end_stream=True)
    own = server.get_next_available_stream_id(is_unidirectional=True)
    assert own == 3
    server.send_stream_data(own, b"from the server", end_stream=True)
    link.run(lambda: link.received("client", 0)[1] and link.received("client", own)[1])
    assert link.received("client", 0)[0] == down
    assert link.received("client", own)[0] == b"from the server"
    link.run(lambda: link.named("client", "PingAcknowledged"))
    assert link.named("client", "PingAcknowledged")[0].uid == 42

    other = client.get_next_available_stream_id()
    client.send_stream_data(other, b"begun")
    link.run(lambda: link.received("server", other)[0])
    client.reset_stream(other, 5)
    link.run(lambda: link.named("server", "StreamReset"))
    assert link.named("server", "StreamReset")[0].error_code == 5

    client.close(error_code=77, reason_phrase="enough")
    link.run(lambda: link.named("server", "ConnectionTerminated"))
    (end,) = link.named("server", "ConnectionTerminated")
    assert (end.error_code, end.reason_phrase, end.frame_type) == (77, "enough", None)
    # The last aioquic for CPython 3.10 lacks this method.
    if isinstance(link.client, QuicConnection):
        assert link.client.get_peer_address() == SERVER


@PAIRS
def test_a_quiet_link(link, client_is_ours, server_is_ours):
    pair = link(client_is_ours, server_is_ours, seed=1)
    _exchange(pair, 60_000)


@PAIRS
@pytest.mark.parametrize("seed", range(4))
def test_losses_and_reordering(link, client_is_ours, server_is_ours, seed):
    pair = link(client_is_ours, server_is_ours, seed=seed, loss=0.08, reorder=0.2)
    # A close is sent once and repeated only in reply to a packet, so a lost one would lead to an idle
    # time-out. The link loses no more packets from here on.
    original = pair.run

    def run(until, limit=60.0):
        if any(name == "ConnectionTerminated" for name in until.__code__.co_consts):
            pair.loss = 0.0
        original(until, limit)

    pair.run = run
    _exchange(pair, 120_000)


@PAIRS
def test_datagrams(link, client_is_ours, server_is_ours):
    pair = link(client_is_ours, server_is_ours, seed=3)
    pair.client.connect(SERVER, now=pair.now)
    pair.run(lambda: pair.named("client", "HandshakeCompleted"))
    pair.run(lambda: pair.named("server", "HandshakeCompleted"))
    pair.client.send_datagram_frame(b"up")
    pair.server.send_datagram_frame(b"down")
    pair.run(lambda: pair.named("server", "DatagramFrameReceived"))
    pair.run(lambda: pair.named("client", "DatagramFrameReceived"))
    assert pair.named("server", "DatagramFrameReceived")[0].data == b"up"
    assert pair.named("client", "DatagramFrameReceived")[0].data == b"down"


@PAIRS
def test_silence_ends_both(link, client_is_ours, server_is_ours):
    """The test drives the clock, so half a minute takes no time."""
    pair = link(client_is_ours, server_is_ours, seed=4, idle_timeout=30.0)
    pair.client.connect(SERVER, now=pair.now)
    pair.run(lambda: pair.named("client", "HandshakeCompleted"))
    pair.run(lambda: pair.named("server", "HandshakeCompleted"))
    pair.loss = 1.0
    before = pair.now
    for side in ("client", "server"):
        pair.run(lambda side=side: pair.named(side, "ConnectionTerminated"), limit=200.0)
        assert pair.named(side, "ConnectionTerminated")[0].reason_phrase == "Idle timeout"
    assert pair.now - before < 100
