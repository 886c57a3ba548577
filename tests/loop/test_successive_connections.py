"""One connection after the other: the end of one and the start of the next are in one turn."""

from __future__ import annotations

import asyncio
import socket
import ssl

from tests.loop.harness import Runner

CONNECTIONS = 300


class Counting(asyncio.Protocol):
    """Counts beginnings and ends."""

    made = 0
    lost = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        type(self).made += 1

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        type(self).lost += 1


def test_every_connections_end_is_reported(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    """The next connection must not take the slot of one whose end has not been reported yet."""

    class Protocol(Counting):
        pass

    def talk(address: tuple[str, int]) -> None:
        for _ in range(CONNECTIONS):
            with socket.create_connection(address) as plain:
                with client_tls.wrap_socket(plain, server_hostname="localhost") as client:
                    client.sendall(b"ping")
                    assert client.recv(4) == b"ping"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Protocol, "127.0.0.1", 0, ssl=server_tls)
        await loop.run_in_executor(None, talk, server.sockets[0].getsockname())
        deadline = loop.time() + 10
        while Protocol.lost < CONNECTIONS and loop.time() < deadline:
            await asyncio.sleep(0.01)
        assert (Protocol.made, Protocol.lost) == (CONNECTIONS, CONNECTIONS)
        server.close()
        await server.wait_closed()

    run(main())
