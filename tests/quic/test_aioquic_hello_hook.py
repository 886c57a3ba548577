"""The `ClientHello` hook of a server: TLS processes the message that the program has read, and a handshake
without one ends.
"""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tests.quic.test_aioquic_proxies import ClientHello, hooked
from tests.quic.test_quic_sans_io import CLIENT, SERVER, drained
from uringcore._uringcore import ClientHelloReader
from uringcore.buffer import encode_uint_var
from uringcore.quic import events
from uringcore.quic.connection import QuicConnection, QuicConnectionState
from uringcore.quic.logger import QuicLogger

SALT = bytes.fromhex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a")
SCID = b"a client"
PING = b"\x01"
FALSE, TRUE = b"evil.localhost", b"good.localhost"


def _expand(secret, label, length):
    label = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
    return HKDFExpand(hashes.SHA256(), length, info).derive(secret)


def initial(dcid, number, payload, size=1200, scid=SCID):
    """Returns a client's Initial packet (RFC 9001 section 5.2)."""
    extract = HMAC(SALT, hashes.SHA256())
    extract.update(dcid)
    secret = _expand(extract.finalize(), b"client in", 32)
    key, iv, hp = (
        _expand(secret, *of) for of in [(b"quic key", 16), (b"quic iv", 12), (b"quic hp", 16)]
    )
    header = b"\xc1\x00\x00\x00\x01" + bytes([len(dcid)]) + dcid + bytes([len(scid)]) + scid + b"\0"
    payload = payload.ljust(max(20, size - len(header) - 4 - 16), b"\0")
    header += (0x4000 | len(payload) + 18).to_bytes(2, "big") + number.to_bytes(2, "big")
    nonce = (int.from_bytes(iv, "big") ^ number).to_bytes(12, "big")
    sealed = AESGCM(key).encrypt(nonce, payload, header)
    mask = Cipher(algorithms.AES(hp), modes.ECB()).encryptor().update(sealed[2:18])
    first = header[0] ^ mask[0] & 0x0F
    hidden = bytes(a ^ b for a, b in zip(header[-2:], mask[1:3], strict=True))
    return bytes([first]) + header[1:-2] + hidden + sealed


def crypto(offset, data):
    return b"\x06" + encode_uint_var(offset) + encode_uint_var(len(data)) + data


class Flight:
    """A client's first flight, and the ClientHello of another name."""

    def __init__(self, client):
        self.client = client
        client.connect(SERVER, now=0.0)
        self.datagrams = [data for data, _ in client.datagrams_to_send(now=0.0)]
        self.dcid = client.original_destination_connection_id
        reader = ClientHelloReader()
        for data in self.datagrams:
            assert reader.feed(data) is None
        self.hello = reader.client_hello()
        self.other = self.hello.replace(FALSE, TRUE)
        assert self.other != self.hello

    def packet(self, number, payload, **fields):
        return initial(self.dcid, number, payload, scid=self.client.host_cid, **fields)


@pytest.fixture
def flight(client_configuration):
    return Flight(QuicConnection(configuration=client_configuration(server_name=FALSE.decode())))


@pytest.fixture
def server(server_configuration):
    connection = QuicConnection(configuration=server_configuration(idle_timeout=5.0))
    connection.seen = []
    hooked(connection, connection.seen, raises=False)
    return connection


def give(server, *datagrams, now=0.0):
    for data in datagrams:
        server.receive_datagram(data, CLIENT, now=now)


def carry_on(flight, server, turns=10):
    """Moves datagrams between the two."""
    now = 0.0
    for _ in range(turns):
        for data, _ in server.datagrams_to_send(now=now):
            flight.client.receive_datagram(data, SERVER, now=now)
        for data, _ in flight.client.datagrams_to_send(now=now):
            server.receive_datagram(data, CLIENT, now=now)
        now += 0.01


def losing_one(server, monkeypatch):
    """Keeps the first datagram that was read from the core. Returns a list that receives it."""
    take_datagram = server._take_datagram
    lost = []

    def lose_one(data, addr, now):
        if not lost:
            # The core starts its handshake timer but receives no data.
            lost.append(data)
            data = b""
        take_datagram(data, addr, now)

    monkeypatch.setattr(server, "_take_datagram", lose_one)
    return lost


def end_of(server):
    found = [event for event in drained(server) if isinstance(event, events.ConnectionTerminated)]
    assert len(found) == 1 and server.is_closed and server.get_timer() is None
    assert server._state is QuicConnectionState.TERMINATED and server._hello_hook is None
    return found[0]


@pytest.mark.parametrize("reverse", [False, True])
def test_packets_that_contradict_each_other_end_the_connection(flight, server, reverse):
    # Cut within the server name; it may be the end of the message, because rustls shuffles extensions.
    cut = flight.hello.index(FALSE) + 1
    pieces = [crypto(0, flight.hello[:cut]), crypto(0, flight.other)]
    if reverse:
        pieces = [crypto(4, flight.other[4:cut]), crypto(0, flight.hello)]
    give(server, *(flight.packet(number, piece) for number, piece in enumerate(pieces)))
    assert len(server.seen) == 1
    end = end_of(server)
    assert (end.error_code, end.frame_type, end.kind) == (0xA, 6, "local")
    give(server, *flight.datagrams)
    assert not server.datagrams_to_send(now=0.0) and len(server.seen) == 1


def test_packets_that_repeat_themselves_do_no_harm(flight, server):
    for number, (start, end) in enumerate([(50, 120), (0, 60), (0, 40), (0, 60), (30, None)]):
        give(server, flight.packet(100 + number, crypto(start, flight.hello[start:end])))
    assert len(server.seen) == 2
    assert server.server_name == FALSE.decode() and server._hello_hook is None


@pytest.mark.parametrize("fields", [{"size": 0}, {"size": 1199}])
def test_a_datagram_that_is_too_short_is_not_read(flight, server_configuration, fields):
    logger = QuicLogger()
    server = QuicConnection(configuration=server_configuration(quic_logger=logger))
    seen = []
    hooked(server, seen, raises=False)
    give(server, flight.packet(0, crypto(0, flight.other), **fields))
    assert len(seen) == 1
    [event] = logger.to_dict()["traces"][0]["events"]
    assert event["data"]["trigger"] == "initial_packet_datagram_too_small"
    give(server, *flight.datagrams)
    assert TRUE not in seen[1] and FALSE in seen[1] and server.server_name == FALSE.decode()


def test_a_destination_that_is_too_short_is_not_read(flight, server):
    give(server, initial(b"1234567", 0, crypto(0, flight.other)))
    assert len(server.seen) == 1
    give(server, *flight.datagrams)
    assert FALSE in server.seen[1] and server.server_name == FALSE.decode()


def test_nothing_is_read_of_what_is_not_kept(flight, server):
    give(server, *(flight.packet(10 + number, PING) for number in range(64)))
    give(server, flight.packet(80, crypto(0, flight.other)))
    give(server, *flight.datagrams)
    assert len(server.seen) == 1
    assert len(server._hello_hook._kept) == 64


def test_tls_takes_no_other_clienthello_than_the_program_has_read(flight, server, monkeypatch):
    """The datagrams that were read are lost here, as an example of a way in which TLS could receive another
    message.
    """
    lost = losing_one(server, monkeypatch)
    give(server, flight.packet(0, crypto(0, flight.other)))
    assert TRUE in server.seen[1] and lost and not server._is_started
    assert server.get_timer() == 5.0
    give(server, *flight.datagrams)
    carry_on(flight, server)
    assert not server.is_established and not flight.client.is_established
    assert server.is_closed and len(server.seen) == 2
    [end] = [e for e in drained(server) if isinstance(e, events.ConnectionTerminated)]
    assert end.error_code == 0x100 + 47 and end.kind == "tls"
    assert "not the one that was read first" in end.reason_phrase
    while (due := flight.client.get_timer()) is not None:
        flight.client.handle_timer(now=due)
    found = [e for e in drained(flight.client) if isinstance(e, events.ConnectionTerminated)]
    assert [(e.error_code, e.kind) for e in found] == [(0x100 + 47, "tls")]


def test_tls_takes_the_clienthello_that_the_program_has_read(flight, server, monkeypatch):
    losing_one(server, monkeypatch)
    give(server, *flight.datagrams)
    assert not server._is_started
    give(server, *flight.datagrams)
    assert server._is_started and server.server_name == FALSE.decode()
    assert len(server.seen) == 2 and server._hello_hook is None


def test_a_connection_that_waits_for_its_clienthello_has_an_end(flight, server):
    half = crypto(0, flight.hello[:50])
    give(server, flight.packet(0, half))
    assert server.get_timer() == 5.0 and server.next_event() is None
    give(server, flight.packet(1, half), now=2.0)
    assert server.get_timer() == 7.0
    give(server, b"\xc0 no packet", now=3.0)
    assert server.get_timer() == 7.0
    server.handle_timer(now=6.9)
    assert not server.is_closed and drained(server) == []
    server.handle_timer(now=7.0)
    end = end_of(server)
    assert end == events.ConnectionTerminated(1, 0, "Idle timeout") and end.kind == "idle_timeout"
    give(server, *flight.datagrams, now=7.0)
    assert len(server.seen) == 1 and server.datagrams_to_send(now=7.0) == []


def test_a_connection_that_waits_for_its_clienthello_can_be_closed(flight, server):
    give(server, flight.packet(0, crypto(0, flight.hello[:50])))
    with pytest.raises(ValueError, match="62 bits"):
        server.close(1 << 62)
    assert not server.is_closed
    server.close(7, reason_phrase="no")
    end = end_of(server)
    assert end == events.ConnectionTerminated(7, None, "no") and end.kind == "local"
    server.close(8)
    assert drained(server) == []


def test_a_hook_that_raises_is_called_once(flight, server_configuration):
    server = QuicConnection(configuration=server_configuration())
    seen = []
    hooked(server, seen)
    with pytest.raises(ClientHello):
        give(server, *flight.datagrams)
    assert end_of(server).kind == "local"
    give(server, *flight.datagrams * 3)
    assert len(seen) == 2 and server.datagrams_to_send(now=0.0) == []


def test_a_hook_may_close_the_connection(flight, server_configuration):
    server = QuicConnection(configuration=server_configuration())
    hooked(server, [], raises=False)
    initialize = server._initialize

    def replaced(peer_cid):
        initialize(peer_cid)
        server.tls._server_handle_hello = lambda *_: server.close(3)

    server._initialize = replaced
    give(server, *flight.datagrams)
    assert end_of(server).error_code == 3
    assert server.datagrams_to_send(now=0.0) == []


def test_a_forged_first_packet_does_not_block_the_client(flight, server):
    forged = bytearray(initial(b"otherdci", 0, PING))
    forged[-1] ^= 1
    give(server, bytes(forged), *flight.datagrams)
    assert len(server.seen) == 2 and server.server_name == FALSE.decode()
