"""Certificates for localhost as operators have them: of any key and any time."""

from __future__ import annotations

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
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
