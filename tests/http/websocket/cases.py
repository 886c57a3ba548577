"""The cases 1 to 7 and 10 of the Autobahn test suite for a server that echoes, as a table.

Numbers and contents are those of the published cases; the bytes are written anew, by frames.py. A case
sends its pieces, each by itself, gets its replies, and ends: it fails with the status code of the broken
rule, or it closes and gets its close frame back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.http.websocket.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Frame,
    close,
    encode,
    fragments,
    pieces,
)

__all__ = ["CASES", "Case"]

NORMAL, PROTOCOL_ERROR, INVALID_PAYLOAD = 1000, 1002, 1007
SURVIVING = "\u03ba\u1f79\u03c3\u03bc\u03b5".encode()
"""Five Greek letters of two and three bytes."""


@dataclass(frozen=True)
class Case:
    """What a client sends, and what it gets."""

    number: str
    sent: tuple[bytes, ...]
    replies: tuple[Frame, ...] = ()
    fails: int | None = None
    """The status code with which the server fails the connection."""
    ending: bytes = close(NORMAL)
    """What the client sends after the replies, if the connection does not fail."""
    code: int | None = NORMAL
    """The status code of the server's close frame after ``ending``."""
    is_cut: bool = False
    """True if the server may fail before it has replied to earlier frames: a connection fails at once,
    and an application answers later. Autobahn calls that non-strict."""


def octets(*frames: bytes) -> tuple[bytes, ...]:
    """Cuts frames into single bytes."""
    return tuple(pieces(b"".join(frames), 1))


def together(*frames: bytes) -> tuple[bytes, ...]:
    """Returns one piece of several frames."""
    return (b"".join(frames),)


def all_cases() -> Iterator[Case]:
    yield from messages_of_many_lengths()
    yield from pings_and_pongs()
    yield from reserved_bits()
    yield from reserved_opcodes()
    yield from fragmented_messages()
    yield from texts()
    yield from utf8_sequences()
    yield from closes()
    payload = b"*" * 65_536
    cut = fragments(TEXT, pieces(payload, 1300))
    yield Case("10.1.1", tuple(cut), (Frame(TEXT, payload),))


def messages_of_many_lengths() -> Iterator[Case]:
    for group, opcode, byte in ((1, TEXT, b"*"), (2, BINARY, b"\xfe")):
        for number, size in enumerate((0, 125, 126, 127, 128, 65_535, 65_536), 1):
            payload = byte * size
            yield Case(f"1.{group}.{number}", (encode(opcode, payload),), (Frame(opcode, payload),))
        payload = byte * 65_536
        sent = tuple(pieces(encode(opcode, payload), 997))
        yield Case(f"1.{group}.8", sent, (Frame(opcode, payload),))


def pings_and_pongs() -> Iterator[Case]:
    for number, payload in (
        (1, b""),
        (2, b"Hello, world!"),
        (3, b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"),
        (4, b"\xfe" * 125),
    ):
        yield Case(f"2.{number}", (encode(PING, payload),), (Frame(PONG, payload),))
    yield Case("2.5", (encode(PING, b"\xfe" * 126),), fails=PROTOCOL_ERROR)
    longest = b"\xfe" * 125
    yield Case("2.6", octets(encode(PING, longest)), (Frame(PONG, longest),))
    unasked = encode(PONG, b"unsolicited pong payload")
    yield Case("2.7", (encode(PONG),))
    yield Case("2.8", (unasked,))
    yield Case("2.9", (unasked, encode(PING, b"ping payload")), (Frame(PONG, b"ping payload"),))
    payloads = [b"payload-%d" % number for number in range(10)]
    pings = [encode(PING, payload) for payload in payloads]
    pongs = tuple(Frame(PONG, payload) for payload in payloads)
    yield Case("2.10", together(*pings), pongs)
    yield Case("2.11", octets(*pings), pongs)


def reserved_bits() -> Iterator[Case]:
    hello, ping = b"Hello, world!", encode(PING)
    text, echo = encode(TEXT, hello), (Frame(TEXT, hello),)
    yield Case("3.1", (encode(TEXT, hello, rsv=1),), fails=PROTOCOL_ERROR)
    frames = (text, encode(TEXT, hello, rsv=2), ping)
    yield Case("3.2", together(*frames), echo, PROTOCOL_ERROR, is_cut=True)
    frames = (text, encode(TEXT, hello, rsv=3), ping)
    yield Case("3.3", frames, echo, PROTOCOL_ERROR, is_cut=True)
    frames = (text, encode(TEXT, hello, rsv=4), ping)
    yield Case("3.4", octets(*frames), echo, PROTOCOL_ERROR, is_cut=True)
    binary = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
    yield Case("3.5", (encode(BINARY, binary, rsv=5),), fails=PROTOCOL_ERROR)
    yield Case("3.6", (encode(PING, hello, rsv=6),), fails=PROTOCOL_ERROR)
    yield Case("3.7", (encode(CLOSE, rsv=7),), fails=PROTOCOL_ERROR)


def reserved_opcodes() -> Iterator[Case]:
    hello, ping = b"Hello, world!", encode(PING)
    text, echo = encode(TEXT, hello), (Frame(TEXT, hello),)
    for group, first in ((1, 3), (2, 11)):
        name = f"4.{group}"
        yield Case(f"{name}.1", (encode(first),), fails=PROTOCOL_ERROR)
        yield Case(f"{name}.2", (encode(first + 1, b"reserved"),), fails=PROTOCOL_ERROR)
        frames = (text, encode(first + 2), ping)
        yield Case(f"{name}.3", together(*frames), echo, PROTOCOL_ERROR, is_cut=True)
        frames = (text, encode(first + 3, hello), ping)
        yield Case(f"{name}.4", frames, echo, PROTOCOL_ERROR, is_cut=True)
        frames = (text, encode(first + 4, hello), ping)
        yield Case(f"{name}.5", octets(*frames), echo, PROTOCOL_ERROR, is_cut=True)


def fragmented_messages() -> Iterator[Case]:
    for number, opcode in ((1, PING), (2, PONG)):
        frames = fragments(opcode, [b"fragment1", b"fragment2"])
        yield Case(f"5.{number}", together(*frames), fails=PROTOCOL_ERROR)
    first, last = fragments(TEXT, [b"fragment1", b"fragment2"])
    ping, pong = encode(PING, b"ping payload"), Frame(PONG, b"ping payload")
    echo = Frame(TEXT, b"fragment1fragment2")
    for number, chop in enumerate((together, lambda *frames: frames, octets), 3):
        yield Case(f"5.{number}", chop(first, last), (echo,))
        yield Case(f"5.{number + 3}", chop(first, ping, last), (pong, echo))
        text = encode(TEXT, b"Hello, world!")
        for begin, is_last in ((9, True), (12, False)):
            nothing = encode(CONTINUATION, b"non-continuation payload", fin=is_last)
            yield Case(f"5.{begin + number - 3}", chop(nothing, text), fails=PROTOCOL_ERROR)
    nothing = encode(CONTINUATION, b"fragment3", fin=False)
    frames = (first, last, nothing, encode(TEXT, b"fragment4"))
    yield Case("5.15", together(*frames), (echo,), PROTOCOL_ERROR, is_cut=True)
    for number, is_last in ((16, False), (17, True)):
        nothing = encode(CONTINUATION, b"fragment1", fin=is_last)
        frames = (nothing, *fragments(TEXT, [b"fragment2", b"fragment3"])) * 2
        yield Case(f"5.{number}", together(*frames), fails=PROTOCOL_ERROR)
    frames = (encode(TEXT, b"fragment1", fin=False), encode(TEXT, b"fragment2"))
    yield Case("5.18", together(*frames), fails=PROTOCOL_ERROR)
    parts = [b"fragment%d" % number for number in range(1, 6)]
    one, two, three, four, five = fragments(TEXT, parts)
    pings = (encode(PING, b"pongme 1!"), encode(PING, b"pongme 2!"))
    replies = (Frame(PONG, b"pongme 1!"), Frame(PONG, b"pongme 2!"), Frame(TEXT, b"".join(parts)))
    frames = (one, two, pings[0], three, four, pings[1], five)
    yield Case("5.19", (b"".join(frames[:3]), b"".join(frames[3:])), replies)
    yield Case("5.20", frames, replies)


def texts() -> Iterator[Case]:
    yield Case("6.1.1", (encode(TEXT),), (Frame(TEXT),))
    yield Case("6.1.2", together(*fragments(TEXT, [b"", b"", b""])), (Frame(TEXT),))
    middle = b"middle frame payload"
    yield Case("6.1.3", together(*fragments(TEXT, [b"", middle, b""])), (Frame(TEXT, middle),))
    text = "Hello-\u00b5@\u00df\u00f6\u00e4\u00fc\u00e0\u00e1-UTF-8!!".encode()
    half = text.index("\u00fc".encode())
    echo = (Frame(TEXT, text),)
    yield Case("6.2.1", (encode(TEXT, text),), echo)
    yield Case("6.2.2", together(*fragments(TEXT, [text[:half], text[half:]])), echo)
    yield Case("6.2.3", together(*fragments(TEXT, pieces(text, 1))), echo)
    frames = fragments(TEXT, pieces(SURVIVING, 1))
    yield Case("6.2.4", together(*frames), (Frame(TEXT, SURVIVING),))
    surrogate = SURVIVING + b"\xed\xa0\x80edited"
    yield Case("6.3.1", (encode(TEXT, surrogate),), fails=INVALID_PAYLOAD)
    frames = fragments(TEXT, pieces(surrogate, 1))
    yield Case("6.3.2", together(*frames), fails=INVALID_PAYLOAD)
    # A text fails at its first invalid byte: the rest of the message is never sent.
    too_high = SURVIVING + b"\xf4\x90\x80\x80edited"
    for number, begin, end in ((1, 11, 15), (2, 12, 13)):
        first = encode(TEXT, too_high[:begin], fin=False)
        second = encode(CONTINUATION, too_high[begin:end], fin=False)
        yield Case(f"6.4.{number}", (first, second), fails=INVALID_PAYLOAD)
    whole = encode(TEXT, too_high)
    head = len(whole) - len(too_high)
    for number, begin, end in ((3, head + 11, head + 15), (4, head + 12, head + 13)):
        yield Case(f"6.4.{number}", (whole[:begin], whole[begin:end]), fails=INVALID_PAYLOAD)


def utf8_sequences() -> Iterator[Case]:
    for group, (good, bad) in enumerate(UTF8_SEQUENCES, 5):
        for number, payload in enumerate(good + bad, 1):
            yield utf8_case(f"6.{group}.{number}", payload, payload in good)


def utf8_case(number: str, payload: bytes, is_valid: bool) -> Case:
    sent = (encode(TEXT, payload),)
    if is_valid:
        return Case(number, sent, (Frame(TEXT, payload),))
    return Case(number, sent, fails=INVALID_PAYLOAD)


def closes() -> Iterator[Case]:
    text, ping = encode(TEXT, b"Hello World!"), encode(PING)
    yield Case("7.1.1", (text,), (Frame(TEXT, b"Hello World!"),))
    yield Case("7.1.2", (), ending=close(NORMAL) + encode(CLOSE))
    yield Case("7.1.3", (), ending=close(NORMAL) + ping)
    yield Case("7.1.4", (), ending=close(NORMAL) + text)
    first, last = fragments(TEXT, [b"fragment1", b"fragment2"])
    yield Case("7.1.5", (first,), ending=close(NORMAL) + last)
    large = b"BAsd7&jh23" * 26_214
    yield Case(
        "7.1.6",
        (encode(TEXT, large), text),
        (Frame(TEXT, large), Frame(TEXT, b"Hello World!")),
        ending=close(NORMAL) + ping,
    )
    yield Case("7.3.1", (), ending=encode(CLOSE), code=None)
    yield Case("7.3.2", (encode(CLOSE, b"a"),), fails=PROTOCOL_ERROR)
    yield Case("7.3.3", (), ending=close(NORMAL))
    yield Case("7.3.4", (), ending=close(NORMAL, b"Hello World!"))
    yield Case("7.3.5", (), ending=close(NORMAL, b"*" * 123))
    yield Case("7.3.6", (close(NORMAL, b"*" * 124),), fails=PROTOCOL_ERROR)
    reason = SURVIVING + b"\xed\xa0\x80edited"
    yield Case("7.5.1", (close(NORMAL, reason),), fails=INVALID_PAYLOAD)
    valid = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
    for number, code in enumerate(valid, 1):
        yield Case(f"7.7.{number}", (), ending=close(code), code=code)
    invalid = (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999)
    for number, code in enumerate(invalid, 1):
        yield Case(f"7.9.{number}", (close(code),), fails=PROTOCOL_ERROR)
    yield Case("7.13.1", (close(5000),), fails=PROTOCOL_ERROR)
    yield Case("7.13.2", (close(65_535),), fails=PROTOCOL_ERROR)


def spaced(first: int, end: int) -> bytes:
    """Returns lonely start bytes, a space after each."""
    return b"".join(bytes([byte, 0x20]) for byte in range(first, end))


ENDS_OF_LETTERS = (2, 5, 7, 9, 11)
CUT_OFF = [
    *(b"\xc0", b"\xe0\x80", b"\xf0\x80\x80", b"\xf8\x80\x80\x80", b"\xfc\x80\x80\x80\x80"),
    *(b"\xdf", b"\xef\xbf", b"\xf7\xbf\xbf", b"\xfb\xbf\xbf\xbf", b"\xfd\xbf\xbf\xbf\xbf"),
]

# Markus Kuhn's sequences: the valid ones of a group, and the invalid ones.
UTF8_SEQUENCES: list[tuple[list[bytes], list[bytes]]] = [
    # 6.5: some correct UTF-8 text.
    (
        [
            b"hello$world",
            b"hello\xc2\xa2world",
            b"hello\xe2\x82\xacworld",
            b"hello\xf0\xa4\xad\xa2world",
            SURVIVING,
        ],
        [],
    ),
    # 6.6: the prefixes of a text, whole letters first.
    (
        [SURVIVING[:end] for end in ENDS_OF_LETTERS],
        [SURVIVING[:end] for end in range(1, 12) if end not in ENDS_OF_LETTERS],
    ),
    # 6.7 and 6.8: the first sequence of each length.
    ([b"\0", b"\xc2\x80", b"\xe0\xa0\x80", b"\xf0\x90\x80\x80"], []),
    ([], [b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80"]),
    # 6.9 and 6.10: the last one.
    ([b"\x7f", b"\xdf\xbf", b"\xef\xbf\xbf", b"\xf4\x8f\xbf\xbf"], []),
    ([], [b"\xf7\xbf\xbf\xbf", b"\xfb\xbf\xbf\xbf\xbf", b"\xfd\xbf\xbf\xbf\xbf\xbf"]),
    # 6.11: other boundaries.
    (
        [b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xef\xbf\xbd", b"\xf4\x8f\xbf\xbf"],
        [b"\xf4\x90\x80\x80"],
    ),
    # 6.12: unexpected continuation bytes.
    (
        [],
        [
            b"\x80",
            b"\xbf",
            *((b"\x80\xbf" * 3)[:size] for size in range(2, 7)),
            bytes(range(0x80, 0xBF)),
        ],
    ),
    # 6.13: lonely start bytes.
    (
        [],
        [
            spaced(0xC0, 0xDF),
            spaced(0xE0, 0xEF),
            spaced(0xF0, 0xF7),
            spaced(0xF8, 0xFB),
            spaced(0xFC, 0xFD),
        ],
    ),
    # 6.14 and 6.15: sequences without their last byte, alone and joined.
    ([], CUT_OFF),
    ([], [b"".join(CUT_OFF)]),
    # 6.16: impossible bytes.
    ([], [b"\xfe", b"\xff", b"\xfe\xfe\xff\xff"]),
    # 6.17 to 6.19: overlong sequences.
    (
        [],
        [
            b"\xc0\xaf",
            b"\xe0\x80\xaf",
            b"\xf0\x80\x80\xaf",
            b"\xf8\x80\x80\x80\xaf",
            b"\xfc\x80\x80\x80\x80\xaf",
        ],
    ),
    (
        [],
        [
            b"\xc1\xbf",
            b"\xe0\x9f\xbf",
            b"\xf0\x8f\xbf\xbf",
            b"\xf8\x87\xbf\xbf\xbf",
            b"\xfc\x83\xbf\xbf\xbf\xbf",
        ],
    ),
    (
        [],
        [
            b"\xc0\x80",
            b"\xe0\x80\x80",
            b"\xf0\x80\x80\x80",
            b"\xf8\x80\x80\x80\x80",
            b"\xfc\x80\x80\x80\x80\x80",
        ],
    ),
    # 6.20 and 6.21: surrogates of UTF-16, alone and in pairs.
    (
        [],
        [
            b"\xed\xa0\x80",
            b"\xed\xad\xbf",
            b"\xed\xae\x80",
            b"\xed\xaf\xbf",
            b"\xed\xb0\x80",
            b"\xed\xbe\x80",
            b"\xed\xbf\xbf",
        ],
    ),
    (
        [],
        [
            high + low
            for high in (b"\xed\xa0\x80", b"\xed\xad\xbf", b"\xed\xae\x80", b"\xed\xaf\xbf")
            for low in (b"\xed\xb0\x80", b"\xed\xbf\xbf")
        ],
    ),
    # 6.22: the last two code points of each plane are no characters, but valid.
    ([chr(plane << 16 | last).encode() for plane in range(17) for last in (0xFFFE, 0xFFFF)], []),
    # 6.23: specials.
    ([chr(code).encode() for code in range(0xFFF9, 0x10000)], []),
]

CASES = {case.number: case for case in all_cases()}
