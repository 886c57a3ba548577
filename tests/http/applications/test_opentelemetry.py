"""OpenTelemetry's ASGI middleware, unchanged: the spans of a request over HTTP/3 are those over HTTP/1.1."""

from __future__ import annotations

import importlib.util
import json

import pytest

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"

# The version itself, and the transport's local and remote address.
DIFFERENT = {
    "http.flavor",
    "net.peer.port",
    "net.peer.ip",
    "client.port",
    "network.protocol.version",
}

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry.instrumentation") is None
    or importlib.util.find_spec("opentelemetry.instrumentation.asgi") is None,
    reason="opentelemetry-instrumentation-asgi is not installed here",
)


@pytest.fixture
def server(start):
    return start(app="tests.http.applications.opentelemetry_app:app")


def over_http1(server, path, headers):
    with server.http1() as connection:
        connection.request("GET", path, headers=dict(headers))
        response = connection.getresponse()
        return response.status, response.read()


def over_http3(server, path, headers):
    response = server.get(path, headers=headers)
    return response.status, response.content


@pytest.mark.parametrize("path", ["/items/7?q=1", "/raises"])
def test_spans_of_both_versions_agree(server, path):
    seen = []
    for ask in (over_http1, over_http3):
        status, body = ask(server, path, [("user-agent", "test"), ("traceparent", PARENT)])
        if path == "/raises":
            assert status == 500
        else:
            assert (status, body.decode()) == (200, f"trace {TRACE}")
        spans = json.loads(server.get("/-/spans").content)
        assert {span["trace"] for span in spans} == {TRACE}
        seen.append(spans)
    first, second = seen
    versions = [spans[-1]["attributes"].get("http.flavor") for spans in seen]
    assert versions in (["1.1", "3"], [None, None])
    for spans in seen:
        for span in spans:
            for name in DIFFERENT:
                span["attributes"].pop(name, None)
    assert first == second
    assert first[-1]["kind"] == "SERVER"
