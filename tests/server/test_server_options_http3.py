"""uvicorn's options over HTTP/3: the effect of each that no other test of the server shows."""

import json

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tests.server.conftest import starting
from tests.server.harness import ForkedServer

start = starting(ForkedServer)


def scope_of(response):
    return json.loads(response.content)


def test_headers_of_every_response(start):
    server = start(
        *("--header", "X-One: 1", "--header", "X-Two:2"), "--no-server-header", "--no-date-header"
    )
    response = server.get("/")
    assert (response.header("x-one"), response.header("x-two")) == ("1", "2")
    assert response.header("server") is None
    assert response.header("date") is None


def test_the_users_alt_svc_header_is_sent_over_both_protocols(start):
    """`clear` makes clients forget this server's UDP port (RFC 7838 section 3), so it is sent over both
    versions.
    """
    server = start("--header", "alt-svc:clear")
    assert server.get("/").header("alt-svc") == "clear"
    with server.http1() as connection:
        connection.request("GET", "/")
        assert connection.getresponse().getheader("alt-svc") == "clear"


def test_headers_by_default(server):
    response = server.get("/")
    assert response.header("server") == "uringcore"
    assert response.header("date").endswith(" GMT")
    # The client already uses HTTP/3.
    assert response.header("alt-svc") is None


@pytest.mark.parametrize(
    ("arguments", "client"),
    [
        ([], "10.1.2.3"),
        (["--forwarded-allow-ips", "*"], "10.1.2.3"),
        (["--forwarded-allow-ips", "192.0.2.1"], "127.0.0.1"),
        (["--no-proxy-headers"], "127.0.0.1"),
    ],
)
def test_trusted_proxies(start, arguments, client):
    server = start("--host", "127.0.0.1", *arguments)
    headers = [("x-forwarded-for", "10.1.2.3"), ("x-forwarded-proto", "https")]
    assert scope_of(server.get("/scope/x", headers=headers))["client"][0] == client
    # The log line has the client that the application sees.
    server.wait_log(rf'{client}:\d+ - "GET /scope/x HTTP/3" 200')


def test_uvicorns_proxy_middleware_is_bypassed_without_forwarding_headers() -> None:
    """`direct` returns the application inside of uvicorn's middleware, which passes a request without those
    header fields on unchanged.
    """
    from uringcore.server._http3_shared_state import direct

    async def application(scope, receive, send):
        pass

    assert direct(ProxyHeadersMiddleware(application)) is application
    assert direct(application) is application

    class Another(ProxyHeadersMiddleware):
        """The effect of a subclass is unknown."""

    another = Another(application)
    assert direct(another) is another


def test_no_access_log(start):
    server = start("--no-access-log")
    server.get("/scope/quiet")
    assert server.stop() == 0
    assert "quiet" not in server.log()


def test_log_level(start, tmp_path):
    """The trace level logs each call of the application, over HTTP/3 too."""
    server = start("--log-level", "trace")
    server.get("/scope/traced")
    server.wait_log(r"ASGI \[\d+\] Started scope=.*'http_version': '3'")


def test_lifespan_off(start):
    server = start("--lifespan", "off")
    assert "token" not in scope_of(server.get("/scope/x"))["state"]
    assert "LIFESPAN" not in server.log()


def test_limit_of_requests(start):
    server = start("--limit-max-requests", "3")
    for _ in range(3):
        assert server.get("/").status == 200
    assert server.wait_stopped(60) == 0
    assert "Maximum request limit of 3 exceeded" in server.log()


def test_an_application_factory(start, tmp_path):
    (tmp_path / "made.py").write_text(
        "def make():\n    from tests.server.application import app\n    return app\n"
    )
    server = start("--factory", "--app-dir", str(tmp_path), app="made:make")
    assert server.get("/").content == b"hello"


def test_an_application_of_wsgi(start, tmp_path):
    (tmp_path / "old.py").write_text(
        "def app(environ, start_response):\n"
        "    body = environ['wsgi.input'].read()\n"
        "    start_response('201 Created', [('X-Path', environ['PATH_INFO'])])\n"
        "    return [environ['wsgi.url_scheme'].encode(), b' ', body]\n"
    )
    server = start("--interface", "wsgi", "--app-dir", str(tmp_path), app="old:app")
    response = server.get("/some/path", method="POST", content=b"body")
    assert (response.status, response.content) == (201, b"https body")
    assert response.header("x-path") == "/some/path"


def test_an_application_of_asgi_2(start, tmp_path):
    (tmp_path / "two.py").write_text(
        "class App:\n"
        "    def __init__(self, scope):\n"
        "        self.scope = scope\n"
        "    async def __call__(self, receive, send):\n"
        "        await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "        version = self.scope['asgi']['version'].encode()\n"
        "        await send({'type': 'http.response.body', 'body': version})\n"
    )
    arguments = ["--interface", "asgi2", "--lifespan", "off", "--app-dir", str(tmp_path)]
    assert start(*arguments, app="two:App").get("/").content == b"2.0"


def test_an_environment_file(start, tmp_path):
    pytest.importorskip("dotenv")
    (tmp_path / "env").write_text("SHOWN=from the file\n")
    (tmp_path / "shows.py").write_text(
        "import os\n"
        "from tests.server.application import answer\n"
        "async def app(scope, receive, send):\n"
        "    await answer(send, os.environ['SHOWN'].encode())\n"
    )
    arguments = ["--env-file", str(tmp_path / "env"), "--app-dir", str(tmp_path)]
    server = start(*arguments, "--lifespan", "off", app="shows:app")
    assert server.get("/").content == b"from the file"
