"""The requirements of RFC 9114, 9204, 9218 and 9220 on a server, seen from outside, by section.

The state machine's own tests check these rules without a network; this file checks the effect on a
client.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from tests.http import http3_bytes
from tests.http.http3_bytes import frame, varint, varints
from tests.http.raw_client import Close, connect_raw, needs_recent_aioquic
from uringcore.h3.connection import ErrorCode as Code

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input, needs_recent_aioquic]


@dataclass(frozen=True)
class Rule:
    """A client's actions, and their result at the client: the test checks nothing else.

    One of ``closes``, ``resets`` (of the request) and ``answers`` (its status) is given.
    ``control`` follows the SETTINGS; with ``settings=None`` it is all of the control stream.
    ``unis`` are further unidirectional streams, ``request`` is a request stream.
    """

    control: bytes = b""
    settings: dict[int, int] | None = field(default_factory=dict)
    unis: tuple[bytes, ...] = ()
    request: bytes | None = None
    fin: bool = True
    then: str = ""
    closes: Code | None = None
    resets: Code | None = None
    answers: int | None = None


def fields(*lines: tuple[bytes, bytes]) -> bytes:
    """A request of exactly these fields."""
    return frame(http3_bytes.HEADERS, http3_bytes.section(lines))


GET = http3_bytes.request()
POST = http3_bytes.request("/upload", method="POST")
METHOD, SCHEME = (b":method", b"GET"), (b":scheme", b"https")
AUTHORITY, PATH = (b":authority", b"localhost"), (b":path", b"/")
WHOLE = (METHOD, SCHEME, AUTHORITY, PATH)
UNEXPECTED = Code.H3_FRAME_UNEXPECTED
MALFORMED = Code.H3_MESSAGE_ERROR
DECOMPRESSION = Code.QPACK_DECOMPRESSION_FAILED


def trailed(*lines: tuple[bytes, bytes]) -> bytes:
    """A request with these trailers."""
    return (
        POST
        + frame(http3_bytes.DATA, b"x")
        + frame(http3_bytes.HEADERS, http3_bytes.section(lines))
    )


def lengthy(value: bytes, body: bytes) -> bytes:
    """A request with this content-length and this content."""
    return http3_bytes.request("/upload", (b"content-length", value), method="POST") + frame(
        http3_bytes.DATA, body
    )


def packed(*lines: bytes, insert_count: bytes = b"\0", base: bytes = b"\0") -> bytes:
    """A request with this encoding of its section."""
    return frame(http3_bytes.HEADERS, insert_count + base + b"".join(lines))


RULES = {
    # RFC 9114
    "HTTP/3 4.1 DATA before HEADERS": Rule(
        request=frame(http3_bytes.DATA, b"x"), closes=UNEXPECTED
    ),
    "HTTP/3 4.1 DATA after trailers": Rule(
        request=trailed((b"a", b"b")) + frame(http3_bytes.DATA, b"x"), closes=UNEXPECTED
    ),
    "HTTP/3 4.1 HEADERS after trailers": Rule(
        request=trailed((b"a", b"b")) + frame(http3_bytes.HEADERS, http3_bytes.section([])),
        closes=UNEXPECTED,
    ),
    "HTTP/3 4.1 trailers": Rule(request=trailed((b"a", b"b")), answers=200),
    "HTTP/3 4.1 end before the HEADERS": Rule(request=b"", resets=Code.H3_REQUEST_INCOMPLETE),
    "HTTP/3 4.1 unknown frames and no HEADERS": Rule(
        request=frame(http3_bytes.GREASE, b"x"), resets=Code.H3_REQUEST_INCOMPLETE
    ),
    "HTTP/3 4.1.2 content longer than content-length": Rule(
        request=lengthy(b"1", b"xyz"), resets=MALFORMED
    ),
    "HTTP/3 4.1.2 content shorter than content-length": Rule(
        request=lengthy(b"9", b"xyz"), resets=MALFORMED
    ),
    "HTTP/3 4.1.2 content-length that is no number": Rule(
        request=lengthy(b"+3", b"xyz"), resets=MALFORMED
    ),
    "HTTP/3 4.1.2 content-lengths that differ": Rule(
        request=http3_bytes.request(
            "/upload", (b"content-length", b"3"), (b"content-length", b"4"), method="POST"
        )
        + frame(http3_bytes.DATA, b"xyz"),
        resets=MALFORMED,
    ),
    "HTTP/3 4.2 name in upper case": Rule(
        request=http3_bytes.request("/", (b"X", b"y")), resets=MALFORMED
    ),
    "HTTP/3 4.2 name that is none": Rule(
        request=http3_bytes.request("/", (b"a b", b"y")), resets=MALFORMED
    ),
    "HTTP/3 4.2 empty name": Rule(request=http3_bytes.request("/", (b"", b"y")), resets=MALFORMED),
    "HTTP/3 4.2 line feed in a value": Rule(
        request=http3_bytes.request("/", (b"x", b"a\nb")), resets=MALFORMED
    ),
    "HTTP/3 4.2 NUL in a value": Rule(
        request=http3_bytes.request("/", (b"x", b"a\0b")), resets=MALFORMED
    ),
    "HTTP/3 4.2 connection": Rule(
        request=http3_bytes.request("/", (b"connection", b"close")), resets=MALFORMED
    ),
    "HTTP/3 4.2 transfer-encoding": Rule(
        request=http3_bytes.request("/", (b"transfer-encoding", b"chunked")), resets=MALFORMED
    ),
    "HTTP/3 4.2 te of gzip": Rule(
        request=http3_bytes.request("/", (b"te", b"gzip")), resets=MALFORMED
    ),
    "HTTP/3 4.2 te of trailers": Rule(
        request=http3_bytes.request("/", (b"te", b"trailers")), answers=200
    ),
    "HTTP/3 4.3 unknown pseudo-header field": Rule(
        request=fields(*WHOLE, (b":foo", b"bar")), resets=MALFORMED
    ),
    "HTTP/3 4.3 response pseudo-header field in a request": Rule(
        request=fields(*WHOLE, (b":status", b"200")), resets=MALFORMED
    ),
    "HTTP/3 4.3 pseudo-header field after the others": Rule(
        request=fields(METHOD, SCHEME, AUTHORITY, (b"a", b"b"), PATH), resets=MALFORMED
    ),
    "HTTP/3 4.3 pseudo-header field in trailers": Rule(request=trailed(PATH), resets=MALFORMED),
    "HTTP/3 4.3.1 duplicated pseudo-header field": Rule(
        request=fields(*WHOLE, PATH), resets=MALFORMED
    ),
    "HTTP/3 4.3.1 without method": Rule(request=fields(*WHOLE[1:]), resets=MALFORMED),
    "HTTP/3 4.3.1 without scheme": Rule(request=fields(METHOD, AUTHORITY, PATH), resets=MALFORMED),
    "HTTP/3 4.3.1 without path": Rule(request=fields(METHOD, SCHEME, AUTHORITY), resets=MALFORMED),
    "HTTP/3 4.3.1 empty path": Rule(request=http3_bytes.request(""), resets=MALFORMED),
    "HTTP/3 4.3.1 without authority and host": Rule(
        request=fields(METHOD, SCHEME, PATH), resets=MALFORMED
    ),
    "HTTP/3 4.3.1 empty authority": Rule(
        request=http3_bytes.request(authority=""), resets=MALFORMED
    ),
    "HTTP/3 4.3.1 authority and host that differ": Rule(
        request=http3_bytes.request("/", (b"host", b"elsewhere")), resets=MALFORMED
    ),
    "HTTP/3 4.3.1 host in the authority's place": Rule(
        request=fields(METHOD, SCHEME, PATH, (b"host", b"localhost")), answers=200
    ),
    "HTTP/3 4.4 CONNECT with a path": Rule(
        request=http3_bytes.request(method="CONNECT", scheme=None), resets=MALFORMED
    ),
    "HTTP/3 4.4 CONNECT without an authority": Rule(
        request=fields((b":method", b"CONNECT")), resets=MALFORMED
    ),
    "HTTP/3 6.1 server-initiated bidirectional streams are not": Rule(
        # The server opens none, whatever a client sends; here it sends a request.
        request=GET,
        then="no bidirectional stream of the server",
        answers=200,
    ),
    "HTTP/3 6.2.1 control stream twice": Rule(
        unis=(varint(http3_bytes.CONTROL) + http3_bytes.settings({}),),
        closes=Code.H3_STREAM_CREATION_ERROR,
    ),
    "HTTP/3 6.2.1 control stream without SETTINGS": Rule(
        settings=None,
        control=frame(http3_bytes.MAX_PUSH_ID, b"\0"),
        closes=Code.H3_MISSING_SETTINGS,
    ),
    "HTTP/3 6.2.1 unknown frame before SETTINGS": Rule(
        settings=None, control=frame(http3_bytes.GREASE), closes=Code.H3_MISSING_SETTINGS
    ),
    "HTTP/3 6.2.1 control stream that ends": Rule(
        then="end of control", closes=Code.H3_CLOSED_CRITICAL_STREAM
    ),
    "HTTP/3 6.2.1 control stream that is reset": Rule(
        then="reset of control", closes=Code.H3_CLOSED_CRITICAL_STREAM
    ),
    "HTTP/3 6.2.1 server's control stream that is stopped": Rule(
        then="stop of control", closes=Code.H3_CLOSED_CRITICAL_STREAM
    ),
    "HTTP/3 6.2.2 push stream of a client": Rule(
        unis=(varints(http3_bytes.PUSH, 0),), closes=Code.H3_STREAM_CREATION_ERROR
    ),
    "HTTP/3 6.2.3 unknown stream": Rule(
        unis=(varint(http3_bytes.GREASE) + b"x",), request=GET, answers=200
    ),
    "HTTP/3 7.1 frame with more than its fields": Rule(
        control=frame(http3_bytes.GOAWAY, b"\0\0"), closes=Code.H3_FRAME_ERROR
    ),
    "HTTP/3 7.1 frame that ends inside a field": Rule(
        control=frame(http3_bytes.GOAWAY, b"\x40"), closes=Code.H3_FRAME_ERROR
    ),
    "HTTP/3 7.1 stream that ends inside a frame": Rule(
        request=POST + varints(http3_bytes.DATA, 10) + b"x", closes=Code.H3_FRAME_ERROR
    ),
    "HTTP/3 7.2.1 DATA on the control stream": Rule(
        control=frame(http3_bytes.DATA), closes=UNEXPECTED
    ),
    "HTTP/3 7.2.2 HEADERS on the control stream": Rule(
        control=frame(http3_bytes.HEADERS), closes=UNEXPECTED
    ),
    "HTTP/3 7.2.3 CANCEL_PUSH on a request stream": Rule(
        request=GET + frame(http3_bytes.CANCEL_PUSH, b"\0"), closes=UNEXPECTED
    ),
    "HTTP/3 7.2.3 CANCEL_PUSH of what was not promised": Rule(
        control=frame(http3_bytes.CANCEL_PUSH, b"\5"), closes=Code.H3_ID_ERROR
    ),
    "HTTP/3 7.2.4 SETTINGS twice": Rule(control=http3_bytes.settings({}), closes=UNEXPECTED),
    "HTTP/3 7.2.4 SETTINGS on a request stream": Rule(
        request=GET + http3_bytes.settings({}), closes=UNEXPECTED
    ),
    "HTTP/3 7.2.4 setting twice": Rule(
        settings=None,
        control=frame(http3_bytes.SETTINGS, varints(6, 1, 6, 2)),
        closes=Code.H3_SETTINGS_ERROR,
    ),
    **{
        f"HTTP/3 7.2.4.1 setting of HTTP/2 {number:#x}": Rule(
            settings={number: 1}, closes=Code.H3_SETTINGS_ERROR
        )
        for number in (0x2, 0x3, 0x4, 0x5)
    },
    "HTTP/3 7.2.4.1 unknown setting": Rule(
        settings={http3_bytes.GREASE: 7}, request=GET, answers=200
    ),
    "HTTP/3 7.2.4 SETTINGS cut off": Rule(
        settings=None, control=frame(http3_bytes.SETTINGS, varint(6)), closes=Code.H3_FRAME_ERROR
    ),
    "HTTP/3 7.2.5 PUSH_PROMISE of a client": Rule(
        request=GET + frame(http3_bytes.PUSH_PROMISE, b"\0\0\0"), closes=UNEXPECTED
    ),
    "HTTP/3 7.2.5 PUSH_PROMISE on the control stream": Rule(
        control=frame(http3_bytes.PUSH_PROMISE, b"\0\0\0"), closes=UNEXPECTED
    ),
    "HTTP/3 7.2.6 GOAWAY on a request stream": Rule(
        request=GET + frame(http3_bytes.GOAWAY, b"\0"), closes=UNEXPECTED
    ),
    "HTTP/3 5.2 GOAWAY that goes up": Rule(
        control=frame(http3_bytes.GOAWAY, b"\1") + frame(http3_bytes.GOAWAY, b"\2"),
        closes=Code.H3_ID_ERROR,
    ),
    "HTTP/3 7.2.7 MAX_PUSH_ID on a request stream": Rule(
        request=GET + frame(http3_bytes.MAX_PUSH_ID, b"\0"), closes=UNEXPECTED
    ),
    "HTTP/3 7.2.7 MAX_PUSH_ID that goes down": Rule(
        control=frame(http3_bytes.MAX_PUSH_ID, b"\5") + frame(http3_bytes.MAX_PUSH_ID, b"\4"),
        closes=Code.H3_ID_ERROR,
    ),
    **{
        f"HTTP/3 7.2.8 frame of HTTP/2 {kind:#x} on the control stream": Rule(
            control=frame(kind), closes=UNEXPECTED
        )
        for kind in (0x2, 0x6, 0x8, 0x9)
    },
    **{
        f"HTTP/3 7.2.8 frame of HTTP/2 {kind:#x} on a request stream": Rule(
            request=frame(kind), closes=UNEXPECTED
        )
        for kind in (0x2, 0x6, 0x8, 0x9)
    },
    "HTTP/3 9 unknown frames around a request": Rule(
        control=frame(http3_bytes.GREASE, b"x"),
        request=frame(http3_bytes.GREASE) + GET + frame(http3_bytes.GREASE, b"x" * 500),
        answers=200,
    ),
    # RFC 9204
    "QPACK 4.5.1.2 base below zero": Rule(
        request=packed(b"\x80", insert_count=b"\x02", base=b"\x85"), closes=DECOMPRESSION
    ),
    "QPACK 2.2.3 dynamic reference with an insert count of zero": Rule(
        request=packed(b"\x80"), closes=DECOMPRESSION
    ),
    "QPACK 3.1 static index that does not exist": Rule(
        request=packed(http3_bytes.prefixed(200, 6, 0xC0)), closes=DECOMPRESSION
    ),
    "QPACK 3.1 static name that does not exist": Rule(
        request=packed(http3_bytes.prefixed(200, 4, 0x50) + b"\0"), closes=DECOMPRESSION
    ),
    "QPACK 3.2.2 entry larger than the table": Rule(
        unis=(
            varint(http3_bytes.QPACK_ENCODER)
            + http3_bytes.capacity(64)
            + http3_bytes.insert(b"name", b"v" * 100),
        ),
        closes=Code.QPACK_ENCODER_STREAM_ERROR,
    ),
    "QPACK 3.2.4 duplicate of an entry that is not there": Rule(
        unis=(varint(http3_bytes.QPACK_ENCODER) + http3_bytes.capacity(64) + b"\x05",),
        closes=Code.QPACK_ENCODER_STREAM_ERROR,
    ),
    "QPACK 4.1.1 integer beyond 62 bits": Rule(
        request=packed(b"\x27" + b"\xff" * 20), closes=DECOMPRESSION
    ),
    "QPACK 4.1.2 Huffman code that ends in zeros": Rule(
        request=packed(b"\x21x\x81\x00"), closes=DECOMPRESSION
    ),
    "QPACK 4.1.3 capacity above the limit": Rule(
        unis=(varint(http3_bytes.QPACK_ENCODER) + http3_bytes.capacity(1 << 20),),
        closes=Code.QPACK_ENCODER_STREAM_ERROR,
    ),
    "QPACK 4.2 encoder stream twice": Rule(
        unis=(varint(http3_bytes.QPACK_ENCODER), varint(http3_bytes.QPACK_ENCODER)),
        closes=Code.H3_STREAM_CREATION_ERROR,
    ),
    "QPACK 4.2 decoder stream twice": Rule(
        unis=(varint(http3_bytes.QPACK_DECODER), varint(http3_bytes.QPACK_DECODER)),
        closes=Code.H3_STREAM_CREATION_ERROR,
    ),
    "QPACK 4.2 encoder stream that ends": Rule(
        unis=(varint(http3_bytes.QPACK_ENCODER),),
        then="end of the last",
        closes=Code.H3_CLOSED_CRITICAL_STREAM,
    ),
    "QPACK 4.2 decoder stream that ends": Rule(
        unis=(varint(http3_bytes.QPACK_DECODER),),
        then="end of the last",
        closes=Code.H3_CLOSED_CRITICAL_STREAM,
    ),
    "QPACK 4.2 decoder stream that is reset": Rule(
        unis=(varint(http3_bytes.QPACK_DECODER),),
        then="reset of the last",
        closes=Code.H3_CLOSED_CRITICAL_STREAM,
    ),
    "QPACK 4.4.1 acknowledgment of a section without references": Rule(
        unis=(varint(http3_bytes.QPACK_DECODER) + b"\x80",), closes=Code.QPACK_DECODER_STREAM_ERROR
    ),
    "QPACK 4.4.2 cancellation of a stream without references": Rule(
        unis=(varint(http3_bytes.QPACK_DECODER) + b"\x44",), request=GET, answers=200
    ),
    "QPACK 4.4.3 insert count increment of zero": Rule(
        unis=(varint(http3_bytes.QPACK_DECODER) + b"\0",), closes=Code.QPACK_DECODER_STREAM_ERROR
    ),
    "QPACK 4.4.3 insert count increment beyond what was sent": Rule(
        unis=(varint(http3_bytes.QPACK_DECODER) + b"\x3f\x20",),
        closes=Code.QPACK_DECODER_STREAM_ERROR,
    ),
    "QPACK 4.5.1.1 insert count that cannot be": Rule(
        request=packed(b"\x80", insert_count=http3_bytes.prefixed(1000, 8)), closes=DECOMPRESSION
    ),
    "QPACK 4.5 section that ends inside its prefix": Rule(
        request=frame(http3_bytes.HEADERS, b"\0"), closes=DECOMPRESSION
    ),
    "QPACK 4.5 section that ends inside a field line": Rule(
        request=packed(b"\x23ab"), closes=DECOMPRESSION
    ),
    # RFC 9218
    "Priorities 7.2 PRIORITY_UPDATE on a request stream": Rule(
        request=GET + frame(http3_bytes.PRIORITY_UPDATE, b"\0u=1"), closes=UNEXPECTED
    ),
    "Priorities 7.2 PRIORITY_UPDATE of what is no request stream": Rule(
        control=frame(http3_bytes.PRIORITY_UPDATE, b"\2u=1"), closes=Code.H3_ID_ERROR
    ),
    "Priorities 7.2 PRIORITY_UPDATE beyond the limit of streams": Rule(
        control=frame(http3_bytes.PRIORITY_UPDATE, varint(4 << 20) + b"u=1"),
        closes=Code.H3_ID_ERROR,
    ),
    "Priorities 7.2 PRIORITY_UPDATE of a push that was not promised": Rule(
        control=frame(http3_bytes.PRIORITY_UPDATE_PUSH, b"\7u=1"), closes=Code.H3_ID_ERROR
    ),
    "Priorities 7.2 PRIORITY_UPDATE without an element": Rule(
        control=frame(http3_bytes.PRIORITY_UPDATE), closes=Code.H3_FRAME_ERROR
    ),
    "Priorities 7.2 PRIORITY_UPDATE before its request": Rule(
        control=frame(http3_bytes.PRIORITY_UPDATE, b"\0u=1, i"), request=GET, answers=200
    ),
    # RFC 9220
    "WebSockets 3 :protocol without CONNECT": Rule(
        request=http3_bytes.request(protocol="websocket"), resets=MALFORMED
    ),
    "WebSockets 3 extended CONNECT without a path": Rule(
        request=fields((b":method", b"CONNECT"), (b":protocol", b"websocket"), SCHEME, AUTHORITY),
        resets=MALFORMED,
    ),
    # RFC 9297
    "Datagrams 2.1.1 SETTINGS_H3_DATAGRAM of neither 0 nor 1": Rule(
        settings={0x33: 2}, closes=Code.H3_SETTINGS_ERROR
    ),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_rfc(server, rule):
    async def main():
        async with connect_raw(server) as raw:
            if rule.settings is None:
                control = raw.uni(varint(http3_bytes.CONTROL) + rule.control)
            else:
                control = raw.control(rule.settings, rule.control)
            last = [control, *(raw.uni(data) for data in rule.unis)][-1]
            stream_id = None if rule.request is None else raw.bidi(rule.request, fin=rule.fin)
            await afterwards(raw, rule.then, control, last)
            if rule.closes is not None:
                assert await raw.wait_closed_by_server() == Close(rule.closes)
                return
            stream = await raw.wait_over(stream_id)
            if rule.resets is not None:
                assert stream.reset == rule.resets
                # RFC 9114 section 4.1.2: only the request is malformed.
                stream_id = raw.request()
                await raw.wait_over(stream_id)
            assert raw.answer(stream_id).status == (rule.answers or 200)
            assert not [one for one in raw.streams if one & 3 == 1]

    asyncio.run(asyncio.wait_for(main(), 60))


async def afterwards(raw, what, control, last):
    """Performs the rule's later action on an open stream."""
    if not what:
        return
    stream_id = {"control": control, "last": last}.get(what.split()[-1])
    # The server must have seen the stream: otherwise the reset has no effect.
    settings = await raw.wait_settings()
    assert settings
    if what.startswith("end"):
        raw.write(stream_id, b"", fin=True)
    elif what.startswith("reset"):
        await raw.confirmed()
        await raw.wait_answer(raw.request())
        raw.reset(stream_id, Code.H3_NO_ERROR)
    elif what.startswith("stop"):
        raw.stop(raw.their_control, Code.H3_NO_ERROR)


def test_settings_come_first_and_once(server):
    """RFC 9114 section 7.2.4, and 7.2.4.1 for forbidden settings."""

    async def main():
        async with connect_raw(server) as raw:
            raw.control()
            settings = await raw.wait_settings()
            assert not {0x0, 0x2, 0x3, 0x4, 0x5} & settings.keys()
            await raw.wait_answer(raw.request())
            kinds = [kind for kind, _ in raw.frames(raw.their_control)]
            assert kinds[0] == http3_bytes.SETTINGS
            assert kinds.count(http3_bytes.SETTINGS) == 1

    asyncio.run(asyncio.wait_for(main(), 60))


def test_the_server_waits_for_no_settings(server):
    """RFC 9114 section 7.2.4.2: if the client waits too, both would wait for ever."""

    async def main():
        async with connect_raw(server) as raw:
            assert (await raw.wait_answer(raw.request())).status == 200

    asyncio.run(asyncio.wait_for(main(), 60))
