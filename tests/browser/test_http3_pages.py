"""Pages of `uringcore APP` in real browsers: HTTP/3 by Alt-Svc, streams, WebSockets, resumption."""

import json
import time

import pytest

from tests.server.harness import Server

APPLICATION = "tests.browser.application:app"
PARTS = 5
SECONDS = 60
MIB = 1 << 20


@pytest.fixture(scope="session")
def start_server(pki, tmp_path_factory):
    """Starts servers as a user would; they stop with the tests."""
    started = []

    def start(*arguments):
        certificate = str(pki.server.certfile), str(pki.server.keyfile)
        folder = tmp_path_factory.mktemp("server")
        started.append(Server(folder, certificate, *arguments, app=APPLICATION))
        return started[-1]

    yield start
    for server in started:
        server.kill()
    for server in started:
        server.check_log()


@pytest.fixture(scope="session")
def server(start_server):
    return start_server()


@pytest.fixture
def http3_page(page, server):
    """A page loaded over HTTP/3."""
    page.upgrade(server.url)
    return page


def told(page):
    """Returns the server's view of a request."""
    return json.loads(page.call("get", "/request"))


def test_a_page_is_loaded_over_http3_after_alt_svc(page, start_server):
    # A server that no browser has visited.
    server = start_server()
    assert page.upgrade(server.url) == "h2"
    assert told(page)["version"] == "3"
    assert page.complaints == []


def test_a_response_is_read_as_it_comes(http3_page, browser_name):
    parts = http3_page.call("down", browser_name, PARTS)
    assert parts == [f"part {index}" for index in range(PARTS)]


def test_a_request_is_sent_as_it_is_made(http3_page, browser_name):
    if not http3_page.call("streamsRequests"):
        # Firefox sends such a body as text, since it supports no streamed request body: other
        # content is sent whole.
        assert browser_name == "firefox"
        assert http3_page.call("upload", MIB)
        return
    answer = http3_page.call("up", browser_name, PARTS)
    assert (answer["bytes"], answer["version"]) == (PARTS, "3")


def test_mebibytes_both_ways(http3_page):
    assert http3_page.call("upload", 8 * MIB)
    assert http3_page.call("download", 8 * MIB)


def test_a_websocket(http3_page, browser_name):
    messages = ["", "grün", "x" * 100_000]
    answer = http3_page.call("socket", messages)
    # Firefox opens WebSockets over TCP, whatever the page's protocol: over HTTP/2 if it has a connection.
    version = answer["received"][0]
    assert version in {"chromium": ("3",), "firefox": ("2", "1.1")}[browser_name]
    assert answer == {
        "received": [version, *messages],
        "code": 3001,
        "reason": "done",
        "wasClean": True,
    }


# Firefox makes a new session at each visit to a host that an added authority has vouched for.
@pytest.mark.parametrize("browser_name", ["chromium"])
def test_a_later_visit_resumes_the_session(page, start_server):
    server = start_server("--http3-keep-alive", "0.5")
    page.upgrade(server.url)
    deadline = time.monotonic() + SECONDS
    # Only a resumed session can send a request before the handshake is complete; the server reports it.
    while page.evaluate("told") != {"version": "3", "early": True}:
        assert time.monotonic() < deadline, "no visit was resumed"
        # The server closes idle connections. A browser may still have a second connection, or one
        # over TCP.
        time.sleep(1)
        page.open(server.url)
    assert page.protocol() == "h3"
