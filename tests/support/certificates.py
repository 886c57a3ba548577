"""Certificates for tests: authorities and what they issue, made by trustme, as files and as objects.

Certificates that trustme does not make are in handmade_certificates.py. Tests of a server as a user
starts it take uringcore's own (`uringcore.devcert`).
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

LOCAL = ("localhost", "127.0.0.1", "::1")
DAY = datetime.timedelta(days=1)
ORGANIZATION = "uringcore"


@dataclass
class Identity:
    """A certificate and its key, as files and as objects of `cryptography`."""

    certfile: Path
    keyfile: Path

    @property
    def files(self) -> tuple[str, str]:
        """The two paths, as options take them."""
        return str(self.certfile), str(self.keyfile)

    @property
    def pem(self) -> bytes:
        """The file of the certificate."""
        return self.certfile.read_bytes()

    @cached_property
    def certificate(self) -> x509.Certificate:
        """The certificate, without the rest of its file."""
        return x509.load_pem_x509_certificate(self.pem)

    @property
    def der(self) -> bytes:
        """The certificate in DER."""
        return self.certificate.public_bytes(Encoding.DER)

    @cached_property
    def key(self) -> Any:
        """The private key."""
        return load_pem_private_key(self.keyfile.read_bytes(), None)


class Authority(Identity):
    """A certificate authority, with a certificate that it signed itself."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._authority = trustme.CA(
            organization_name=ORGANIZATION, organization_unit_name=f"{ORGANIZATION} test {name}"
        )
        files = write(folder, name, self._authority.cert_pem, key=self._authority.private_key_pem)
        super().__init__(*files)

    def issue(
        self,
        folder: Path,
        name: str,
        *hosts: str,
        since: datetime.timedelta = -3 * DAY,
        until: datetime.timedelta = 3 * DAY,
        with_authority: bool = False,
    ) -> Identity:
        """A certificate for `hosts`, valid from now plus `since` to now plus `until`, in `folder/name.pem`.

        `with_authority` adds the authority's certificate to the file, so that the file is also what
        clients verify it with.
        """
        now = datetime.datetime.now(datetime.timezone.utc)
        made = self._authority.issue_cert(
            *hosts,
            common_name=f"{ORGANIZATION} test {name}",
            organization_name=ORGANIZATION,
            organization_unit_name="tests",
            not_before=now + since,
            not_after=now + until,
        )
        chain = [*made.cert_chain_pems, *([self._authority.cert_pem] if with_authority else [])]
        return Identity(*write(folder, name, *chain, key=made.private_key_pem))


@dataclass
class Certificates:
    """``server`` is signed by ``authority`` for localhost, 127.0.0.1 and ::1."""

    authority: Authority
    stranger: Authority
    server: Identity
    elsewhere: Identity
    expired: Identity
    client: Identity


def make(directory: Path) -> Certificates:
    """An authority, its certificates, and an authority that no peer trusts."""
    authority = Authority(directory)
    return Certificates(
        authority=authority,
        stranger=Authority(directory, "stranger"),
        server=authority.issue(directory, "server", *LOCAL),
        elsewhere=authority.issue(directory, "elsewhere", "elsewhere.example"),
        expired=authority.issue(directory, "expired", *LOCAL, until=-DAY),
        client=authority.issue(directory, "client", "client.example"),
    )


def local(directory: Path) -> Identity:
    """A server's certificate for localhost, in a file that clients can verify it with."""
    authority = Authority(directory)
    return authority.issue(directory, "server", *LOCAL, with_authority=True)


def write(folder: Path, name: str, *chain: trustme.Blob, key: trustme.Blob) -> tuple[Path, Path]:
    """Write a chain and its key, the key as PKCS 8, which every peer of the tests reads."""
    folder.mkdir(parents=True, exist_ok=True)
    certfile, keyfile = folder / f"{name}.pem", folder / f"{name}.key"
    certfile.write_bytes(b"".join(blob.bytes() for blob in chain))
    private = load_pem_private_key(key.bytes(), None)
    keyfile.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certfile, keyfile
