"""The parts of a QUIC datagram that are readable on the path (RFC 8999, RFC 9000 section 17).

Nothing is decrypted here: header protection hides packet numbers, key phases and all frames.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["VERSION_1", "VERSION_2", "Packet", "packets"]

VERSION_1 = 0x00000001
VERSION_2 = 0x6B3343CF


@dataclass(frozen=True)
class Packet:
    """One packet of a datagram."""

    kind: str
    """initial, 0rtt, handshake, retry, negotiation, short, or unknown for anything else."""
    version: int | None = None
    """The version field of a long header."""
    destination: bytes = b""
    """The destination connection ID; empty for a short header, which does not contain its length."""
    source: bytes = b""
    token: bytes = b""
    """An Initial's token, or a Retry's."""
    size: int = 0
    """The size of the packet in bytes."""


def packets(datagram: bytes) -> list[Packet]:
    """Returns the packets of a datagram, in order. Never raises: a truncated packet is unknown."""
    found: list[Packet] = []
    at = 0
    while at < len(datagram):
        if not datagram[at] & 0x80:
            # The fixed bit beside it may have any value if both sides grease it (RFC 9287).
            found.append(Packet("short", size=len(datagram) - at))
            break
        try:
            packet = _long(datagram, at)
        except IndexError:
            found.append(Packet("unknown", size=len(datagram) - at))
            break
        found.append(packet)
        at += packet.size
    return found


# The type bits of a long header (RFC 9000 section 17.2, RFC 9369 section 3.2).
_KINDS = {
    VERSION_1: ("initial", "0rtt", "handshake", "retry"),
    VERSION_2: ("retry", "initial", "0rtt", "handshake"),
}
_RETRY_TAG = 16


def _long(data: bytes, start: int) -> Packet:
    version = int.from_bytes(_take(data, start + 1, 4), "big")
    at = start + 5
    destination = _take(data, at + 1, data[at])
    at += 1 + len(destination)
    source = _take(data, at + 1, data[at])
    at += 1 + len(source)
    rest = len(data) - start
    if version == 0:
        return Packet("negotiation", version, destination, source, size=rest)
    kinds = _KINDS.get(version)
    if kinds is None:
        return Packet("unknown", version, destination, source, size=rest)
    kind, token = kinds[data[start] >> 4 & 3], b""
    if kind == "retry":
        token = data[at : max(at, len(data) - _RETRY_TAG)]
        return Packet(kind, version, destination, source, token, rest)
    if kind == "initial":
        length, at = _varint(data, at)
        token = _take(data, at, length)
        at += length
    length, at = _varint(data, at)
    _take(data, at, length)
    return Packet(kind, version, destination, source, token, at + length - start)


def _take(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise IndexError("cut short")
    return data[at : at + length]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    length = 1 << (data[at] >> 6)
    value = int.from_bytes(_take(data, at, length), "big") & ((1 << (8 * length - 2)) - 1)
    return value, at + length
