"""Fixtures of the WebTransport tests: a certificate as browsers take it by hash, and the loops."""

from __future__ import annotations

import pytest

from tests.quic.conftest import run_anywhere
from uringcore.devcert import DevelopmentCertificate

__all__ = ["run_anywhere"]


@pytest.fixture(scope="session")
def certificate():
    return DevelopmentCertificate.make()


@pytest.fixture
def files(certificate, tmp_path):
    """The certificate and its key, as aiopquic's programs take them."""
    return certificate.write(tmp_path)
