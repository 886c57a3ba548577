"""Fixtures of the WebTransport tests: a certificate as browsers take it by hash, and the loops."""

from __future__ import annotations

import pytest

from tests.quic.conftest import run_anywhere
from uringcore.devcert import DevelopmentCertificate

__all__ = ["run_anywhere"]


@pytest.fixture(scope="session")
def certificate():
    return DevelopmentCertificate.make()
