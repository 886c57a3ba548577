"""Fixtures of the WebTransport tests: a certificate that browsers accept by its hash, and the loops."""

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
    """The certificate and its key as files, the form that programs for aiopquic use."""
    return certificate.write(tmp_path)
