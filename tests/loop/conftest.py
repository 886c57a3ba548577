"""Fixtures of the loop's tests."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loop.harness import BACKENDS, LOOPS, Runner
from tests.support import certificates


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Runs a coroutine on stock asyncio and on both of our backends, one after the other."""
    runner = Runner(request.param)
    yield runner
    assert runner.complaints.contexts == []


@pytest.fixture(params=BACKENDS)
def run_ours(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Runs a coroutine on both of our backends, for features that asyncio lacks."""
    runner = Runner(request.param)
    yield runner
    assert runner.complaints.contexts == []


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost, whose file also has its authority's, and its key."""
    made = certificates.local(tmp_path_factory.mktemp("certificate"))
    return made.certfile, made.keyfile


@pytest.fixture(scope="session")
def server_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """A server's context with the test certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@pytest.fixture(scope="session")
def client_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """A client's context that trusts the test certificate."""
    return ssl.create_default_context(cafile=str(certificate[0]))
