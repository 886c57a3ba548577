"""TLS names that QUIC users meet: cipher suites, alerts, and loading of PEM files.

The handshake itself runs in Rust. What lives here is what a program needs to *say* which suites
and certificates it wants and to *read* why a handshake failed. Names follow aioquic's ``tls``
module; its record codecs and its handshake state machine have no counterpart here.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import IntEnum
from typing import Any

__all__ = [
    "AlertDescription",
    "CipherSuite",
    "SessionTicket",
    "SessionTicketFetcher",
    "SessionTicketHandler",
    "load_pem_private_key",
    "load_pem_x509_certificates",
]


class AlertDescription(IntEnum):
    """TLS alerts (RFC 8446 section 6). A QUIC error code of ``0x100 + n`` carries alert ``n``."""

    close_notify = 0
    unexpected_message = 10
    bad_record_mac = 20
    record_overflow = 22
    handshake_failure = 40
    bad_certificate = 42
    unsupported_certificate = 43
    certificate_revoked = 44
    certificate_expired = 45
    certificate_unknown = 46
    illegal_parameter = 47
    unknown_ca = 48
    access_denied = 49
    decode_error = 50
    decrypt_error = 51
    protocol_version = 70
    insufficient_security = 71
    internal_error = 80
    inappropriate_fallback = 86
    user_canceled = 90
    missing_extension = 109
    unsupported_extension = 110
    unrecognized_name = 112
    bad_certificate_status_response = 113
    unknown_psk_identity = 115
    certificate_required = 116
    no_application_protocol = 120


class CipherSuite(IntEnum):
    """The TLS 1.3 cipher suites (RFC 8446 section B.4)."""

    AES_128_GCM_SHA256 = 0x1301
    AES_256_GCM_SHA384 = 0x1302
    CHACHA20_POLY1305_SHA256 = 0x1303


@dataclass
class SessionTicket:
    """A TLS session ticket, in aioquic's form.

    The type exists so that annotations of a program written for aioquic keep working. Tickets are
    not exported yet: a :class:`~uringcore.quic.configuration.QuicConfiguration` that carries one is
    refused at once rather than ignored.
    """

    age_add: int
    cipher_suite: CipherSuite
    not_valid_after: datetime
    not_valid_before: datetime
    resumption_secret: bytes
    server_name: str
    ticket: bytes
    max_early_data_size: int | None = None
    other_extensions: list[tuple[int, bytes]] | None = None

    @property
    def is_valid(self) -> bool:
        """Whether now lies between ``not_valid_before`` and ``not_valid_after``."""
        now = datetime.now(timezone.utc)
        return self.not_valid_before <= now <= self.not_valid_after


SessionTicketFetcher = Callable[[bytes], "SessionTicket | None"]
SessionTicketHandler = Callable[[SessionTicket], None]

_PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s*?\r?\n(.*?)-----END \1-----", re.DOTALL)
_KEY_LABELS = frozenset({b"PRIVATE KEY", b"RSA PRIVATE KEY", b"EC PRIVATE KEY"})


def _pem_blocks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Every PEM block of ``data`` as ``(label, body)``, the body still in base64."""
    return [(match[1], match[2]) for match in _PEM_BLOCK.finditer(data)]


def _decode(body: bytes, label: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(body.split()), validate=True)
    except binascii.Error as exc:
        raise ValueError(f"the PEM block {label.decode()!r} is not valid base64: {exc}") from exc


def load_pem_x509_certificates(data: bytes) -> list[bytes]:
    """Returns the certificates of a PEM file as DER bytes, in the order of the file.

    aioquic returns ``cryptography`` objects here; uringcore has no Python dependency, so these are
    the bytes that ``cryptography.x509.load_der_x509_certificate`` takes.

    Raises ``ValueError`` when there is no certificate in ``data``.
    """
    found = [_decode(body, label) for label, body in _pem_blocks(data) if label == b"CERTIFICATE"]
    if not found:
        raise ValueError("there is no '-----BEGIN CERTIFICATE-----' block in the PEM data")
    return found


def load_pem_private_key(data: bytes, password: bytes | None = None) -> bytes:
    """Returns the first private key of a PEM file as DER bytes (PKCS #8, SEC 1 or PKCS #1).

    An encrypted key needs ``password`` and the ``cryptography`` package, which decrypts it.

    Raises ``ValueError`` when there is no private key in ``data``, or when it is encrypted and no
    password is given, and ``RuntimeError`` when ``cryptography`` is needed but not installed.
    """
    for label, body in _pem_blocks(data):
        if label == b"ENCRYPTED PRIVATE KEY" or b"Proc-Type: 4,ENCRYPTED" in body:
            if password is None:
                raise ValueError("the private key is encrypted and no password was given")
            return _decrypt(data, password)
        if label in _KEY_LABELS:
            return _decode(body, label)
    raise ValueError("there is no '-----BEGIN PRIVATE KEY-----' block in the PEM data")


def _decrypt(data: bytes, password: bytes) -> bytes:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError as exc:
        raise RuntimeError(
            "an encrypted private key needs the 'cryptography' package: pip install cryptography"
        ) from exc
    return _key_to_der(serialization.load_pem_private_key(data, password))


def _key_to_der(key: Any) -> bytes:
    """DER bytes of a ``cryptography`` private key object."""
    from cryptography.hazmat.primitives import serialization

    der: bytes = key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return der


def _certificate_to_der(certificate: Any) -> bytes:
    """DER bytes of a ``cryptography`` certificate object."""
    from cryptography.hazmat.primitives import serialization

    der: bytes = certificate.public_bytes(serialization.Encoding.DER)
    return der
