"""Requests stateless resets for connections that are alive (RFC 9000 section 21.11).

The victim is a connection of aioquic's, which has its connection IDs and the reset tokens that would end it.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import ssl
from dataclasses import dataclass

import aioquic.asyncio
from aioquic.quic.configuration import QuicConfiguration as AioquicConfiguration

TOKEN_BYTES = 16


@dataclass
class Victim:
    """A connection that is alive, with its tokens."""

    protocol: aioquic.asyncio.QuicConnectionProtocol

    def tokens(self) -> dict[bytes, bytes]:
        """The reset token of each connection ID that the server has issued."""
        quic = self.protocol._quic
        issued = [quic._peer_cid, *quic._peer_cid_available]
        # The transport parameters contain the token of the first ID.
        found = {one.cid: one.stateless_reset_token for one in issued}
        assert all(found.values()), found
        return found


@contextlib.asynccontextmanager
async def victim(host, port, alpn):
    """Opens a connection of aioquic's, with all connection IDs that its server issues."""
    configuration = AioquicConfiguration(
        is_client=True, alpn_protocols=[alpn], verify_mode=ssl.CERT_NONE, server_name="localhost"
    )
    async with aioquic.asyncio.connect(host, port, configuration=configuration) as protocol:
        # NEW_CONNECTION_ID frames arrive together with this acknowledgement.
        await protocol.ping()
        yield Victim(protocol)


def answers(address, connection_id, family=socket.AF_INET):
    """Returns the answers to a packet with this connection ID: datagrams that may be resets.

    A packet of an unknown version follows, which every server answers. Its connection ID has the same first
    byte, so both packets reach the same process.
    """
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(20)
        packet = b"\x41" + connection_id + os.urandom(100)
        unknown = b"\xc1\x1a\x2a\x3a\x4a\x08" + connection_id[:1] + bytes(7) + b"\0" + bytes(1200)
        found = []
        sock.sendto(packet, address)
        sock.sendto(unknown, address)
        while True:
            datagram = sock.recv(2048)
            if datagram[0] & 0x80:
                assert datagram[1:5] == bytes(4), datagram
                return found
            found.append(datagram)


def asked_for(tokens, address, family=socket.AF_INET):
    """Returns the number of answers for these connection IDs; asserts that none contains its token."""
    answered = 0
    for connection_id, token in tokens.items():
        for datagram in answers(address, connection_id, family):
            assert not datagram.endswith(token), f"{address} ends a connection that is not its own"
            answered += 1
    return answered


def asked_of_one_that_ends(tokens, address, family=socket.AF_INET):
    """Works as :func:`asked_for`, for a process that no longer negotiates versions. It still resets unknown
    connections, so a request for two of these follows each live one."""
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(20)
        for connection_id, token in tokens.items():
            sock.sendto(b"\x41" + connection_id + os.urandom(100), address)
            # An answer to the live one would arrive before the second of these.
            for _ in range(2):
                nobodys = connection_id[:1] + os.urandom(7)
                sock.sendto(b"\x41" + nobodys + os.urandom(100), address)
                datagram = sock.recv(2048)
                assert not datagram.endswith(token), f"{address} ends a connection that is alive"


def mark(secret):
    """The last byte of connection IDs under a key (HKDF, RFC 5869)."""
    extracted = hmac.digest(b"uringcore stateless reset mark", secret, "sha256")
    return hmac.digest(extracted, b"\x01", "sha256")[0]
