"""Certificates for the tests: an authority, what it signed, and what nobody should accept."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import NameOID

LOCAL = ["localhost", "127.0.0.1", "::1"]

_DAY = datetime.timedelta(days=1)


EdwardsKey = ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | EdwardsKey


@dataclass
class Identity:
    """A certificate and its key, as objects and as files."""

    certificate: x509.Certificate
    key: Key
    certfile: Path
    keyfile: Path

    @property
    def pem(self) -> bytes:
        return self.certfile.read_bytes()


@dataclass
class Certificates:
    """``server`` is signed by ``authority`` for localhost, 127.0.0.1 and ::1."""

    authority: Identity
    stranger: Identity
    server: Identity
    elsewhere: Identity
    expired: Identity
    client: Identity


def make(directory: Path) -> Certificates:
    authority = _make(directory, "authority", None, [])
    return Certificates(
        authority=authority,
        stranger=_make(directory, "stranger", None, []),
        server=_make(directory, "server", authority, LOCAL),
        elsewhere=_make(directory, "elsewhere", authority, ["elsewhere.example"]),
        expired=_make(directory, "expired", authority, LOCAL, ended=True),
        client=_make(directory, "client", authority, ["client.example"]),
    )


def renewed(directory: Path, authority: Identity, number: int) -> Identity:
    """The server's next certificate, with another key."""
    return _make(directory, f"server{number}", authority, LOCAL)


def _make(
    directory: Path,
    name: str,
    issuer: Identity | None,
    hosts: list[str],
    ended: bool = False,
    key: Key | None = None,
) -> Identity:
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"uringcore test {name}")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * _DAY)
        .not_valid_after(now - _DAY if ended else now + 3 * _DAY)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if hosts:
        names = [_general_name(host) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    signing = key if issuer is None else issuer.key
    certificate = builder.sign(
        signing, None if isinstance(signing, EdwardsKey) else hashes.SHA256()
    )
    certfile, keyfile = directory / f"{name}.pem", directory / f"{name}.key"
    certfile.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    keyfile.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return Identity(certificate, key, certfile, keyfile)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
