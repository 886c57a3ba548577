"""WebTransport between real browsers and servers: sessions, streams, datagrams, and every kind of
end.
"""

import uuid

import pytest

from tests.browser.browsers import NAMES
from tests.browser.servers import GO, LISTED

MIB = 1 << 20
PAIRS = [(browser, server) for browser in NAMES for server in LISTED]


def pairs(chosen):
    """Selects pairs for a test that does not apply to every browser with every server."""
    return pytest.mark.parametrize("pair", chosen, indirect=True, ids="-".join)


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request):
    """A browser and a server."""
    return request.param


@pytest.fixture
def browser_name(pair):
    return pair[0]


@pytest.fixture
def server(pair, servers_kept):
    return servers_kept(pair[1])


@pytest.fixture
def token():
    """Names a session in the server's events."""
    return uuid.uuid4().hex


def session_error(described):
    return described == {"type": "WebTransportError", "source": "session", "code": None}


def test_a_session_with_a_server_known_by_its_hash(transport_page, server):
    assert transport_page.call("helloOverASession", server.url("/echo")) == "hello"


def test_another_hash_is_refused(transport_page, server):
    assert session_error(transport_page.call("wrongHash", server.url("/echo")))


def test_twenty_streams_of_a_mebibyte(transport_page, server):
    assert transport_page.call("manyStreams", server.url("/echo"), 20, MIB) == 20


def test_unidirectional_streams_both_ways(transport_page, server):
    assert transport_page.call("unidirectional", server.url("/echo"), 5, 100_000) == 5


def test_datagrams_both_ways(transport_page, server):
    told = transport_page.call("datagrams", server.url("/echo"), 50)
    assert told["missing"] == 0
    assert told["largest"] > 1000


# Firefox ends the connection before webtransport-go has read the session's close.
@pairs([pair for pair in PAIRS if pair != ("firefox", GO)])
@pytest.mark.parametrize(("code", "reason"), [(0, ""), (99, "good bye, grün"), (2**32 - 1, "x")])
def test_the_server_gets_the_pages_close(transport_page, server, token, code, reason):
    told = transport_page.call("closeByPage", server.url("/record"), token, code, reason)
    assert told == {"event": "closed", "code": code, "reason": reason}


@pytest.mark.parametrize("path", ["/nowhere", "/status?status=403"])
def test_a_session_that_is_refused(transport_page, server, path):
    ready, closed = transport_page.call("refusal", server.url(path))
    assert session_error(ready)
    assert session_error(closed)


@pytest.mark.parametrize("code", [0, 139, 255])
def test_the_server_gets_the_code_of_a_reset(transport_page, server, token, code):
    told = transport_page.call("resetByPage", server.url("/record"), token, code)
    assert told == {"event": "reset", "kind": "bidirectional", "code": code}


# Firefox stops reading, but does not send STOP_SENDING.
@pairs([("chromium", server) for server in LISTED])
@pytest.mark.parametrize("code", [0, 52, 255])
def test_the_server_gets_the_code_of_a_stop(transport_page, server, token, code):
    told = transport_page.call("stopByPage", server.url("/record"), token, code)
    assert told == {"event": "stopped", "kind": "unidirectional", "code": code}


@pytest.mark.parametrize("code", [0, 127, 255])
def test_the_page_gets_the_codes_of_a_stop_and_a_reset(transport_page, server, code):
    told = transport_page.call("stopAndResetByServer", server.url(f"/stops?code={code}"))
    error = {"type": "WebTransportError", "source": "stream", "code": code}
    assert told == {"stopped": error, "reset": error}


def test_a_page_comes_back_when_the_server_was_started_anew(
    transport_page, start_webtransport, pair
):
    name = pair[1]
    first = start_webtransport(name)
    assert transport_page.call("keep", first.url("/echo")) == "before"
    first.stop()
    # The streams' error depends on the way the server stops.
    assert all(transport_page.call("waitOver"))
    second = start_webtransport(name, first.port)
    assert transport_page.call("comeBack", second.url("/echo")) == "after"
