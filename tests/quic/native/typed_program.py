"""A user's program, in which type checkers find no ``Any``. ``test_typing`` checks and runs it."""

from __future__ import annotations

import asyncio

from uringcore import quic
from uringcore.quic.packet import QuicProtocolVersion
from uringcore.quic.workers import PortWorker
from uringcore.tls import CipherSuite, Group


async def answer(stream: quic.BidirectionalStream) -> None:
    async with stream:
        line: bytes = await stream.readuntil(b"\n", limit=100)
        size: bytes = await stream.readexactly(4)
        rest = bytearray(int.from_bytes(size, "big"))
        count: int = await stream.readinto(rest)
        stream.priority(1, incremental=True)
        await stream.writelines([line, rest[:count]])
        await stream.send_all(memoryview(b"!"))


async def collect(stream: quic.ReceiveStream) -> list[bytes]:
    pieces = [piece async for piece in stream]
    stream.stop(3)
    return pieces


async def serve(listener: quic.Listener) -> None:
    async for connection in listener:
        async with connection:
            async for stream in connection.streams():
                await answer(stream)


async def echo(connection: quic.Connection) -> None:
    async for data in connection.datagrams():
        connection.send_datagrams([data, data])


async def ask(address: tuple[str, int], config: quic.ClientConfig) -> bytes:
    async with quic.connect(*address, config) as connection:
        async with connection.open_stream() as stream:
            sending = asyncio.create_task(stream.send(b"hello\n\0\0\0\5world"))
            await sending
            await stream.finish()
            reply: bytes = await stream.read()
        uni = await connection.open_uni_stream()
        await uni.send(reply)
        uni.reset(1)
        most: int | None = connection.max_datagram_size
        if most is not None:
            connection.send_datagram(b"x" * min(most, 10))
        rtt: float = connection.stats()["rtt"]
        assert rtt > 0 and isinstance(connection.alpn, str)
        return reply


async def survive(connection: quic.Connection) -> str:
    try:
        incoming = await connection.accept_uni_stream()
        await collect(incoming)
        batch: list[bytes] = await connection.receive_datagrams()
        return f"{len(batch)} datagrams"
    except quic.StreamResetError as error:
        return f"stream {error.stream_id} was reset: {error.code}"
    except quic.QuicError as error:
        return f"{error.code} {error.reason}"


async def serve_worker(worker: PortWorker, settings: quic.ServerConfig) -> None:
    async with quic.listen(config=settings, workers=worker) as listener:
        await serve(listener)
        await listener.drain(timeout=30)


async def main(certificate: tuple[str, str], authorities: str) -> bytes:
    settings = quic.ServerConfig(
        certificates=[quic.Certificate(*certificate)],
        alpn=["test"],
        idle_timeout=30,
        versions=[QuicProtocolVersion.VERSION_1],
        cipher_suites=[CipherSuite.AES_128_GCM_SHA256],
        groups=[Group.X25519],
        token_keys=[bytes(32)],
        retry=True,
    )
    async with quic.listen("127.0.0.1", 0, settings) as listener:
        listener.reload()
        server = asyncio.create_task(serve(listener))
        config = quic.ClientConfig(alpn=["test"], authorities=authorities)
        reply = await ask(listener.address, config)
        listener.close()
        await server
        return reply
