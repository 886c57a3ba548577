"""Request smuggling: messages that a proxy in front may interpret in another way than this server.

The cases come from published work: Linhart et al. 2005, Kettle 2019 to 2025 (PortSwigger), and CVEs of
servers and parsers. Each case has one correct result: the message is refused and no bytes behind it are read,
or the message is read in the only way that RFC 9112 permits.
"""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input]

HIDDEN = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
"""A request behind a refused message, which must not be served, or inside a message, whose content it is."""

START = b"POST /upload HTTP/1.1\r\nHost: a\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n"
LAST = b"0\r\n\r\n"


def coded(line: bytes) -> bytes:
    """Returns a request with this line and a Content-Length, which give its content two possible ends."""
    return START + line + b"\r\nContent-Length: 5\r\n\r\n" + LAST


def with_length(value: bytes) -> bytes:
    return START + b"Content-Length:" + value + b"\r\n\r\nhello"


def chunks(data: bytes) -> bytes:
    return CHUNKED + b"\r\n" + data


# CL.TE, TE.CL and TE.TE: only one side interprets the field as Transfer-Encoding.
TRANSFER_ENCODINGS = {
    "beside a length": coded(b"Transfer-Encoding: chunked"),
    "in capitals": coded(b"TRANSFER-ENCODING: CHUNKED"),
    "behind a tab": coded(b"Transfer-Encoding:\tchunked"),
    "without a space": coded(b"Transfer-Encoding:chunked"),
    "a space before the colon": coded(b"Transfer-Encoding : chunked"),
    "a tab before the colon": coded(b"Transfer-Encoding\t: chunked"),
    "a space before the name": coded(b"X: y\r\n Transfer-Encoding: chunked"),
    "first line with a space": b"POST /upload HTTP/1.1\r\n Host: a\r\nHost: b\r\n\r\n",
    "behind a bare LF": coded(b"X: y\nTransfer-Encoding: chunked"),
    "behind a bare CR": coded(b"X: y\rTransfer-Encoding: chunked"),
    "folded": coded(b"Transfer-Encoding:\r\n chunked"),
    "folded with a bare LF": coded(b"Transfer-Encoding:\n chunked"),
    "with a vertical tab": coded(b"Transfer-Encoding:\x0bchunked"),
    "with a form feed": coded(b"Transfer-Encoding: chunked\x0c"),
    "with a NUL": coded(b"Transfer-Encoding: chunked\x00"),
    "with a NUL in the name": coded(b"Transfer\x00-Encoding: chunked"),
    "in quotes": coded(b'Transfer-Encoding: "chunked"'),
    "with a prefix": coded(b"Transfer-Encoding: xchunked"),
    "with a comma": coded(b"Transfer-Encoding: chunked,"),
    "with a comma before": coded(b"Transfer-Encoding: ,chunked"),
    "with a parameter": coded(b"Transfer-Encoding: chunked;a=b"),
    "identity": coded(b"Transfer-Encoding: identity"),
    "identity before": coded(b"Transfer-Encoding: identity, chunked"),
    "twice": coded(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x"),
    "twice, the other way": coded(b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked"),
    "chunked twice": CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n" + LAST,
    "not last": START + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + LAST,
    "HTTP/1.0": b"POST /upload HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + LAST,
    "HTTP/1.0 with keep-alive": b"POST /upload HTTP/1.0\r\nConnection: keep-alive\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n" + LAST,
    "a name above ASCII": coded(b"Transfer-Encoding\xa0: chunked"),
    "a line without a colon": coded(b"Transfer-Encoding"),
    "an empty name": coded(b": chunked"),
    "two words as the name": coded(b"Transfer Encoding: chunked"),
    "tabs around the colon": coded(b"Transfer-Encoding\t:\tchunked"),
    "among words": coded(b"Transfer-Encoding: cow chunked bar"),
    "behind another": coded(b"Transfer-Encoding: cow, chunked"),
    "before another": coded(b"Transfer-Encoding: chunked, cow"),
    "in apostrophes": coded(b"Transfer-Encoding: 'chunked'"),
    "cut off": coded(b"Transfer-Encoding: chunk"),
    "a letter above ASCII": coded(b"Transfer-Encoding: ch\x96nked"),
    "a name with a letter above ASCII": coded(b"Transf\x82r-Encoding: chunked"),
    "folded with a tab": coded(b"Transfer-Encoding:\r\n\tchunked"),
    "folded behind": coded(b"Transfer-Encoding: chunked\r\n , identity"),
    "an empty folded line": coded(b"X: y\r\n \r\nTransfer-Encoding: chunked"),
    "an empty value": coded(b"Transfer-Encoding:"),
    "named by Connection": coded(b"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked"),
    "with a TE": coded(b"TE: chunked\r\nTransfer-Encoding: chunked"),
}

# Parsers disagree on these lengths.
LENGTHS = {
    "a plus sign": with_length(b" +5"),
    "a minus sign": with_length(b" -5"),
    "hexadecimal": with_length(b" 0x5"),
    "octal": with_length(b" 0o5"),
    "an underscore": with_length(b" 1_0"),
    "an exponent": with_length(b" 5e0"),
    "a point": with_length(b" 5.0"),
    "another digit": with_length(" ٥".encode()),
    "empty": with_length(b""),
    "a list of equal ones": with_length(b" 5, 5"),
    "a list": with_length(b" 5, 6"),
    "a space within": with_length(b" 5 5"),
    "a vertical tab": with_length(b" 5\x0b"),
    "a NUL": with_length(b" 5\x00"),
    "letters behind": with_length(b" 5a"),
    "larger than 64 bits": with_length(b" 18446744073709551621"),
    "twice": with_length(b" 5\r\nContent-Length: 6"),
    "twice and equal": with_length(b" 5\r\nContent-Length: 5"),
    "a space before the colon": START + b"Content-Length : 5\r\n\r\nhello",
    "folded": START + b"Content-Length:\r\n 5\r\n\r\nhello",
    "two words as the name": START + b"Content Length: 5\r\n\r\nhello",
    "one above the largest": with_length(b" 18446744073709551616"),
    "a list of three": with_length(b" 5,5,5"),
    "a comma behind": with_length(b" 5,"),
    "in quotes": with_length(b' "5"'),
    "minus zero": with_length(b" -0"),
    "three times": with_length(b" 5\r\nContent-Length: 5\r\nContent-Length: 5"),
    "an empty one behind": with_length(b" 5\r\nContent-Length:"),
    "zero and another": with_length(b" 0\r\nContent-Length: 5"),
}

# Parsers disagree on these chunks: CVE-2020-10108, CVE-2022-35256, CVE-2023-30589, CVE-2023-37276,
# CVE-2024-27982, "Funky chunks" (2025).
CHUNKS = {
    "a plus sign": chunks(b"+5\r\nhello\r\n" + LAST),
    "a minus sign": chunks(b"-5\r\nhello\r\n" + LAST),
    "a prefix": chunks(b"0x5\r\nhello\r\n" + LAST),
    "an underscore": chunks(b"0_5\r\nhello\r\n" + LAST),
    "a space before": chunks(b" 5\r\nhello\r\n" + LAST),
    "a space behind": chunks(b"5 \r\nhello\r\n" + LAST),
    "a tab behind": chunks(b"5\t;a\r\nhello\r\n" + LAST),
    "no digit": chunks(b"\r\nhello\r\n" + LAST),
    "only an extension": chunks(b";a=b\r\nhello\r\n" + LAST),
    "more than 64 bits": chunks(b"f0000000000000005\r\nhello\r\n" + LAST),
    "a bare LF behind the size": chunks(b"5\nhello\r\n" + LAST),
    "a bare CR behind the size": chunks(b"5\rhello\r\n" + LAST),
    "two CRs": chunks(b"5\r\r\nhello\r\n" + LAST),
    "a bare LF in an extension": chunks(b"5;\nhello\r\n" + LAST),
    "a bare CR in an extension": chunks(b"5;a\rb\r\nhello\r\n" + LAST),
    "a NUL in an extension": chunks(b"5;a\x00\r\nhello\r\n" + LAST),
    "a bare LF behind the data": chunks(b"5\r\nhello\n" + LAST),
    "two bytes instead of CR LF": chunks(b"5\r\nhelloXX" + LAST),
    "longer than its size": chunks(b"4\r\nhello\r\n" + LAST),
    "a bare LF behind the last size": chunks(b"0\n\r\n"),
    "a bare LF as the end": chunks(b"0\r\n\n"),
    "a bare CR as the end": chunks(b"0\r\n\rX"),
    "a trailer with a space": chunks(b"0\r\nX : y\r\n\r\n"),
    "a folded trailer": chunks(b"0\r\nX: y\r\n z\r\n\r\n"),
    "a trailer without a colon": chunks(b"0\r\nGET / HTTP/1.1\r\n\r\n"),
    "a trailer behind a bare LF": chunks(b"0\r\nX: y\nZ: a\r\n\r\n"),
}

# Lenient parsers accept these heads.
HEADS = {
    "HTTP/0.9": b"GET /\r\n\r\n",
    "a bare LF behind the request line": b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    "a bare LF as the end": b"GET / HTTP/1.1\r\nHost: a\n\n",
    "a tab in the request line": b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "two spaces": b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a space behind the version": b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
    "a space in the target": b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    "a NUL in the target": b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
    "a fragment": b"GET /#a HTTP/1.1\r\nHost: a\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\nHost: a\r\n\r\n",
    "a version of two digits": b"GET / HTTP/1.10\r\nHost: a\r\n\r\n",
    "a lower-case version": b"GET / http/1.1\r\nHost: a\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "two equal hosts": b"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
    "a host with a path": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a host with userinfo": b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
    "a host with a space": b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    "a CR in a name": b"GET / HTTP/1.1\r\nHost: a\r\nX\rY: z\r\n\r\n",
    "a method with a colon": b"GET: / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a method behind a space": b" GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a backslash in the host": b"GET / HTTP/1.1\r\nHost: a\\b\r\n\r\n",
    "a host behind a blank line's space": b"GET / HTTP/1.1\r\n \r\nHost: a\r\n\r\n",
    "a folded host": b"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
    "hosts in a list": b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
    "two hosts beside a URL": b"GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "no host beside a URL": b"GET http://a/ HTTP/1.1\r\n\r\n",
    "a URL with userinfo": b"GET http://a@b/ HTTP/1.1\r\nHost: b\r\n\r\n",
    "a URL with a backslash": b"GET http://a\\@b/ HTTP/1.1\r\nHost: b\r\n\r\n",
    "a URL without a host": b"GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n",
    "a URL with one slash": b"GET http:/a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "a URL of another scheme": b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "a host as the target": b"GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    "a path without a slash": b"GET a HTTP/1.1\r\nHost: a\r\n\r\n",
    "an asterisk": b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    "a request within the target": b"GET / HTTP/1.1 /x HTTP/1.1\r\nHost: a\r\n\r\n",
    "a letter above ASCII in the target": b"GET /\xe9 HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/1": b"GET / HTTP/1\r\nHost: a\r\n\r\n",
    "HTTP/01.1": b"GET / HTTP/01.1\r\nHost: a\r\n\r\n",
    "no name of the protocol": b"GET / 1.1\r\nHost: a\r\n\r\n",
    "a name in the version": b"GET / ICAP/1.1\r\nHost: a\r\n\r\n",
    "a method in brackets": b"(GET) / HTTP/1.1\r\nHost: a\r\n\r\n",
    "three empty lines": b"\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
}

GROUPS = {
    "encoding": TRANSFER_ENCODINGS,
    "length": LENGTHS,
    "chunk": CHUNKS,
    "head": HEADS,
}


@pytest.mark.parametrize(
    "message",
    [case for group in GROUPS.values() for case in group.values()],
    ids=[f"{group}: {name}" for group, cases in GROUPS.items() for name in cases],
)
def test_an_ambiguous_message_is_refused_and_nothing_behind_it_is_read(raw, message):
    raw.send(message + HIDDEN)
    response = raw.response()
    assert (response.status, response.get("connection")) == (400, "close")
    assert raw.is_closed()


@pytest.mark.parametrize("version", ["1.2", "1.9", "2.0", "3.0"])
def test_another_version_is_refused_and_nothing_behind_it_is_read(raw, version):
    raw.send(f"GET / HTTP/{version}\r\nHost: a\r\n\r\n".encode() + HIDDEN)
    response = raw.response()
    assert (response.status, response.get("connection")) == (505, "close")
    assert raw.is_closed()


CONTENTS = {
    "a length": START + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "white space around the length": START
    + b"Content-Length:\t %d \t\r\n\r\n" % len(HIDDEN)
    + HIDDEN,
    "leading zeros": START + b"Content-Length: 000%d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "a length that Connection names": START
    + b"Connection: Content-Length\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN)
    + HIDDEN,
    # CL.0 and 0.CL: some servers expect no content of these requests.
    "a GET": b"GET /upload HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN)
    + HIDDEN,
    "a GET in chunks": b"GET /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN),
    "a DELETE": b"DELETE /upload HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN)
    + HIDDEN,
    "HTTP/1.0": b"POST /upload HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n"
    % len(HIDDEN)
    + HIDDEN,
    # With an expectation, some servers do not read the content (Kettle 2025).
    "an unknown expectation": START
    + b"Expect: x 100-continue\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN)
    + HIDDEN,
    "an upgrade that is not granted": START
    + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN)
    + HIDDEN,
    # These fields only resemble Transfer-Encoding and Content-Length.
    "another name": START
    + b"Transfer_Encoding: chunked\r\nContent_Length: 0\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN)
    + HIDDEN,
    "chunks": chunks(b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)),
    "chunks with zeros": chunks(b"0000%X\r\n%b\r\n000\r\n\r\n" % (len(HIDDEN), HIDDEN)),
    "chunks with extensions": chunks(b'%x;a="b;c"; d\r\n%b\r\n0;e\r\n\r\n' % (len(HIDDEN), HIDDEN)),
    "a trailer that looks like a length": chunks(
        b"%x\r\n%b\r\n0\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\n\r\n"
        % (len(HIDDEN), HIDDEN)
    ),
    "another field with a coding": START
    + b"Content-Encoding: chunked\r\nTE: chunked\r\nX-Transfer-Encoding: chunked\r\nX-Content-Length: 0\r\n"
    + b"Content-Length: %d\r\n\r\n" % len(HIDDEN)
    + HIDDEN,
    "an OPTIONS": b"OPTIONS /upload HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN)
    + HIDDEN,
    "an overriding method": START
    + b"X-HTTP-Method-Override: GET\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN)
    + HIDDEN,
    "a connection that closes for another": START
    + b"Proxy-Connection: close\r\nKeep-Alive: timeout=0\r\nContent-Length: %d\r\n\r\n"
    % len(HIDDEN)
    + HIDDEN,
    "an empty line before": b"\r\n" + START + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
}


@pytest.mark.parametrize("message", CONTENTS.values(), ids=CONTENTS)
def test_a_request_within_content_is_content(raw, message):
    raw.send(message + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert json.loads(raw.response().body)["bytes"] == len(HIDDEN)
    assert raw.response().body == b"hello"


TARGETS = {
    "http://one.example/scope": ("/scope", "one.example"),
    "http://one.example:8080/scope": ("/scope", "one.example:8080"),
    "HTTPS://one.example/scope?a=http://b": ("/scope", "one.example"),
    "//one.example/scope": ("//one.example/scope", "two.example"),
    "/scope/http://one.example": ("/scope/http://one.example", "two.example"),
    "/scope/..%2f": ("/scope/../", "two.example"),
}


@pytest.mark.parametrize("target", TARGETS)
def test_the_host_is_that_of_a_url_and_else_that_of_the_field(raw, target):
    raw.send(f"GET {target} HTTP/1.1\r\nHost: two.example\r\n\r\n")
    response = raw.response()
    path, host = TARGETS[target]
    if path.startswith("//"):
        # The first segment of this path is empty, as that of "/".
        assert response.body == b"hello"
        return
    seen = json.loads(response.body)
    assert seen["path"] == path
    assert [value for name, value in seen["headers"] if name == "host"] == [host]


def test_a_request_without_a_length_has_no_content(raw):
    """A request without a length has no content (RFC 9112 section 6.3), so the next request follows."""
    raw.send(START + b"\r\n" + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert json.loads(raw.response().body)["bytes"] == 0
    assert raw.response().body == b"hello"


def test_a_pause_within_a_message_changes_nothing(raw):
    """After a pause, some servers answer and read the content as a request (Kettle 2022)."""
    raw.send(START + b"Content-Length: %d\r\n\r\n" % len(HIDDEN))
    raw.socket.settimeout(1.5)
    with pytest.raises(TimeoutError):
        raw.more()
    raw.socket.settimeout(30)
    raw.send(HIDDEN)
    assert json.loads(raw.response().body)["bytes"] == len(HIDDEN)
    assert raw.get("/").body == b"hello"
