"""The certificate of the benchmarks' servers: `-m benchmarks.programs.certificate FOLDER` writes a fresh one.

It is a program because the frame runs before the environment that has trustme (`harness/environment.py`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


def write(folder: Path) -> None:
    """Write `cert.pem` and `key.pem` for localhost, of P-256, and `ca.pem`, which clients verify it with.

    The key is in PKCS #8, the only form that every server reads.
    """
    authority = trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    server.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    key = serialization.load_pem_private_key(server.private_key_pem.bytes(), None)
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    (folder / "key.pem").write_bytes(key.private_bytes(*pem, serialization.NoEncryption()))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
