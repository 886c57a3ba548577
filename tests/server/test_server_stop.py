"""The graceful stop, with clients that have vanished, connect late, or read slowly."""

import asyncio
import itertools
import logging
import socket
import subprocess
import sys
import threading
import time
import types

import pytest

import uringcore
from tests.http import http3_bytes
from tests.http.raw_client import Close, connect_raw, needs_recent_aioquic
from tests.server.conftest import backends, starting
from tests.server.harness import PATIENT, ROOT, ForkedServer, environment
from uringcore.asyncio import QuicConnectionProtocol
from uringcore.asyncio.client import connect as quic_connect
from uringcore.h3.connection import ErrorCode, H3Connection
from uringcore.h3.events import GoAwayReceived
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.events import ConnectionTerminated, ProtocolNegotiated
from uringcore.server._client_liveness_at_shutdown import LINGER_MAX_SECONDS, ClientLiveness
from uringcore.server._tcp_shutdown import close_lingering

start = starting(ForkedServer)

SLOW_BYTES = 16 << 20
"""More than the kernel buffers for a client that does not read."""

NEVER = 600  # seconds: a stop that waits for such a time-out fails the test

# Events of an idle client when its server stops (RFC 9114 section 5.2).
TOLD = [GoAwayReceived(stream_id=2**62 - 4), GoAwayReceived(stream_id=0), 0x100]

VANISHING = """
import asyncio, os, sys
import uringcore
from uringcore.http3._unpooled_connection import connect
from uringcore.http3._request import Request

async def main(url, certificate, path):
    async with connect(url, cafile=certificate) as client:
        for _ in range(5):
            request = Request.to("GET", path, base=client.origin)
            exchange = client._protocol.open(request)
            client._protocol.pause_stream(exchange.stream_id)
        await asyncio.sleep(0.5)
        os._exit(0)  # without a word to the server

uringcore.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize("path", ["/late", "/whole"])
def test_stop_does_not_wait_for_vanished_clients(start, backend, path):
    """The vanished clients left responses that were sent and not acknowledged, and a `send` that waits for
    room.
    """
    options = ("--http3-idle-timeout", str(NEVER), "--timeout-graceful-shutdown", str(NEVER))
    server = start(*options, backend=backend, app="tests.server.edge_case_application:app")
    arguments = [sys.executable, "-c", VANISHING, server.url, server.certificate, path]
    subprocess.run(arguments, cwd=ROOT, env=environment(), check=True, timeout=NEVER)
    server.send_signal()
    assert server.wait_stopped(60) == 0


@pytest.mark.parametrize("backend", backends())
def test_stop_does_not_wait_for_a_tcp_client_to_close(start, backend):
    """A client that keeps a connection and does not read between two requests cannot see its close."""
    server = start(backend=backend)
    with server.http1() as connection:
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"hello"
        assert server.stop() == 0
    assert "timeout graceful shutdown exceeded" not in server.log()


@pytest.mark.parametrize("route", ["flood", "burst"])
def test_stop_waits_for_a_tcp_client_that_takes_its_time(start, route):
    """The client gets the whole response when it reads on. A burst's connection is already closed by then,
    with all data waiting in encrypted form.
    """
    server = start()
    with server.http1() as connection:
        connection.request("GET", f"/{route}/{SLOW_BYTES}")
        response = connection.getresponse()
        server.send_signal()
        server.wait_log("Shutting down")
        time.sleep(2.5)
        assert len(response.read()) == SLOW_BYTES
    assert server.wait_stopped() == 0


class Stuck(asyncio.Transport):
    """A transport that is closing and raises an error from every other call."""

    def is_closing(self):
        return True

    def get_write_buffer_size(self):
        raise RuntimeError("nobody knows")


def test_an_error_of_a_lingering_transport_is_logged(caplog, monkeypatch):
    """The fault is logged at once, because otherwise it would only show as a slow stop."""
    monkeypatch.setattr("uringcore.server._tcp_shutdown.logger", logging.getLogger("lingering"))

    async def main():
        connection = types.SimpleNamespace(transport=Stuck())
        with close_lingering([connection]):
            while not caplog.records:
                await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 30))
    assert "RuntimeError: nobody knows" in caplog.text


class Clock:
    """A loop whose time the test advances."""

    def __init__(self):
        self._now = 0.0
        self._due = []

    def time(self):
        return self._now

    def call_later(self, delay, callback):
        self._due.append((self._now + delay, callback))

    def run_until(self, end):
        while self._due and self._due[0][0] <= end:
            self._now, callback = self._due.pop(0)
            callback()
        self._now = end


def test_a_late_request_has_as_long_for_its_response_as_any_other():
    """A request that crosses the first GOAWAY may arrive after all earlier ones were answered, and take
    long.
    """
    clock, busy, heard, ended = Clock(), False, itertools.count(), []
    quic = types.SimpleNamespace(stats=lambda: {"datagrams_received": next(heard), "rtt": 0.01})
    watch = ClientLiveness(
        clock,
        quic,
        is_busy=lambda: busy,
        gone=lambda: ended.append(clock.time()),
        there=lambda: None,
    )
    watch.all_answered()
    clock.run_until(0.5)
    busy = True
    clock.run_until(15)
    busy = False
    watch.all_answered()
    clock.run_until(15 + LINGER_MAX_SECONDS - 1)
    assert not ended
    clock.run_until(15 + LINGER_MAX_SECONDS + 2)
    assert len(ended) == 1


def test_stop_waits_for_a_busy_application_beyond_the_idle_timeout(start):
    """The client answers the server's pings, so it counts as present. The stopping server sends them itself,
    because uvicorn's tick has ended.
    """
    server = start("--http3-idle-timeout", "3")

    async def main():
        async with server.connect() as client:
            async with client.stream("GET", "/sleep/8") as response:
                server.send_signal()
                return await response.read()

    assert uringcore.run(main()) == b"first last"
    assert server.wait_stopped() == 0


class Listening(QuicConnectionProtocol):
    """A client that makes no request and records its events."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = None
        self.told = []

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
        elif isinstance(event, ConnectionTerminated):
            self.told.append(event.error_code)
        elif self.http is not None:
            self.told += self.http.handle_event(event)


def configuration(certificate):
    made = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost")
    made.load_verify_locations(certificate)
    return made


@pytest.mark.parametrize("backend", backends())
def test_idle_client_gets_goaway_before_the_end(start, backend):
    server = start(program=PATIENT.format(backend=backend))

    async def main():
        async with quic_connect(
            "127.0.0.1",
            server.port,
            configuration=configuration(server.certificate),
            create_protocol=Listening,
        ) as client:
            await client.ping()
            server.send_signal()
            await asyncio.wait_for(client.wait_closed(), 30)
            return client.told

    assert uringcore.run(main()) == TOLD
    assert server.wait_stopped() == 0


async def begun(raw):
    """Opens a request that stays open until its body ends; returns after the response has started."""
    slow = raw.bidi(
        http3_bytes.request("/echo", method="POST") + http3_bytes.frame(http3_bytes.DATA, b"first ")
    )
    await raw.wait(lambda: raw.answer(slow).body)
    return slow


@needs_recent_aioquic
@pytest.mark.parametrize("backend", backends())
def test_requests_that_cross_the_first_goaway_are_served(start, backend):
    """RFC 9114 section 5.2: the client sent them before it received the GOAWAY."""
    server = start(program=PATIENT.format(backend=backend))

    async def main():
        async with connect_raw(server) as raw:
            raw.control()
            slow = await begun(raw)
            with raw.delaying() as goaway:
                server.send_signal()
                server.wait_log("Shutting down")
                await raw.wait(lambda: goaway)
                crossing = [raw.request("/") for _ in range(3)]
            for stream_id in crossing:
                assert (await raw.wait_answer(stream_id)).body == b"hello"
            await raw.wait(lambda: raw.goaways()[1:])
            assert raw.goaways() == [http3_bytes.HIGHEST_REQUEST, crossing[-1] + 4]
            # From here on, requests are rejected.
            late = await raw.wait_over(raw.request("/"))
            assert late.codes == {ErrorCode.H3_REQUEST_REJECTED}
            raw.write(slow, http3_bytes.frame(http3_bytes.DATA, b"last"), fin=True)
            assert (await raw.wait_answer(slow)).body == b"first last"
            assert await raw.wait_closed_by_server() == Close(ErrorCode.H3_NO_ERROR)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert server.wait_stopped() == 0


@needs_recent_aioquic
def test_a_websocket_that_crosses_the_first_goaway_is_closed_as_the_others(start):
    server = start(program=PATIENT.format(backend=None))
    opening = ((b"sec-websocket-version", b"13"),)

    async def main():
        async with connect_raw(server) as raw:
            raw.control()
            slow = await begun(raw)
            with raw.delaying() as goaway:
                server.send_signal()
                server.wait_log("Shutting down")
                await raw.wait(lambda: goaway)
                head = http3_bytes.request("/", *opening, method="CONNECT", protocol="websocket")
                stream_id = raw.bidi(head)
            socket = await raw.wait_over(stream_id)
            assert socket.ended
            # Close code 1012 of IANA's registry: the service restarts. Or 503, if the WebSocket was not
            # accepted yet.
            closed = bytes(socket.data).endswith(b"\x88\x02\x03\xf4")
            assert closed or raw.answer(stream_id).status == 503
            raw.write(slow, http3_bytes.frame(http3_bytes.DATA, b"last"), fin=True)
            await raw.wait_answer(slow)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert server.wait_stopped() == 0


@needs_recent_aioquic
def test_a_client_that_does_not_acknowledge_the_first_goaway_gets_the_last(start):
    server = start()

    async def main():
        async with connect_raw(server) as raw:
            raw.control()
            slow = raw.request("/sleep/8")
            await raw.wait(lambda: raw.answer(slow).status)

            def write_no_ack(builder, space, now):
                space.ack_at = None

            raw.quic._write_ack_frame = write_no_ack
            server.send_signal()
            pings = asyncio.ensure_future(raw.keep_alive())
            await raw.wait(lambda: raw.goaways()[1:])
            pings.cancel()

    asyncio.run(asyncio.wait_for(main(), 60))


class Delaying:
    """A UDP proxy that calls `before_second` before it forwards the client's second datagram."""

    def __init__(self, port, before_second):
        self._front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._front.bind(("127.0.0.1", 0))
        self._back = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._back.connect(("127.0.0.1", port))
        self.port = self._front.getsockname()[1]
        self._before_second = before_second
        self._client = None
        for run in (self._up, self._down):
            threading.Thread(target=run, daemon=True).start()

    def _up(self):
        count = 0
        while True:
            data, self._client = self._front.recvfrom(65536)
            count += 1
            if count == 2:
                self._before_second()
            self._pass(self._back.send, data)

    def _down(self):
        while True:
            try:
                data = self._back.recv(65536)
            except ConnectionRefusedError:
                continue  # the server has ended
            self._pass(self._front.sendto, data, self._client)

    @staticmethod
    def _pass(send, *arguments):
        try:
            send(*arguments)
        except ConnectionRefusedError:
            return  # lost, as on any network


def test_connection_that_completes_while_stopping_gets_goaway(start):
    """The connection is accepted before the signal and established after it; another request delays the
    stop.
    """
    server = start(program=PATIENT.format(backend=None))

    def stop():
        server.send_signal()
        server.wait_log("Shutting down")
        time.sleep(0.1)

    async def late():
        proxy = Delaying(server.port, stop)
        made = configuration(server.certificate)
        # The ClientHello takes two datagrams; the server accepts at the first.
        made.alpn_protocols = ["h3", *(f"{number}" + "y" * 100 for number in range(12))]
        async with quic_connect(
            "127.0.0.1", proxy.port, configuration=made, create_protocol=Listening
        ) as client:
            await asyncio.wait_for(client.wait_closed(), 30)
            return client.told

    async def main():
        over = asyncio.Event()

        async def content():
            yield b"first "
            await over.wait()
            yield b"last"

        async with server.connect() as client:
            async with client.stream("POST", "/echo", content=content()) as slow:
                told = await late()
                over.set()
                assert await slow.read() == b"first last"
            return told

    assert uringcore.run(main()) == TOLD
    assert server.wait_stopped() == 0
