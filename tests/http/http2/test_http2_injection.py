"""Fields of HTTP/2 that become other messages if a server or proxy writes them in HTTP/1.1's form.

The cases come from published work on downgrades ("HTTP/2: The Sequel is Always Worse", Kettle 2021) and from
CVEs of proxies. An application may forward each field. So the request is malformed, and its stream is reset
(RFC 9113 section 8.1.1), or the application gets nothing that could end a line or a name.
"""

from __future__ import annotations

import hpack
import pytest

from tests.http.http2.client import PREFACE, connected, frame, opened

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input]

DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, END_HEADERS = 1, 4
PROTOCOL_ERROR = 1

START = {b":method": b"POST", b":scheme": b"https", b":path": b"/upload", b":authority": b"a"}
HIDDEN = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


def fields(*more: tuple[bytes, bytes], **pseudo: bytes) -> list[tuple[bytes, bytes]]:
    changed = {b":" + name.encode(): value for name, value in pseudo.items()}
    return [*{**START, **changed}.items(), *more]


LINE = b"x\r\nTransfer-Encoding: chunked"

MALFORMED = {
    # A line in a value or in a name.
    "CR LF in a value": fields((b"x", LINE)),
    "a bare LF in a value": fields((b"x", b"y\nTransfer-Encoding: chunked")),
    "a bare CR in a value": fields((b"x", b"y\rTransfer-Encoding: chunked")),
    "a NUL in a value": fields((b"x", b"y\0z")),
    "a request in a value": fields((b"x", b"y\r\n\r\n" + HIDDEN)),
    "a value that ends in LF": fields((b"x", b"y\n")),
    "CR LF in a name": fields((b"x: y\r\ntransfer-encoding", b"chunked")),
    "a bare LF in a name": fields((b"x\ntransfer-encoding", b"chunked")),
    "a colon in a name": fields((b"transfer-encoding: chunked", b"")),
    "a colon behind a name": fields((b"transfer-encoding:", b"chunked")),
    "a space in a name": fields((b"transfer encoding", b"chunked")),
    "a space behind a name": fields((b"transfer-encoding ", b"chunked")),
    "a tab before a name": fields((b"\ttransfer-encoding", b"chunked")),
    "a NUL in a name": fields((b"transfer-encoding\0", b"chunked")),
    "a name above ASCII": fields((b"transfer-encoding\xa0", b"chunked")),
    "a name in capitals": fields((b"Transfer-Encoding", b"chunked")),
    "an empty name": fields((b"", b"chunked")),
    # Fields of a connection (RFC 9113 section 8.2.2).
    "transfer-encoding": fields((b"transfer-encoding", b"chunked")),
    "connection": fields((b"connection", b"transfer-encoding")),
    "keep-alive": fields((b"keep-alive", b"timeout=5")),
    "proxy-connection": fields((b"proxy-connection", b"keep-alive")),
    "upgrade": fields((b"upgrade", b"h2c")),
    "te": fields((b"te", b"chunked")),
    # Lengths (section 8.1.1).
    "two lengths": fields((b"content-length", b"5"), (b"content-length", b"5")),
    "a list of lengths": fields((b"content-length", b"5, 5")),
    "a length with a sign": fields((b"content-length", b"+5")),
    "a length with a space": fields((b"content-length", b" 5")),
    "an empty length": fields((b"content-length", b"")),
    "a length in hexadecimal": fields((b"content-length", b"0x5")),
    "a shorter length": fields((b"content-length", b"0")),
    "a longer length": fields((b"content-length", b"6")),
    "a length beyond 64 bits": fields((b"content-length", b"18446744073709551621")),
    # Pseudo-header fields (section 8.3).
    "a request in the method": fields(method=b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST"),
    "a space in the method": fields(method=b"GET / HTTP/1.1"),
    "an empty method": fields(method=b""),
    "CR LF in the path": fields(path=b"/ HTTP/1.1\r\nHost: b\r\n\r\nGET /x"),
    "a space in the path": fields(path=b"/upload HTTP/1.1"),
    "a tab in the path": fields(path=b"/upload\tx"),
    "an empty path": fields(path=b""),
    "CR LF in the authority": fields(authority=b"a\r\nTransfer-Encoding: chunked"),
    "a path in the authority": fields(authority=b"a/x"),
    "userinfo in the authority": fields(authority=b"b@a"),
    "a space in the authority": fields(authority=b"a b"),
    "an empty authority": fields(authority=b""),
    "CR LF in the scheme": fields(scheme=b"https\r\nX: y"),
    "a URL in the scheme": fields(scheme=b"http://b/?"),
    "two paths": [*fields(), (b":path", b"/other")],
    "two methods": [*fields(), (b":method", b"GET")],
    "an unknown one": fields((b":x", b"y")),
    "one behind a field": [*fields((b"x", b"y")), (b":path", b"/other")],
    "one of a response": fields((b":status", b"200")),
    # Hosts (section 8.3.1).
    "another host": fields((b"host", b"b")),
    "two hosts": fields((b"host", b"a"), (b"host", b"b")),
}

ALLOWED = {
    "a host that is equal": fields((b"host", b"a")),
    "names that resemble": fields((b"transfer_encoding", b"chunked"), (b"content_length", b"0")),
    "a length": fields((b"content-length", b"5")),
    "trailers as te": fields((b"te", b"trailers")),
    "white space within a value": fields((b"x", b"y \t z")),
    "a value above ASCII": fields((b"x", b"y\xa0z")),
}


def sent(server, headers: list[tuple[bytes, bytes]]):
    """Sends a request with five bytes of content on a connection of its own; yields the server's frames."""
    block = hpack.Encoder().encode(headers, huffman=False)
    sock = opened(server, secure=server.is_secure)
    with sock:
        request = frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, END_STREAM, 1, b"0\r\n\r\n")
        sock.sendall(PREFACE + frame(SETTINGS, 0, 0) + request)
        rest = b""
        while True:
            while len(rest) >= 9 and len(rest) >= 9 + (size := int.from_bytes(rest[:3], "big")):
                yield rest[3], int.from_bytes(rest[5:9], "big"), rest[9 : 9 + size]
                rest = rest[9 + size :]
            received = sock.recv(65536)
            if not received:
                return
            rest += received


def answer(server, headers: list[tuple[bytes, bytes]]) -> int | str:
    """Returns the status of the response, or "reset" for a malformed request."""
    for kind, stream, payload in sent(server, headers):
        if kind == HEADERS and stream == 1:
            return int(dict(hpack.Decoder().decode(payload))[":status"])
        if kind == RST_STREAM and stream == 1:
            assert int.from_bytes(payload, "big") == PROTOCOL_ERROR
            return "reset"
        if kind == GOAWAY:
            return "closed"
    return "ended"


@pytest.mark.parametrize("case", MALFORMED)
def test_a_field_that_changes_a_message_of_http1_is_refused(server, case):
    assert answer(server, MALFORMED[case]) in ("reset", 400)


@pytest.mark.parametrize("case", ALLOWED)
def test_a_field_that_changes_nothing_is_accepted(server, case):
    assert answer(server, ALLOWED[case]) == 200


def test_the_content_is_not_a_request(server):
    """H2.CL: the length of content is that of the frames, whatever the content is."""
    with connected(server, secure=server.is_secure) as client:
        response = client.ask("/upload", "POST", body=HIDDEN)
        assert b'"bytes": %d' % len(HIDDEN) in response.body
        assert client.ask("/").body == b"hello"
