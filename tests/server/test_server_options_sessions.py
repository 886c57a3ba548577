"""uvicorn's options and WebTransport sessions: what an option does for requests it does for sessions."""

import pytest

import uringcore
from tests.server.conftest import starting
from tests.server.harness import ForkedServer
from uringcore.quic import ClientConfig
from uringcore.webtransport import SessionRefusedError, connect_webtransport

start = starting(ForkedServer)

APPLICATION = """
import contextvars

VARIABLE = contextvars.ContextVar("variable", default="unset")
# Of the context in which the server runs.
VARIABLE.set("of the import")

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        raise LookupError("none here")
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": VARIABLE.get().encode()})
        return
    await receive()
    if scope["path"] == "/refused":
        await send({"type": "webtransport.close", "status": 403})
        return
    lines = [(b"x-variable", VARIABLE.get().encode()), (b"x-root", scope["root_path"].encode())]
    lines.append((b"x-client", scope["client"][0].encode()))
    await send({"type": "webtransport.accept", "headers": lines})
    await receive()
"""


@pytest.fixture
def begin(start, tmp_path):
    """Starts a server with these options."""
    (tmp_path / "sessions.py").write_text(APPLICATION)

    def begin_server(*arguments):
        return start(*arguments, "--app-dir", str(tmp_path), app="sessions:app")

    return begin_server


def headers_of_a_session(server, path="/", **options):
    async def main():
        config = ClientConfig(authorities=server.certificate)
        try:
            async with connect_webtransport(server.url + path, config, **options) as session:
                return session.response_headers
        except SessionRefusedError as refusal:
            return refusal.headers

    return dict(uringcore.run(main()))


@pytest.mark.parametrize("path", ["/", "/refused"])
def test_headers_of_every_answer(begin, path):
    found = headers_of_a_session(begin("--header", "x-one:1"), path)
    assert found[b"x-one"] == b"1"


def test_headers_of_an_answer_that_the_server_makes(begin):
    found = headers_of_a_session(begin("--header", "x-one:1", "--limit-concurrency", "1"))
    assert found[b"x-one"] == b"1"
    assert {b"date", b"server"} <= found.keys()
    # No header field of the application is sent.
    assert b"x-root" not in found
    assert found[b"server"] == b"uringcore"
    assert found[b"date"].endswith(b" GMT")
    # The client already uses HTTP/3.
    assert b"alt-svc" not in found


def test_headers_that_are_not_wanted(begin):
    found = headers_of_a_session(begin("--no-server-header", "--no-date-header"))
    assert not {b"server", b"date"} & set(found)


@pytest.mark.parametrize(
    ("arguments", "said"), [((), b"of the import"), (("--reset-contextvars",), b"unset")]
)
def test_fresh_contexts(begin, arguments, said):
    """The option acts on HTTP/3 requests too."""
    server = begin(*arguments)
    assert server.get("/").content == said
    assert headers_of_a_session(server)[b"x-variable"] == said


def test_limit_of_requests(begin):
    server = begin("--limit-max-requests", "2")
    for _ in range(2):
        headers_of_a_session(server)
    server.wait_log("Maximum request limit of 2 exceeded")
    assert server.wait_stopped() == 0


def test_the_root_path_and_who_is_trusted_as_a_proxy(begin):
    forwarded = [(b"x-forwarded-for", b"10.1.2.3")]
    found = headers_of_a_session(begin("--root-path", "/root"), headers=forwarded)
    assert (found[b"x-root"], found[b"x-client"]) == (b"/root", b"10.1.2.3")
