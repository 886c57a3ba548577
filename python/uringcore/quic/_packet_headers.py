"""The part of a packet that no version of QUIC encrypts (RFC 8999, RFC 9000 section 17).

Programs that pass datagrams to connections themselves need it to find a packet's connection, to recognise a
first packet, and to answer an unknown version. The names are those of aioquic's ``quic.packet``, which
re-exports them. Packets of connections and Retry packets are parsed and built in Rust.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from uringcore.buffer import Buffer

__all__ = [
    "PACKET_FIXED_BIT",
    "PACKET_LONG_HEADER",
    "PACKET_TYPE_INITIAL",
    "QuicHeader",
    "QuicPacketType",
    "encode_quic_version_negotiation",
    "is_long_header",
    "pull_quic_header",
]

PACKET_LONG_HEADER = 0x80
PACKET_FIXED_BIT = 0x40
_CONNECTION_ID_MAX_SIZE = 20
_INTEGRITY_TAG_SIZE = 16
_NEGOTIATION = 0
_VERSION_2 = 0x6B3343CF


class QuicPacketType(Enum):
    """Kinds of packets (RFC 9000 section 17)."""

    INITIAL = 0
    ZERO_RTT = 1
    HANDSHAKE = 2
    RETRY = 3
    VERSION_NEGOTIATION = 4
    ONE_RTT = 5


PACKET_TYPE_INITIAL = QuicPacketType.INITIAL
"aioquic's older name."

_LONG_TYPES = (
    QuicPacketType.INITIAL,
    QuicPacketType.ZERO_RTT,
    QuicPacketType.HANDSHAKE,
    QuicPacketType.RETRY,
)
"Types of long headers, by their bits in version 1. The bits of version 2 are greater by one (RFC 9369, 3.2)."


@dataclass
class QuicHeader:
    """The fields of a packet's header that are not encrypted."""

    version: int | None
    "The version; ``None`` for a short header, 0 for Version Negotiation."
    packet_type: QuicPacketType
    packet_length: int
    "Bytes of the whole packet, the header included."
    destination_cid: bytes
    source_cid: bytes
    "Empty for a short header."
    token: bytes = b""
    "The token of an Initial or Retry packet."
    integrity_tag: bytes = b""
    "The integrity tag of a Retry packet."
    supported_versions: list[int] = field(default_factory=list)
    "The versions that a Version Negotiation packet lists."


def is_long_header(first_byte: int) -> bool:
    """True for the first byte of a packet with a long header, which contains the version and both connection
    IDs."""
    return bool(first_byte & PACKET_LONG_HEADER)


def pull_quic_header(buf: Buffer, host_cid_length: int | None = None) -> QuicHeader:
    """Reads the header of the packet at ``buf``'s position, up to where protection begins.

    A short header does not contain the length of its connection id: ``host_cid_length`` gives it, and if it
    is ``None`` a ``TypeError`` is raised for such a header. Unknown versions are read in the layout of
    version 1. The fixed bit may have any value: connections here let their peers grease it (RFC 9287). Raises
    ``ValueError`` (``BufferReadError`` is one) for anything but a packet.
    """
    start = buf.tell()
    first = buf.pull_uint8()
    if not is_long_header(first):
        if host_cid_length is None:
            # The checks are in aioquic's order, so that any bytes cause the exception that aioquic would
            # raise.
            if not first & PACKET_FIXED_BIT:
                raise ValueError("Packet fixed bit is zero")
            raise TypeError("host_cid_length is needed to read a short header")
        destination = buf.pull_bytes(host_cid_length)
        length = buf.capacity - start
        return QuicHeader(None, QuicPacketType.ONE_RTT, length, destination, b"")

    version = buf.pull_uint32()
    destination = _pull_connection_id(buf, "Destination")
    source = _pull_connection_id(buf, "Source")
    if version == _NEGOTIATION:
        versions = []
        while not buf.eof():
            versions.append(buf.pull_uint32())
        kind, token, tag = QuicPacketType.VERSION_NEGOTIATION, b"", b""
        end = buf.tell()
    else:
        versions = []
        bits = first >> 4 & 3
        kind = _LONG_TYPES[bits - 1 if version == _VERSION_2 else bits]
        token, tag, end = _pull_long_header_rest(buf, kind)
    return QuicHeader(version, kind, end - start, destination, source, token, tag, versions)


def _pull_connection_id(buf: Buffer, whose: str) -> bytes:
    size = buf.pull_uint8()
    if size > _CONNECTION_ID_MAX_SIZE:
        raise ValueError(f"{whose} CID is too long ({size} bytes)")
    return buf.pull_bytes(size)


def _pull_long_header_rest(buf: Buffer, kind: QuicPacketType) -> tuple[bytes, bytes, int]:
    """Returns the fields of a long header behind the connection IDs: the token, the integrity tag, and the
    end of the packet."""
    if kind is QuicPacketType.RETRY:
        token = buf.pull_bytes(buf.capacity - buf.tell() - _INTEGRITY_TAG_SIZE)
        tag = buf.pull_bytes(_INTEGRITY_TAG_SIZE)
        return token, tag, buf.tell()
    token = buf.pull_bytes(buf.pull_uint_var()) if kind is QuicPacketType.INITIAL else b""
    size = buf.pull_uint_var()
    end = buf.tell() + size
    if end > buf.capacity:
        raise ValueError("Packet payload is truncated")
    return token, b"", end


def encode_quic_version_negotiation(
    source_cid: bytes, destination_cid: bytes, supported_versions: Iterable[int]
) -> bytes:
    """Returns a Version Negotiation packet (RFC 9000 section 17.2.1).

    ``source_cid`` is the destination of the packet that it answers, and ``destination_cid`` the source.
    Raises ``ValueError`` for a connection id of more than 255 bytes.
    """
    versions = list(supported_versions)
    size = 7 + len(destination_cid) + len(source_cid) + 4 * len(versions)
    buf = Buffer(capacity=size)
    buf.push_uint8(PACKET_LONG_HEADER | os.urandom(1)[0])
    buf.push_uint32(_NEGOTIATION)
    for connection_id in (destination_cid, source_cid):
        buf.push_uint8(len(connection_id))
        buf.push_bytes(connection_id)
    for version in versions:
        buf.push_uint32(version)
    return buf.data
