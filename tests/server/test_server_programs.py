"""Programs around the server: what they replace of uvicorn's, how they set up logging and end it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys

import anyio
import pytest
import uvicorn

import uringcore
from tests.server.harness import APPLICATION, ROOT, STARTED, environment
from tests.support.children import bound
from tests.support.ports import free_port
from uringcore.server import Config, Server
from uringcore.server.startup import StartupError

ENDLESS = "tests.server.endless:app"


# Logging -------------------------------------------------------------------------------------------

OWN_LOG = """
import logging, sys
from tests.server.application import app
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="MINE %(name)s %(message)s")
if "uvicorn" in sys.argv:
    from uvicorn import Config
    Config(app, log_config=None)
else:
    from uringcore.server import Config
    Config(app, log_config=None, http3=False)
assert logging.getLogger("uvicorn").handlers == []
assert logging.getLogger("uvicorn.access").handlers == []
logging.getLogger("uvicorn.error").info("said")
"""


@pytest.mark.parametrize("whose", ["uvicorn", "uringcore"])
def test_log_config_none_leaves_logging_alone(whose):
    done = subprocess.run(
        [sys.executable, "-c", OWN_LOG, whose], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "MINE uvicorn.error said\n"), done.stderr


@pytest.mark.parametrize("log_config", [None, {"version": 1}])
def test_a_log_format_beside_a_log_config_is_refused(log_config):
    with pytest.raises(StartupError, match="log_format"):
        Config("app:app", log_config=log_config, log_format="json", http3=False)


def test_with_log_config_none_requests_are_logged_as_the_program_has_it(start):
    server = start(
        program="import logging, sys\n"
        "logging.basicConfig(level=logging.INFO, format='MINE %(message)s')\n"
        "from uringcore.server import run\n"
        "run('tests.server.application:app', port=0, log_config=None,\n"
        "    ssl_certfile=sys.argv[1], ssl_keyfile=sys.argv[2])\n"
    )
    assert server.get("/").content == b"hello"
    server.wait_log(r'MINE 127.0.0.1:\d+ - "GET / HTTP/3" 200\n')
    assert server.stop() == 0
    assert "INFO:" not in server.log()


# The standard streams ------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "2>&- >&-"])
def test_standard_streams_that_are_closed(certificate, tmp_path, closed):
    """No socket has their numbers, and the log does without."""
    port = free_port()
    words = [sys.executable, "-m", "uringcore", APPLICATION, "--port", str(port)]
    words += ["--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1]]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            bound(["sh", "-c", f'exec "$@" {closed}', "sh", *words]),
            cwd=ROOT,
            env=environment(),
            stderr=log,
        )
    try:

        async def main():
            while True:
                assert process.poll() is None, (tmp_path / "log").read_text()
                with contextlib.suppress(OSError, uringcore.http3.HTTP3Error):
                    async with uringcore.http3.connect(
                        f"https://localhost:{port}", cafile=certificate[0]
                    ) as client:
                        return await client.get("/")
                await asyncio.sleep(0.1)

        assert uringcore.run(asyncio.wait_for(main(), 60)).content == b"hello"
        for number in (0, 1, 2):
            assert "socket" not in os.readlink(f"/proc/{process.pid}/fd/{number}")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_a_standard_output_that_nobody_reads_any_more(certificate, tmp_path):
    """`uringcore app:app | head`: one line, not a traceback for every request."""
    arguments = ["--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1], "--port", "0"]
    path = tmp_path / "log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            bound([sys.executable, "-m", "uringcore", APPLICATION, *arguments]),
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=log,
        )
    process.stdout.close()
    try:

        async def main():
            while (found := STARTED.search(path.read_text())) is None:
                assert process.poll() is None, path.read_text()
                await asyncio.sleep(0.05)
            url = f"https://localhost:{found[1]}"
            async with uringcore.http3.connect(url, cafile=certificate[0]) as client:
                for _ in range(5):
                    assert (await client.get("/")).content == b"hello"

        uringcore.run(asyncio.wait_for(main(), 60))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    said = path.read_text()
    assert said.count("Nobody reads <stdout> any more") == 1, said
    assert "Traceback" not in said


# handle_exit ---------------------------------------------------------------------------------------


async def read_endless(server, begun):
    """What an endless response ends with."""
    async with server.connect() as client, client.stream("GET", "/") as response:
        parts = response.iter_bytes()
        content = await anext(parts)
        begun.set()
        async for part in parts:
            content += part
    return content


def stop_beside_reader(server, sig):
    async def main():
        begun = asyncio.Event()
        reading = asyncio.create_task(read_endless(server, begun))
        await begun.wait()
        server.send_signal(sig)
        return await asyncio.wait_for(reading, 25)

    return uringcore.run(main())


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_replaces_handle_exit_is_called(start, backend, sig):
    server = start(app=ENDLESS, backend=backend)
    assert stop_beside_reader(server, sig).endswith(b"the end")
    assert server.wait_stopped() == 0


def test_it_is_called_when_a_worker_is_replaced(start):
    server = start("--workers", "2", app=ENDLESS)
    server.wait_log(r"(?s)(HTTP/3 running.*){2}")
    assert stop_beside_reader(server, signal.SIGHUP).endswith(b"the end")
    assert server.stop() == 0


# serve() in a program's own loop -------------------------------------------------------------------


class Application:
    """An application whose lifespan is looked at."""

    def __init__(self):
        self.seen = []
        self.asked = asyncio.Event()
        self.started = asyncio.Event()
        self.may_start = asyncio.Event()
        self.may_start.set()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            try:
                await receive()
                self.started.set()
                await self.may_start.wait()
                await send({"type": "lifespan.startup.complete"})
                self.seen.append((await receive())["type"])
                await send({"type": "lifespan.shutdown.complete"})
            finally:
                self.seen.append("ended")
            return
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.seen.append("request ended")


def can_bind(port):
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tcp.bind(("127.0.0.1", port))
            tcp.listen()
            udp.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def server_of(application, certificate, port):
    config = Config(
        application,
        port=port,
        log_config=None,
        ssl_certfile=certificate[0],
        ssl_keyfile=certificate[1],
    )
    return Server(config)


async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)


def test_serve_that_is_cancelled_stops_serving(run, certificate):
    async def main():
        application, port = Application(), free_port()
        server = server_of(application, certificate, port)
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        assert not can_bind(port)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert application.seen == ["lifespan.shutdown", "ended"]
        assert can_bind(port)
        writer.close()

    run(main())


def test_serve_that_is_cancelled_twice_stops_at_once(run, certificate):
    async def main():
        application, port = Application(), free_port()
        server = server_of(application, certificate, port)
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        url = f"https://localhost:{port}"
        async with uringcore.http3.connect(url, cafile=certificate[0]) as client:
            asking = asyncio.create_task(client.get("/"))
            await application.asked.wait()
            serving.cancel()
            await until(lambda: not server.server_state.tasks or server._listener.service.stopping)
            assert not serving.done()
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: "ended" in application.seen)
        assert sorted(application.seen) == ["ended", "request ended"]
        assert can_bind(port)

    run(main())


def test_serve_in_a_cancelled_scope_of_anyio_leaves_nothing_behind(run, certificate):
    """Such a scope repeats the cancellation at each ``await``."""

    async def main():
        application, port = Application(), free_port()
        server = server_of(application, certificate, port)
        url = f"https://localhost:{port}"
        async with contextlib.AsyncExitStack() as clients:
            async with anyio.create_task_group() as group:
                group.start_soon(server.serve)
                await until(lambda: server.started)
                connecting = uringcore.http3.connect(url, cafile=certificate[0])
                client = await clients.enter_async_context(connecting)
                asking = asyncio.create_task(client.get("/"))
                await application.asked.wait()
                group.cancel_scope.cancel()
            assert can_bind(port)
            await until(lambda: len(application.seen) == 2)
            assert sorted(application.seen) == ["ended", "request ended"]
            await asyncio.gather(asking, return_exceptions=True)

    run(main())


@pytest.mark.parametrize("how", ["replaced handle_exit", "should_exit"])
def test_endless_responses_end_when_serve_is_cancelled(run, certificate, monkeypatch, how):
    """sse-starlette 2 replaces ``handle_exit``; sse-starlette 3 polls ``should_exit``."""
    signals = []
    original = uvicorn.Server.handle_exit

    def replacement(self, sig, frame):
        signals.append(sig)
        original(self, sig, frame)

    monkeypatch.setattr(uvicorn.Server, "handle_exit", replacement)
    asked = asyncio.Event()
    ends = []

    async def application(scope, receive, send):
        if scope["type"] == "lifespan":
            raise LookupError("none here")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        asked.set()
        await until(lambda: signals if how == "replaced handle_exit" else server.should_exit)
        await send({"type": "http.response.body", "body": b"the end"})
        ends.append("sent")

    server = server_of(application, certificate, free_port())

    async def main():
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        url = f"https://localhost:{server.config.port}"
        async with uringcore.http3.connect(url, cafile=certificate[0]) as client:
            asking = asyncio.create_task(client.get("/"))
            await asked.wait()
            serving.cancel()
            assert (await asking).content == b"the end"
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert ends == ["sent"] and signals == [signal.SIGTERM]

    run(main())


def test_a_replaced_handle_exit_is_called_when_the_terminal_is_gone(certificate, monkeypatch):
    signals = []
    monkeypatch.setattr(uvicorn.Server, "handle_exit", lambda self, sig, frame: signals.append(sig))
    monkeypatch.setattr("uringcore.server.server.has_terminal", lambda: True)
    server = server_of(Application(), certificate, 0)
    monkeypatch.setattr("uringcore.server.server.has_terminal", lambda: False)
    server._hang_up(signal.SIGHUP, None)
    assert signals == [signal.SIGTERM]


def test_a_server_serves_again_after_a_cancellation(run, certificate):
    async def main():
        application, port = Application(), free_port()
        server = server_of(application, certificate, port)
        for _ in range(2):
            application.started.clear()
            serving = asyncio.create_task(server.serve())
            await application.started.wait()
            url = f"https://localhost:{port}"
            await until(lambda: not can_bind(port))
            # No request, which the application would not answer.
            async with uringcore.http3.connect(url, cafile=certificate[0]):
                pass
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
        serving = asyncio.create_task(server.serve())
        await until(lambda: not can_bind(port))
        server.should_exit = True
        await serving

    run(main())


def test_serve_that_is_cancelled_in_its_start_up_leaves_nothing_behind(run, certificate):
    async def main():
        application, port = Application(), free_port()
        application.may_start.clear()
        serving = asyncio.create_task(server_of(application, certificate, port).serve())
        await application.started.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        await until(lambda: application.seen == ["ended"])
        assert can_bind(port)

    run(main())


def test_what_the_servers_own_loop_raises_stops_it_too(run, certificate):
    """`callback_notify` is a program's."""

    async def main():
        application, port = Application(), free_port()
        server = server_of(application, certificate, port)

        async def fails():
            raise LookupError("a program's fault")

        server.config.callback_notify = fails
        with pytest.raises(LookupError, match="a program's fault"):
            await server.serve()
        assert application.seen == ["lifespan.shutdown", "ended"]
        assert can_bind(port)

    run(main())


# Lifespan ------------------------------------------------------------------------------------------

FAILING = """
import asyncio

async def app(scope, receive, send):
    assert scope["type"] == "lifespan"
    await receive()
    await send({"type": "lifespan.startup.complete"})
    if WHEN == "shutdown":
        await receive()
    else:
        await asyncio.sleep(0.1)  # start-up is complete by then
    raise LookupError("the pool is gone")
"""


@pytest.mark.parametrize("when", ["shutdown", "service"])
@pytest.mark.parametrize("lifespan", ["auto", "on"])
def test_errors_of_the_applications_shutdown_are_shown(start, tmp_path, when, lifespan):
    (tmp_path / "failing.py").write_text(f"WHEN = {when!r}\n{FAILING}")
    arguments = ["--app-dir", str(tmp_path), "--lifespan", lifespan]
    server = start(*arguments, app="failing:app")
    server.stop()
    said = server.log()
    assert said.count("Exception in 'lifespan' protocol") == 1
    assert said.count("LookupError: the pool is gone") == 1
    assert ("Application shutdown failed" in said) == (when == "shutdown")
    assert "appears unsupported" not in said


# Impatience ----------------------------------------------------------------------------------------

SLOW = """
import asyncio, time

async def app(scope, receive, send):
    await receive()
    if PHASE == "stop":
        await send({"type": "lifespan.startup.complete"})
        await receive()
    print("SLOW", flush=True)
    while BLOCKS:
        time.sleep(0.05)
    await asyncio.Event().wait()
"""


@pytest.mark.parametrize(("phase", "blocks"), [("start", False), ("start", True), ("stop", False)])
def test_a_second_sigint_ends_a_slow_start_and_a_slow_stop(
    certificate, tmp_path, backend, phase, blocks
):
    (tmp_path / "slow.py").write_text(f"PHASE, BLOCKS = {phase!r}, {blocks}\n{SLOW}")
    path = tmp_path / "log"
    words = [sys.executable, "-m", "uringcore", "slow:app", "--app-dir", str(tmp_path)]
    words += ["--port", "0", "--backend", backend]
    words += ["--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1]]
    with path.open("wb") as log:
        process = subprocess.Popen(
            bound(words), cwd=ROOT, env=environment(), stdout=log, stderr=subprocess.STDOUT
        )
    try:

        async def main():
            first = "SLOW" if phase == "start" else "HTTP/3 running"
            await until(lambda: first in path.read_text())
            process.send_signal(signal.SIGINT)
            await until(lambda: "SLOW" in path.read_text())
            # Two at a time would be one. A third is for a process that has not come to the first yet.
            for _ in range(2):
                await asyncio.sleep(0.5)
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return await asyncio.to_thread(process.wait, 15)
            raise AssertionError(f"does not end: {path.read_text()}")

        asyncio.run(asyncio.wait_for(main(), 60))
        said = path.read_text()
        assert process.returncode == (3 if phase == "start" else 0), said
        assert "Traceback" not in said
        if phase == "start":
            assert "Interrupted before start-up was complete" in said
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("how", ["time limit", "second SIGINT"])
def test_one_traceback_a_stop(start, how):
    arguments = ["--timeout-graceful-shutdown", "1"] if how == "time limit" else []
    server = start(*arguments)

    async def ask():
        reader, writer = await asyncio.open_connection("localhost", server.port, ssl=trust(server))
        writer.write(b"GET /sleep/600 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await reader.readuntil(b"first ")
        return writer

    async def main():
        async with server.connect() as client:
            asking = asyncio.create_task(client.get("/sleep/600"))
            writers = [await ask() for _ in range(3)]
            await asyncio.to_thread(server.wait_log, "/sleep/600 HTTP/3")
            server.send_signal(signal.SIGINT)
            await asyncio.to_thread(server.wait_log, "Waiting for connections to close")
            if how == "second SIGINT":
                server.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(server.wait_stopped) == 0
            for writer in writers:
                writer.close()
            await asyncio.gather(asking, return_exceptions=True)

    uringcore.run(main())
    said = server.log()
    assert said.count("Traceback") == 1, said
    assert "2 more requests were cancelled" in said


def trust(server):
    return ssl.create_default_context(cafile=server.certificate)


def test_other_exceptions_of_a_stop_are_all_shown():
    """Only cancellations are alike."""
    from uringcore.server.cancellations import one_traceback

    logger = logging.getLogger("uvicorn.error")
    shown = []
    handler = logging.Handler()
    handler.emit = shown.append
    logger.addHandler(handler)
    try:
        with one_traceback():
            for error in [asyncio.CancelledError(), ValueError(), asyncio.CancelledError()]:
                logger.error("one", exc_info=error)
        logger.error("after", exc_info=asyncio.CancelledError())
    finally:
        logger.removeHandler(handler)
    kinds = [record.exc_info and type(record.exc_info[1]).__name__ for record in shown]
    assert kinds == ["CancelledError", "ValueError", None, "CancelledError"]
    assert shown[2].getMessage() == "1 more requests were cancelled"
