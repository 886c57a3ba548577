"""Any C-contiguous buffer is accepted in place of bytes. Other buffers are refused with an error that names
the argument.
"""

from __future__ import annotations

import array
import ctypes

import pytest

import uringcore
from tests.quic.native.connection_pairs import pair, stream_pair
from tests.quic.test_quic_sans_io import Pair, drained
from uringcore.h3.connection import H3Connection
from uringcore.quic import events
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic.configuration import QuicConfiguration

BYTES = bytes(range(32))


def matrix():
    """Returns an array as numpy makes them: two dimensions, items larger than a byte."""
    return memoryview(array.array("I", BYTES)).cast("B").cast("H", shape=[4, 4])


BUFFERS = {
    "bytearray": bytearray(BYTES),
    "array": array.array("I", BYTES),
    "doubles": memoryview(array.array("d", BYTES)),
    "matrix": matrix(),
    "ctypes": (ctypes.c_uint16 * 16).from_buffer_copy(BYTES),
    "a part": memoryview(bytes(4) + BYTES + bytes(4))[4:36],
}
REFUSED = [
    (memoryview(BYTES)[::2], BufferError),
    (memoryview(BYTES)[::-1], BufferError),
    ("text", TypeError),
    (7, TypeError),
    ([1, 2], TypeError),
    (None, TypeError),
]


@pytest.fixture
def link(client_configuration, server_configuration):
    made = Pair(
        client_configuration(server_name="localhost", max_datagram_frame_size=65536),
        server_configuration(max_datagram_frame_size=65536),
    )
    made.connect()
    made.run(lambda: made.client.is_established and made.server.is_established)
    made.run(limit=1.0)
    drained(made.server)
    return made


@pytest.mark.parametrize("buffer", BUFFERS.values(), ids=BUFFERS)
def test_commands_of_a_connection_take_any_contiguous_buffer(link, buffer):
    link.client.send_stream_data(0, buffer, end_stream=True)
    link.client.send_datagram_frame(buffer)
    link.run(limit=1.0)
    found = drained(link.server)
    assert events.StreamDataReceived(BYTES, True, 0) in found
    assert events.DatagramFrameReceived(BYTES) in found


@pytest.mark.parametrize(("value", "error"), REFUSED)
def test_commands_of_a_connection_name_what_they_refuse(link, value, error):
    with pytest.raises(error, match="^data: "):
        link.client.send_stream_data(0, value)
    with pytest.raises(error, match="^data: "):
        link.client.send_datagram_frame(value)


@pytest.mark.parametrize("buffer", BUFFERS.values(), ids=BUFFERS)
def test_configurations_take_any_contiguous_buffer(buffer):
    configuration = QuicConfiguration(is_client=True, token=buffer, certificate_hashes=[buffer])
    configuration.setup()


@pytest.mark.parametrize(("value", "error"), REFUSED)
@pytest.mark.parametrize("field", ["token", "certificate_hashes"])
def test_configurations_name_what_they_refuse(field, value, error):
    given = [value] if field == "certificate_hashes" else value
    configuration = QuicConfiguration(is_client=True, **{field: given})
    with pytest.raises(QuicConfigurationError, match=field) as caught:
        configuration.setup()
    assert isinstance(caught.value.__cause__, error)


def test_a_hash_of_another_length_is_refused():
    configuration = QuicConfiguration(
        is_client=True, certificate_hashes=[array.array("I", BYTES[:8])]
    )
    with pytest.raises(QuicConfigurationError, match="32 bytes"):
        configuration.setup()


@pytest.mark.parametrize("buffer", BUFFERS.values(), ids=BUFFERS)
def test_streams_and_datagrams_take_any_contiguous_buffer(pki, buffer):
    async def main():
        async with pair(pki, TAKES, TAKES) as (one, other):
            one.send_datagram(buffer)
            one.send_datagrams([buffer])
            received = []
            while len(received) < 2:
                received += await other.receive_datagrams()
            assert received == [BYTES] * 2
            async with one.open_stream() as here:
                await here.send(buffer)
                await here.send_all(buffer)
                await here.writelines([buffer, BYTES])
                await here.finish()
                async with await other.accept_stream() as there:
                    assert await there.read() == BYTES * 4

    uringcore.run(main())


@pytest.mark.parametrize(("value", "error"), REFUSED)
def test_streams_and_datagrams_name_what_they_refuse(pki, value, error):
    async def main():
        async with stream_pair(pki, TAKES, TAKES) as (here, _):
            for send in (here.send, here.send_all):
                with pytest.raises(error, match="^data: "):
                    await send(value)
            with pytest.raises(error, match="^lines: "):
                await here.writelines([value])
        async with pair(pki, TAKES, TAKES) as (one, _):
            with pytest.raises(error, match="^data: "):
                one.send_datagram(value)
            with pytest.raises(error, match="^datagrams: "):
                one.send_datagrams([value])

    uringcore.run(main())


@pytest.mark.parametrize("buffer", BUFFERS.values(), ids=BUFFERS)
def test_bodies_and_datagrams_of_http3_take_any_contiguous_buffer(link, buffer):
    client, server = H3Connection(link.client), H3Connection(link.server)
    client.send_headers(0, HEAD)
    client.send_data(0, buffer, end_stream=True)
    link.run(limit=1.0)
    found = [event for one in drained(link.server) for event in server.handle_event(one)]
    body = [event.data for event in found if type(event).__name__ == "DataReceived"]
    assert b"".join(body) == BYTES
    client.send_datagram(0, buffer)
    link.run(limit=1.0)
    found = [event for one in drained(link.server) for event in server.handle_event(one)]
    assert [e.data for e in found if type(e).__name__ == "DatagramReceived"] == [BYTES]


@pytest.mark.parametrize(("value", "error"), REFUSED)
def test_bodies_of_http3_name_what_they_refuse(link, value, error):
    client = H3Connection(link.client)
    client.send_headers(0, HEAD)
    with pytest.raises(error, match="^data: "):
        client.send_data(0, value, end_stream=False)


TAKES = {"datagrams": True}
HEAD = [(b":method", b"POST"), (b":scheme", b"https"), (b":authority", b"a"), (b":path", b"/")]
