"""Fixtures of the QUIC tests: certificates, configurations, and the loops they run on."""

from __future__ import annotations

import asyncio

import pytest

import uringcore
from tests.server.conftest import backends, every_backend
from tests.support import certificates
from tests.support.handmade_certificates import with_key
from uringcore.quic.configuration import QuicConfiguration


@pytest.fixture(scope="session")
def pki(tmp_path_factory):
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def issue(pki, tmp_path_factory):
    """Issues certificates of `pki.authority` into a directory of the test file; with `key`, for that key."""
    directory = tmp_path_factory.mktemp("issued")

    def make(name, *hosts, key=None):
        if key is None:
            return pki.authority.issue(directory, name, *hosts)
        return with_key(directory, name, pki.authority, hosts, key=key)

    return make


def _runner(kind, seconds=60):
    def run(main):
        async def limited():
            return await asyncio.wait_for(main, seconds)

        if kind == "asyncio":
            return asyncio.run(limited())
        return uringcore.run(limited(), backend=kind)

    run.kind = kind
    return run


@pytest.fixture(params=backends())
def run(request):
    """Runs a coroutine on uringcore's loop, once for each backend that is tested on this interpreter."""
    return _runner(request.param)


@pytest.fixture(params=every_backend())
def run_long(request):
    """Like `run`, for tests that take minutes on a loaded machine; they run on one interpreter only."""
    return _runner(request.param, seconds=540)


@pytest.fixture(params=[*backends(), "asyncio"])
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
