"""``gunicorn -k uringcore.contrib.gunicorn.Worker``: gunicorn's processes, with uringcore's server in
each.
"""

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

import uringcore
from tests.server.harness import ROOT, Server, environment
from tests.server.test_server_processes import gone, session_folders
from tests.server.worker_application import ask, ask_once, eventually, processes
from uringcore.devcert import DevelopmentCertificate
from uringcore.http3 import HTTP3Error

pytest.importorskip("gunicorn")

from gunicorn.arbiter import Arbiter
from gunicorn.config import Config
from gunicorn.errors import HaltServer
from gunicorn.glogging import Logger

from tests.support.child_processes import bound
from tests.support.free_ports import free_port
from tests.support.reset_oracle import asked_for, victim
from uringcore.contrib.gunicorn import Worker
from uringcore.quic._available_memory import default_memory


class Gunicorn(Server):
    def __init__(self, folder, certificate, *arguments, app="tests.server.worker_application:app"):
        self.certificate, key = certificate
        self._log = folder / "server.log"
        self.port = free_port()
        self.url = f"https://localhost:{self.port}"
        command = [sys.executable, "-m", "gunicorn", "-k", "uringcore.contrib.gunicorn.Worker"]
        command += ["--bind", f"127.0.0.1:{self.port}", *arguments]
        if key is not None:
            command += ["--certfile", self.certificate, "--keyfile", key]
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                bound([*command, app]),
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(),
            )


@pytest.fixture
def gunicorn(tmp_path, certificate):
    started = []

    def start(*arguments, certificate=certificate, **options):
        started.append(Gunicorn(tmp_path, certificate, *arguments, **options))
        return started[-1]

    yield start
    for running in started:
        running.stop()
        running.check_log()


def test_workers_serve_both_protocols(gunicorn):
    server = gunicorn("--workers", "2")
    server.wait_log("(?s)(HTTP/3 running.*){2}")
    found = uringcore.run(processes(server, 2))
    with server.http1() as connection:
        connection.request("GET", "/")
        response = connection.getresponse()
        assert response.getheader("alt-svc") == f'h3=":{server.port}"; ma=86400'
        assert str(next(iter(found))).encode() in response.read() or response.status == 200
    assert server.stop() == 0


def test_a_dead_worker_is_replaced_and_others_keep_their_connections(gunicorn):
    server = gunicorn("--workers", "2")
    server.wait_log("(?s)(HTTP/3 running.*){2}")

    async def main():
        before = await processes(server, 2)
        async with ask(server) as client:
            kept, _ = await client.get("/")
            (killed,) = before - {kept}
            os.kill(killed, signal.SIGKILL)

            async def another():
                return (await ask_once(server))[0] not in before

            await eventually(another, "a new worker answers")
            assert (await client.get("/"))[0] == kept

    uringcore.run(main())
    assert server.stop() == 0


def test_no_address_has_the_resets_of_another_ones_connections(gunicorn):
    """RFC 9000 section 21.11: both servers get their keys from one arbiter."""
    addresses = {"127.0.0.1": socket.AF_INET, "127.0.0.2": socket.AF_INET}
    server = gunicorn("--workers", "2", "--bind", f"127.0.0.2:{free_port()}")
    server.wait_log("(?s)(HTTP/3 running.*){2}")
    other = int(re.search(r"https://127\.0\.0\.2:(\d+)", server.log()).group(1))
    ports = {"127.0.0.1": server.port, "127.0.0.2": other}

    async def main():
        for host in addresses:
            async with victim(host, ports[host], "h3") as alive:
                tokens = alive.tokens()
                for asked, family in addresses.items():
                    place = (asked, ports[asked])
                    answered = await asyncio.to_thread(asked_for, tokens, place, family)
                    assert answered == (0 if asked == host else len(tokens))
                await alive.protocol.ping()

    asyncio.run(main())
    assert server.stop() == 0


def test_reload_replaces_workers_and_waits_for_requests(gunicorn):
    server = gunicorn("--workers", "2")
    server.wait_log("(?s)(HTTP/3 running.*){2}")

    async def main():
        before = await processes(server, 2)
        async with ask(server) as client:
            slow = asyncio.ensure_future(client.get("/sleep/2"))
            kept, _ = await client.get("/")
            server.send_signal(signal.SIGHUP)
            assert (await slow)[0] == kept
        for pid in before:
            await gone(pid)
        assert not before & await processes(server, 2)

    uringcore.run(main())
    assert server.stop() == 0


def test_workers_end_when_the_arbiter_is_killed(gunicorn):
    server = gunicorn("--workers", "2", "--timeout", "2")
    server.wait_log("(?s)(HTTP/3 running.*){2}")

    async def main():
        found = await processes(server, 2)
        (folder,) = {folder for pid in found for folder in session_folders(pid)}
        server.kill()
        for pid in found:
            await gone(pid)
        assert not os.path.exists(folder)

    uringcore.run(main())


def of_a_worker(monkeypatch, tmp_path, workers, **options):
    """Returns the configuration of a worker that an arbiter creates."""
    cfg = Config()
    cfg.set("workers", workers)
    certificate, key = DevelopmentCertificate.make().write(tmp_path)
    cfg.set("certfile", certificate)
    cfg.set("keyfile", key)
    monkeypatch.setattr(Worker, "CONFIG_KWARGS", options)
    monkeypatch.setattr(Worker, "_take_places", lambda self: None)
    for name in ("error", "access"):
        log = logging.getLogger(f"uvicorn.{name}")
        for attribute in ("handlers", "level", "propagate"):
            monkeypatch.setattr(log, attribute, getattr(log, attribute))
    return Worker(0, os.getppid(), [], None, 30, cfg, Logger(cfg))._config


def test_workers_divide_the_budget(monkeypatch, tmp_path):
    # Gunicorn also uses this variable as the default of its --workers.
    monkeypatch.setenv("WEB_CONCURRENCY", "8")
    for options, whole in (({}, default_memory()), ({"http3_memory": 64 << 20}, 64 << 20)):
        config = of_a_worker(monkeypatch, tmp_path, 4, metrics_path="/metrics", **options)
        assert config.quic_limits.memory == whole // 4
        # A report folder of each worker's own would be useless.
        assert config.reports_folder is None


def test_a_budget_that_is_too_small_for_its_workers_is_a_mistake(monkeypatch, tmp_path):
    with pytest.raises(HaltServer, match="--http3-memory: leaves 2097152 bytes for each of 4"):
        of_a_worker(monkeypatch, tmp_path, 4, http3_memory=8 << 20)


def test_a_number_that_another_process_has_by_now_is_no_worker(monkeypatch):
    """Its index is free even if another process has that process id now."""
    worker = object.__new__(Worker)
    worker.pid = "[booting]"
    assert not worker.has_ended()
    worker.pid = os.getpid()
    monkeypatch.setattr(Arbiter, "WORKERS", {worker.pid: worker})
    assert not worker.has_ended()
    monkeypatch.setattr(Arbiter, "WORKERS", {})
    assert worker.has_ended()


def test_without_a_certificate_it_serves_http1(gunicorn):
    server = gunicorn(certificate=(None, None))
    server.wait_log("Application startup complete")
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=20) as response:
        assert response.status == 200
    assert server.stop() == 0


def test_a_busy_udp_port_turns_http3_off_and_is_named(gunicorn):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        port = free_port()
        taken.bind(("127.0.0.1", port))
        server = gunicorn("--bind", f"127.0.0.1:{port}")
        server.wait_log("Application startup complete")
        assert f"HTTP/3 is off: cannot listen on UDP 127.0.0.1:{port} for HTTP/3" in server.log()
        server.port = port
        with server.http1() as connection:
            connection.request("GET", "/")
            response = connection.getresponse()
            assert response.read()
            assert response.getheader("alt-svc") is None
        assert server.stop() == 0


def test_a_key_of_another_certificate_is_one_line(gunicorn, certificate, tmp_path):
    _, other = DevelopmentCertificate.make().write(tmp_path)
    server = gunicorn(certificate=(certificate[0], other))
    assert server.wait_stopped(60) == 3
    assert f"{other} is not the key of {certificate[0]}" in server.log()
    assert "Traceback" not in server.log()


SAYS = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": SAID})
"""


def test_a_file_that_changes_is_loaded(gunicorn, tmp_path):
    path = tmp_path / "says.py"
    written = 0

    def write(text):
        nonlocal written
        path.write_text(text)
        # The new time differs at any resolution of the clock.
        written += 10
        os.utime(path, (written + 10**9, written + 10**9))

    write(f"SAID = b'one'\n{SAYS}")
    arguments = ["--reload", "--reload-engine", "poll", "--pythonpath", str(tmp_path)]
    server = gunicorn(*arguments, "--workers", "2", app="says:app")
    server.wait_log("(?s)(HTTP/3 running.*){2}")

    async def answers(wanted):
        async def answer():
            with contextlib.suppress(OSError, HTTP3Error):
                async with server.connect() as client:
                    return (await client.get("/")).content == wanted
            return False

        await eventually(answer, f"{wanted} is answered")

    async def main():
        await answers(b"one")
        write(f"SAID = b'two'\n{SAYS}")
        await answers(b"two")
        # A file that cannot be loaded waits for the next change.
        write("SAID = (")
        await asyncio.to_thread(server.wait_log, "SyntaxError")
        write(f"SAID = b'three'\n{SAYS}")
        await answers(b"three")

    uringcore.run(main())
    assert server.stop() == 0
