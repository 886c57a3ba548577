"""Unprotected headers and ``Buffer``: uringcore reads and refuses the input that aioquic reads and
refuses.
"""

from __future__ import annotations

import dataclasses
import importlib
import random

import pytest

from uringcore import buffer
from uringcore.quic import packet

their_buffer = pytest.importorskip("aioquic.buffer")
if int(importlib.import_module("aioquic").__version__.split(".")[1]) < 7:
    pytest.skip("the answers are those of aioquic 1.7", allow_module_level=True)
their_packet = importlib.import_module("aioquic.quic.packet")

VERSIONS = [b"\0\0\0\1", b"\x6b\x33\x43\xcf", b"\0\0\0\0", b"\x0a\x1a\x2a\x3a"]


def header_like(chance):
    """Bytes that are often a header, or would be if they were longer."""
    data = bytearray(chance.randbytes(chance.choice([0, 1, 5, 7, 20, 30, 60, 120])))
    if len(data) > 16 and chance.random() < 0.9:
        data[0] |= 0xC0 if chance.random() < 0.8 else 0x40
        if data[0] & 0x80:
            data[1:5] = chance.choice(VERSIONS)
            data[5] = chance.choice([0, 1, 4, 8, 20, 21])
            if 6 + data[5] < len(data):
                data[6 + data[5]] = chance.choice([0, 1, 4, 8])
    return bytes(data)


def read(packets, buffers, data, length):
    cursor = buffers.Buffer(data=data)
    try:
        header = packets.pull_quic_header(cursor, length)
    except buffers.BufferReadError:
        return "too short"
    except ValueError as exc:
        return str(exc)
    except TypeError:
        return TypeError
    fields = dataclasses.asdict(header)
    return {**fields, "packet_type": header.packet_type.name, "position": cursor.tell()}


def test_headers_are_read_as_aioquic_reads_them():
    chance = random.Random(4)
    kinds = set()
    for _ in range(20_000):
        data, length = header_like(chance), chance.choice([0, 4, 8, None])
        ours = read(packet, buffer, data, length)
        theirs = read(their_packet, their_buffer, data, length)
        if theirs == "Packet fixed bit is zero" and ours != theirs:
            # Peers may clear the fixed bit if it was negotiated (RFC 9287). Compare with the packet that has
            # it set.
            plain = bytes([data[0] | packet.PACKET_FIXED_BIT]) + data[1:]
            theirs = read(their_packet, their_buffer, plain, length)
        assert ours == theirs, data.hex()
        kinds.add(ours["packet_type"] if isinstance(ours, dict) else "refused")
    assert kinds == {kind.name for kind in packet.QuicPacketType} | {"refused"}


def test_version_negotiation_is_read_back_by_aioquic():
    data = packet.encode_quic_version_negotiation(b"client", b"server!", [1, 0x6B3343CF])
    header = their_packet.pull_quic_header(their_buffer.Buffer(data=data))
    assert header.packet_type.name == "VERSION_NEGOTIATION"
    assert (header.source_cid, header.destination_cid) == (b"client", b"server!")
    assert header.supported_versions == [1, 0x6B3343CF]


@pytest.mark.parametrize(
    ("arguments", "calls"),
    [
        ({"data": b"abc"}, [("pull_bytes", -1), ("pull_bytes", 4), ("pull_bytes", 3), ("eof",)]),
        ({"data": b"abc"}, [("seek", -1), ("seek", 4), ("seek", 3), ("pull_uint8",)]),
        ({"data": b"abc"}, [("data_slice", -1, 1), ("data_slice", 2, 1), ("data_slice", 1, 3)]),
        ({"data": b"\xc0\0\0"}, [("pull_uint_var",), ("pull_uint32",), ("pull_uint16",)]),
        ({"capacity": 4}, [("push_uint_var", -1), ("push_uint_var", 1 << 62)]),
        ({"capacity": 4}, [("push_uint_var", 1 << 61), ("push_bytes", b"12345")]),
        ({"capacity": -1}, []),
        ({"capacity": 1 << 60}, []),
    ],
)
def test_a_buffer_refuses_what_aioquics_refuses(arguments, calls):
    """Errors are compared too: a length that comes from a peer may have any value."""

    def outcomes(buffers):
        try:
            cursor = buffers.Buffer(**arguments)
        except Exception as exc:
            return [type(exc).__name__]
        found = []
        for name, *args in calls:
            try:
                found.append(getattr(cursor, name)(*args))
            except Exception as exc:
                found.append(type(exc).__name__)
        return [*found, cursor.tell()]

    assert outcomes(buffer) == outcomes(their_buffer)
