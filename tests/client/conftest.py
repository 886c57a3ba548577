"""Fixtures of the client's tests: a scripted server, and the loops that the client runs on."""

from __future__ import annotations

import asyncio

import pytest

import uringcore
from tests.client.peer import Peer
from tests.server.conftest import backend, backends, certificate, server, start
from tests.server.harness import Server

__all__ = ["backend", "certificate", "server", "start"]


@pytest.fixture
def peer(certificate):
    """A server of aioquic's, for one test."""
    running = Peer(certificate)
    yield running
    running.stop()


@pytest.fixture(params=[*backends(), "asyncio"])
def run(request):
    """Runs a coroutine on uringcore's loop, once on each backend, and on stock asyncio's."""

    def runner(main):
        async def limited():
            return await asyncio.wait_for(main, 60)

        if request.param == "asyncio":
            return asyncio.run(limited())
        return uringcore.run(limited(), backend=request.param)

    return runner


@pytest.fixture(params=backends())
def run_ours(request):
    """Runs a coroutine on uringcore's loop, once on each backend."""
    return lambda main: uringcore.run(asyncio.wait_for(main, 60), backend=request.param)


@pytest.fixture(scope="module")
def site(certificate, tmp_path_factory):
    """Our server, with what a client's own features are tried on."""
    running = Server(
        tmp_path_factory.mktemp("site"), certificate, app="tests.client.application:app"
    )
    yield running
    running.kill()
    running.check_log()
