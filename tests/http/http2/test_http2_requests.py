"""Requests and responses over native HTTP/2, with the h2 package as the client."""

from __future__ import annotations

import hashlib
import json
import random

import pytest

pytestmark = pytest.mark.either_backend

NO_ERROR, INTERNAL_ERROR = 0, 2


def test_a_request_is_answered(client):
    response = client.ask("/")
    assert (response.status, response.body) == (200, b"hello")
    assert response.get("server") == "uringcore"
    assert response.get("date") is not None


def test_the_scope_differs_only_in_its_version(server, client):
    fields = [("x-one", "1"), ("cookie", "a=b"), ("cookie", "c=d"), ("te", "trailers")]
    scope = json.loads(client.ask("/scope/%2f?q=1", fields=fields).body)
    assert scope["http_version"] == "2"
    assert scope["scheme"] == ("https" if server.is_secure else "http")
    assert (scope["raw_path"], scope["path"], scope["query_string"]) == (
        "/scope/%2f",
        "/scope//",
        "q=1",
    )
    assert scope["headers"] == [
        ["host", "localhost"],
        ["x-one", "1"],
        ["te", "trailers"],
        ["cookie", "a=b; c=d"],
    ]
    extensions = {
        "http.response.early_hint",
        "http.response.pathsend",
        "http.response.trailers",
        "http.response.zerocopysend",
    }
    assert set(scope["extensions"]) - {"tls", "http.response.debug"} == extensions
    assert ("tls" in scope["extensions"]) == server.is_secure


def test_many_requests_at_a_time(client):
    streams = [client.begin("/sleep/0.2") for _ in range(50)]
    streams += [client.begin("/") for _ in range(50)]
    bodies = {client.response(stream_id).body for stream_id in streams[:50]}
    assert bodies == {b"first last"}
    assert {client.response(stream_id).body for stream_id in streams[50:]} == {b"hello"}


def test_many_requests_one_after_the_other(client):
    for _ in range(1000):
        assert client.ask("/").body == b"hello"


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 100_000, 3_000_000])
def test_content_of_requests_arrives_whole(client, size):
    content = random.Random(size).randbytes(size)
    response = json.loads(client.ask("/upload", "POST", body=content).body)
    digest = hashlib.sha256(content).hexdigest()
    assert (response["bytes"], response["sha256"]) == (size, digest)


@pytest.mark.parametrize("path", ["/flood/5000000", "/burst/5000000"])
def test_content_of_responses_arrives_whole(client, path):
    response = client.ask(path)
    assert (len(response.body), response.get("content-length")) == (5_000_000, "5000000")


def test_content_comes_back_while_it_is_sent(client):
    stream_id = client.begin("/echo", "POST", end=False)
    for part in (b"one", b"two" * 10_000):
        client.send(stream_id, part)
        before = len(client.responses[stream_id].body)
        while len(client.responses[stream_id].body) < before + len(part):
            assert client.more()
    client.send(stream_id, b"", end=True)
    assert client.response(stream_id).body == b"one" + b"two" * 10_000


def test_a_client_that_gives_little_credit_gets_all(another):
    with another(settings={4: 1000}) as client:
        assert len(client.ask("/flood/300000").body) == 300_000


def test_an_application_that_does_not_read_holds_its_client(client):
    assert client.ask("/").body == b"hello"
    stream_id = client.begin("/hold", "POST", end=False)
    part, sent = bytes(16_384), 0
    # The stream gets no more credit when its content fills the server's buffer and the window.
    while client.h2.local_flow_control_window(stream_id) >= len(part):
        while client.h2.local_flow_control_window(stream_id) >= len(part):
            client.h2.send_data(stream_id, part)
            client.flush()
            sent += len(part)
        # Other requests of the connection are served meanwhile. The credit comes before their responses.
        assert client.ask("/").body == b"hello"
        assert sent < 4 << 20
    assert client.ask("/release").body == b"released"
    client.send(stream_id, part, end=True)
    assert json.loads(client.response(stream_id).body)["bytes"] == sent + len(part)


def test_trailers_follow_the_content(client):
    response = client.ask("/trailers")
    assert (response.body, response.trailers) == (b"body", [("x-checksum", "42")])


def test_hints_come_before_the_response(client):
    response = client.ask("/hints")
    assert response.interim == [[(":status", "103"), ("link", "</style.css>; rel=preload")]]
    assert response.body == b"hinted"


def test_the_client_may_wait_for_permission_to_send(client):
    stream_id = client.begin("/upload", "POST", [("expect", "100-continue")], end=False)
    while not client.responses[stream_id].interim:
        assert client.more()
    assert client.responses[stream_id].interim == [[(":status", "100")]]
    client.send(stream_id, b"12345", end=True)
    assert json.loads(client.response(stream_id).body)["bytes"] == 5


def test_responses_without_content(client):
    assert client.ask("/no-content").status == 204
    head = client.ask("/", "HEAD")
    assert (head.status, head.body, head.get("content-length")) == (200, b"", "5")
    other = client.ask("/", "head")
    assert (other.body, other.get("content-length")) == (b"", None)


def test_connection_fields_are_left_out_and_end_the_connection(client):
    response = client.ask("/connection-fields")
    assert response.get("x-kept") == "yes"
    assert {name for name, _ in response.fields} & {"connection", "transfer-encoding"} == set()
    client.until_closed()
    assert [code for _, code in client.goaways] == [NO_ERROR, NO_ERROR]


def test_an_early_response_stops_the_request(client):
    stream_id = client.begin("/early", "POST", end=False)
    response = client.response(stream_id)
    while response.reset is None:
        assert client.more()
    assert (response.status, response.body, response.ended) == (413, b"enough", True)
    assert response.reset == NO_ERROR
    assert client.ask("/").body == b"hello"


def test_faults_of_applications(client):
    assert client.ask("/raises").status == 500
    assert client.ask("/returns-nothing").status == 500
    midway = client.ask("/raises-midway")
    assert (midway.status, midway.reset) == (200, INTERNAL_ERROR)
    assert client.ask("/").body == b"hello"


def test_a_reset_request_disconnects_its_application(client):
    stream_id = client.begin("/wait-disconnect", "POST", end=False)

    def events():
        return json.loads(client.ask("/progress").body)["events"]

    while "waiting" not in events():
        pass
    client.h2.reset_stream(stream_id, error_code=8)
    client.flush()
    while "disconnected" not in events():
        pass


@pytest.mark.parametrize(
    ("pseudo", "status"),
    [
        ({"method": "CONNECT", "protocol": "other"}, 501),
        ({"method": "CONNECT", "protocol": "webtransport"}, 501),
        ({"scheme": "ftp"}, 400),
    ],
)
def test_requests_that_are_refused(client, pseudo, status):
    others = {name: value for name, value in pseudo.items() if name != "method"}
    assert client.ask("/", pseudo.get("method", "GET"), **others).status == status
    assert client.ask("/").body == b"hello"


def test_large_and_many_fields_are_refused(client):
    # The client takes seconds to encode a longer value.
    large = [(f"x-{number}", "~" * 2000) for number in range(40)]
    many = [(f"x-{number}", "1") for number in range(300)]
    for fields in (large, many):
        assert client.ask("/", fields=fields).status == 431
    assert client.ask("/", fields=large[:25]).body == b"hello"
