"""Fixtures of the HTTP/3 tests: a QUIC pair, and HTTP/3 connections of either library on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.h3.aioquic_pair import Pair
from tests.support import certificates


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, object]:
    """A certificate for localhost and its key."""
    made = certificates.local(tmp_path_factory.mktemp("certificate"))
    return made.certificate, made.key


@pytest.fixture
def quic_pair(certificate: tuple[object, object]) -> Iterator[Pair]:
    """Two QUIC connections of aioquic, after the handshake."""
    pair = Pair(certificate)
    yield pair
    assert not pair.surprises, "the connection was closed unexpectedly"
