"""Certificates as the public runner makes them: `ca.pem`, a chain in `cert.pem`, `priv.key`."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["make"]

_HOUR = datetime.timedelta(hours=1)


def make(folder: Path, length: int) -> Path:
    """A folder with `length` certificates for the server to send, the authority's not among them.

    The way from the server's to the authority's leads over one of them. The others are there to be
    sent: rustls follows six at most, so a chain as long as the public runner's would be refused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "priv.key").exists():
        return folder
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _signed("authority", authority_key, None, None, is_authority=True)
    intermediates = []
    for number in range(length - 1):
        own = ec.generate_private_key(ec.SECP256R1())
        name = f"intermediate {number}"
        intermediates.append(_signed(name, own, authority, authority_key, is_authority=True))
        if number == 0:
            issuer, issuer_key = intermediates[0], own
    server = _signed("localhost", key, issuer, issuer_key, is_authority=False)
    (folder / "ca.pem").write_bytes(_pem(authority))
    (folder / "cert.pem").write_bytes(b"".join(map(_pem, [server, *intermediates])))
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "priv.key").write_bytes(private)
    return folder


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey | None,
    *,
    is_authority: bool,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _HOUR)
        .not_valid_after(now + 48 * _HOUR)
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    )
    if not is_authority:
        addresses = [ipaddress.ip_address(text) for text in ("127.0.0.1", "::1")]
        names = [x509.DNSName("localhost"), *map(x509.IPAddress, addresses)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key or key, hashes.SHA256())
