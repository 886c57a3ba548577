"""Fixtures of the client's tests: a scripted server, and the loops under the client."""

from __future__ import annotations

import asyncio

import pytest

import uringcore
from tests.client.scripted_server import Peer
from tests.server.conftest import backend, backends, certificate, run, server, starting
from tests.server.harness import ForkedServer

__all__ = ["backend", "certificate", "run", "server"]


@pytest.fixture
def peer(certificate):
    """A server on aioquic, for one test."""
    running = Peer(certificate)
    yield running
    running.stop()


@pytest.fixture(params=backends())
def run_ours(request):
    """Runs a coroutine on uringcore's loop, once on each backend."""
    return lambda main: uringcore.run(asyncio.wait_for(main, 60), backend=request.param)


start = starting(ForkedServer)


@pytest.fixture(scope="module")
def site(certificate, tmp_path_factory):
    """Our server, with the application for the client's own features."""
    running = ForkedServer(
        tmp_path_factory.mktemp("site"), certificate, app="tests.client.application:app"
    )
    yield running
    running.kill()
    running.check_log()
