"""A reverse proxy for HTTP/3: one port, and the requested server name selects the server behind it.

    python examples/http3_proxy.py 8443 authorities.pem example.org=10.0.0.1:443 *=10.0.0.2:443

Each client gets a connection to its server, and the proxy copies every stream, datagram, reset and
stop. It parses no HTTP: HTTP/3 requires equal stream numbers on both sides (RFC 9000 section 2.1).
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Coroutine

import uringcore
from uringcore import quic
from uringcore.devcert import DevelopmentCertificate

ALPN, H3_INTERNAL_ERROR = ["h3"], 0x0102
Tasks = set[asyncio.Task[None]]


def start(tasks: Tasks, work: Coroutine[object, None, None]) -> None:
    """Runs ``work`` in a task of its own."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def link(client: quic.Connection, server: quic.Connection) -> None:
    """Links two connections until one is closed; the other is then closed with that code."""
    carriers: Tasks = set()
    kinds, ways = (streams, uni_streams, datagrams), ((client, server), (server, client))
    parts = [asyncio.create_task(kind(*way, carriers)) for way in ways for kind in kinds]
    done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    # Some tasks may have ended just now, while others have the error.
    error = next(filter(None, (part.exception() for part in done)), None)
    code, reason = (error.code, error.reason) if isinstance(error, quic.QuicError) else (0, "")
    for task in (*parts, *carriers):
        task.cancel()
    client.close(code, reason)
    server.close(code, reason)


async def streams(one: quic.Connection, other: quic.Connection, carriers: Tasks) -> None:
    """For each stream opened on one side, opens a stream on the other, in this order."""
    async for stream in one.streams():
        its = await other.open_stream()
        start(carriers, carry(stream, its))
        start(carriers, carry(its, stream))


async def uni_streams(one: quic.Connection, other: quic.Connection, carriers: Tasks) -> None:
    """Like ``streams``, for unidirectional streams."""
    async for stream in one.uni_streams():
        start(carriers, carry(stream, await other.open_uni_stream()))


async def datagrams(one: quic.Connection, other: quic.Connection, _: Tasks) -> None:
    """Forwards all datagrams that are available at a time; those that the other side rejects are
    lost.
    """
    while True:
        several = await one.receive_datagrams()
        with contextlib.suppress(quic.DatagramSendError):
            other.send_datagrams(several)


async def carry(source: quic.ReceiveStream, target: quic.SendStream) -> None:
    """Forwards one direction of a stream, at the speed of the slower side, with its end."""

    async def pass_on() -> None:
        async for piece in source:
            await target.send(piece)
        await target.finish()

    try:
        # A STOP_SENDING arrives even if nothing is left to send.
        await asyncio.gather(pass_on(), target.wait_finished())
    except quic.StreamResetError as error:
        target.reset(error.code)
    except quic.StreamStoppedError as error:
        source.stop(error.code)
    except quic.QuicConnectionError:
        pass  # the link reports it


async def take(client: quic.Connection, servers: dict[str, str], authorities: str) -> None:
    """Connects a client to its server."""
    name = client.server_name or "*"
    host, _, port = servers.get(name, servers.get("*", "")).rpartition(":")
    try:
        if not host:
            raise OSError(f"there is no server for {name}")
        config = quic.ClientConfig(alpn=ALPN, authorities=authorities)
        async with quic.connect(host, int(port), config) as server, client:
            await link(client, server)
    except OSError as error:
        print(error, file=sys.stderr)
        client.close(H3_INTERNAL_ERROR, f"{name} is out of reach")


async def serve(port: int, authorities: str, servers: dict[str, str]) -> None:
    """Accepts clients until it is interrupted."""
    clients: Tasks = set()
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = DevelopmentCertificate.make().write(folder)
        async with quic.listen("::", port, certificate=(certificate, key), alpn=ALPN) as listener:
            print(f"port {listener.address[1]}, authority {certificate}", flush=True)
            async for client in listener:
                start(clients, take(client, servers, authorities))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    with contextlib.suppress(KeyboardInterrupt):
        servers = {name: at for name, _, at in (each.partition("=") for each in sys.argv[3:])}
        uringcore.run(serve(int(sys.argv[1]), sys.argv[2], servers))
