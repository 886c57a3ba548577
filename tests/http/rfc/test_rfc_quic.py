"""The server's required reactions to a client's errors by RFC 9000 and 9001: h3spec's list.

The names are the sections. tests/quic checks both ends without a network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aioquic import tls
from aioquic.buffer import Buffer

from tests.http.http3_bytes import varints
from tests.http.raw_client import Close, RawConnection, connect_raw, needs_recent_aioquic
from uringcore.quic.packet import QuicErrorCode as Code

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input, needs_recent_aioquic]

TOKEN, ID = bytes(16), bytes(8)
HUGE = (1 << 60) + 1

FRAMES = {
    "Transport 4.1 STREAM with a large offset": (
        varints(0x0E, 0, 100_000_000, 1, b"x"),
        Code.FLOW_CONTROL_ERROR,
    ),
    "Transport 4.6 stream ID beyond the limit": (
        varints(0x0A, 1_000_000_000, 1, b"x"),
        Code.STREAM_LIMIT_ERROR,
    ),
    "Transport 12.4 unknown frame": (varints(0x20), Code.FRAME_ENCODING_ERROR),
    "Transport 19.4 RESET_STREAM of a send-only stream": (
        varints(0x04, 3, 0, 0),
        Code.STREAM_STATE_ERROR,
    ),
    "Transport 19.5 STOP_SENDING of a stream that is not": (
        varints(0x05, 101, 0),
        Code.STREAM_STATE_ERROR,
    ),
    "Transport 19.7 NEW_TOKEN": (varints(0x07, 5, b"DUMMY"), Code.PROTOCOL_VIOLATION),
    "Transport 19.8 STREAM of a stream that is not created": (
        varints(0x0A, 1, 0),
        Code.STREAM_STATE_ERROR,
    ),
    "Transport 19.8 STREAM of a send-only stream": (varints(0x0A, 3, 0), Code.STREAM_STATE_ERROR),
    "Transport 19.10 MAX_STREAM_DATA of a stream that is not created": (
        varints(0x11, 101, 1_000_000),
        Code.STREAM_STATE_ERROR,
    ),
    "Transport 19.10 MAX_STREAM_DATA of a receive-only stream": (
        varints(0x11, 2, 1_000_000),
        Code.STREAM_STATE_ERROR,
    ),
    "Transport 19.11 MAX_STREAMS above 2^60": (varints(0x12, HUGE), Code.FRAME_ENCODING_ERROR),
    "Transport 19.14 STREAMS_BLOCKED above 2^60": (varints(0x16, HUGE), Code.FRAME_ENCODING_ERROR),
    "Transport 19.15 NEW_CONNECTION_ID with a Retire Prior To above its number": (
        varints(0x18, 9, 10, b"\x08" + ID, TOKEN),
        Code.FRAME_ENCODING_ERROR,
    ),
    "Transport 19.15 NEW_CONNECTION_ID of no bytes": (
        varints(0x18, 20, 0, b"\x00", TOKEN),
        Code.FRAME_ENCODING_ERROR,
    ),
    "Transport 19.20 HANDSHAKE_DONE": (varints(0x1E), Code.PROTOCOL_VIOLATION),
    "TLS 6 KeyUpdate in 1-RTT": (
        varints(0x06, 0, 5, b"\x18\x00\x00\x01\x01"),
        Code.CRYPTO_ERROR + 10,
    ),
}


@pytest.mark.parametrize(("frame", "code"), FRAMES.values(), ids=list(FRAMES))
def test_frame(server, frame, code):
    async def main():
        async with connect_raw(server) as raw:
            await raw.confirmed()
            raw.say(frame)
            assert await raw.wait_closed_by_server() == Close(code, is_transport=True)

    asyncio.run(asyncio.wait_for(main(), 60))


def parameter(number: int, value: bytes) -> bytes:
    """A transport parameter."""
    return varints(number, len(value), value)


def replaced(number: int, value: bytes | None) -> Callable[[bytes], bytes]:
    """The parameters with one replaced or removed."""

    def change(parameters: bytes) -> bytes:
        kept, data = b"", Buffer(data=parameters)
        while not data.eof():
            found = data.pull_uint_var()
            content = data.pull_bytes(data.pull_uint_var())
            if found != number:
                kept += parameter(found, content)
        return kept + (b"" if value is None else parameter(number, value))

    return change


PREFERRED = bytes(24) + b"\x08" + ID + TOKEN
PARAMETERS = {
    "Transport 7.3 without initial_source_connection_id": replaced(0x0F, None),
    "Transport 7.3 another initial_source_connection_id": replaced(0x0F, b"another."),
    "Transport 18.2 original_destination_connection_id": replaced(0x00, ID),
    "Transport 18.2 preferred_address": replaced(0x0D, PREFERRED),
    "Transport 18.2 retry_source_connection_id": replaced(0x10, ID),
    "Transport 18.2 stateless_reset_token": replaced(0x02, TOKEN),
    "Transport 7.4 max_udp_payload_size below 1200": replaced(0x03, varints(1090)),
    "Transport 7.4 ack_delay_exponent above 20": replaced(0x0A, varints(30)),
    "Transport 7.4 max_ack_delay of 2^14": replaced(0x0B, varints(1 << 14)),
    "Transport 7.4 active_connection_id_limit below 2": replaced(0x0E, varints(1)),
    "Transport 7.4 parameter twice": lambda parameters: parameters + parameter(0x04, varints(1)),
}


def at_handshake(prepare: Callable[[RawConnection], None], **configuration) -> Callable:
    """Returns the server's close of a connection that begins like this."""

    async def main(server):
        async with connect_raw(
            server, prepare=prepare, wait_connected=False, **configuration
        ) as raw:
            return await raw.wait_closed_by_server()

    return lambda server: asyncio.run(asyncio.wait_for(main(server), 60))


@pytest.mark.parametrize("change", PARAMETERS.values(), ids=list(PARAMETERS))
def test_transport_parameter(server, change):
    def prepare(quic):
        quic.parameters = change

    close = at_handshake(prepare)(server)
    assert close == Close(Code.TRANSPORT_PARAMETER_ERROR, is_transport=True)


def alert(number: int) -> Close:
    """A TLS alert (RFC 9001 section 4.8)."""
    return Close(Code.CRYPTO_ERROR + number, is_transport=True)


def prepared(**changes) -> Callable[[RawConnection], None]:
    """Sets attributes of the connection before it begins."""

    def prepare(quic: RawConnection) -> None:
        for name, value in changes.items():
            setattr(quic, name, value)

    return prepare


HANDSHAKES = {
    "Transport 17.2.4 PATH_CHALLENGE in Handshake": (
        at_handshake(prepared(handshake_frame=varints(0x1A, b"01234567"))),
        Close(Code.PROTOCOL_VIOLATION, is_transport=True),
    ),
    "TLS 6 KeyUpdate in Handshake": (
        at_handshake(prepared(after_finished=b"\x18\x00\x00\x01\x01")),
        alert(10),
    ),
    "TLS 8.1 no application protocol in common": (
        at_handshake(prepared(), alpn_protocols=["dummy"]),
        alert(120),
    ),
    "TLS 8.2 without transport parameters": (
        at_handshake(prepared(extensions=lambda extensions: [])),
        alert(109),
    ),
    "TLS 8.3 EndOfEarlyData": (
        at_handshake(prepared(before_finished=b"\x05\x00\x00\x00")),
        alert(10),
    ),
}


@pytest.mark.parametrize(("play", "close"), HANDSHAKES.values(), ids=list(HANDSHAKES))
def test_handshake(server, play, close):
    assert play(server) == close


@pytest.mark.parametrize(
    ("epoch", "bits"), [(tls.Epoch.HANDSHAKE, 0x0C), (tls.Epoch.ONE_RTT, 0x18)], ids=str
)
def test_transport_17_2_reserved_bits(server, epoch, bits):
    """RFC 9000 sections 17.2 and 17.3.1: set although they have to be zero."""

    def prepare(quic):
        made = quic._initialize

        def initialize(peer_cid):
            made(peer_cid)
            keys = quic._cryptos[epoch]
            encrypt = keys.encrypt_packet
            keys.encrypt_packet = lambda head, payload, number: encrypt(
                bytes([head[0] | bits]) + head[1:], payload, number
            )

        quic._initialize = initialize

    close = at_handshake(prepare)(server)
    assert close == Close(Code.PROTOCOL_VIOLATION, is_transport=True)


def test_transport_12_4_packet_without_frames(server):
    async def main():
        async with connect_raw(server) as raw:
            await raw.confirmed()
            quic = raw.quic
            number = quic._packet_number
            quic._packet_number += 1
            # A packet number of four bytes, so that the packet is long enough for header
            # protection.
            head = bytes([0x43]) + quic._peer_cid.cid + number.to_bytes(4, "big")
            packet = quic._cryptos[tls.Epoch.ONE_RTT].encrypt_packet(head, b"", number)
            raw._transport.sendto(packet, ("127.0.0.1", server.port))
            close = await raw.wait_closed_by_server()
            assert close == Close(Code.PROTOCOL_VIOLATION, is_transport=True)

    asyncio.run(asyncio.wait_for(main(), 60))
