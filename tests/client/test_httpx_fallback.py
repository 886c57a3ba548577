"""An alternative that is missing or invalid: TCP responds instead, and soon."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import threading

import httpx
import pytest

from tests.client.scripted_server import Peer, until
from tests.client.test_httpx import TIMEOUT
from tests.support.free_ports import free_port
from uringcore.contrib.httpx import AsyncHTTP3Transport
from uringcore.devcert import DevelopmentCertificate
from uringcore.http3._url import parse_url

pytestmark = pytest.mark.either_backend


class Site:
    """HTTP/1.1 over TLS that advertises HTTP/3, truthfully or not."""

    def __init__(self, certificate):
        self.certificate, key = certificate
        self.alt_svc = None
        self.requests = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                content = self.rfile.read(int(self.headers.get("content-length", 0)))
                site.requests.append((self.command, self.path, content))
                self.send_response(200)
                if site.alt_svc is not None:
                    self.send_header("Alt-Svc", site.alt_svc)
                self.send_header("Content-Length", "3")
                self.end_headers()
                self.wfile.write(b"tcp")

            do_GET = do_POST = answer

            def log_message(self, *arguments):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.url = f"https://localhost:{self.port}/"
        self.origin = parse_url(self.url)[0]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()

    def client(self, **options):
        transport = AsyncHTTP3Transport(verify=self.certificate, **options)
        return httpx.AsyncClient(transport=transport, timeout=TIMEOUT)


@pytest.fixture
def site(certificate):
    running = Site(certificate)
    yield running
    running.stop()


@contextlib.contextmanager
def udp_port(*, silent):
    """Returns a port whose socket never sends, or that has no socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        port = free_port()
        sock.bind(("127.0.0.1", port))
        if not silent:
            sock.close()
        yield port


@pytest.mark.parametrize("silent", [True, False], ids=["dropped", "refused"])
def test_blocked_udp_falls_back_and_is_remembered(site, run, silent):
    async def main():
        with udp_port(silent=silent) as port:
            site.alt_svc = f'h3=":{port}"; ma=60'
            async with site.client() as client:
                assert (await client.get(site.url)).http_version == "HTTP/1.1"

                # HTTP/3 fails first; the attempt does not consume a body that can be read only
                # once.
                async def parts():
                    yield b"only once"

                size = {"content-length": "9"}
                posted = await client.post(site.url, content=parts(), headers=size)
                assert posted.http_version == "HTTP/1.1"
                assert site.requests[-1] == ("POST", "/", b"only once")
                transport = client._transport
                (alternative,) = transport.alternatives.find(site.origin)
                assert transport.alternatives.is_broken(site.origin, alternative)
                # The attempts in progress are dropped, and no other starts.
                for line in list(transport._client._pools.values()):
                    for connection in list(line.connections):
                        connection.close()
                await until(lambda: not transport._client._pools)
                for _ in range(3):
                    assert (await client.get(site.url)).text == "tcp"
                    assert not transport._client._pools

    run(main())


def test_a_slow_alternative_is_used_when_it_is_there(site, peer, run):
    """With no fallback delay the first request goes over TCP, while the connection is still being
    made.
    """

    async def main():
        site.alt_svc = f'h3="localhost:{peer.port}"; ma=60'
        async with site.client(fallback_delay=0.0) as client:
            assert (await client.get(site.url)).text == "tcp"
            assert (await client.get(site.url)).text == "tcp"
            pool = client._transport._client
            await until(
                lambda: any(
                    one.is_established for line in pool._pools.values() for one in line.connections
                )
            )
            answer = await client.get(site.url)
            assert (answer.http_version, answer.text) == ("HTTP/3", "hello")

    run(main())


def test_an_alternative_on_another_host_shows_the_origins_certificate(run, tmp_path):
    certificate = DevelopmentCertificate.make(["localhost"]).write(tmp_path)
    site, peer = Site(certificate), Peer(certificate)

    async def main():
        site.alt_svc = f'h3="127.0.0.1:{peer.port}"; ma=60'
        async with site.client(fallback_delay=30.0) as client:
            await client.get(site.url)
            assert (await client.get(site.url)).http_version == "HTTP/3"

    try:
        run(main())
    finally:
        site.stop()
        peer.stop()


def test_without_verification_another_host_is_no_alternative(site, peer, run):
    async def main():
        site.alt_svc = f'h3="127.0.0.1:{peer.port}"; ma=60'
        transport = AsyncHTTP3Transport(verify=False)
        async with httpx.AsyncClient(transport=transport, timeout=TIMEOUT) as client:
            for _ in range(3):
                assert (await client.get(site.url)).http_version == "HTTP/1.1"
            assert peer.connections == []

    run(main())


def test_a_misdirected_request_is_sent_to_the_origin(site, peer, run):
    async def main():
        site.alt_svc = f'h3="localhost:{peer.port}"; ma=60'
        async with site.client(fallback_delay=30.0) as client:
            await client.get(site.url)
            site.alt_svc = None
            answer = await client.get(site.url + "misdirected")
            assert (answer.http_version, answer.text) == ("HTTP/1.1", "tcp")
            assert peer.paths == [(0, "/misdirected")]
            assert (await client.get(site.url)).http_version == "HTTP/1.1"

    run(main())


def test_a_misdirected_request_that_is_not_repeatable(site, peer, run):
    """The request fails, and the next one does not go to the server that is not authoritative."""

    async def parts():
        yield b"once"

    async def main():
        site.alt_svc = f'h3="localhost:{peer.port}"; ma=60'
        async with site.client(fallback_delay=30.0) as client:
            await client.get(site.url)
            answer = await client.post(site.url + "misdirected", content=parts())
            assert answer.status_code == 421
            assert (await client.get(site.url)).http_version == "HTTP/1.1"

    run(main())


def test_an_alternative_with_a_wrong_certificate_is_not_used(site, run, tmp_path):
    other = Peer(DevelopmentCertificate.make(["example.org"]).write(tmp_path))

    async def main():
        site.alt_svc = f'h3="localhost:{other.port}"; ma=60'
        async with site.client(fallback_delay=30.0) as client:
            await client.get(site.url)
            assert (await client.get(site.url)).http_version == "HTTP/1.1"

    try:
        run(main())
    finally:
        other.stop()


def test_clear_ends_it(site, peer, run):
    async def main():
        site.alt_svc = f'h3="localhost:{peer.port}"; ma=60'
        async with site.client(fallback_delay=30.0, http3="alt-svc") as client:
            await client.get(site.url)
            assert len(client._transport.alternatives) == 1
            site.alt_svc = "clear"
            async with site.client() as other:
                other._transport.alternatives = client._transport.alternatives
                other._transport.alternatives.broke(
                    site.origin,
                    other._transport.alternatives.find(site.origin)[0],
                )
                await other.get(site.url)
            assert len(client._transport.alternatives) == 0

    run(main())


def test_a_vanished_http3_server_is_replaced_by_tcp(site, peer, run):
    async def main():
        site.alt_svc = f'h3="localhost:{peer.port}"; ma=60'
        async with site.client(fallback_delay=30.0) as client:
            await client.get(site.url)
            # The request is idempotent, so the client may send it twice.
            answer = await client.get(site.url + "closed-once")
            assert (answer.http_version, answer.text) == ("HTTP/1.1", "tcp")
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post(site.url + "data-first", content=b"order")

    run(main())


@pytest.mark.parametrize("silent", [True, False], ids=["dropped", "refused"])
def test_early_data_that_gets_no_answer_costs_no_request(site, certificate, run, silent):
    """HTTP/3 has worked, so the next connection begins with the request itself; then UDP is
    blocked.
    """
    # The port is needed again, and no other process may take it meanwhile.
    peer = Peer(certificate, port=free_port())

    async def main():
        site.alt_svc = f'h3="127.0.0.1:{peer.port}"; ma=60'
        limits = httpx.Limits(keepalive_expiry=0.1)
        async with site.client(limits=limits, fallback_delay=30.0) as client:
            await client.get(site.url)
            assert (await client.get(site.url)).http_version == "HTTP/3"
            transport = client._transport
            await until(lambda: not transport._client._pools)
            peer.stop()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                if silent:
                    other.bind(("127.0.0.1", peer.port))
                assert (await client.get(site.url)).text == "tcp"
                (alternative,) = transport.alternatives.find(site.origin)
                assert transport.alternatives.is_broken(site.origin, alternative)

    run(main())
