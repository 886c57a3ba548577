"""Certificates for localhost as operators have them: of any key and any time."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def make_certificate(folder, key=None, since=-DAY, until=30 * DAY, name="server", authority=False):
    """Writes a self-signed one and returns the paths of it and of its key."""
    key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + since)
        .not_valid_after(now + until)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    signs_itself = isinstance(key, (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey))
    certificate = builder.sign(key, None if signs_itself else hashes.SHA256())
    certfile, keyfile = folder / f"{name}.pem", folder / f"{name}-key.pem"
    certfile.write_bytes(certificate.public_bytes(Encoding.PEM))
    keyfile.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(certfile), str(keyfile)


def version_1_certificate(folder):
    """As ``openssl x509 -req`` makes it where no extensions are asked for."""
    certfile, keyfile = make_certificate(folder, key=ed25519.Ed25519PrivateKey.generate())
    der = x509.load_pem_x509_certificate(Path(certfile).read_bytes()).tbs_certificate_bytes
    _, rest, _ = element(der)
    fields = b""
    while rest:
        (tag, _, after), field = element(rest), rest
        rest = after
        # Version and extensions are left out.
        if tag not in (0xA0, 0xA3):
            fields += field[: len(field) - len(after)]
    signed = sequence(fields)
    key = load_pem_private_key(Path(keyfile).read_bytes(), None)
    algorithm = bytes.fromhex("300506032b6570")
    signature = b"\x03\x41\x00" + key.sign(signed)
    Path(certfile).write_text(ssl.DER_cert_to_PEM_cert(sequence(signed + algorithm + signature)))
    return certfile, keyfile


def sequence(content):
    size = len(content)
    if size < 0x80:
        return bytes([0x30, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([0x30, 0x80 | len(length)]) + length + content


def element(der):
    """The tag and the content of the first element, and what follows it."""
    length, start = der[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    return der[0], der[start : start + length], der[start + length :]
