"""Request smuggling by one byte, at each place of a message where parsers disagree.

The places are those of smuggler.py and of the HTTP Garden: around a name, its colon and its value, behind a
CR, before an LF, around a chunk's size. Some parsers remove such a byte, fold at it, or stop there. This
server refuses the message, or reads it in the one way that RFC 9112 permits, which `READ` lists.
"""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input]

BYTES = [bytes([it]) for it in (*range(0x21), 0x7F, 0x80, 0x85, 0xA0, 0xAD, 0xFF)]
BLANKS = {b" ", b"\t"}
VISIBLE = BLANKS | {it for it in BYTES if it >= b"\x80"}
"""The bytes that may be within a value."""

POST = b"POST /upload HTTP/1.1\r\nHost: a\r\n"
LENGTH = b"Content-Length: 5\r\n"
EMPTY_CHUNKS = b"0\r\n\r\n"


def beside_a_length(line: bytes) -> bytes:
    """Returns a request whose content has five bytes, or none if the line is a transfer coding."""
    return POST + LENGTH + line + b"\r\n\r\n" + EMPTY_CHUNKS


def with_line(line: bytes) -> bytes:
    return POST + line + b"\r\n\r\nhello"


def with_start(line: bytes, host: bytes = b"Host: a") -> bytes:
    return line + b"\r\n" + host + b"\r\n" + LENGTH + b"\r\nhello"


def chunks(data: bytes) -> bytes:
    return POST + b"Transfer-Encoding: chunked\r\n\r\n" + data


# A place is marked by @. The messages are refused with each byte except those of `READ`.
PLACES = {
    "before the coding's name": beside_a_length(b"@Transfer-Encoding: chunked"),
    "within the coding's name": beside_a_length(b"Transfer@-Encoding: chunked"),
    "behind the coding's name": beside_a_length(b"Transfer-Encoding@: chunked"),
    "before the coding": beside_a_length(b"Transfer-Encoding:@chunked"),
    "within the coding": beside_a_length(b"Transfer-Encoding: chun@ked"),
    "behind the coding": beside_a_length(b"Transfer-Encoding: chunked@"),
    "between the coding and a field": beside_a_length(b"Transfer-Encoding: chunked@X: y"),
    "between a field and the coding": beside_a_length(b"X: y@Transfer-Encoding: chunked"),
    "behind a CR before the coding": beside_a_length(b"X: y\r@Transfer-Encoding: chunked"),
    "before an LF before the coding": beside_a_length(b"X: y@\nTransfer-Encoding: chunked"),
    "behind a CR after the coding": beside_a_length(b"Transfer-Encoding: chunked\r@X: y"),
    "before an LF after the coding": beside_a_length(b"Transfer-Encoding: chunked@\nX: y"),
    "alone, before the coding": beside_a_length(b"@\r\nTransfer-Encoding: chunked"),
    "before the length's name": with_line(b"@Content-Length: 5"),
    "behind the length's name": with_line(b"Content-Length@: 5"),
    "before the length": with_line(b"Content-Length:@5"),
    "within the length": with_line(b"Content-Length: 0@5"),
    "behind the length": with_line(b"Content-Length: 5@"),
    "before a chunk's size": chunks(b"@5\r\nhello\r\n" + EMPTY_CHUNKS),
    "behind a chunk's size": chunks(b"5@\r\nhello\r\n" + EMPTY_CHUNKS),
    "in a chunk's extension": chunks(b"5;a@b\r\nhello\r\n" + EMPTY_CHUNKS),
    "behind a CR behind a chunk's size": chunks(b"5\r@\nhello\r\n" + EMPTY_CHUNKS),
    "behind a chunk's data": chunks(b"5\r\nhello@\r\n" + EMPTY_CHUNKS),
    "behind a CR behind a chunk's data": chunks(b"5\r\nhello\r@\n" + EMPTY_CHUNKS),
    "behind the last size": chunks(b"5\r\nhello\r\n0@\r\n\r\n"),
    "before the end of chunks": chunks(b"5\r\nhello\r\n0\r\n@\r\n"),
    "within a trailer's name": chunks(b"5\r\nhello\r\n0\r\nX@Y: z\r\n\r\n"),
    "behind a trailer's name": chunks(b"5\r\nhello\r\n0\r\nX@: z\r\n\r\n"),
    "within a trailer's value": chunks(b"5\r\nhello\r\n0\r\nX: y@z\r\n\r\n"),
    "behind the method": with_start(b"POST@/upload HTTP/1.1"),
    "within the target": with_start(b"POST /upload?@ HTTP/1.1"),
    "behind the target": with_start(b"POST /upload@HTTP/1.1"),
    "within the version": with_start(b"POST /upload HTTP/@1.1"),
    "behind the version": with_start(b"POST /upload HTTP/1.1@"),
    "within the host": with_start(b"POST /upload HTTP/1.1", b"Host: a@b"),
    "behind the host": with_start(b"POST /upload HTTP/1.1", b"Host: a@"),
    "behind the host's name": with_start(b"POST /upload HTTP/1.1", b"Host@: a"),
}

READ = {
    # The field has another name, and no coding.
    "between a field and the coding": VISIBLE,
    "before the length": BLANKS,
    "behind the length": BLANKS,
    "in a chunk's extension": VISIBLE,
    "within a trailer's value": VISIBLE,
    "behind the method": {b" "},
    "behind the target": {b" "},
    "behind the host": BLANKS,
}


@pytest.mark.parametrize("place", PLACES)
def test_an_inserted_byte_makes_a_message_invalid_or_changes_nothing(another, place):
    before, after = PLACES[place].split(b"@")
    read = READ.get(place, set())
    wrong = {}
    for byte in BYTES:
        with another() as raw:
            raw.send(before + byte + after + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            response = raw.response()
            if byte in read:
                found = response.status == 200 and json.loads(response.body)["bytes"] == 5
                found = found and raw.response().body == b"hello"
            else:
                found = response.status == 400 and raw.is_closed()
            if not found:
                wrong[byte] = response
    assert not wrong
