"""Reads the flags of short headers with the secrets of a key log (RFC 9001 section 5.4).

The flags show the key phase, which proves a key update from outside. Two of the unmasked bits must
be zero in every packet, which identifies the cipher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tests.support.udp_proxy import Datagram

__all__ = ["cipher_and_phases", "secrets"]

Mask = Callable[[bytes], bytes]


def secrets(key_log: Path) -> dict[str, list[bytes]]:
    """Returns the secrets of a key log by label, in the order of their lines."""
    found: dict[str, list[bytes]] = {}
    if key_log.exists():
        for line in key_log.read_text().splitlines():
            parts = line.split()
            if len(parts) == 3 and not line.startswith("#"):
                secret = bytes.fromhex(parts[2])
                if secret not in found.setdefault(parts[0], []):
                    found[parts[0]].append(secret)
    return found


def cipher_and_phases(
    datagrams: Iterable[Datagram], up: bool, key_log: Path
) -> tuple[str, set[int]]:
    """Returns the cipher of a direction's 1-RTT packets and the key phases that occur in them.

    Raises `ValueError` if no secret of the log fits all packets.
    """
    seen = list(datagrams)
    label = "CLIENT_TRAFFIC_SECRET_0" if up else "SERVER_TRAFFIC_SECRET_0"
    length = _connection_id_length(seen, up)
    short = [
        datagram.head
        for datagram in seen
        if datagram.up is up and datagram.packets and datagram.packets[0].kind == "short"
    ]
    version_2 = any(
        p.version == 0x6B3343CF for d in seen for p in d.packets if p.kind == "handshake"
    )
    for secret in secrets(key_log).get(label, []):
        for name, mask in _masks(secret, version_2):
            flags = [_flags(head, length, mask) for head in short if len(head) >= length + 21]
            # Reserved bits: both zero in each of n packets by chance is one in 4 to the n.
            if len(flags) >= 10 and not any(flag & 0x18 for flag in flags):
                return name, {flag >> 2 & 1 for flag in flags}
    raise ValueError(f"no {label} of {key_log} fits the {len(short)} packets captured")


def _connection_id_length(seen: list[Datagram], up: bool) -> int:
    """Length of the IDs that the receiver of this direction chose: the source of its long headers."""
    for datagram in seen:
        if datagram.up is not up:
            for packet in datagram.packets:
                if packet.kind in ("initial", "handshake"):
                    return len(packet.source)
    raise ValueError("no long header was captured")


def _flags(head: bytes, length: int, mask: Mask) -> int:
    sample = head[1 + length + 4 : 1 + length + 20]
    return head[0] ^ (mask(sample)[0] & 0x1F)


def _masks(secret: bytes, version_2: bool) -> Iterable[tuple[str, Mask]]:
    if len(secret) == 48:
        yield "AES_256_GCM", _aes(_expand(secret, 32, hashes.SHA384(), version_2))
        return
    yield "AES_128_GCM", _aes(_expand(secret, 16, hashes.SHA256(), version_2))
    yield "CHACHA20_POLY1305", _chacha20(_expand(secret, 32, hashes.SHA256(), version_2))


def _aes(key: bytes) -> Mask:
    def mask(sample: bytes) -> bytes:
        encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        return encryptor.update(sample)

    return mask


def _chacha20(key: bytes) -> Mask:
    def mask(sample: bytes) -> bytes:
        encryptor = Cipher(algorithms.ChaCha20(key, sample), None).encryptor()
        return encryptor.update(bytes(5))

    return mask


def _expand(secret: bytes, size: int, hash_: hashes.HashAlgorithm, version_2: bool) -> bytes:
    label = b"tls13 quicv2 hp" if version_2 else b"tls13 quic hp"
    info = size.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
    return HKDFExpand(algorithm=hash_, length=size, info=info).derive(secret)
