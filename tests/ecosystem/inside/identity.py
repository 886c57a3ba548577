"""A certificate for localhost and its key, as files, for programs that are tested here."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme


@pytest.fixture
def identity(tmp_path: Path) -> tuple[str, str]:
    made = trustme.CA().issue_cert("localhost", "127.0.0.1")
    certfile, keyfile = tmp_path / "cert.pem", tmp_path / "key.pem"
    made.cert_chain_pems[0].write_to_path(certfile)
    made.private_key_pem.write_to_path(keyfile)
    return str(certfile), str(keyfile)
