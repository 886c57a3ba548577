"""The hashes by which browsers accept a certificate."""

from __future__ import annotations

import base64
import hashlib

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def spki_hash(certificate):
    """Hash of its key, for Chromium's command line."""
    spki = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(spki).digest()).decode()


def certificate_hash(identity):
    """Hash of the whole certificate, for `serverCertificateHashes`, as a list of numbers."""
    return list(hashlib.sha256(identity.der).digest())
