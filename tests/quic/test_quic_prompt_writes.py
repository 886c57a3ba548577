"""Data that a handler sends over QUIC leaves while the handler continues to compute."""

import asyncio
import contextlib
import threading

import pytest

import uringcore
from tests.quic.harness import Recorder, serving
from tests.quic.native.connection_pairs import client_config, listening
from tests.support.free_ports import free_port
from uringcore import http3, quic
from uringcore.asyncio import QuicConnectionProtocol, connect
from uringcore.quic import events
from uringcore.server import Config
from uringcore.server._server import Server

ROUNDS = 10
PATIENCE = 15.0


class Rounds:
    """The client's signal for each answer that has arrived, and the results of the server handler's waits for
    them.
    """

    def __init__(self):
        self.arrived = [threading.Event() for _ in range(ROUNDS)]
        self.seen = []

    def answered(self):
        """Called by the handler after each answer: blocks the loop until the client has received it."""
        self.seen.append(self.arrived[len(self.seen)].wait(PATIENCE))

    async def each(self):
        """Runs on the client's side: yields the event to set when the next answer has arrived. Before each,
        the server sends nothing for a while, because a second send soon after another may wait for the end of
        the turn.
        """
        for one in self.arrived:
            await asyncio.sleep(0.02)
            yield one

    @contextlib.asynccontextmanager
    async def client(self, program):
        """Runs `program()` on another thread's loop, waits for its end, and checks that no wait timed out."""
        running = asyncio.ensure_future(
            asyncio.to_thread(uringcore.run, asyncio.wait_for(program(), 50))
        )
        yield running
        await running
        assert self.seen == [True] * ROUNDS


def test_data_of_events_leaves(run, server_configuration, client_configuration):
    class Answering(QuicConnectionProtocol):
        def quic_event_received(self, event):
            if isinstance(event, events.StreamDataReceived):
                self._quic.send_stream_data(event.stream_id, event.data)
                self.transmit()
                rounds.answered()

    rounds = Rounds()

    async def main():
        async with serving(server_configuration(), Answering) as (port, _):

            async def ask():
                configuration = client_configuration()
                async with connect(
                    "127.0.0.1", port, configuration=configuration, create_protocol=Recorder
                ) as client:
                    asked = 0
                    async for one in rounds.each():
                        asked += 1
                        client._quic.send_stream_data(0, b"x")
                        client.transmit()
                        while len(client.data.get(0, b"")) < asked:
                            client._changed.clear()
                            await client._changed.wait()
                        one.set()

            async with rounds.client(ask):
                pass

    run(main())


@pytest.mark.parametrize("how", ["stream", "datagram"])
def test_data_of_a_stream_or_a_connection_leaves_at_once(run, pki, how):
    rounds = Rounds()

    async def answer(listener):
        async with await listener.accept() as connection:
            if how == "datagram":
                async for data in connection.datagrams():
                    connection.send_datagram(data)
                    rounds.answered()
                return
            async with await connection.accept_stream() as stream:
                for _ in range(ROUNDS):
                    await stream.send(await stream.readexactly(1))
                    rounds.answered()

    async def main():
        async with listening(pki, datagrams=True) as listener:

            async def ask():
                config = client_config(pki, datagrams=True)
                async with quic.connect(*listener.address, config) as connection:
                    if how == "datagram":
                        async for one in rounds.each():
                            connection.send_datagram(b"x")
                            await connection.receive_datagram()
                            one.set()
                        return
                    async with connection.open_stream() as stream:
                        async for one in rounds.each():
                            await stream.send(b"x")
                            await stream.readexactly(1)
                            one.set()

            answering = asyncio.ensure_future(answer(listener))
            async with rounds.client(ask):
                pass
            answering.cancel()
            await asyncio.wait([answering])

    run(main())


def test_a_response_leaves(run, pki):
    rounds = Rounds()

    async def application(scope, receive, send):
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})
        rounds.answered()

    async def main():
        port = free_port()
        server = Server(
            Config(
                application,
                host="127.0.0.1",
                port=port,
                ssl_certfile=str(pki.server.certfile),
                ssl_keyfile=str(pki.server.keyfile),
                log_level="warning",
                lifespan="off",
            )
        )
        serving = asyncio.ensure_future(server.serve())
        while not server.started:
            assert not serving.done()
            await asyncio.sleep(0.01)

        async def ask():
            url = f"https://localhost:{port}/"
            async with http3.Client(base_url=url, cafile=str(pki.authority.certfile)) as client:
                async for one in rounds.each():
                    async with client.stream("GET", "/") as response:
                        assert await response.read() == b"hello"
                        one.set()

        async with rounds.client(ask):
            pass
        server.should_exit = True
        await serving

    run(main())
