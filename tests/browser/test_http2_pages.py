"""Pages of `uringcore APP` over HTTP/2 in real browsers: streams, server-sent events, WebSockets."""

import json

import pytest

from tests.server.harness import Server

APPLICATION = "tests.browser.application:app"
PARTS = 5
MIB = 1 << 20


@pytest.fixture(scope="session")
def server(pki, tmp_path_factory):
    certificate = str(pki.server.certfile), str(pki.server.keyfile)
    folder = tmp_path_factory.mktemp("server")
    options = ["--http", "native", "--no-http3"]
    running = Server(folder, certificate, *options, app=APPLICATION, http3=False)
    yield running
    assert running.stop() == 0
    running.check_log()


@pytest.fixture
def http2_page(page, server):
    page.open(server.url)
    assert page.protocol() == "h2"
    return page


def test_a_page_is_loaded_over_http2(http2_page):
    assert json.loads(http2_page.call("get", "/request")) == {"version": "2", "early": False}
    assert http2_page.complaints == []


def test_a_response_is_read_as_it_comes(http2_page, browser_name):
    parts = http2_page.call("down", f"h2-{browser_name}", PARTS)
    assert parts == [f"part {index}" for index in range(PARTS)]


def test_a_request_is_sent_as_it_is_made(http2_page, browser_name):
    if not http2_page.call("streamsRequests"):
        # Firefox sends other content whole (test_http3_pages.py).
        assert browser_name == "firefox"
        return
    answer = http2_page.call("up", f"h2-{browser_name}", PARTS)
    assert (answer["bytes"], answer["version"]) == (PARTS, "2")


def test_mebibytes_both_ways(http2_page):
    assert http2_page.call("upload", 8 * MIB)
    assert http2_page.call("download", 8 * MIB)


def test_many_requests_share_a_connection(http2_page):
    assert http2_page.call("many", 200) == ["2"] * 200


def test_a_websocket_is_on_the_connection_of_the_page(http2_page):
    messages = ["", "grün", "x" * 100_000]
    assert http2_page.call("socket", messages) == {
        "received": ["2", *messages],
        "code": 3001,
        "reason": "done",
        "wasClean": True,
    }


def test_events_arrive_one_by_one(http2_page, browser_name):
    """Each event is sent when the page has confirmed the one before."""
    events = http2_page.call("events", f"h2-{browser_name}", PARTS)
    assert events == [f"event {index}" for index in range(PARTS)]
