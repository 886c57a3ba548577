"""Fixtures of the server's tests: certificates, and a server on each backend."""

import asyncio

import pytest

import uringcore
from tests.server.harness import Server
from tests.support import io_uring_probe
from tests.support.interpreter_roles import is_default_interpreter, is_newest_interpreter
from uringcore.devcert import DevelopmentCertificate

CROWD = "tests.server.worker_application:app"


def every_backend():
    """Returns io_uring, if this machine permits it, and epoll."""
    if reason := io_uring_probe.why_not():
        return [pytest.param("uring", marks=pytest.mark.skip(reason=reason)), "epoll"]
    return ["uring", "epoll"]


def backends():
    """Returns both backends on the default interpreter and one on each other: the code below the driver does
    not depend on the interpreter.
    """
    both = every_backend()
    if is_default_interpreter():
        return both
    return ["uring"] if is_newest_interpreter() and "uring" in both else ["epoll"]


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


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """Returns the paths of a certificate for localhost and of its key."""
    return DevelopmentCertificate.make().write(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module", params=backends())
def backend(request):
    return request.param


@pytest.fixture(scope="module")
def server(backend, certificate, tmp_path_factory):
    """One server for a module's tests; a test that stops the server starts its own."""
    running = Server(tmp_path_factory.mktemp("server"), certificate, backend=backend)
    yield running
    running.kill()
    running.check_log()


def starting(kind):
    """Makes a fixture that starts servers of this class, which end with the test."""

    @pytest.fixture(name="start")
    def fixture(certificate, tmp_path):
        started = []

        def start_server(*arguments, **options):
            given = options.pop("certificate", certificate)
            started.append(kind(tmp_path, given, *arguments, **options))
            return started[-1]

        yield start_server
        for running in started:
            running.kill()
        for running in started:
            running.check_log()

    return fixture


start = starting(Server)


@pytest.fixture
def crowd(start):
    """Starts a server with several workers."""

    def start_crowd(*arguments, workers=2, **options):
        server = start("--workers", str(workers), *arguments, app=CROWD, **options)
        server.wait_log(rf"(?s)(HTTP/3 running.*){{{workers}}}")
        return server

    return start_crowd
