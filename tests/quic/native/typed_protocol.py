"""A user's program with aioquic's API, in which ``connect`` yields the type that the program creates.
``test_typing`` checks and runs it.
"""

from __future__ import annotations

import asyncio

from uringcore.asyncio import QuicConnectionProtocol, connect, serve
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection
from uringcore.quic.events import QuicEvent, StreamDataReceived


class Echo(QuicConnectionProtocol):
    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            self._quic.send_stream_data(event.stream_id, event.data, event.end_stream)
            self.transmit()


class Asking(QuicConnectionProtocol):
    def __init__(self, quic: QuicConnection, *, answer: asyncio.Future[bytes]) -> None:
        super().__init__(quic)
        self.answer = answer

    def ask(self, question: bytes) -> None:
        stream_id = self._quic.get_next_available_stream_id()
        self._quic.send_stream_data(stream_id, question, end_stream=True)
        self.transmit()

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived) and not self.answer.done():
            self.answer.set_result(event.data)


async def main(certificate: tuple[str, str], authorities: str) -> bytes:
    server_side = QuicConfiguration(is_client=False, alpn_protocols=["test"])
    server_side.load_cert_chain(*certificate)
    client_side = QuicConfiguration(alpn_protocols=["test"])
    client_side.load_verify_locations(cafile=authorities)
    answer = asyncio.Future[bytes]()

    def asking(quic: QuicConnection, stream_handler: None = None) -> Asking:
        return Asking(quic, answer=answer)

    server = await serve("127.0.0.1", 0, configuration=server_side, create_protocol=Echo)
    async with server:
        port = server.sockname[1]
        async with connect(
            "127.0.0.1", port, configuration=client_side, create_protocol=asking
        ) as client:
            client.ask(b"question")
            reply: bytes = await client.answer
        async with connect("127.0.0.1", port, configuration=client_side) as plain:
            await plain.ping()
            rtt: float = plain.stats()["rtt"]
            assert rtt > 0
        return reply
