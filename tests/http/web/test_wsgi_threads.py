"""The threads of WSGI applications: a second start, starts that fail, clients and requests that end early."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import urllib.request

import pytest

import uringcore
from tests.http.http1.client import SECONDS
from tests.server.harness import until
from uringcore.server import Config, Server
from uringcore.server._wsgi import WSGIApplication

SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/",
    "query_string": b"",
    "http_version": "1.1",
    "scheme": "http",
    "headers": [],
    "server": ("127.0.0.1", 80),
    "client": ("127.0.0.1", 1),
}


def plain(environ, start_response):
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


class Client:
    """The server's object of a request."""

    def __init__(self):
        self.disconnected = False
        self.messages = []

    async def receive(self):
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message):
        self.messages.append(message)


def make(application):
    return WSGIApplication(application, max_threads=1, multiprocess=False)


async def ask(application, client=None, scope=SCOPE):
    """Makes a request. With a lost permit it would wait for ever."""
    client = client or Client()
    called = application(dict(scope), client.receive, client.send)
    await asyncio.wait_for(called, SECONDS)
    return client.messages


@pytest.mark.parametrize("lifespan", ["auto", "off"])
@pytest.mark.parametrize("same_loop", [True, False])
def test_a_server_can_serve_a_second_time(lifespan, same_loop):
    config = Config(
        plain,
        port=0,
        http="native",
        http3=False,
        lifespan=lifespan,
        log_config=None,
        wsgi_threads=2,
    )

    async def serve_once():
        server = Server(config)
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"

        def get():
            with urllib.request.urlopen(url, timeout=SECONDS) as answer:
                return answer.read()

        bodies = await asyncio.gather(*(asyncio.to_thread(get) for _ in range(6)))
        assert bodies == [b"ok"] * 6
        server.should_exit = True
        await serving

    async def serve_twice():
        await serve_once()
        await serve_once()

    if same_loop:
        uringcore.run(serve_twice())
    else:
        uringcore.run(serve_once())
        uringcore.run(serve_once())


def test_a_thread_that_cannot_be_started_keeps_no_permit(monkeypatch):
    async def main():
        application = make(plain)

        def refuse(thread):
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start"):
                await ask(application)
        assert (await ask(application))[-1]["body"] == b"ok"

    asyncio.run(main())


def test_a_scope_that_makes_no_environment_keeps_no_permit():
    async def main():
        application = make(plain)
        with pytest.raises(UnicodeEncodeError):
            await ask(application, scope={**SCOPE, "path": "/\ud800"})
        assert (await ask(application))[-1]["body"] == b"ok"

    asyncio.run(main())


def test_a_client_that_leaves_while_it_waits_for_a_thread_is_not_served():
    async def main():
        begun, go_on, paths = threading.Event(), threading.Event(), []

        def blocking(environ, start_response):
            paths.append(environ["PATH_INFO"])
            begun.set()
            go_on.wait(SECONDS)
            return plain(environ, start_response)

        application, gone = make(blocking), Client()
        first = asyncio.create_task(ask(application))
        await asyncio.to_thread(begun.wait, SECONDS)
        second = asyncio.create_task(ask(application, gone, {**SCOPE, "path": "/gone"}))
        third = asyncio.create_task(ask(application, scope={**SCOPE, "path": "/there"}))
        await asyncio.sleep(0)
        gone.disconnected = True
        go_on.set()
        assert (await first)[-1]["body"] == (await third)[-1]["body"] == b"ok"
        assert await second == []
        assert paths == ["/", "/there"]

    asyncio.run(main())


def test_an_exception_after_the_end_of_the_request_is_logged(caplog):
    async def main():
        begun, go_on = threading.Event(), threading.Event()

        def failing(environ, start_response):
            begun.set()
            go_on.wait(SECONDS)
            raise KeyError("after the end")

        application = make(failing)
        asked = asyncio.create_task(ask(application))
        await asyncio.to_thread(begun.wait, SECONDS)
        asked.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asked
        go_on.set()
        await until(lambda: "KeyError: 'after the end'" in caplog.text)

    asyncio.run(main())
