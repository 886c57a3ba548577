"""Requests over HTTP/3: what the application sees, and what the client gets."""

import asyncio
import hashlib
import json
from importlib.metadata import version

import pytest

import uringcore
from examples.aioquic_peer import Answer, connect_peer
from tests.server.conftest import starting
from tests.server.harness import ForkedServer
from uringcore.http3 import RequestResetError

start = starting(ForkedServer)

# On CPython 3.10 the last aioquic lacks interim responses and has a limit of its own on headers.
recent_aioquic = pytest.mark.skipif(
    tuple(int(part) for part in version("aioquic").split(".")[:2]) < (1, 7),
    reason="needs aioquic 1.7",
)
MEGABYTE = bytes(range(256)) * 4096


def aioquic(server, coroutine):
    """Runs `coroutine(peer)` with an aioquic client on stock asyncio."""

    async def main():
        async with connect_peer(server.url, cafile=server.certificate) as peer:
            return await asyncio.wait_for(coroutine(peer), 30)

    return asyncio.run(main())


def test_hello(server):
    response = server.get("/")
    assert (response.status, response.content) == (200, b"hello")
    assert response.header("content-length") == "5"
    assert response.header("server") == "uringcore"
    assert "GMT" in response.header("date")


def test_hello_to_aioquic(server):
    answer = aioquic(server, lambda peer: peer.fetch("GET", "/"))
    assert (answer.status, bytes(answer.body)) == (200, b"hello")


def test_the_scope_of_a_request(server):
    fields = [("X-Mixed", "Value"), ("cookie", "a=1"), ("cookie", "b=2")]
    scope = json.loads(server.get("/scope/b%20c/é?x=1&y=%2F", headers=fields).content)
    assert scope["http_version"] == "3"
    assert scope["method"] == "GET"
    assert scope["scheme"] == "https"
    assert scope["path"] == "/scope/b c/é"
    assert scope["raw_path"] == "/scope/b%20c/%C3%A9"
    assert scope["query_string"] == "x=1&y=%2F"
    assert scope["server"][1] == server.port
    assert scope["client"][0] == "127.0.0.1"
    assert scope["state"] == {"token": "from lifespan"}
    headers = [tuple(field) for field in scope["headers"]]
    assert headers[0] == ("host", f"localhost:{server.port}")
    assert ("x-mixed", "Value") in headers
    assert [value for name, value in headers if name == "cookie"] == ["a=1; b=2"]
    assert not [name for name, _ in headers if name.startswith(":")]
    assert scope["extensions"]["tls"]["tls_version"] == 0x0304
    assert "BEGIN CERTIFICATE" in scope["extensions"]["tls"]["server_cert"]


@pytest.mark.parametrize("url", ["/scope#part", "/scope?#part", "/scope#part?x=1"])
def test_a_fragment_is_not_sent(server, url):
    scope = json.loads(server.get(url).content)
    assert scope["raw_path"] == "/scope"
    assert scope["query_string"] == ""


def test_http1_and_http3_scopes_agree(server):
    with server.http1() as connection:
        connection.request("GET", "/scope/x%20y?q=1", headers={"x-one": "1"})
        over_http1 = json.load(connection.getresponse())
    over_http3 = json.loads(server.get("/scope/x%20y?q=1", headers=[("x-one", "1")]).content)
    for key in ("type", "method", "scheme", "path", "raw_path", "query_string", "root_path"):
        assert over_http3[key] == over_http1[key], key
    assert dict(over_http1["headers"])["host"] == dict(over_http3["headers"])["host"]


@pytest.mark.parametrize("size", [0, 1, 65536, 3_000_000])
def test_upload(server, size):
    body = (MEGABYTE * 3)[:size]
    received = json.loads(server.get("/upload", method="PUT", content=body).content)
    assert received["bytes"] == size
    assert received["sha256"] == hashlib.sha256(body).hexdigest()


def test_upload_from_aioquic(server):
    body = [MEGABYTE, MEGABYTE[:1000]]
    answer = aioquic(server, lambda peer: peer.fetch("PUT", "/upload", content=body))
    assert json.loads(answer.body)["sha256"] == hashlib.sha256(b"".join(body)).hexdigest()


def test_both_directions_at_once(server):
    """Parts of a streamed body are echoed while later parts are still being sent."""

    async def main():
        first_answer = asyncio.Event()

        async def content():
            yield b"ping"
            # The second part is sent only after the echo of the first.
            await asyncio.wait_for(first_answer.wait(), 10)
            yield b"pong"

        async with server.connect() as client:
            async with client.stream("POST", "/echo", content=content()) as response:
                received = b""
                async for part in response.iter_bytes():
                    received += part
                    first_answer.set()
                return received

    assert uringcore.run(main()) == b"pingpong"


def test_many_requests_on_one_connection(server):
    async def main():
        async with server.connect() as client:
            one_by_one = [await client.get("/") for _ in range(50)]
            bodies = [b"%d" % number * 1000 for number in range(100)]
            at_once = await asyncio.gather(
                *(client.request("POST", "/echo", content=body) for body in bodies)
            )
            assert {response.content for response in one_by_one} == {b"hello"}
            assert [response.content for response in at_once] == bodies

    uringcore.run(main())


def test_head_has_headers_and_no_body(server):
    response = server.get("/", method="HEAD")
    assert (response.status, response.content) == (200, b"")
    assert response.header("content-length") == "5"


def test_no_content(server):
    response = server.get("/no-content")
    assert (response.status, response.content) == (204, b"")


def test_trailers(server):
    answer = aioquic(server, lambda peer: peer.fetch("GET", "/trailers"))
    assert bytes(answer.body) == b"body"
    assert answer.trailers == {"x-checksum": "42"}
    response = server.get("/trailers")
    assert response.trailers == [(b"x-checksum", b"42")]


def test_connection_fields_are_not_sent(server):
    """RFC 9114 section 4.2: an application written for HTTP/1.1 may still set them."""
    response = server.get("/connection-fields")
    names = [name for name, _ in response.headers]
    assert b"connection" not in names
    assert b"transfer-encoding" not in names
    assert response.header("x-kept") == "yes"


@recent_aioquic
def test_expect_continue(server):
    """RFC 9110 section 10.1.1: "100 Continue" is sent when the application reads a body that has not
    arrived.
    """

    async def waits_for_continue(peer):
        stream_id, answer = peer.open("PUT", "/upload", [(b"expect", b"100-continue")])
        while not answer.interim:
            await asyncio.sleep(0.01)
        peer.http.send_data(stream_id, b"data" * 1000, end_stream=True)
        peer.transmit()
        await answer.done.wait()
        return answer

    answer = aioquic(server, waits_for_continue)
    assert answer.interim == [(100, {})]
    assert json.loads(answer.body)["bytes"] == 4000


def test_expect_continue_is_not_answered_by_who_wants_no_body(server):
    async def does_not_send(peer):
        _, answer = peer.open("PUT", "/early", [(b"expect", b"100-continue")])
        await answer.done.wait()
        return answer

    answer = aioquic(server, does_not_send)
    assert (answer.status, answer.interim) == (413, [])


@recent_aioquic
def test_early_hints(server):
    answer = aioquic(server, lambda peer: peer.fetch("GET", "/hints"))
    assert answer.interim == [(103, {"link": "</style.css>; rel=preload"})]
    assert (answer.status, bytes(answer.body)) == (200, b"hinted")


def test_early_response_stops_the_upload(server):
    sent = 0

    def content():
        nonlocal sent
        for _ in range(256):
            sent += len(MEGABYTE)
            yield MEGABYTE

    response = server.get("/early", method="PUT", content=content())
    assert (response.status, response.content) == (413, b"enough")
    assert sent < 64 * len(MEGABYTE), "the client was not told to stop"


@pytest.mark.parametrize("path", ["/raises", "/returns-nothing", "/too-long"])
def test_application_fault_before_the_response_is_500(server, path):
    response = server.get(path)
    assert (response.status, response.content) == (500, b"Internal Server Error")
    assert server.get("/").status == 200


def test_application_fault_during_the_response_is_a_reset(server):
    with pytest.raises(RequestResetError) as raised:
        server.get("/raises-midway")
    assert raised.value.error_code == 0x102  # H3_INTERNAL_ERROR
    assert "the application's own fault, later" in server.log()
    assert server.get("/").status == 200


def test_connect_is_refused(server):
    """Plain CONNECT has no path, which ASGI could not express."""

    async def connect(peer):
        stream_id = peer._quic.get_next_available_stream_id()
        answer = peer.answers[stream_id] = Answer()
        fields = [(b":method", b"CONNECT"), (b":authority", b"localhost:1")]
        peer.http.send_headers(stream_id, fields, end_stream=True)
        peer.transmit()
        await answer.done.wait()
        return answer

    assert aioquic(server, connect).status == 501


def test_headers_too_large(start):
    server = start("--http3-max-header-bytes", "4096")

    async def main():
        fields = [(f"x-{number}", "v" * 1000) for number in range(5)]
        async with server.connect() as client:
            refused = await client.get("/", headers=fields)
            served = await client.get("/", headers=fields[:3])
            return refused.status, served.status

    assert uringcore.run(main()) == (431, 200)


@recent_aioquic
def test_headers_beyond_what_is_offered_in_settings(server):
    """RFC 9114 section 4.2.2: SETTINGS announce the limit; a client that exceeds it loses at most its
    connection.
    """

    async def fetch(peer):
        fields = [(b"x-%d" % number, b"v" * 100) for number in range(1000)]
        try:
            return (await peer.fetch("GET", "/", headers=fields)).status
        except ConnectionError as exc:
            return str(exc)

    assert aioquic(server, fetch) != 200
    assert server.get("/").status == 200
