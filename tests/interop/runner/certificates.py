"""Certificates in the public runner's layout: `ca.pem`, a chain in `cert.pem`, `priv.key`."""

from __future__ import annotations

from pathlib import Path

import trustme

from tests.support.certificates import LOCAL, write

__all__ = ["make"]


def make(folder: Path, length: int) -> Path:
    """Makes a folder with `length` certificates for the server to send, without the authority's.

    The path from the server's to the authority's has one intermediate. The others only enlarge the
    chain: rustls follows six at most, so it would reject a path as long as the public runner's.
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
