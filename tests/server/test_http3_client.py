"""The HTTP/3 client against a server that has nothing of ours in it: aioquic's HTTP/3 layer."""

import asyncio
import hashlib
import threading
from importlib.metadata import version

import pytest
from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated

import uringcore
from tests.loop.support import rounds
from tests.server.conftest import backends
from uringcore.http3 import RequestResetError, URLError
from uringcore.http3._origin_connection import connect
from uringcore.quic._errors import (
    QuicAlpnError,
    QuicCertificateError,
    QuicConnectionError,
    QuicConnectionRefusedError,
    QuicTlsError,
)

AIOQUIC = tuple(int(part) for part in version("aioquic").split(".")[:2])
# CPython 3.10 gets an aioquic that takes the second header section for trailers.
INTERIM_RESPONSES = AIOQUIC >= (1, 7)

BODY = hashlib.shake_128(b"body").digest(1 << 20)


class Answers(QuicConnectionProtocol):
    """Echoes bodies; a few paths behave badly."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = None
        self.paths = {}

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
        if self.http is None:
            return
        for http_event in self.http.handle_event(event):
            self.http_event_received(http_event)
        self.transmit()

    def http_event_received(self, event):
        stream_id = getattr(event, "stream_id", None)
        if isinstance(event, HeadersReceived):
            path = dict(event.headers)[b":path"]
            self.paths[stream_id] = path
            if path == b"/reset":
                self._quic.reset_stream(stream_id, 0x102)
                return
            if path == b"/close":
                self.close(error_code=0x101, reason_phrase="enough")
                return
            if INTERIM_RESPONSES:
                self.http.send_headers(stream_id, [(b":status", b"103"), (b"link", b"</x>")])
            self.http.send_headers(
                stream_id,
                [(b":status", b"200"), (b"x-path", path)],
                end_stream=event.stream_ended and path == b"/empty",
            )
            if path == b"/body":
                self.http.send_data(stream_id, BODY, False)
                self.http.send_headers(stream_id, [(b"x-trailer", b"yes")], end_stream=True)
        elif isinstance(event, DataReceived) and self.paths.get(stream_id) == b"/echo":
            self.http.send_data(stream_id, event.data, event.stream_ended)


class Peer:
    """The server on a loop of its own, in a thread."""

    def __init__(self, certificate, alpn="h3"):
        self.certificate, key = certificate
        self._configuration = QuicConfiguration(is_client=False, alpn_protocols=[alpn])
        self._configuration.load_cert_chain(self.certificate, key)
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(10)

    def _run(self, started):
        async def start():
            self._server = await serve(
                "127.0.0.1", 0, configuration=self._configuration, create_protocol=Answers
            )
            self.port = self._server._transport.get_extra_info("sockname")[1]
            started.set()

        self._loop.run_until_complete(start())
        self._loop.run_forever()
        self._server.close()
        self._loop.run_until_complete(rounds())
        self._loop.close()

    def stop(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @property
    def url(self):
        return f"https://localhost:{self.port}"


@pytest.fixture(scope="module")
def peer(certificate):
    running = Peer(certificate)
    yield running
    running.stop()


@pytest.fixture(params=backends())
def run(request):
    return lambda main: uringcore.run(asyncio.wait_for(main, 30), backend=request.param)


def test_requests(peer, run):
    async def main():
        async with connect(peer.url, cafile=peer.certificate) as client:
            empty = await client.get("/empty")
            assert (empty.status, empty.content) == (200, b"")
            assert empty.header("x-path") == "/empty"
            body = await client.get("/body")
            assert body.content == BODY
            assert body.trailers == [(b"x-trailer", b"yes")]
            echo = await client.request("POST", "/echo", content=BODY)
            assert echo.content == BODY
            many = await asyncio.gather(
                *(client.request("POST", "/echo", content=b"%d" % n * 1000) for n in range(20))
            )
            assert [answer.content for answer in many] == [b"%d" % n * 1000 for n in range(20)]

    run(main())


def test_reset(peer, run):
    async def main():
        async with connect(peer.url, cafile=peer.certificate) as client:
            with pytest.raises(RequestResetError, match="H3_INTERNAL_ERROR") as raised:
                await client.get("/reset")
            assert raised.value.error_code == 0x102
            assert (await client.get("/empty")).status == 200

    run(main())


def test_connection_closed_by_the_server(peer, run):
    async def main():
        async with connect(peer.url, cafile=peer.certificate) as client:
            with pytest.raises(QuicConnectionError, match="enough"):
                await client.get("/close")
            with pytest.raises(QuicConnectionError, match="enough"):
                await client.get("/empty")

    run(main())


def test_certificate_not_trusted(peer, run):
    async def main():
        async with connect(peer.url):
            raise AssertionError("must not connect")

    with pytest.raises(QuicCertificateError):
        run(main())


def test_verification_switched_off(peer, run):
    async def main():
        async with connect(peer.url, verify=False) as client:
            return (await client.get("/empty")).status

    assert run(main()) == 200


def test_no_common_protocol(certificate, run):
    other = Peer(certificate, alpn="hq-interop")

    async def main():
        async with connect(other.url, cafile=other.certificate):
            raise AssertionError("must not connect")

    try:
        # Older versions of aioquic send the alert handshake_failure, which could mean anything.
        with pytest.raises(QuicAlpnError if AIOQUIC >= (1, 7) else QuicTlsError):
            run(main())
    finally:
        other.stop()


def test_nobody_listens(run):
    async def main():
        async with connect("https://127.0.0.1:9/"):
            raise AssertionError("must not connect")

    with pytest.raises(QuicConnectionRefusedError):
        run(main())


def test_url_of_another_origin(peer, run):
    async def main():
        async with connect(peer.url, cafile=peer.certificate) as client:
            with pytest.raises(URLError, match="is not on localhost"):
                await client.get("https://example.org/")
            assert (await client.get(peer.url + "/empty")).status == 200

    run(main())
