"""The parser of QUIC headers, on the RFC's packets, on real ones and on random bytes."""

from __future__ import annotations

import random

import pytest

from tests.support import certificates
from tests.support.packet_headers import VERSION_1, VERSION_2, Packet, packets
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection

CID = bytes.fromhex("f067a5502a4262b5")
# RFC 9001 appendix A.4 and RFC 9369 appendix A.4: Retry packets.
RETRY_V1 = bytes.fromhex("ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba")
RETRY_V2 = bytes.fromhex("cf6b3343cf0008f067a5502a4262b5746f6b656ec8646ce8bfe33952d955543665dcc7b6")


@pytest.mark.parametrize(("data", "version"), [(RETRY_V1, VERSION_1), (RETRY_V2, VERSION_2)])
def test_the_retry_packets_of_the_rfcs(data, version):
    assert packets(data) == [Packet("retry", version, b"", CID, b"token", len(data))]


def test_version_negotiation_and_unknown_versions():
    head = b"\x80" + bytes(4) + b"\x01a\x02bc"
    assert packets(head + bytes(8)) == [
        Packet("negotiation", 0, b"a", b"bc", size=len(head) + 8),
    ]
    grease = b"\xc0\x1a\x2a\x3a\x4a\x01a\x02bc" + bytes(50)
    assert packets(grease) == [Packet("unknown", 0x1A2A3A4A, b"a", b"bc", size=len(grease))]


def test_a_real_handshake_is_read_packet_by_packet(tmp_path):
    pki = certificates.make(tmp_path)
    client_configuration = QuicConfiguration(alpn_protocols=["test"], server_name="localhost")
    client_configuration.load_verify_locations(cafile=str(pki.authority.certfile))
    server_configuration = QuicConfiguration(is_client=False, alpn_protocols=["test"])
    server_configuration.load_cert_chain(pki.server.certfile, pki.server.keyfile)
    client = QuicConnection(configuration=client_configuration)
    client.connect(("127.0.0.1", 1), now=0.0)
    server = QuicConnection(configuration=server_configuration)
    kinds = {client: set(), server: set()}
    addresses = {client: ("127.0.0.1", 2), server: ("127.0.0.1", 1)}
    for turn in range(10):
        for sender, receiver in ((client, server), (server, client)):
            for data, _ in sender.datagrams_to_send(now=turn / 100):
                found = packets(data)
                assert sum(packet.size for packet in found) == len(data)
                kinds[sender].update(packet.kind for packet in found)
                receiver.receive_datagram(data, addresses[sender], now=turn / 100)
    for seen in kinds.values():
        assert seen == {"initial", "handshake", "short"}


def test_garbage_never_raises_and_every_byte_is_accounted_for():
    chance = random.Random(4)
    for _ in range(20_000):
        data = bytearray(chance.randbytes(chance.randrange(0, 120)))
        if data and chance.random() < 0.7:
            data[0] |= 0xC0
            data[1:5] = chance.choice([b"\0\0\0\1", b"\x6b\x33\x43\xcf", bytes(4)])
        assert sum(packet.size for packet in packets(bytes(data))) == len(data)
