"""QUIC on other loops (stock asyncio and uvloop), over their datagram transports."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading

import pytest

import uringcore
from tests.quic.harness import Echo, Recorder, eventually, patterned, serving
from tests.support.free_ports import free_port
from uringcore.asyncio import QuicConnectionProtocol, connect
from uringcore.quic import _foreign_loops as foreign
from uringcore.quic import events
from uringcore.quic._errors import QuicConnectionRefusedError, QuicIdleTimeoutError
from uringcore.quic.connection import QuicConnection


@pytest.fixture(params=["asyncio", "uvloop"])
def run_foreign(request):
    """Runs a coroutine on a loop of another project."""

    def run(main):
        limited = asyncio.wait_for(main, 60)
        if request.param == "asyncio":
            return asyncio.run(limited)
        uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
        loop = uvloop.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            return loop.run_until_complete(limited)
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    return run


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_streams_datagrams_and_the_end(
    run_foreign, server_configuration, client_configuration, host
):
    async def main():
        server = server_configuration(max_datagram_frame_size=65536)
        client = client_configuration(max_datagram_frame_size=65536)
        bound = "127.0.0.1" if host == "localhost" else host
        async with serving(server, host=bound) as (port, protocols):
            async with connect(host, port, configuration=client, create_protocol=Recorder) as peer:
                sent = patterned(300_000)
                stream_id = peer._quic.get_next_available_stream_id()
                peer._quic.send_stream_data(stream_id, sent, end_stream=True)
                peer._quic.send_datagram_frame(b"datagram")
                peer.transmit()
                await peer.wait_for(events.StreamDataReceived, end_stream=True)
                assert peer.data[stream_id] == sent
                await peer.wait_for(events.DatagramFrameReceived, data=b"datagram")
                await peer.ping()
                peer.close(error_code=7, reason_phrase="enough")
            end = await protocols[0].wait_for(events.ConnectionTerminated)
            assert (end.error_code, end.reason_phrase) == (7, "enough")

    run_foreign(main())


def test_a_dead_port_is_known_at_once(run_foreign, client_configuration):
    async def main():
        configuration = client_configuration(idle_timeout=50.0)
        started = asyncio.get_running_loop().time()
        port = free_port()
        with pytest.raises(QuicConnectionRefusedError, match=str(port)):
            async with connect("127.0.0.1", port, configuration=configuration):
                pytest.fail("no server listens there")
        assert asyncio.get_running_loop().time() - started < 20

    run_foreign(main())


def test_an_established_connection_ignores_what_anyone_can_send(
    run_foreign, server_configuration, client_configuration
):
    """An ICMP error is not authenticated, so only the idle time-out ends the connection to a dead server."""

    async def main():
        client = client_configuration(idle_timeout=2.0)
        async with serving(server_configuration(), Echo) as (port, protocols):
            async with connect(
                "127.0.0.1", port, configuration=client, create_protocol=Recorder
            ) as peer:
                driver = peer._transport._driver
                await peer.ping()
                driver.error_received(ConnectionRefusedError(111, "refused"))
                await peer.ping()
                # The server's socket closes without sending anything.
                protocols[0]._transport._datagram_transport.abort()
                with pytest.raises(QuicIdleTimeoutError):
                    await peer.ping()

    run_foreign(main())


def test_a_protocol_on_a_connected_datagram_transport(
    run_foreign, server_configuration, client_configuration
):
    """aioquic's manual way: ``create_datagram_endpoint(lambda: protocol)``; and a closed port."""

    async def main():
        loop = asyncio.get_running_loop()
        configuration = client_configuration(server_name="localhost")

        async def attempt(port):
            transport, protocol = await loop.create_datagram_endpoint(
                lambda: QuicConnectionProtocol(QuicConnection(configuration=configuration)),
                remote_addr=("127.0.0.1", port),
            )
            try:
                protocol.connect(("127.0.0.1", port))
                await protocol.wait_connected()
                await protocol.ping()
                protocol.close()
                await protocol.wait_closed()
            finally:
                transport.close()

        async with serving(server_configuration()) as (port, _):
            await attempt(port)
        with pytest.raises(QuicConnectionRefusedError):
            await attempt(free_port())

    run_foreign(main())


def test_a_client_takes_its_connection_to_another_socket_and_back_from_a_dead_one(
    run_foreign, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration(), host="0.0.0.0") as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            await client.ping()
            await client.migrate(("127.0.0.2", 0))
            name = client._transport.get_extra_info("sockname")
            assert name[0] == "127.0.0.2"
            await client.ping()
            assert protocols[0]._quic.get_peer_address() == name
            # The new socket's packets never reach the server.
            driver = client._transport._driver
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(foreign.Way, "send", lambda *_: None)
                with pytest.raises(TimeoutError, match="old path"):
                    await client.migrate(("127.0.0.3", 0), timeout=0.3)
            assert client._transport.get_extra_info("sockname") == name
            await asyncio.wait_for(client.ping(), 20)
            assert protocols[0]._quic.get_peer_address() == name
            assert len(driver._further) == 1
        assert not driver._further

    run_foreign(main())


def test_a_protocol_on_the_programs_own_transport_migrates_too(
    run_foreign, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        configuration = client_configuration(server_name="localhost")
        for is_connected in (True, False):
            async with serving(server_configuration(), host="0.0.0.0") as (port, protocols):
                where = {"remote_addr": ("127.0.0.1", port)}
                if not is_connected:
                    where = {"local_addr": ("127.0.0.1", 0)}
                transport, protocol = await loop.create_datagram_endpoint(
                    lambda: QuicConnectionProtocol(QuicConnection(configuration=configuration)),
                    **where,
                )
                protocol.connect(("127.0.0.1", port))
                await protocol.wait_connected()
                await protocol.migrate(("127.0.0.2", 0))
                await protocol.ping()
                assert protocols[0]._quic.get_peer_address()[0] == "127.0.0.2"
                driver = protocol._own_driver
                assert len(driver._further) == 1
                protocol.close()
                await protocol.wait_closed()
                transport.close()
                await eventually(lambda driver=driver: not driver._further)

    run_foreign(main())


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_protocol_on_the_programs_own_transport_goes_where_its_socket_can(
    run_foreign, server_configuration, client_configuration, is_connected
):
    """The client moves to a preferred address unless its socket is connected to the first address."""
    with _server_elsewhere(server_configuration) as (port, preferred):

        async def main():
            loop = asyncio.get_running_loop()
            configuration = client_configuration(server_name="localhost")
            where = {"remote_addr": ("127.0.0.1", port)}
            if not is_connected:
                where = {"local_addr": ("127.0.0.1", 0)}
            transport, protocol = await loop.create_datagram_endpoint(
                lambda: QuicConnectionProtocol(QuicConnection(configuration=configuration)),
                **where,
            )
            protocol.connect(("127.0.0.1", port))
            await protocol.wait_connected()
            for _ in range(3):
                await protocol.ping()
            if is_connected:
                assert protocol._quic.get_peer_address() == ("127.0.0.1", port)
            else:
                await eventually(lambda: protocol._quic.get_peer_address() == preferred)
                await protocol.ping()
            protocol.close()
            await protocol.wait_closed()
            transport.close()

        run_foreign(main())


def test_the_note_that_the_ring_is_faster_is_logged_once(
    run_foreign, server_configuration, client_configuration, caplog, monkeypatch
):
    monkeypatch.setattr(foreign, "_said", False)
    caplog.set_level(logging.INFO, "uringcore")

    async def main():
        async with serving(server_configuration()) as (port, _):
            for _ in range(2):
                async with connect(
                    "127.0.0.1", port, configuration=client_configuration()
                ) as client:
                    await client.ping()

    run_foreign(main())
    said = [record for record in caplog.records if "uringcore.run" in record.getMessage()]
    assert len(said) == 1


def test_a_connected_socket_ignores_the_preferred_address(
    run_foreign, server_configuration, client_configuration, monkeypatch
):
    """A connected socket cannot send to the preferred address; trying would only lose time."""
    addresses = set()

    class Noting:
        def __init__(self, endpoint):
            self._endpoint = endpoint

        def __getattr__(self, name):
            return getattr(self._endpoint, name)

        def datagrams_to_send(self, now):
            found = self._endpoint.datagrams_to_send(now)
            addresses.update(address for _, address in found)
            return found

    original = foreign.ForeignDriver.__init__

    def init(self, loop, sans_io, on_closed=None):
        original(self, loop, Noting(sans_io), on_closed)

    monkeypatch.setattr(foreign.ForeignDriver, "__init__", init)
    with _server_elsewhere(server_configuration) as (port, _):

        async def main():
            client = client_configuration()
            async with connect("127.0.0.1", port, configuration=client) as peer:
                # The server confirms the handshake with its first reply at the latest, and the client would
                # then move.
                for _ in range(3):
                    await peer.ping()
            assert addresses == {("127.0.0.1", port)}

        run_foreign(main())


@contextlib.contextmanager
def _server_elsewhere(server_configuration):
    """Runs a server on uringcore's own loop in a thread; yields its port and its preferred address."""
    started = threading.Event()
    found = {}
    preferred = ("127.0.0.2", free_port())

    async def serve_elsewhere():
        found["loop"] = asyncio.get_running_loop()
        found["end"] = asyncio.Event()
        configuration = server_configuration(preferred_address=[preferred])
        try:
            async with serving(configuration) as (port, _):
                found["port"] = port
                started.set()
                await found["end"].wait()
        finally:
            started.set()

    thread = threading.Thread(target=lambda: uringcore.run(serve_elsewhere()))
    thread.start()
    try:
        assert started.wait(20)
        yield found["port"], preferred
    finally:
        found["loop"].call_soon_threadsafe(found["end"].set)
        thread.join()
