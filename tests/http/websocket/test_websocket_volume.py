"""Autobahn's cases 9 (large messages, many messages), 12 and 13 (permessage-deflate), with fewer messages.

The suite sends up to 16 MiB and a thousand messages a case; `make test-autobahn` does that. Here each kind of
a message passes over each version of HTTP. zlib compresses and decompresses with the agreed windows.
"""

from __future__ import annotations

import random
import zlib

import pytest

from tests.http.raw_client import needs_recent_aioquic
from tests.http.websocket.connections import VERSIONS, connected
from tests.http.websocket.frames import (
    BINARY,
    PING,
    PONG,
    RSV1,
    TEXT,
    Frame,
    encode,
    fragments,
    pieces,
)

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input]

each_version = pytest.mark.parametrize(
    "version",
    [pytest.param(it, marks=needs_recent_aioquic if it == "http3" else ()) for it in VERSIONS],
)
compressing = pytest.mark.parametrize("version", ["http1", "http2"])

KIB = 1024
DEFLATE = "sec-websocket-extensions"
TAIL = b"\0\0\xff\xff"
"""The end of a flush, which is not sent (RFC 7692 section 7.2.1)."""


def text_of(size: int) -> bytes:
    """Returns a text of this many bytes with letters of one to three bytes."""
    words = "Habe nun, ach! Philosophie \u2014 und leider auch Theologie durchaus studiert, \u00dcbles. "
    text = (words * (size // len(words) + 1)).encode()[:size].decode(errors="ignore")
    return text.encode().ljust(size)


def binary_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@each_version
@pytest.mark.parametrize("size", [64 * KIB, 256 * KIB, 1024 * KIB])
@pytest.mark.parametrize("opcode", [TEXT, BINARY], ids=["text", "binary"])
def test_a_large_message_in_one_frame(server, version, opcode, size):
    """The cases 9.1 and 9.2."""
    payload = text_of(size) if opcode == TEXT else binary_of(size)
    with connected(server, version) as socket:
        socket.send(encode(opcode, payload))
        assert socket.wait_frames(1) == [Frame(opcode, payload)]


@each_version
@pytest.mark.parametrize("fragment", [64, 256, 4 * KIB, 64 * KIB])
@pytest.mark.parametrize("opcode", [TEXT, BINARY], ids=["text", "binary"])
def test_a_large_message_in_fragments(server, version, opcode, fragment):
    """The cases 9.3 and 9.4. Fragments of a text end within its letters."""
    size = min(256 * KIB, 2000 * fragment)
    payload = text_of(size) if opcode == TEXT else binary_of(size)
    with connected(server, version) as socket:
        # A peer may answer nothing until it has the whole message, so that a piece may have many fragments.
        for piece in pieces(b"".join(fragments(opcode, pieces(payload, fragment))), 16 * KIB):
            socket.send(piece)
        assert socket.wait_frames(1) == [Frame(opcode, payload)]


@each_version
@pytest.mark.parametrize("chop", [64, 256, 2 * KIB])
@pytest.mark.parametrize("opcode", [TEXT, BINARY], ids=["text", "binary"])
def test_a_large_message_in_pieces(server, version, opcode, chop):
    """The cases 9.5 and 9.6."""
    payload = text_of(200 * chop) if opcode == TEXT else binary_of(200 * chop)
    with connected(server, version) as socket:
        for piece in pieces(encode(opcode, payload), chop):
            socket.send(piece)
        assert socket.wait_frames(1) == [Frame(opcode, payload)]


@each_version
@pytest.mark.parametrize("opcode", [TEXT, BINARY], ids=["text", "binary"])
def test_many_messages_one_after_the_other(server, version, opcode):
    """The cases 9.7 and 9.8."""
    with connected(server, version) as socket:
        for size in (0, 16, 64, 256, 1024, 4096, 16_384):
            payload = b"*" * size
            for _ in range(10):
                socket.send(encode(opcode, payload))
                assert socket.wait_frames(1) == [Frame(opcode, payload)]


# An offer; the agreed parameters besides the extension's name; the windows of the server and of the client.
OFFERS = {
    # Autobahn's client offers no more than this in its cases 12 and 13.1.
    "permessage-deflate": ("server_max_window_bits=12", 12, 15),
    "permessage-deflate; client_no_context_takeover; client_max_window_bits": (
        "server_max_window_bits=12; client_max_window_bits=12; client_no_context_takeover",
        *(12, 12),
    ),
    "permessage-deflate; client_max_window_bits; server_no_context_takeover": (
        "server_max_window_bits=12; client_max_window_bits=12; server_no_context_takeover",
        *(12, 12),
    ),
    "permessage-deflate; client_max_window_bits; server_max_window_bits=9": (
        "server_max_window_bits=9; client_max_window_bits=12",
        *(9, 12),
    ),
    "permessage-deflate; client_max_window_bits; server_max_window_bits=15": (
        "server_max_window_bits=12; client_max_window_bits=12",
        *(12, 12),
    ),
    "permessage-deflate; server_no_context_takeover; server_max_window_bits=9": (
        "server_max_window_bits=9; server_no_context_takeover",
        *(9, 15),
    ),
    "permessage-deflate; server_max_window_bits=8, permessage-deflate; server_no_context_takeover": (
        "server_max_window_bits=12; server_no_context_takeover",
        *(12, 15),
    ),
}


class Compressor:
    """The client's side of the extension."""

    def __init__(self, agreed: str, server_bits: int, client_bits: int) -> None:
        self._bits = client_bits
        self._server_bits = server_bits
        self._resets = "client_no_context_takeover" in agreed
        self._server_resets = "server_no_context_takeover" in agreed
        self._out = self._new()
        self._in = zlib.decompressobj(-server_bits)

    def _new(self):
        return zlib.compressobj(9, zlib.DEFLATED, -self._bits)

    def frames(self, opcode: int, payload: bytes, fragment: int | None) -> bytes:
        """Returns the frames of one message."""
        if self._resets:
            self._out = self._new()
        data = self._out.compress(payload) + self._out.flush(zlib.Z_SYNC_FLUSH)
        assert data.endswith(TAIL)
        data = data[: -len(TAIL)]
        parts = pieces(data, fragment) if fragment else [data]
        return b"".join(fragments(opcode, parts, rsv=RSV1))

    def content(self, frame: Frame) -> bytes:
        """Returns the content of a message of the server, which compresses what is not short."""
        if frame.rsv == 0:
            return frame.payload
        assert frame.rsv == RSV1
        if self._server_resets:
            self._in = zlib.decompressobj(-self._server_bits)
        return self._in.decompress(frame.payload + TAIL)


@compressing
@pytest.mark.parametrize("offer", OFFERS, ids=[str(number) for number in range(1, 8)])
@pytest.mark.parametrize("fragment", [None, 256], ids=["whole", "fragments"])
def test_compressed_messages_come_back(server, version, offer, fragment):
    """The cases 12 and 13."""
    with connected(server, version, fields=((DEFLATE, offer),)) as socket:
        agreed, *bits = OFFERS[offer]
        assert socket.extensions == f"permessage-deflate; {agreed}"
        compressor = Compressor(agreed, *bits)
        for size in (0, 16, 64, 256, 1024, 4096, 8192, 32_768, 131_072):
            for opcode, payload in ((TEXT, text_of(size)), (BINARY, binary_of(size))):
                for _ in range(3):
                    socket.send(compressor.frames(opcode, payload, fragment))
                    (frame,) = socket.wait_frames(1)
                    assert (frame.opcode, compressor.content(frame)) == (opcode, payload)


@compressing
def test_control_frames_are_between_compressed_fragments(server, version):
    offer = "permessage-deflate"
    with connected(server, version, fields=((DEFLATE, offer),)) as socket:
        agreed, *bits = OFFERS[offer]
        compressor = Compressor(agreed, *bits)
        message = text_of(2000)
        sent = compressor.frames(TEXT, message, 100)
        first, rest = sent[:106], sent[106:]
        socket.send(first + encode(PING, b"between") + rest)
        pong, frame = socket.wait_frames(2)
        assert pong == Frame(PONG, b"between")
        assert compressor.content(frame) == message
