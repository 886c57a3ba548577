"""Short-lived certificates for development, as ``--dev-cert`` makes and prints them.

The certificate is self-signed, ECDSA P-256, and valid for at most 14 days, as browsers require for
WebTransport's ``serverCertificateHashes``. This file encodes it (RFC 5280, RFC 5480); Rust makes the key and
signs with it. Nothing here parses certificates.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
import re
import ssl
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from uringcore import _uringcore
from uringcore._private_files import replace_file

__all__ = ["LOCALHOST", "MAX_DAYS", "DevelopmentCertificate"]

LOCALHOST = ("localhost", "127.0.0.1", "::1")

MAX_DAYS = 14
"""The longest validity that browsers accept by hash (W3C WebTransport, "custom certificate requirements")."""


@dataclass(frozen=True)
class DevelopmentCertificate:
    """A certificate with its key, and the hashes that a browser can be given to trust the certificate."""

    certificate_pem: bytes
    key_pem: bytes
    """PKCS #8, unencrypted."""

    sha256: bytes
    """SHA-256 of the certificate's DER: for WebTransport's ``serverCertificateHashes``."""

    spki_sha256: bytes
    """SHA-256 of the public key: for Chromium's ``--ignore-certificate-errors-spki-list``."""

    names: tuple[str, ...]
    days: int

    @classmethod
    def make(cls, names: Sequence[str] = LOCALHOST, days: int = MAX_DAYS) -> DevelopmentCertificate:
        """Makes a certificate for ``names``, DNS names or IP addresses, valid from now.

        Raises ``ValueError`` for a bad name or if ``days`` is not 1 to 14.
        """
        if not 1 <= days <= MAX_DAYS:
            raise ValueError(f"days must be 1 to {MAX_DAYS}, not {days}")
        if not names:
            raise ValueError("names: at least one name is needed")
        alternatives = b"".join(_alternative_name(name) for name in names)
        key, point = _uringcore.make_p256_key()
        public_key = _der(_SEQUENCE, _P256, _bits(point))
        content = _to_be_signed(alternatives, days, public_key)
        signature = _uringcore.sign_p256(key, content)
        certificate = _der(_SEQUENCE, content, _ECDSA_SHA256, _bits(signature))
        return cls(
            ssl.DER_cert_to_PEM_cert(certificate).encode(),
            _pem("PRIVATE KEY", key),
            hashlib.sha256(certificate).digest(),
            hashlib.sha256(public_key).digest(),
            tuple(names),
            days,
        )

    def write(self, folder: str | os.PathLike[str]) -> tuple[str, str]:
        """Writes ``cert.pem`` and ``key.pem`` into ``folder`` and returns their paths.

        Only its owner can read the key. Existing files or links of these names are replaced and never
        written into. Raises ``OSError`` if a file cannot be written.
        """
        certificate = Path(folder) / "cert.pem"
        key = Path(folder) / "key.pem"
        replace_file(certificate, self.certificate_pem, 0o644)
        replace_file(key, self.key_pem, 0o600)
        return str(certificate), str(key)

    def describe(self) -> str:
        """Returns the names, the validity and the hashes that a browser needs, as lines of text."""
        return (
            f"Development certificate for {', '.join(self.names)}, valid for {self.days} days\n"
            f"  SHA-256 (hex)          {self.sha256.hex()}\n"
            f"  SHA-256 (base64)       {base64.b64encode(self.sha256).decode()}\n"
            f"  SPKI SHA-256 (base64)  {base64.b64encode(self.spki_sha256).decode()}"
        )


def _to_be_signed(alternatives: bytes, days: int, public_key: bytes) -> bytes:
    # Clients check the names and not the subject. The subject differs from "localhost", which many other
    # self-signed certificates have: a client that trusts one of those would report a bad signature.
    name = _der(_SEQUENCE, _der(_SET, _der(_SEQUENCE, _COMMON_NAME, _der(_UTF8, _SUBJECT))))
    # The validity begins five minutes ago, for clients whose clock is slow. Browsers limit the length of the
    # validity, so its end is computed from its beginning.
    begin = datetime.now(timezone.utc) - timedelta(minutes=5)
    extensions = (
        (_ALTERNATIVE_NAMES, _der(_SEQUENCE, alternatives)),
        # The extension is critical. The bit string has digitalSignature, the first of nine bits.
        (_KEY_USAGE + _TRUE, _der(_BITS, b"\x07\x80")),
        (_EXTENDED_KEY_USAGE, _der(_SEQUENCE, _SERVER_AUTH)),
    )
    return _der(
        _SEQUENCE,
        # X.509 version 3.
        _der(0xA0, _der(_INTEGER, b"\x02")),
        # The serial number is positive and at most 20 bytes long (RFC 5280 section 4.1.2.2).
        _der(_INTEGER, b"\x01" + os.urandom(19)),
        _ECDSA_SHA256,
        name,
        _der(_SEQUENCE, _time(begin), _time(begin + timedelta(days=days))),
        name,
        public_key,
        _der(
            0xA3,
            _der(
                _SEQUENCE,
                *(_der(_SEQUENCE, kind, _der(_OCTETS, value)) for kind, value in extensions),
            ),
        ),
    )


def _alternative_name(name: str) -> bytes:
    """Encodes a name for the extension subjectAltName (RFC 5280 section 4.2.1.6)."""
    if not re.fullmatch(r"[A-Za-z0-9.:*_-]+", name):
        raise ValueError(f"names: {name!r} is neither a DNS name nor an IP address")
    try:
        return _der(0x87, ipaddress.ip_address(name).packed)
    except ValueError:
        return _der(0x82, name.encode())


def _time(moment: datetime) -> bytes:
    """Encodes a time (RFC 5280 section 4.1.2.5): from 2050 on the year has four digits."""
    if moment.year < 2050:
        return _der(0x17, moment.strftime("%y%m%d%H%M%SZ").encode())
    return _der(0x18, moment.strftime("%Y%m%d%H%M%SZ").encode())


def _bits(content: bytes) -> bytes:
    """Encodes bytes as a BIT STRING without unused bits."""
    return _der(_BITS, b"\0" + content)


def _der(tag: int, *parts: bytes) -> bytes:
    """Encodes tag, length and contents (ITU-T X.690)."""
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _pem(label: str, content: bytes) -> bytes:
    lines = textwrap.wrap(base64.b64encode(content).decode(), 64)
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]).encode()


_INTEGER, _BITS, _OCTETS, _OBJECT, _UTF8, _SEQUENCE, _SET = 0x02, 0x03, 0x04, 0x06, 0x0C, 0x30, 0x31
_TRUE = _der(0x01, b"\xff")
_SUBJECT = b"uringcore development certificate"
_COMMON_NAME = _der(_OBJECT, bytes.fromhex("550403"))
_KEY_USAGE = _der(_OBJECT, bytes.fromhex("551d0f"))
_ALTERNATIVE_NAMES = _der(_OBJECT, bytes.fromhex("551d11"))
_EXTENDED_KEY_USAGE = _der(_OBJECT, bytes.fromhex("551d25"))
_SERVER_AUTH = _der(_OBJECT, bytes.fromhex("2b06010505070301"))
_ECDSA_SHA256 = _der(_SEQUENCE, _der(_OBJECT, bytes.fromhex("2a8648ce3d040302")))
# The algorithm of the public key: id-ecPublicKey with secp256r1.
_P256 = _der(
    _SEQUENCE,
    _der(_OBJECT, bytes.fromhex("2a8648ce3d0201")),
    _der(_OBJECT, bytes.fromhex("2a8648ce3d030107")),
)
