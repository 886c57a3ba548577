"""Certificates that trustme cannot make. Each function's docstring gives the purpose; certificates.py makes
all others.

trustme has keys of P-256 and RSA with 2,048 bits, extensions of its own choice, certificates of version 3
that an authority signed, and subjects that begin with an organization. Servers must handle others too.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.support.certificates import DAY, LOCAL, ORGANIZATION, Identity


def with_key(
    folder: Path, name: str, issuer: Identity | None, hosts: Sequence[str], *, key: Any
) -> Identity:
    """A certificate of any key that OpenSSL has (Ed25519, Ed448), or signed by such a key.

    Without an `issuer` it is an authority that signed itself.
    """
    subject = _name(f"{ORGANIZATION} test {name}")
    builder = _builder(subject, subject if issuer is None else issuer.certificate.subject, key)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True
    )
    if hosts:
        builder = builder.add_extension(_names(hosts), critical=False)
    return _written(folder, name, builder, key, key if issuer is None else issuer.key)


def self_signed(
    folder: Path, name: str = "server", *, key: Any = None, authority: bool = False
) -> Identity:
    """A self-signed certificate for localhost, marked as an authority or not.

    ``openssl req -x509`` makes such certificates. trustme's always have a separate authority.
    """
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = _name("localhost")
    builder = (
        _builder(subject, subject, key)
        .add_extension(_names(LOCAL), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    return _written(folder, name, builder, key, key)


def with_subject(subject: x509.Name) -> x509.Certificate:
    """A certificate of any subject: several attributes of one part, characters to escape, no name at all."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _builder(subject, _name("issuer"), key).sign(key, hashes.SHA256())


def version_1(folder: Path) -> Identity:
    """A certificate of X.509 version 1, as ``openssl x509 -req`` makes it where no extensions are asked for.

    Neither trustme nor `cryptography` writes one, so version and extensions are cut out of the encoding.
    """
    made = self_signed(folder, key=ed25519.Ed25519PrivateKey.generate())
    _, rest, _ = element(made.certificate.tbs_certificate_bytes)
    fields = b""
    while rest:
        (tag, _, after), field = element(rest), rest
        rest = after
        # Version and extensions.
        if tag not in (0xA0, 0xA3):
            fields += field[: len(field) - len(after)]
    signed = sequence(fields)
    algorithm = bytes.fromhex("300506032b6570")
    signature = b"\x03\x41\x00" + made.key.sign(signed)
    pem = ssl.DER_cert_to_PEM_cert(sequence(signed + algorithm + signature))
    made.certfile.write_text(pem)
    return Identity(made.certfile, made.keyfile)


def sequence(content: bytes) -> bytes:
    """DER's SEQUENCE of `content`."""
    size = len(content)
    if size < 0x80:
        return bytes([0x30, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([0x30, 0x80 | len(length)]) + length + content


def element(der: bytes) -> tuple[int, bytes, bytes]:
    """The tag and the content of the first element, and the bytes behind it."""
    length, start = der[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    return der[0], der[start : start + length], der[start + length :]


def _builder(subject: x509.Name, issuer: x509.Name, key: Any) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * DAY)
        .not_valid_after(now + 3 * DAY)
    )


def _written(
    folder: Path, name: str, builder: x509.CertificateBuilder, key: Any, signing: Any
) -> Identity:
    edwards = isinstance(signing, (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey))
    made = builder.sign(signing, None if edwards else hashes.SHA256())
    certfile, keyfile = folder / f"{name}.pem", folder / f"{name}.key"
    certfile.write_bytes(made.public_bytes(Encoding.PEM))
    keyfile.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return Identity(certfile, keyfile)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_general_name(host) for host in hosts])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
