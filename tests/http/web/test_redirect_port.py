"""`--redirect-http`: a port without TLS that redirects to HTTPS on hosts of the certificate."""

from __future__ import annotations

import asyncio
import re
import socket

import pytest

import uringcore
from tests.http.http1.client import connected
from tests.server.harness import Server, command, until
from uringcore.devcert import DevelopmentCertificate
from uringcore.server import Config
from uringcore.server import Server as InProcessServer

APPLICATION = "tests.http.web.application:app"
PORT = re.compile(r"Redirecting http://[^ ]*:(\d+)")


class Redirecting:
    """The server's other port, for `connected`."""

    def __init__(self, server):
        self.port = int(server.wait_log(PORT).group(1))


@pytest.fixture(scope="module", params=[(), ("--http", "h11"), ("--workers", "2")])
def server(request, backend, certificate, tmp_path_factory):
    running = Server(
        tmp_path_factory.mktemp("redirect"),
        certificate,
        *("--redirect-http", "0", "--no-http3", *request.param),
        backend=backend,
        app=APPLICATION,
        http3=False,
    )
    yield running
    running.kill()
    running.check_log()


def request(raw, method, target, *fields):
    raw.send("\r\n".join([f"{method} {target} HTTP/1.1", *fields, "", ""]))
    return raw.response(is_head=method == "HEAD")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_each_method_is_redirected_with_its_path_and_query(server, method):
    with connected(Redirecting(server)) as raw:
        fields = ["Host: localhost", "Content-Length: 0"]
        found = request(raw, method, "/a%20b//c?x=%2F&y", *fields)
        assert (found.status, found.body) == (308, b"")
        assert found.get("location") == f"https://localhost:{server.port}/a%20b//c?x=%2F&y"
        # The connection serves further requests.
        assert request(raw, "GET", "/", "Host: LOCALHOST:80").status == 308


def test_the_content_of_a_request_is_not_waited_for(server):
    with connected(Redirecting(server)) as raw:
        raw.send("POST /up HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000\r\n\r\n")
        assert raw.response().status == 308


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "localhost@evil.example",
        "localhost/evil",
        "localhost:99999999",
        "[::1",
        "[::ffff:127.0.0.1%25x]",
        "",
    ],
)
def test_hosts_that_are_not_of_the_certificate_are_not_redirected(server, host):
    with connected(Redirecting(server)) as raw:
        found = request(raw, "GET", "/", f"Host: {host}")
    assert found.status in (400, 421)
    assert found.get("location") is None


def test_an_absolute_target_names_the_host(server):
    with connected(Redirecting(server)) as raw:
        found = request(raw, "GET", "http://evil.example/x", "Host: evil.example")
        assert (found.status, found.get("location")) == (421, None)


def test_a_stop_closes_the_port(start, backend, certificate):
    running = start(
        *("--redirect-http", "0", "--no-http3"),
        backend=backend,
        app=APPLICATION,
        http3=False,
    )
    with connected(Redirecting(running)) as raw:
        assert request(raw, "GET", "/", "Host: localhost").status == 308
        assert running.stop() == 0
        assert raw.is_closed()


def test_the_https_port_may_differ(start, backend):
    running = start(
        *("--redirect-http", "0", "--redirect-https-port", "443", "--no-http3"),
        backend=backend,
        app=APPLICATION,
        http3=False,
    )
    with connected(Redirecting(running)) as raw:
        found = request(raw, "GET", "/x", "Host: localhost:8080")
        assert found.get("location") == "https://localhost/x"


def test_the_https_port_is_that_of_a_socket_that_was_given(certificate):
    async def main():
        given = socket.create_server(("127.0.0.1", 0))
        config = Config(
            "tests.http.web.application:app",
            ssl_certfile=certificate[0],
            ssl_keyfile=certificate[1],
            redirect_http=0,
            http3=False,
            log_config=None,
        )
        server = InProcessServer(config)
        serving = asyncio.create_task(server.serve([given]))
        await until(lambda: server.started)
        port = config.web.redirect_sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"location: https://localhost:%d/x\r\n" % given.getsockname()[1] in head
        writer.close()
        server.should_exit = True
        await serving

    uringcore.run(main())


def test_it_needs_a_certificate():
    ended = command(APPLICATION, "--redirect-http", "0", "--no-http3")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "--redirect-http: needs a certificate" in ended.stderr


def test_hosts_with_a_certificate_of_their_own_are_redirected(start, tmp_path, backend):
    """TLS selects that certificate by the host of the option, so its other names do not count."""
    certfile, keyfile = DevelopmentCertificate.make(["a.example", "b.example"]).write(tmp_path)
    option = f"a.example={certfile}:{keyfile}"
    server = start(
        *("--redirect-http", "0", "--no-http3", "--ssl-sni-certificate", option),
        backend=backend,
        app=APPLICATION,
        http3=False,
    )
    with connected(Redirecting(server)) as raw:
        for host, status in {"A.example.": 308, "b.example": 421, "localhost": 308}.items():
            assert request(raw, "GET", "/", f"Host: {host}").status == status
