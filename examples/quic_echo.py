"""QUIC under aioquic's names: a server that echoes streams, and a client.

    python examples/quic_echo.py

A program written for aioquic moves over by changing its imports.
"""

import asyncio
import tempfile

import uringcore
from uringcore.asyncio import QuicConnectionProtocol, connect, serve
from uringcore.devcert import DevelopmentCertificate
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.events import QuicEvent, StreamDataReceived

ALPN = ["echo"]
HOST, PORT = "127.0.0.1", 4433


class EchoProtocol(QuicConnectionProtocol):
    """Sends every stream's data back on the same stream."""

    def quic_event_received(self, event: QuicEvent) -> None:
        """Called for every event of the connection."""
        if isinstance(event, StreamDataReceived):
            self._quic.send_stream_data(event.stream_id, event.data, event.end_stream)
            self.transmit()


async def main() -> None:
    """Starts the server and sends it one message on each of ten streams."""
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = DevelopmentCertificate.make().write(folder)
        server_side = QuicConfiguration(is_client=False, alpn_protocols=ALPN)
        server_side.load_cert_chain(certificate, key)
        client_side = QuicConfiguration(
            is_client=True, alpn_protocols=ALPN, server_name="localhost"
        )
        client_side.load_verify_locations(certificate)
        server = await serve(HOST, PORT, configuration=server_side, create_protocol=EchoProtocol)
        async with connect(HOST, PORT, configuration=client_side) as client:
            answers = await asyncio.gather(*(ask(client, number) for number in range(10)))
        server.close()
    print(f"echoed on {len(answers)} streams, e.g. {answers[0]!r}")


async def ask(client: QuicConnectionProtocol, number: int) -> bytes:
    """Sends one message on a stream of its own, and returns the answer."""
    reader, writer = await client.create_stream()
    message = b"hello on stream %d" % number
    writer.write(message)
    writer.write_eof()
    answer = await reader.read()
    assert answer == message
    return answer


if __name__ == "__main__":
    uringcore.run(main())
