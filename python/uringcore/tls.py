"""TLS names for QUIC programs: cipher suites, alerts, and loading of PEM files.

Rust runs the handshake. This module provides the names with which a program selects cipher suites and
certificates, and interprets the failure of a handshake. Names follow aioquic's ``tls`` module; its record
codecs and its handshake state machine have no counterpart here.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from enum import Enum, IntEnum
from typing import Any

from uringcore._uringcore import MemorySessionStore

__all__ = [
    "AddressToken",
    "AlertDescription",
    "CipherSuite",
    "Epoch",
    "Group",
    "HandshakeType",
    "MemorySessionStore",
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


class HandshakeType(IntEnum):
    """The types of TLS handshake messages (RFC 8446 section 4)."""

    CLIENT_HELLO = 1
    SERVER_HELLO = 2
    NEW_SESSION_TICKET = 4
    END_OF_EARLY_DATA = 5
    ENCRYPTED_EXTENSIONS = 8
    CERTIFICATE = 11
    CERTIFICATE_REQUEST = 13
    CERTIFICATE_VERIFY = 15
    FINISHED = 20
    KEY_UPDATE = 24
    COMPRESSED_CERTIFICATE = 25
    MESSAGE_HASH = 254


class CipherSuite(IntEnum):
    """The TLS 1.3 cipher suites (RFC 8446 section B.4)."""

    AES_128_GCM_SHA256 = 0x1301
    AES_256_GCM_SHA384 = 0x1302
    CHACHA20_POLY1305_SHA256 = 0x1303


class Group(IntEnum):
    """Groups for the key exchange (RFC 8446 section 4.2.7)."""

    SECP256R1 = 0x0017
    SECP384R1 = 0x0018
    X25519 = 0x001D
    X25519MLKEM768 = 0x11EC
    """X25519 together with ML-KEM-768, for secrets that a later quantum computer cannot compute
    (draft-ietf-tls-ecdhe-mlkem)."""


class Epoch(Enum):
    """The keys that protect a packet (RFC 9001 section 4.1.4), by aioquic's numbers."""

    INITIAL = 0
    ZERO_RTT = 1
    HANDSHAKE = 2
    ONE_RTT = 3


@dataclass
class SessionTicket:
    """The data with which a client resumes a session, with aioquic's fields. It can be pickled and used in
    another process, also by aioquic.

    Its secret is as sensitive as a key: with it, anyone can pose as the server to this client, and as
    this client to the server.
    """

    age_add: int
    cipher_suite: CipherSuite
    not_valid_after: datetime
    not_valid_before: datetime
    resumption_secret: bytes = field(repr=False)
    server_name: str
    ticket: bytes
    max_early_data_size: int | None = None
    other_extensions: list[tuple[int, bytes]] = field(default_factory=list)

    # Fields that aioquic does not have.
    peer_certificates: list[bytes] = field(default_factory=list)
    """The server's certificates in DER, leaf first. A resumed handshake transfers none, so the client
    verifies these again, and ``get_peer_certificates`` returns them. If empty, the secret alone
    authenticates the server, as in aioquic."""

    version: int | None = None
    """The QUIC version of the connection that delivered the ticket. Only a connection that begins with this
    version uses the ticket; any other makes a full handshake (RFC 9369 section 5). A ticket of aioquic's has
    ``None``: then the program must use it with the right version."""

    _session: bytes = field(default=b"", repr=False)
    """The session that the ticket stands for. Only a server's tickets have it."""

    @property
    def is_valid(self) -> bool:
        """True if now lies between ``not_valid_before`` and ``not_valid_after``."""
        now = datetime.now(timezone.utc)
        return self.not_valid_before <= now <= self.not_valid_after

    @property
    def obfuscated_age(self) -> int:
        """The age that a client sends with the ticket, in milliseconds (RFC 8446 section 4.2.11.1)."""
        age = int((datetime.now(timezone.utc) - self.not_valid_before).total_seconds() * 1000)
        return (age + self.age_add) % (1 << 32)


class AddressToken(bytes):
    """The token with which a client proves its address in its next connection (RFC 9000 section 8.1.3):
    bytes with the QUIC version that they are for. Can be pickled.
    """

    version: int | None
    """The QUIC version of the connection that delivered the token. Only a connection that begins with this
    version sends it (RFC 9369 section 5). With ``None``, or plain ``bytes``, the program must use it with the
    right version."""

    def __new__(cls, token: bytes = b"", version: int | None = None) -> AddressToken:
        self = super().__new__(cls, token)
        self.version = version
        return self


SessionTicketFetcher = Callable[[bytes], "SessionTicket | None"]
SessionTicketHandler = Callable[[SessionTicket], None]

_MAX_EARLY_DATA = 0xFFFFFFFF
"The only ``max_early_data_size`` that QUIC allows. Flow control limits early data (RFC 9001 section 4.6.1)."
_QUIC_TRANSPORT_PARAMETERS = 0x39
"The TLS extension of transport parameters (RFC 9001 section 8.2)."


def _session_ticket(
    age_add: int,
    cipher_suite: int,
    early_data: bool,
    issued: float,
    lifetime: float,
    peer_certificates: list[bytes],
    resumption_secret: bytes,
    server_name: str,
    ticket: bytes,
    transport_parameters: bytes,
    version: int,
) -> SessionTicket:
    """Makes the ticket that a client received."""
    begin = datetime.fromtimestamp(issued, timezone.utc)
    return SessionTicket(
        age_add=age_add,
        cipher_suite=CipherSuite(cipher_suite),
        not_valid_after=begin + timedelta(seconds=lifetime),
        not_valid_before=begin,
        resumption_secret=resumption_secret,
        server_name=server_name,
        ticket=ticket,
        max_early_data_size=_MAX_EARLY_DATA if early_data else None,
        other_extensions=[(_QUIC_TRANSPORT_PARAMETERS, transport_parameters)],
        peer_certificates=peer_certificates,
        version=version,
    )


def _ticket_fields(ticket: Any, early_data: bool) -> dict[str, Any]:
    """Returns the fields of a ticket, ours or aioquic's. For another object it raises any exception."""
    begin = ticket.not_valid_before.timestamp()
    parameters = [
        bytes(data)
        for kind, data in ticket.other_extensions or ()
        if kind == _QUIC_TRANSPORT_PARAMETERS
    ]
    if not 0 <= ticket.age_add < 1 << 32:
        raise ValueError("age_add has 32 bits")
    version = getattr(ticket, "version", None)
    if version is not None and not 0 < version < 1 << 32:
        raise ValueError("version is not from 1 to 0xffffffff")
    allowed = ticket.max_early_data_size == _MAX_EARLY_DATA and bool(parameters)
    return {
        "age_add": int(ticket.age_add),
        "cipher_suite": int(CipherSuite(ticket.cipher_suite)),
        "early_data": early_data and allowed,
        "issued": begin,
        "lifetime": ticket.not_valid_after.timestamp() - begin,
        "peer_certificates": [bytes(der) for der in getattr(ticket, "peer_certificates", ())],
        "resumption_secret": bytes(ticket.resumption_secret),
        "server_name": str(ticket.server_name),
        "ticket": bytes(ticket.ticket),
        "transport_parameters": parameters[0] if parameters else b"",
        "version": None if version is None else int(version),
    }


_PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s*?\r?\n(.*?)-----END \1-----", re.DOTALL)
_KEY_LABELS = frozenset({b"PRIVATE KEY", b"RSA PRIVATE KEY", b"EC PRIVATE KEY"})


def _pem_blocks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Returns every PEM block of ``data`` as ``(label, body)``, with the body still in base64."""
    return [(match[1], match[2]) for match in _PEM_BLOCK.finditer(data)]


def _decode(body: bytes, label: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(body.split()), validate=True)
    except binascii.Error as exc:
        raise ValueError(f"the PEM block {label.decode()!r} is not valid base64: {exc}") from exc


def load_pem_x509_certificates(data: bytes) -> list[bytes]:
    """Returns the certificates of a PEM file as DER bytes, in the order of the file.

    aioquic returns ``cryptography`` objects here. uringcore has no Python dependency, so these are
    bytes for ``cryptography.x509.load_der_x509_certificate``.

    Raises ``ValueError`` if there is no certificate in ``data``.
    """
    found = [_decode(body, label) for label, body in _pem_blocks(data) if label == b"CERTIFICATE"]
    if not found:
        raise ValueError("there is no '-----BEGIN CERTIFICATE-----' block in the PEM data")
    return found


def load_pem_private_key(data: bytes, password: bytes | None = None) -> bytes:
    """Returns the first private key of a PEM file as DER bytes (PKCS #8, SEC 1 or PKCS #1).

    An encrypted key needs ``password`` and the ``cryptography`` package, which decrypts it.

    Raises ``ValueError`` if there is no private key in ``data``, or if it is encrypted and no
    password is given, and ``RuntimeError`` if ``cryptography`` is needed but not installed.
    """
    for label, body in _pem_blocks(data):
        if label == b"ENCRYPTED PRIVATE KEY" or b"Proc-Type: 4,ENCRYPTED" in body:
            if password is None:
                raise ValueError("the private key is encrypted and no password was given")
            return _decrypt(data, password)
        if label in _KEY_LABELS:
            return _decode(body, label)
    raise ValueError("there is no '-----BEGIN PRIVATE KEY-----' block in the PEM data")


class MissingPackageError(RuntimeError, ImportError):
    """A package that the extra features need is not installed."""


def _decrypt(data: bytes, password: bytes) -> bytes:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError as exc:
        raise MissingPackageError(
            "an encrypted private key needs the 'cryptography' package: pip install cryptography"
        ) from exc
    return _key_to_der(serialization.load_pem_private_key(data, password))


def _key_to_der(key: Any) -> bytes:
    """Returns the DER bytes of a ``cryptography`` private key object."""
    from cryptography.hazmat.primitives import serialization

    der: bytes = key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return der


def _certificate_to_der(certificate: Any) -> bytes:
    """Returns the DER bytes of a ``cryptography`` certificate object."""
    from cryptography.hazmat.primitives import serialization

    der: bytes = certificate.public_bytes(serialization.Encoding.DER)
    return der
