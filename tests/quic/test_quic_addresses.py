"""The address that a server's program sees for its client: the last one that the client has proved (RFC 9000
sections 8 and 9.3). The client is aioquic's, over real sockets, and sends from forged addresses.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from tests.http.raw_client import connect_raw, needs_recent_aioquic
from tests.quic.harness import eventually, serving
from tests.quic.native.connection_pairs import listening
from uringcore.quic import events

pytestmark = needs_recent_aioquic

FORGED = "127.0.0.66"


def reaching(port, alpn):
    """Returns a client for a server on this port."""
    return connect_raw(SimpleNamespace(port=port), alpn_protocols=[alpn])


def address_of(raw):
    return raw._transport.get_extra_info("sockname")


def test_a_forged_packet_changes_no_programs_view_of_its_client(run_anywhere, server_configuration):
    async def main():
        async with serving(server_configuration()) as (port, protocols):
            async with reaching(port, "test") as raw:
                await raw.confirmed()
                here = address_of(raw)
                (protocol,) = protocols
                assert protocol._quic.get_peer_address() == here
                with raw.elsewhere(FORGED) as there:
                    stream_id = raw.bidi(b"forged", fin=True)
                    arrived = events.StreamDataReceived
                    await protocol.wait_for(arrived, stream_id=stream_id, data=b"forged")
                    await asyncio.wait_for(there.wait_received(), 40)
                    assert protocol._quic.get_peer_address() == here
                    first, second = protocol._quic._network_paths
                    assert (first.addr, first.is_validated) == (here, True)
                    assert (second.addr, second.is_validated) == (there.address, False)
                    assert there.received_bytes <= 3 * there.sent_bytes
                raw.say()
                await raw.wait_over(stream_id)
                assert protocol._quic.get_peer_address() == here
                await eventually(lambda: len(protocol._quic._network_paths) == 1)

    run_anywhere(main())


def test_a_connections_peer_address_is_the_proved_one(run, pki):
    async def main():
        async with listening(pki) as listener, reaching(listener.address[1], "test") as raw:
            await raw.confirmed()
            connection = await listener.accept()
            here = address_of(raw)
            assert connection.peer_address == here
            with raw.elsewhere(FORGED) as there:
                raw.bidi(b"forged", fin=True)
                async with await connection.accept_stream() as stream:
                    assert await stream.read() == b"forged"
                    await asyncio.wait_for(there.wait_received(), 40)
                    assert connection.peer_address == here
                    await stream.finish()
            # The client moves for good, and answers at its new address.
            loop = asyncio.get_running_loop()
            received = type(
                "Received",
                (asyncio.DatagramProtocol,),
                {"datagram_received": lambda self, *args: raw.datagram_received(*args)},
            )
            transport, _ = await loop.create_datagram_endpoint(
                received, local_addr=("127.0.0.67", 0)
            )
            old, raw._transport = raw._transport, transport
            try:
                raw.say()
                await eventually(lambda: connection.peer_address == address_of(raw))
            finally:
                raw._transport = old
                transport.close()
            connection.close()

    run(main())
