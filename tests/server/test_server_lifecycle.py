"""The server's life cycle: start, both protocols on one port, lifespan, stop."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time

import pytest
from websockets.asyncio.client import connect as websocket_connect

import uringcore
from examples.aioquic_peer import connect_peer
from tests.server.conftest import backends, starting
from tests.server.harness import PATIENT, ROOT, ForkedServer, environment
from tests.support.child_processes import bound
from uringcore.http3 import RequestFailedError, RequestResetError
from uringcore.quic._errors import QuicConnectionError
from uringcore.server._client_liveness_at_shutdown import LINGER_MAX_SECONDS

start = starting(ForkedServer)


def test_http1_announces_http3(server):
    with server.http1() as connection:
        connection.request("GET", "/")
        response = connection.getresponse()
        assert response.read() == b"hello"
        assert response.version == 11
        assert f'h3=":{server.port}"' in response.getheader("alt-svc")
        assert response.getheader("server") == "uringcore"
    assert server.get("/").header("alt-svc") is None


def test_http1_streams_both_ways(server):
    with server.http1() as connection:
        connection.request("POST", "/echo", body=iter([b"abc" * 50000] * 20))
        assert connection.getresponse().read() == b"abc" * 1000000


def test_websocket(server):
    trust = ssl.create_default_context(cafile=server.certificate)

    # The threaded client does not work here: it reads and writes one SSLSocket concurrently, which hangs or
    # crashes CPython without the lock of gh-134698.
    async def talk():
        async with websocket_connect(f"wss://localhost:{server.port}/ws", ssl=trust) as connection:
            for message in ("one", "two", "x" * 100000):
                await connection.send(message)
                assert await asyncio.wait_for(connection.recv(), 10) == message

    asyncio.run(talk())


@pytest.mark.parametrize("http", ["native", "h11"])
def test_tls_offers_the_versions_that_are_served(start, http):
    server = start("--http", http)
    trust = ssl.create_default_context(cafile=server.certificate)
    trust.set_alpn_protocols(["h2", "http/1.1"])
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        with trust.wrap_socket(sock, server_hostname="localhost") as secure:
            chosen = "h2" if http == "native" else "http/1.1"
            assert secure.selected_alpn_protocol() == chosen


def test_access_log_of_both_protocols(server):
    server.get("/scope/logged?x=1")
    with server.http1() as connection:
        connection.request("GET", "/scope/logged?x=1")
        connection.getresponse().read()
    server.wait_log(r'127\.0\.0\.1:\d+ - "GET /scope/logged\?x=1 HTTP/3" 200')
    server.wait_log(r'127\.0\.0\.1:\d+ - "GET /scope/logged\?x=1 HTTP/1.1" 200')


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_stops_on_signal(start, backend, sig):
    server = start(backend=backend)
    assert server.get("/").status == 200
    assert server.stop(sig) == 0
    log = server.log()
    assert log.count("LIFESPAN lifespan.startup") == 1
    assert log.count("LIFESPAN lifespan.shutdown") == 1
    assert "Traceback" not in log


@pytest.mark.parametrize("backend", backends())
def test_open_request_is_finished_before_the_stop(start, backend):
    server = start(backend=backend)

    async def main():
        async with server.connect() as client:
            async with client.stream("GET", "/sleep/1.5") as response:
                server.send_signal()
                return await response.read()

    assert uringcore.run(main()) == b"first last"
    assert server.wait_stopped() == 0
    assert "LIFESPAN lifespan.shutdown" in server.log()


def test_an_open_request_over_http2_is_finished_before_the_stop(start, backend):
    """uvicorn serves HTTP/2 with zttp."""
    pytest.importorskip("zttp")
    server = start("--http", "zttp", "--http2", backend=backend)
    curl = ["curl", "--silent", "--show-error", "--no-buffer", "--http2", "--write-out"]
    curl += [" over HTTP/%{http_version}", "--cacert", server.certificate]
    asking = subprocess.Popen([*curl, f"{server.url}/sleep/1"], stdout=subprocess.PIPE)
    assert asking.stdout.read(6) == b"first "
    assert server.stop() == 0
    assert asking.communicate(timeout=60)[0] == b"last over HTTP/2"
    server.wait_log('"GET /sleep/1 HTTP/2" 200')


@pytest.mark.parametrize("content", [None, "content"])
def test_content_over_http2(start, content):
    """A GET without content counts too: zttp reports its end together with its head."""
    pytest.importorskip("zttp")
    server = start("--http", "zttp", "--http2")
    curl = ["curl", "--silent", "--show-error", "--http2", "--max-time", "20", "--write-out"]
    curl += [" %{http_version}", "--cacert", server.certificate, f"{server.url}/upload"]
    if content is not None:
        curl += ["--data-binary", content]
    done = subprocess.run(curl, capture_output=True, text=True, timeout=60, check=True)
    said, version = done.stdout.rsplit(" ", 1)
    assert version == "2"
    assert json.loads(said)["bytes"] == len(content or "")


def test_queued_response_is_delivered_before_the_stop(start):
    """The application has finished the response, but the data is still being sent."""
    server = start()
    size = 900_000

    async def main():
        async with server.connect() as client:
            async with client.stream("GET", f"/flood/{size}") as response:
                server.send_signal()
                return len(await response.read())

    assert uringcore.run(main()) == size
    assert server.wait_stopped() == 0


def test_no_new_requests_while_stopping(start):
    server = start(program=PATIENT.format(backend=None))

    async def main():
        over = asyncio.Event()

        async def content():
            yield b"first "
            await over.wait()
            yield b"last"

        async with server.connect() as client:
            async with client.stream("POST", "/echo", content=content()) as response:
                server.send_signal()
                # Requests are served until the client has received the GOAWAY.
                with pytest.raises(RequestFailedError, match="going away"):
                    while True:
                        assert (await client.get("/")).content == b"hello"
                over.set()
                assert await response.read() == b"first last"

    uringcore.run(asyncio.wait_for(main(), 60))
    assert server.wait_stopped() == 0


def test_request_after_goaway_is_rejected_unprocessed(start):
    """aioquic's client ignores GOAWAY."""
    server = start(program=PATIENT.format(backend=None))

    async def main():
        async with connect_peer(server.url, cafile=server.certificate) as peer:
            stream_id, slow = peer.open("POST", "/echo")
            peer.http.send_data(stream_id, b"first ", end_stream=False)
            peer.transmit()
            while not slow.body:
                await asyncio.sleep(0.01)
            server.send_signal()
            # Requests that cross the first GOAWAY are served.
            with pytest.raises(ConnectionError, match="0x10b"):  # H3_REQUEST_REJECTED
                while True:
                    assert bytes((await peer.fetch("GET", "/")).body) == b"hello"
            peer.http.send_data(stream_id, b"last", end_stream=True)
            peer.transmit()
            await slow.done.wait()
            assert slow.error is None
            assert bytes(slow.body) == b"first last"

    asyncio.run(asyncio.wait_for(main(), 60))
    assert server.wait_stopped() == 0


def test_stop_has_a_time_limit(start):
    server = start("--timeout-graceful-shutdown", "1")

    async def main():
        async with server.connect() as client:
            async with client.stream("GET", "/sleep/600") as response:
                server.send_signal()
                with pytest.raises((RequestResetError, QuicConnectionError)):
                    await asyncio.wait_for(response.read(), 60)

    uringcore.run(main())
    assert server.wait_stopped() == 0
    assert "LIFESPAN lifespan.shutdown" in server.log()


def test_idle_connection_does_not_delay_the_stop(start):
    server = start()

    async def main():
        async with server.connect() as client:
            assert (await client.get("/")).status == 200
            started = time.monotonic()
            server.send_signal()
            await asyncio.get_running_loop().run_in_executor(None, server.process.wait, 20)
            return time.monotonic() - started

    # The stop waits neither for the time that a last response may take nor for the idle time-out.
    assert uringcore.run(main()) < LINGER_MAX_SECONDS
    assert server.wait_stopped() == 0


def test_slow_application_keeps_the_connection(start):
    """No idle time-out occurs while a request is in progress."""
    server = start("--http3-idle-timeout", "3")
    assert server.get("/sleep/8").content == b"first last"


def test_request_limit_per_connection(start):
    server = start("--http3-max-requests", "4")

    async def main():
        async with server.connect() as client:
            responses = await asyncio.gather(*(client.get("/sleep/0.05") for _ in range(40)))
            return {response.content for response in responses}

    assert uringcore.run(main()) == {b"first last"}


def test_concurrency_limit_is_503(start):
    server = start("--limit-concurrency", "3")

    async def main():
        async with server.connect() as client:
            responses = await asyncio.gather(*(client.get("/sleep/0.5") for _ in range(10)))
            return {response.status for response in responses}

    assert uringcore.run(main()) == {200, 503}


def test_without_http3(start):
    server = start("--no-http3", http3=False)
    with server.http1() as connection:
        connection.request("GET", "/")
        response = connection.getresponse()
        assert response.read() == b"hello"
        assert response.getheader("alt-svc") is None
    assert "HTTP/3" not in server.log()
    assert server.stop() == 0


def test_without_certificate_serves_plain_http1_and_logs_it(start):
    server = start(certificate=(None, None), http3=False)
    assert "HTTP/3 is off: it needs a certificate" in server.log()
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=10) as response:
        assert response.read() == b"hello"


def test_run_from_a_program(start):
    """Calls `uringcore.server.run` with an application object, as uvicorn.run accepts it."""
    server = start(
        program="import sys\n"
        "from tests.server.application import app\n"
        "from uringcore.server import run\n"
        "run(app, port=0, ssl_certfile=sys.argv[1], ssl_keyfile=sys.argv[2])\n"
        "print('returned', flush=True)\n"
    )
    assert server.get("/").content == b"hello"
    assert server.stop() == 0
    assert server.log().endswith("returned\n")


SLOW_LOG = """
import logging, os, pathlib, time

class Slow(logging.Handler):
    def emit(self, record):
        pathlib.Path(os.environ["MARK"]).touch()
        while True:  # One long sleep would not see a signal that comes on the way into it.
            time.sleep(0.05)
"""


def test_a_stop_before_the_start_leaves_no_certificate_behind(tmp_path):
    """The stop arrives after the certificate was made and before the loop runs; a slow log handler makes that
    time long.
    """
    (tmp_path / "slow_log.py").write_text(SLOW_LOG)
    handlers = {"slow": {"class": "slow_log.Slow"}}
    loggers = {"uvicorn.error": {"handlers": ["slow"], "level": "INFO"}}
    log = tmp_path / "log.json"
    log.write_text(json.dumps({"version": 1, "handlers": handlers, "loggers": loggers}))
    (made := tmp_path / "made").mkdir()
    mark = tmp_path / "mark"
    environ = environment() | {
        "TMPDIR": str(made),
        "MARK": str(mark),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }
    arguments = ["tests.server.application:app", "--dev-cert", "--port", "0", "--log-config", log]
    process = subprocess.Popen(
        bound([sys.executable, "-m", "uringcore", *arguments]), cwd=ROOT, env=environ
    )
    try:
        deadline = time.monotonic() + 60
        while not mark.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert list(made.glob("uringcore-dev-cert-*"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert list(made.iterdir()) == []


ASKED_AGAIN = """
import os, signal, sys
from uringcore.server import Config

def cleanup(self, do=Config.cleanup):
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
    do(self)
    print("all is gone", flush=True)

Config.cleanup = cleanup

if __name__ == "__main__":
    from uringcore.server import run
    certfile, keyfile = sys.argv[1:]
    app = "tests.server.application:app"
    run(app, port=0, workers=WORKERS, ssl_certfile=certfile, ssl_keyfile=keyfile)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_signal_during_the_clean_up_changes_nothing(start, workers):
    server = start(program=ASKED_AGAIN.replace("WORKERS", str(workers)))
    assert server.stop() == 0
    assert server.log().endswith("all is gone\n")
