"""GOAWAY at the client (RFC 9114 section 5.2), from a server on aioquic's QUIC and HTTP/3 layers."""

import asyncio
import threading
import types

import pytest
from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import H3Connection, encode_frame
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated

import uringcore
from tests.loop.support import rounds
from tests.server.conftest import backends
from uringcore.http3 import RequestNotProcessedError, RequestResetError
from uringcore.http3._origin_connection import connect

GOAWAY = 0x7
REJECTED = 0x10B


class Leaving(QuicConnectionProtocol):
    """Leaves when /goaway is asked, having processed stream 0 only: which a test has answered."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = None
        self.asked = []

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
        if self.http is None:
            return
        for http_event in self.http.handle_event(event):
            if isinstance(http_event, HeadersReceived):
                self.answer(dict(http_event.headers)[b":path"], http_event.stream_id)
        self.transmit()

    def answer(self, path, stream_id):
        self.asked.append(path)
        if path == b"/rejected":
            self._quic.reset_stream(stream_id, REJECTED)
        elif path == b"/goaway":
            frame = encode_frame(GOAWAY, encode_uint_var(4))
            self._quic.send_stream_data(self.http._local_control_stream_id, frame)

    def answer_first(self):
        self.http.send_headers(0, [(b":status", b"200")], end_stream=True)
        self.transmit()


@pytest.fixture
def peer(certificate):
    """A server on stock asyncio, in a thread: its URL, its loop and its connections."""
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
    configuration.load_cert_chain(*certificate)
    loop = asyncio.new_event_loop()
    address = []
    made = []
    started = threading.Event()

    def create(*args, **kwargs):
        made.append(Leaving(*args, **kwargs))
        return made[-1]

    async def start():
        server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=create)
        address.append(server._transport.get_extra_info("sockname")[1])
        started.set()
        return server

    def run():
        server = loop.run_until_complete(start())
        loop.run_forever()
        server.close()
        loop.run_until_complete(rounds())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(10)
    url = f"https://localhost:{address[0]}"
    yield types.SimpleNamespace(url=url, loop=loop, connections=made)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


@pytest.fixture(params=backends())
def run(request):
    return lambda main: uringcore.run(asyncio.wait_for(main, 30), backend=request.param)


def test_goaway_fails_what_is_not_processed_and_nothing_else(peer, certificate, run):
    async def main():
        async with connect(peer.url, cafile=certificate[0]) as client:
            first = asyncio.ensure_future(client.get("/first"))
            (connection,) = peer.connections
            while not connection.asked:
                await asyncio.sleep(0.01)
            with pytest.raises(
                RequestNotProcessedError, match="repeat it on a new connection"
            ) as raised:
                await client.get("/goaway")
            assert raised.value.retryable
            assert not first.done()
            with pytest.raises(RequestNotProcessedError):
                await client.get("/new")
            peer.loop.call_soon_threadsafe(connection.answer_first)
            assert (await first).status == 200

    run(main())


def test_rejected_request_is_retryable(peer, certificate, run):
    async def main():
        async with connect(peer.url, cafile=certificate[0]) as client:
            with pytest.raises(RequestResetError, match="H3_REQUEST_REJECTED") as raised:
                await client.get("/rejected")
            assert raised.value.retryable

    run(main())
