"""Short-lived certificates for development: what ``--dev-cert`` makes and prints.

The certificate is self-signed, ECDSA P-256, and valid for at most 14 days, which is what browsers
ask of WebTransport's ``serverCertificateHashes``. Making it is Rust's; who may be served with it and
how it is shown is decided here.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uringcore import _uringcore

__all__ = ["LOCALHOST", "MAX_DAYS", "DevelopmentCertificate"]

LOCALHOST = ("localhost", "127.0.0.1", "::1")

MAX_DAYS = 14
"""What browsers accept by hash (W3C WebTransport, "custom certificate requirements")."""


@dataclass(frozen=True)
class DevelopmentCertificate:
    """A certificate with its key and the hashes by which a browser can be told to trust it."""

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
        """A new certificate for ``names``, DNS names or IP addresses, valid from now.

        Raises ``ValueError`` for a bad name or when ``days`` is not 1 to 14.
        """
        if not 1 <= days <= MAX_DAYS:
            raise ValueError(f"days must be 1 to {MAX_DAYS}, not {days}")
        certificate, key, sha256, spki_sha256 = _uringcore.make_dev_cert(list(names), days)
        return cls(certificate, key, sha256, spki_sha256, tuple(names), days)

    def write(self, folder: str | os.PathLike[str]) -> tuple[str, str]:
        """Writes ``cert.pem`` and ``key.pem`` into ``folder`` and returns their paths.

        The key is readable by its owner only. Raises ``OSError`` when a file cannot be written.
        """
        certificate = Path(folder) / "cert.pem"
        key = Path(folder) / "key.pem"
        certificate.write_bytes(self.certificate_pem)
        # The mode is right from the first moment; O_EXCL would refuse to renew a certificate.
        key.unlink(missing_ok=True)
        descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(self.key_pem)
        return str(certificate), str(key)

    def describe(self) -> str:
        """What a user needs to make a browser trust it, as lines of text."""
        return (
            f"Development certificate for {', '.join(self.names)}, valid for {self.days} days\n"
            f"  SHA-256 (hex)          {self.sha256.hex()}\n"
            f"  SHA-256 (base64)       {base64.b64encode(self.sha256).decode()}\n"
            f"  SPKI SHA-256 (base64)  {base64.b64encode(self.spki_sha256).decode()}"
        )
