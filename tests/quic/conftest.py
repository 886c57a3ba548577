"""Fixtures of the QUIC tests: certificates, configurations, and the loops they run on."""

from __future__ import annotations

import asyncio

import pytest

import uringcore
from tests.quic import certificates
from uringcore.quic.configuration import QuicConfiguration


def own_backends():
    """io_uring where this machine allows it, and epoll."""
    try:
        uringcore.new_event_loop(backend="uring").close()
    except (OSError, RuntimeError) as exc:
        reason = f"io_uring is not to be had here: {exc}"
        return [pytest.param("uring", marks=pytest.mark.skip(reason=reason)), "epoll"]
    return ["uring", "epoll"]


@pytest.fixture(scope="session")
def pki(tmp_path_factory):
    return certificates.make(tmp_path_factory.mktemp("certificates"))


def _runner(kind, seconds=60):
    def run(main):
        async def limited():
            return await asyncio.wait_for(main, seconds)

        if kind == "asyncio":
            return asyncio.run(limited())
        return uringcore.run(limited(), backend=kind)

    run.kind = kind
    return run


@pytest.fixture(params=own_backends())
def run(request):
    """Runs a coroutine on uringcore's loop, once on each backend."""
    return _runner(request.param)


@pytest.fixture(params=own_backends())
def run_long(request):
    """As `run`, for what takes minutes on a loaded machine."""
    return _runner(request.param, seconds=540)


@pytest.fixture(params=[*own_backends(), "asyncio"])
def run_anywhere(request):
    """Runs a coroutine on uringcore's loop and on stock asyncio's."""
    return _runner(request.param)


@pytest.fixture
def server_configuration(pki):
    def make(identity=None, **fields):
        fields.setdefault("alpn_protocols", ["test"])
        configuration = QuicConfiguration(is_client=False, **fields)
        chosen = identity or pki.server
        configuration.load_cert_chain(chosen.certfile, chosen.keyfile)
        return configuration

    return make


@pytest.fixture
def client_configuration(pki):
    def make(authority=None, **fields):
        fields.setdefault("alpn_protocols", ["test"])
        configuration = QuicConfiguration(is_client=True, **fields)
        configuration.load_verify_locations(cafile=str((authority or pki.authority).certfile))
        return configuration

    return make
