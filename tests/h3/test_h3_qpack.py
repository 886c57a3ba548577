"""QPACK against pylsqpack (ls-qpack), both ways, including dynamic tables and blocked streams."""

from __future__ import annotations

import random

import pylsqpack
import pytest

from uringcore.h3._qpack import QpackDecoder, QpackEncoder

NAMES = [b":path", b"user-agent", b"cookie", b"x-one", b"x-two", b"set-cookie", b"content-length"]


def header_lists(seed: int, count: int) -> list[list[tuple[bytes, bytes]]]:
    """Lists with many repetitions, some new values, all kinds of bytes, some long values."""
    print(f"seed {seed}")
    source = random.Random(seed)
    values = [source.randbytes(source.choice([0, 1, 7, 30, 90, 600])) for _ in range(40)]
    values += [b"%d" % number for number in range(20)]
    lists = []
    for _ in range(count):
        fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":status", b"204")]
        for _ in range(source.randrange(12)):
            fields.append((source.choice(NAMES), source.choice(values)))
        lists.append(fields)
    return lists


@pytest.mark.parametrize("capacity", [0, 64, 220, 4096])
@pytest.mark.parametrize("may_block", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_our_encoder_with_their_decoder(capacity: int, may_block: bool, seed: int) -> None:
    encoder = QpackEncoder(4096, may_block=may_block)
    decoder = pylsqpack.Decoder(capacity, 16)
    decoder.feed_encoder(encoder.apply_settings(capacity, 16))
    source = random.Random(seed)
    pending = b""
    blocked: dict[int, list[tuple[bytes, bytes]]] = {}
    for number, fields in enumerate(header_lists(seed, 300)):
        stream_id = number * 4
        instructions, section = encoder.encode(stream_id, fields)
        pending += instructions
        delayed = source.random() < 0.3
        if not delayed:
            unblocked = decoder.feed_encoder(pending)
            pending = b""
            for waiting in unblocked:
                feedback, decoded = decoder.resume_header(waiting)
                assert decoded == blocked.pop(waiting)
                encoder.feed_decoder(feedback)
        try:
            feedback, decoded = decoder.feed_header(stream_id, section)
        except pylsqpack.StreamBlocked:
            assert may_block, "a section refers to what was not acknowledged"
            blocked[stream_id] = fields
        else:
            assert decoded == fields
            encoder.feed_decoder(feedback)
    if pending:
        for waiting in decoder.feed_encoder(pending):
            feedback, decoded = decoder.resume_header(waiting)
            assert decoded == blocked.pop(waiting)
            encoder.feed_decoder(feedback)
    assert not blocked


@pytest.mark.parametrize("capacity", [0, 64, 220, 4096])
@pytest.mark.parametrize("blocked_streams", [0, 16])
@pytest.mark.parametrize("seed", range(4))
def test_their_encoder_with_our_decoder(capacity: int, blocked_streams: int, seed: int) -> None:
    encoder = pylsqpack.Encoder()
    decoder = QpackDecoder(capacity, blocked_streams)
    decoder.feed_encoder(encoder.apply_settings(capacity, blocked_streams))
    source = random.Random(seed)
    pending = b""
    blocked: dict[int, tuple[bytes, list[tuple[bytes, bytes]]]] = {}
    used_the_table = False
    for number, fields in enumerate(header_lists(seed, 300)):
        stream_id = number * 4
        instructions, section = encoder.encode(stream_id, fields)
        used_the_table |= section[0] != 0
        pending += instructions
        if source.random() < 0.7:
            # Feed it in pieces of any size.
            while pending:
                size = source.randint(1, len(pending))
                decoder.feed_encoder(pending[:size])
                pending = pending[size:]
            for waiting, (held, expected) in list(blocked.items()):
                decoded = decoder.decode(waiting, held)
                if decoded is not None:
                    assert decoded == expected
                    del blocked[waiting]
        decoded = decoder.decode(stream_id, section)
        if decoded is None:
            blocked[stream_id] = (section, fields)
        else:
            assert decoded == fields
        encoder.feed_decoder(decoder.take_instructions())
    decoder.feed_encoder(pending)
    for waiting, (held, expected) in blocked.items():
        assert decoder.decode(waiting, held) == expected
    assert used_the_table == (capacity > 0), "the test is about the dynamic table"


@pytest.mark.parametrize("symbol", range(256))
def test_every_byte_in_a_value(symbol: int) -> None:
    for value in (bytes([symbol]), bytes([symbol]) * 11, b"text" + bytes([symbol]) + b"text"):
        fields = [(b"x-value", value)]
        _, section = QpackEncoder().encode(0, fields)
        assert pylsqpack.Decoder(0, 0).feed_header(0, section) == (b"", fields)
        _, section = pylsqpack.Encoder().encode(0, fields)
        assert QpackDecoder(0, 0).decode(0, section) == fields


def test_our_encoder_compresses_as_well_as_theirs() -> None:
    """Not byte for byte: encoder policies differ. But repeated requests shrink to about equal
    sizes.
    """
    fields = [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":authority", b"www.example.org"),
        (b":path", b"/api/v1/items"),
        (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101"),
        (b"accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
        (b"accept-language", b"en-US,en;q=0.5"),
        (b"accept-encoding", b"gzip, deflate, br"),
    ]
    ours, theirs = QpackEncoder(), pylsqpack.Encoder()
    decoder, their_decoder = QpackDecoder(), pylsqpack.Decoder(4096, 16)
    decoder.feed_encoder(ours.apply_settings(4096, 16))
    their_decoder.feed_encoder(theirs.apply_settings(4096, 16))
    sizes = []
    for number in range(20):
        instructions, section = ours.encode(number * 4, fields)
        decoder.feed_encoder(instructions)
        assert decoder.decode(number * 4, section) == fields
        ours.feed_decoder(decoder.take_instructions())
        instructions, other = theirs.encode(number * 4, fields)
        their_decoder.feed_encoder(instructions)
        theirs.feed_decoder(their_decoder.feed_header(number * 4, other)[0])
        sizes.append((len(section), len(other)))
    first, last = sizes[0], sizes[-1]
    assert last[0] < first[0] / 8
    assert last[0] <= last[1] + 2


@pytest.mark.parametrize(
    "section",
    [b"", b"\x00", b"\x00\x00\x80", b"\x00\x00\xff\xff", b"\x00\x00\x51\x84\xff\xff\xff\xff"],
)
def test_invalid_sections_raise(section: bytes) -> None:
    with pytest.raises(ValueError, match="QPACK_DECOMPRESSION_FAILED"):
        QpackDecoder().decode(0, section)


def test_invalid_instructions_raise() -> None:
    with pytest.raises(ValueError, match="QPACK_ENCODER_STREAM_ERROR"):
        QpackDecoder().feed_encoder(b"\x00")
    with pytest.raises(ValueError, match="QPACK_DECODER_STREAM_ERROR"):
        QpackEncoder().feed_decoder(b"\x00")
