"""Certificates as the public runner makes them: `ca.pem`, a chain in `cert.pem`, `priv.key`."""

from __future__ import annotations

from pathlib import Path

import trustme

from tests.support.certificates import LOCAL, write

__all__ = ["make"]


def make(folder: Path, length: int) -> Path:
    """A folder with `length` certificates for the server to send, the authority's not among them.

    The way from the server's to the authority's leads over one of them. The others are there to be
    sent: rustls follows six at most, so a chain as long as the public runner's would be refused.
    """
    if (folder / "priv.key").exists():
        return folder
    authority = trustme.CA()
    issuer, *others = (authority.create_child_ca() for _ in range(length - 1))
    server = issuer.issue_cert(*LOCAL)
    chain = [*server.cert_chain_pems, *(other.cert_pem for other in others)]
    certfile, keyfile = write(folder, "cert", *chain, key=server.private_key_pem)
    (folder / "ca.pem").write_bytes(authority.cert_pem.bytes())
    keyfile.rename(folder / "priv.key")
    return folder
