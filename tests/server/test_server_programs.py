"""Programs around the server: replaced parts of uvicorn, logging set-ups, and ways to end the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import ssl
import subprocess
import sys

import pytest

import uringcore
from tests.server.harness import APPLICATION, ROOT, STARTED, environment, until
from tests.support.child_processes import bound
from tests.support.free_ports import free_port
from uringcore.http3._unpooled_connection import connect as connect_origin
from uringcore.server import Config
from uringcore.server._startup_errors import StartupError

ENDLESS = "tests.server.endless_application:app"


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
    """The server's sockets do not get their descriptor numbers, and the log is dropped."""
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
                    async with connect_origin(
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


def test_a_closed_standard_output_logs_one_line(certificate, tmp_path):
    """With `uringcore app:app | head` the log has one line, not a traceback for every request."""
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
            async with connect_origin(url, cafile=certificate[0]) as client:
                for _ in range(5):
                    assert (await client.get("/")).content == b"hello"

        uringcore.run(asyncio.wait_for(main(), 60))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    said = path.read_text()
    assert said.count("The reader of <stdout> has closed it") == 1, said
    assert "Traceback" not in said


# handle_exit ---------------------------------------------------------------------------------------


async def read_endless(server, begun):
    """Returns the content of an endless response that the stop has ended."""
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


# Impatient operators ---------------------------------------------------------------------------------

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
            # Two pending signals merge into one. A third one reaches a process that had not handled the first
            # yet.
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
    # A second SIGINT ends native connections before their applications, which are not logged then.
    limit = ["--timeout-graceful-shutdown", "1"]
    server = start(*(limit if how == "time limit" else ["--http", "h11"]))

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
    assert "3 more requests were cancelled" in said or "2 more requests were cancelled" in said


def trust(server):
    return ssl.create_default_context(cafile=server.certificate)


def test_other_exceptions_of_a_stop_are_all_shown():
    """Only cancellations are merged."""
    from uringcore.server._cancellation_log import log_one_cancellation

    logger = logging.getLogger("uvicorn.error")
    shown = []
    handler = logging.Handler()
    handler.emit = shown.append
    logger.addHandler(handler)
    try:
        with log_one_cancellation():
            for error in [asyncio.CancelledError(), ValueError(), asyncio.CancelledError()]:
                logger.error("one", exc_info=error)
        logger.error("after", exc_info=asyncio.CancelledError())
    finally:
        logger.removeHandler(handler)
    kinds = [record.exc_info and type(record.exc_info[1]).__name__ for record in shown]
    assert kinds == ["CancelledError", "ValueError", None, "CancelledError"]
    assert shown[2].getMessage() == "1 more requests were cancelled"
