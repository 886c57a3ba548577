"""A reverse proxy for HTTP/3: clients come to one port, and the name that they ask for says to which server
they are taken.

    python examples/http3_proxy.py 8443 authorities.pem example.org=10.0.0.1:443 *=10.0.0.2:443

Each client gets a connection to its server, and every stream, datagram, reset and stop of the one goes to
the other. So nothing of HTTP is read here: streams have the same numbers on both sides (RFC 9000 section
2.1), which is all that HTTP/3 asks of QUIC, and what it will be extended by passes as well.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Coroutine

import uringcore
from uringcore import quic
from uringcore.devcert import DevelopmentCertificate

ALPN = ["h3"]
H3_INTERNAL_ERROR = 0x0102


class Link:
    """A client and its server, and those who carry what goes between them."""

    def __init__(self, client: quic.Connection, server: quic.Connection) -> None:
        self.ways = [(client, server), (server, client)]
        self.carriers: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until one side is closed; the other one is then closed with the same code."""
        kinds = (self.streams, self.uni_streams, self.datagrams)
        parts = [asyncio.create_task(kind(*way)) for way in self.ways for kind in kinds]
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        error = done.pop().exception()
        code, reason = (error.code, error.reason) if isinstance(error, quic.QuicError) else (0, "")
        for part in (*parts, *self.carriers):
            part.cancel()
        for connection, _ in self.ways:
            connection.close(code, reason)

    async def streams(self, one: quic.Connection, other: quic.Connection) -> None:
        """What one side opens is opened on the other, in the same order."""
        async for stream in one.streams():
            its = await other.open_stream()
            self.start(carry(stream, its))
            self.start(carry(its, stream))

    async def uni_streams(self, one: quic.Connection, other: quic.Connection) -> None:
        """The same for those with one direction."""
        async for stream in one.uni_streams():
            self.start(carry(stream, await other.open_uni_stream()))

    async def datagrams(self, one: quic.Connection, other: quic.Connection) -> None:
        """As many datagrams as there are at a time; what the other side does not take is lost."""
        while True:
            several = await one.receive_datagrams()
            with contextlib.suppress(ValueError):
                other.send_datagrams(several)

    def start(self, carrying: Coroutine[object, None, None]) -> None:
        """Beside everything else."""
        carrier = asyncio.create_task(carrying)
        self.carriers.add(carrier)
        carrier.add_done_callback(self.carriers.discard)


async def carry(source: quic.ReceiveStream, target: quic.SendStream) -> None:
    """One direction of a stream, as fast as the slower side is, with its end."""
    try:
        async for piece in source:
            await target.send(piece)
        await target.finish()
    except quic.StreamReset as error:
        target.reset(error.code)
    except quic.StreamStopped as error:
        source.stop(error.code)
    except quic.QuicConnectionError:
        pass  # The link has heard of it.


async def take(client: quic.Connection, servers: dict[str, str], authorities: str) -> None:
    """Takes a client to its server."""
    name = client.server_name or "*"
    host, _, port = servers.get(name, servers.get("*", "")).rpartition(":")
    try:
        if not host:
            raise OSError(f"there is no server for {name}")
        config = quic.ClientConfig(alpn=ALPN, authorities=authorities)
        async with client, quic.connect(host, int(port), config) as server:
            await Link(client, server).run()
    except OSError as error:
        print(error, file=sys.stderr)
        client.close(H3_INTERNAL_ERROR, str(error))


async def serve(port: int, authorities: str, servers: dict[str, str]) -> None:
    """Takes clients to their servers until it is interrupted."""
    clients: set[asyncio.Task[None]] = set()
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = DevelopmentCertificate.make().write(folder)
        async with quic.listen("::", port, certificate=(certificate, key), alpn=ALPN) as listener:
            print(f"port {listener.address[1]}, authority {certificate}", flush=True)
            async for client in listener:
                task = asyncio.create_task(take(client, servers, authorities))
                clients.add(task)
                task.add_done_callback(clients.discard)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    with contextlib.suppress(KeyboardInterrupt):
        named = [argument.partition("=") for argument in sys.argv[3:]]
        servers = {name: address for name, _, address in named}
        uringcore.run(serve(int(sys.argv[1]), sys.argv[2], servers))
