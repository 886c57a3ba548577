"""Requests and responses of native HTTP/1.1 on raw connections over TCP and TLS."""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import time

import pytest

from tests.http.http1.client import SECONDS
from uringcore.server import _native_tcp

POST = "POST {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"


def post(path, *fields):
    return POST.format(path=path, fields="".join(f"{field}\r\n" for field in fields))


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def progress(another):
    with another() as one:
        return json.loads(one.get("/progress").body)


def wait_progress(another, condition):
    deadline = time.monotonic() + SECONDS
    while not condition(found := progress(another)):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def test_a_connection_serves_one_request_after_the_other(raw):
    for _ in range(3):
        response = raw.get("/")
        assert (response.status, response.body) == (200, b"hello")
        assert response.get("content-length") == "5"
        assert response.get("server") == "uringcore"
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT", response.get("date"))
        assert response.get("connection") is None
    assert raw.get("/missing").status == 404


def test_the_application_sees_the_request(raw, server):
    response = raw.get("/scope/%61?b=%20c", "X-One: 1", "x-one:\t2 ")
    seen = json.loads(response.body)
    secure = server.is_secure
    assert seen["http_version"] == "1.1"
    assert seen["scheme"] == ("https" if secure else "http")
    assert (seen["method"], seen["path"], seen["raw_path"]) == ("GET", "/scope/a", "/scope/%61")
    assert (seen["query_string"], seen["root_path"]) == ("b=%20c", "")
    assert seen["headers"] == [["host", "localhost"], ["x-one", "1"], ["x-one", "2"]]
    assert seen["client"] == list(raw.socket.getsockname())
    assert seen["server"] == ["127.0.0.1", server.port]
    assert seen["state"] == {"token": "from lifespan"}
    extensions = {
        f"http.response.{name}" for name in ("trailers", "early_hint", "pathsend", "zerocopysend")
    }
    assert set(seen["extensions"]) == extensions | ({"tls"} if secure else set())
    if secure:
        tls = seen["extensions"]["tls"]
        assert tls["tls_version"] == 0x0304
        assert tls["cipher_suite"] in (0x1301, 0x1302, 0x1303)
        assert (tls["client_cert_chain"], tls["client_cert_name"]) == ([], None)
        assert tls["server_cert"].startswith("-----BEGIN CERTIFICATE-----")


def test_http_1_0_closes_unless_asked_otherwise(raw, another):
    raw.send("GET /scope HTTP/1.0\r\n\r\n")
    response = raw.response()
    assert json.loads(response.body)["http_version"] == "1.0"
    assert response.get("connection") == "close"
    assert raw.is_closed()
    with another() as one:
        for _ in range(2):
            one.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert one.response().get("connection") == "keep-alive"
        # A response without a length ends with the connection.
        one.send(b"POST /echo HTTP/1.0\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc")
        response = one.response()
        assert (response.body, response.get("connection")) == (b"abc", "close")


def test_a_request_is_read_byte_by_byte(raw):
    request = (
        post("/upload", "Transfer-Encoding: chunked")
        + "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: u\r\n\r\n"
    )
    for byte in (request * 2).encode():
        raw.send(bytes([byte]))
    for _ in range(2):
        found = json.loads(raw.response().body)
        assert (found["bytes"], found["sha256"]) == (5, hashlib.sha256(b"abcde").hexdigest())


def test_pipelined_requests_are_answered_in_order(raw):
    requests = [
        "GET /sleep/0.2 HTTP/1.1\r\nHost: a\r\n\r\n",
        *["GET / HTTP/1.1\r\nHost: a\r\n\r\n"] * 50,
    ]
    requests.append(post("/upload", "Content-Length: 3") + "abc")
    raw.send("".join(requests))
    assert raw.response().body == b"first last"
    for _ in range(50):
        assert raw.response().body == b"hello"
    assert json.loads(raw.response().body)["bytes"] == 3


def test_very_many_pipelined_requests_are_answered(raw):
    """The requests exceed the limit of waiting input, and a recursion over them would fill the stack."""
    count = 3000
    raw.send("GET /sleep/0.1 HTTP/1.1\r\nHost: a\r\n\r\n")
    raw.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n" * count)
    assert raw.response().body == b"first last"
    for _ in range(count):
        assert raw.response().body == b"hello"


@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunks"])
def test_a_large_upload_arrives_whole_in_bounded_parts(raw, is_chunked):
    data = bytes(range(256)) * 20_000
    if is_chunked:
        raw.send(post("/upload", "Transfer-Encoding: chunked"))
        for start in range(0, len(data), 100_000):
            raw.send(chunk(data[start : start + 100_000]))
        raw.send(b"0\r\n\r\n")
    else:
        raw.send(post("/upload", f"Content-Length: {len(data)}"))
        raw.send(data)
    found = json.loads(raw.response().body)
    assert found["bytes"] == len(data)
    assert found["sha256"] == hashlib.sha256(data).hexdigest()
    assert found["largest"] <= 1 << 20
    assert raw.get("/").body == b"hello"


def test_an_echo_streams_both_ways(raw):
    raw.send(post("/echo", "Transfer-Encoding: chunked"))
    head = raw.head()
    assert head.get("transfer-encoding") == "chunked"
    for part in (b"one", b"two" * 10_000):
        raw.send(chunk(part))
        received = b""
        while len(received) < len(part):
            received += raw.exactly(int(raw.until(b"\r\n"), 16))
            assert raw.exactly(2) == b"\r\n"
        assert received == part
    raw.send(b"0\r\n\r\n")
    assert raw.exactly(5) == b"0\r\n\r\n"


def test_an_application_waits_for_a_client_that_does_not_read(raw, another):
    size = 200_000_000
    raw.send(f"GET /flood/{size} HTTP/1.1\r\nHost: a\r\n\r\n")
    head = raw.head()
    assert head.get("content-length") == str(size)
    # The sockets hold some megabytes, so the application writes that much before it waits.
    flooded, still = 0, 0
    deadline = time.monotonic() + SECONDS
    while still < 3:
        assert time.monotonic() < deadline
        before, flooded = flooded, progress(another)["flooded"]
        still = still + 1 if flooded == before else 0
        time.sleep(0.1)
    assert 0 < flooded < 50_000_000
    left = size
    while left:
        left -= len(raw.exactly(min(left, 1 << 20)))
    assert raw.get("/").body == b"hello"


def test_a_client_waits_for_an_application_that_does_not_read(raw, another):
    size = 100_000_000
    raw.send(post("/hold", f"Content-Length: {size}"))
    raw.socket.settimeout(1.0)
    sent, piece = 0, bytes(1 << 20)
    with pytest.raises(TimeoutError):
        while True:
            sent += raw.socket.send(piece)
    assert sent < 50_000_000
    raw.socket.settimeout(SECONDS)
    with another() as one:
        assert one.get("/release").body == b"released"
    while sent < size:
        sent += raw.socket.send(piece[: size - sent])
    assert json.loads(raw.response().body) == {"bytes": size}


def test_a_client_that_expects_100_gets_it_when_the_application_reads(raw, another):
    raw.send(post("/upload", "Content-Length: 3", "Expect: 100-continue"))
    assert raw.head().status == 100
    raw.send(b"abc")
    assert json.loads(raw.response().body)["bytes"] == 3
    # An application that does not read answers at once, and the connection ends.
    with another() as one:
        one.send(post("/early", "Content-Length: 3", "Expect: 100-continue"))
        response = one.head()
        assert (response.status, response.get("connection")) == (413, "close")


def test_the_rest_of_a_request_is_dropped_after_an_early_answer(raw, another):
    raw.send(post("/early", "Content-Length: 100000"))
    assert raw.response().status == 413
    raw.send(bytes(100_000))
    assert raw.get("/").body == b"hello"
    # A longer rest ends the connection, and the client still gets the response.
    with another() as one:
        one.send(post("/early", "Content-Length: 3000000"))
        response = one.response()
        assert (response.status, response.get("connection")) == (413, "close")


def test_a_client_that_sends_its_whole_request_first_reads_an_early_answer(another):
    """If the server reset the connection, the client would lose the response (RFC 9112 section 9.6)."""
    for _ in range(3):
        with another() as one:
            one.send(post("/early", "Content-Length: 900000"))
            for _ in range(30):
                one.send(bytes(30_000))
            response = one.response()
            assert (response.status, response.get("connection")) == (413, "close")
            assert one.is_closed()


def test_responses_to_head_and_of_some_statuses_have_no_content(raw):
    response = raw.get("/", method="HEAD")
    assert (response.status, response.get("content-length")) == (200, "5")
    response = raw.get("/no-content")
    assert (response.status, response.get("content-length"), response.get("transfer-encoding")) == (
        204,
        None,
        None,
    )
    assert raw.get("/echo", method="HEAD").get("transfer-encoding") is None
    assert raw.get("/").body == b"hello"


def test_interim_responses_and_trailers_are_sent(raw):
    raw.send("GET /hints HTTP/1.1\r\nHost: a\r\n\r\n")
    hint = raw.head()
    assert (hint.status, hint.get("link")) == (103, "</style.css>; rel=preload")
    assert raw.response().body == b"hinted"
    response = raw.get("/trailers")
    assert (response.body, response.trailers) == (b"body", (("x-checksum", "42"),))
    assert raw.get("/").body == b"hello"


def test_the_server_sets_the_fields_of_the_connection(raw):
    response = raw.get("/connection-fields")
    assert response.get("x-kept") == "yes"
    assert (response.get("connection"), response.get("transfer-encoding")) == ("close", None)
    assert raw.is_closed()


def test_an_applications_failure_is_a_500_or_an_incomplete_response(raw, another, server):
    for path in ("/raises", "/returns-nothing", "/too-long"):
        response = raw.get(path)
        assert (response.status, response.body) == (500, b"Internal Server Error"), path
    assert raw.get("/").body == b"hello"
    raw.send("GET /raises-midway HTTP/1.1\r\nHost: a\r\n\r\n")
    assert raw.head().get("transfer-encoding") == "chunked"
    assert raw.rest() == b"4\r\nsome\r\n"
    server.wait_log("the application's own fault, later")
    with another() as one:
        assert one.get("/").body == b"hello"


def test_a_disconnect_is_reported_when_the_client_goes(another):
    before = progress(another)["events"].count("disconnected")
    with another() as one:
        one.send("GET /wait-disconnect HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_progress(another, lambda found: found["events"].count("waiting") == before + 1)
    wait_progress(another, lambda found: found["events"].count("disconnected") == before + 1)


GET, POST_LINE = b"GET / HTTP/1.1\r\nHost: a\r\n", b"POST /upload HTTP/1.1\r\nHost: a\r\n"
CODED = POST_LINE + b"Transfer-Encoding: "


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (GET + b"Host: b\r\n\r\n", 400),
        (GET + b"X: 1\r\n 2\r\n\r\n", 400),
        (POST_LINE + b"Content-Length : 5\r\n\r\nhello", 400),
        (POST_LINE + b"Content-Length: +5\r\n\r\nhello", 400),
        (POST_LINE + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400),
        (CODED + b"chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
        (CODED + b"chunked, identity\r\n\r\n", 400),
        (CODED + b"gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (CODED + b"chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n", 400),
        (CODED + b"chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n", 400),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (GET + b"X: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (GET + b"X: a\r\n" * 300 + b"\r\n", 431),
        (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 501),
        (b"PRI / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    ],
    ids=lambda value: None if isinstance(value, int) else repr(value[:60]),
)
def test_a_malformed_request_is_refused_and_nothing_behind_it_is_served(raw, request_bytes, status):
    raw.send(request_bytes + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
    response = raw.response()
    assert (response.status, response.get("connection")) == (status, "close")
    assert raw.is_closed()


def test_a_body_that_looks_like_a_request_is_content(raw):
    hidden = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    raw.send(post("/upload", f"Content-Length: {len(hidden)}") + hidden)
    assert json.loads(raw.response().body)["bytes"] == len(hidden)
    assert raw.get("/").body == b"hello"


def test_the_list_of_cipher_suites_is_read_once(monkeypatch):
    lists = []

    class Connection:
        """The end of a handshake."""

        context = ssl.create_default_context()

        def cipher(self):
            return ("TLS_AES_128_GCM_SHA256", "TLSv1.3", 128)

    class Context:
        def get_ciphers(self):
            lists.append(Connection.context.get_ciphers())
            return lists[-1]

    monkeypatch.setattr(_native_tcp, "CIPHER_SUITES", {}, raising=False)
    connection = Connection()
    connection.context = Context()
    assert [_native_tcp.cipher_suite(connection) for _ in range(3)] == [0x1301] * 3
    assert len(lists) == 1
