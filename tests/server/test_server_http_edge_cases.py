"""Refusals, and details of HTTP that an application leaves to its server."""

import asyncio
import json

import pytest

import uringcore
from examples.aioquic_peer import Answer, connect_peer
from tests.quic.harness import eventually, still
from tests.server.conftest import backends, starting
from tests.server.harness import ForkedServer
from uringcore.h3.connection import ErrorCode
from uringcore.http3._request import Request
from uringcore.http3._unpooled_connection import connect as connect_origin
from uringcore.quic.configuration import QuicConfiguration

start = starting(ForkedServer)

pytestmark = pytest.mark.either_backend

EDGES = "tests.server.edge_case_application:app"


@pytest.fixture(scope="module", params=backends())
def edges(request, certificate, tmp_path_factory):
    folder = tmp_path_factory.mktemp("edges")
    running = ForkedServer(folder, certificate, backend=request.param, app=EDGES)
    yield running
    running.kill()
    running.check_log()


def fields(**changed):
    values = {"method": "GET", "scheme": "https", "authority": "localhost", "path": "/"}
    values.update(changed)
    return [(f":{name}".encode(), value.encode("latin-1")) for name, value in values.items()]


def ask(server, given, *, seconds=10):
    """Sends exactly these fields and returns the response; aioquic does not check them."""

    async def main():
        async with connect_peer(server.url, cafile=server.certificate) as peer:
            stream_id = peer._quic.get_next_available_stream_id()
            answer = peer.answers[stream_id] = Answer()
            peer.http.send_headers(stream_id, given, end_stream=True)
            peer.transmit()
            await asyncio.wait_for(answer.done.wait(), seconds)
            return answer

    return asyncio.run(main())


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_refusal_has_content_only_where_it_may(start, method):
    server = start("--http3-max-header-fields", "10", app=EDGES)
    response = server.get("/", method, headers=[("x-many", "v")] * 20)
    assert response.status == 431
    announced = response.content_length
    assert announced is not None and announced > 0
    assert len(response.content) == (announced if method == "GET" else 0)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_unread_request_is_refused_without_content(start, method):
    """The server refused the request before it read the method."""
    server = start("--http3-max-header-bytes", "1024", app=EDGES)
    answer = ask(server, [*fields(method=method), (b"x-long", b"v" * 2000)])
    assert (answer.status, bytes(answer.body)) == (431, b"")
    assert answer.headers["content-length"] == "0"
    server.wait_log(r'127\.0\.0\.1:\d+ - "- {2}HTTP/3" 431')


def test_refusal_is_logged_and_counted(start):
    server = start("--limit-max-requests", "1", "--http3-max-header-fields", "10", app=EDGES)
    assert ask(server, [*fields(path="/x"), *[(b"x-many", b"v")] * 20]).status == 431
    server.wait_log(r'127\.0\.0\.1:\d+ - "GET /x HTTP/3" 431')
    server.wait_log("Maximum request limit of 1 exceeded")
    assert server.wait_stopped() == 0


def test_head_over_the_concurrency_limit_is_503_without_content(start):
    server = start("--limit-concurrency", "1", app=EDGES)
    response = server.get("/", "HEAD")
    assert (response.status, response.content) == (503, b"")


def test_scheme_of_another_protocol_is_400(edges):
    assert ask(edges, fields(scheme="ftp")).status == 400


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_the_application_sees_the_scheme_of_the_connection(edges, scheme):
    """The client's `:scheme` does not count."""
    answer = ask(edges, fields(scheme=scheme, path="/scope"))
    assert json.loads(answer.body)["scheme"] == "https"


def test_access_log_shows_no_control_characters(edges):
    """Control characters could forge lines, or move a terminal's cursor."""
    try:
        ask(edges, fields(path='/?a=\x1b[31m\x7f"b\\c'))
    except ConnectionError as exc:
        # The HTTP/3 layer rejects the request as malformed, before it is logged.
        assert f"{ErrorCode.H3_MESSAGE_ERROR:#x}" in str(exc)
    ask(edges, fields(path='/?quoted="b"\\c&d=%41'))
    edges.wait_log(r'"GET /\?quoted=%22b%22%5Cc&d=%41 HTTP/3" 200')
    assert "\x1b" not in edges.log() and "\x7f" not in edges.log()


def test_space_around_field_values_is_left_out(edges):
    response = edges.get("/padded")
    assert (response.status, response.content) == (200, b"hello")
    assert response.header("x-padded") == "value with space"
    assert response.header("content-length") == "5"


def test_trailers_in_several_messages_are_one_section(edges):
    response = edges.get("/trailers")
    assert response.content == b"body"
    wanted = [(b"x-first", b"yes"), (b"x-second", b"yes"), (b"x-last", b"yes")]
    assert response.trailers == wanted


def test_500_after_a_failed_204_has_its_content(edges):
    response = edges.get("/bad-start")
    assert (response.status, response.content) == (500, b"Internal Server Error")


def test_root_path_beyond_ascii(start):
    server = start("--root-path", "/café", app=EDGES)
    scope = json.loads(server.get("/scope").content)
    assert (scope["path"], scope["raw_path"]) == ("/café/scope", "/caf%C3%A9/scope")


@pytest.mark.parametrize(("address", "socket_address"), [("127.0.0.1", "0.0.0.0"), ("[::1]", "::")])
def test_server_address_is_that_of_the_connections_socket(start, address, socket_address):
    """A server on every interface has two sockets."""
    server = start("--host", "", app=EDGES)

    async def main():
        url = f"https://{address}:{server.port}"
        async with connect_origin(url, cafile=server.certificate) as client:
            return json.loads((await client.get("/scope")).content)

    scope = uringcore.run(main())
    assert scope["server"] == [socket_address, server.port]
    assert scope["client"][0] == address.strip("[]")


def test_cancelled_upload_is_noticed_though_its_body_waits(edges):
    """The application reads nothing, so the stream is paused when the client cancels."""

    sent = 0

    async def content():
        nonlocal sent
        while True:
            sent += 1
            yield bytes(65536)

    async def main():
        async with edges.connect() as client:
            request = asyncio.ensure_future(client.request("PUT", "/notices", content=content()))
            await eventually(lambda: sent)
            protocol = client._protocol
            # It is the only request, so its stream is 0.
            await still(protocol, lambda: (sent, protocol.get_send_buffer_size(0)))
            assert protocol.get_send_buffer_size(0), "the server has to stop giving credit"
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
            events = []
            while not events:
                await asyncio.sleep(0.05)
                events = json.loads((await client.get("/progress")).content)["events"]
            return events

    assert uringcore.run(asyncio.wait_for(main(), 20)) == ["http.disconnect"]


def test_unread_responses_take_little_memory(edges):
    """99 responses of 8 MB on one connection queue at most a connection's limit, not 792 MB."""
    limit = 40 * 1024 * 1024

    # The streams' windows are small, so that 99 of them do not use up the connection's window.
    configuration = QuicConfiguration(
        alpn_protocols=["h3"], max_stream_data=65536, max_data=1 << 30, server_name="localhost"
    )
    configuration.load_verify_locations(edges.certificate)

    async def main():
        async with connect_origin(edges.url, configuration=configuration) as client:
            before = edges.resident_bytes()
            protocol = client._protocol
            exchanges = []
            # One fewer than the limit of streams.
            for _ in range(99):
                request = Request.to("GET", "/whole", base=client.origin)
                exchange = protocol.open(request)
                protocol.pause_stream(exchange.stream_id)
                exchanges.append(exchange)
            await asyncio.sleep(1)
            held = edges.resident_bytes() - before
            # Unread responses do not delay a response that the client reads.
            progress = json.loads((await asyncio.wait_for(client.get("/progress"), 10)).content)
            assert progress["whole"] == 0
            received = 0
            protocol.resume_stream(exchanges[50].stream_id)
            while part := await asyncio.wait_for(exchanges[50].read(), 10):
                received += len(part)
            assert received == 8_000_000
            for exchange in exchanges:
                protocol.finish(exchange)
            assert (await client.get("/")).status == 200
            return held

    assert uringcore.run(main()) < limit


def over_tcp(server, path):
    with server.http1() as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()


def test_a_body_of_none_is_empty(edges):
    """The comparison is with uvicorn over TCP."""
    response = edges.get("/empty")
    assert (response.status, response.content) == over_tcp(edges, "/empty") == (200, b"")


def test_a_repeated_length_is_sent_once(edges):
    response = edges.get("/repeated")
    assert (response.status, response.content) == (200, b"hello")
    sent = list(response.headers)
    assert [value for name, value in sent if name == b"content-length"] == [b"5"], sent
    assert (b"x-after", b"yes") in sent


def test_two_lengths_are_an_error_of_the_application(edges):
    assert edges.get("/contradictory").status == 500
    edges.wait_log("ValueError: content-length: is both 5 and 6")


@pytest.mark.parametrize("method", ["get", "GeT"])
def test_the_application_sees_methods_in_upper_case(edges, method):
    """ASGI requires upper case; HTTP distinguishes them (RFC 9110 section 9.1)."""
    assert json.loads(ask(edges, fields(method=method, path="/scope")).body)["method"] == "GET"


@pytest.mark.parametrize("method", ["head", "hEAD", "HEAD"])
def test_a_method_that_is_head_in_upper_case_has_no_content(edges, method):
    """The application sees HEAD, and may respond as Starlette's FileResponse does."""
    response = edges.get("/file", method=method)
    assert (response.status, response.content) == (200, b"")
    # To its client `head` is not HEAD (RFC 9110 section 9.1), so the response's length is its actual length.
    assert response.header("content-length") == ("5" if method == "HEAD" else None)
    # The content is also left out if the application leaves that to the server.
    assert edges.get("/", method=method).content == b""


@pytest.mark.parametrize("root", ["/", "//", "/api/", "/api"])
def test_a_root_path_that_ends_with_a_slash(start, root):
    server = start("--root-path", root, app=EDGES)
    seen = json.loads(server.get("/scope").content)
    assert seen["root_path"] == root.rstrip("/")
    assert seen["path"] == seen["raw_path"] == root.rstrip("/") + "/scope"
    status, content = over_tcp(server, "/scope")
    seen_over_tcp = json.loads(content)
    assert status == 200
    for name in ("root_path", "path", "raw_path"):
        assert seen_over_tcp[name] == seen[name]
