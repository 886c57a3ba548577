"""Asks a server for the stateless resets of connections that are alive (RFC 9000 section 21.11).

The victim is aioquic's: it says which connection IDs lead to it, and by which tokens its server could end it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from dataclasses import dataclass

import aioquic.asyncio
from aioquic.quic.configuration import QuicConfiguration as AioquicConfiguration

TOKEN_BYTES = 16


@dataclass
class Victim:
    """A connection that is alive."""

    protocol: aioquic.asyncio.QuicConnectionProtocol

    def tokens(self) -> dict[bytes, bytes]:
        """The reset token of each connection ID that the server has issued."""
        quic = self.protocol._quic
        issued = [quic._peer_cid, *quic._peer_cid_available]
        # The token of the first ID comes with the transport parameters.
        found = {one.cid: one.stateless_reset_token for one in issued}
        assert all(found.values()), found
        return found


@contextlib.asynccontextmanager
async def victim(host, port, alpn):
    """A connection of aioquic's, with all IDs that its server gives it."""
    configuration = AioquicConfiguration(
        is_client=True, alpn_protocols=[alpn], verify_mode=ssl.CERT_NONE, server_name="localhost"
    )
    async with aioquic.asyncio.connect(host, port, configuration=configuration) as protocol:
        # NEW_CONNECTION_ID frames come with the acknowledgement of this.
        await protocol.ping()
        yield Victim(protocol)


def answers(address, connection_id, family=socket.AF_INET):
    """What comes back for a packet with this connection ID: the datagrams that may be resets.

    Behind the packet goes one of an unknown version, which every server answers; its connection ID begins
    alike, so both go to one process.
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
    """How many of the connection IDs were answered; none with its own token."""
    answered = 0
    for connection_id, token in tokens.items():
        for datagram in answers(address, connection_id, family):
            assert not datagram.endswith(token), f"{address} ends a connection that is not its own"
            answered += 1
    return answered


def asked_of_one_that_ends(tokens, address, family=socket.AF_INET):
    """As :func:`asked_for`, of a process that negotiates no versions any more: it still resets connections
    that nobody knows, which are asked for behind each live one."""
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(20)
        for connection_id, token in tokens.items():
            sock.sendto(b"\x41" + connection_id + os.urandom(100), address)
            # An answer to the first comes before the second of these.
            for _ in range(2):
                nobodys = connection_id[:1] + os.urandom(7)
                sock.sendto(b"\x41" + nobodys + os.urandom(100), address)
                datagram = sock.recv(2048)
                assert not datagram.endswith(token), f"{address} ends a connection that is alive"
