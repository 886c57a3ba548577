"""WSGI applications over each version of HTTP, detected or chosen: PEP 3333, streams, threads, Flask and
Django."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import time

import pytest

from tests.http.http1.client import SECONDS, connected
from tests.http.web.conftest import VERSIONS, Site
from tests.http.web.wsgi_application import OPENED, PART

MODULE = "tests.http.web.wsgi_application"


@pytest.fixture(scope="module", params=VERSIONS)
def site(request, backend, certificate, tmp_path_factory):
    """The application under the validator, detected as WSGI."""
    made = Site(
        request.param,
        tmp_path_factory.mktemp("wsgi"),
        certificate,
        backend,
        f"{MODULE}:app",
        [],
    )
    yield made
    made.end()
    assert "AssertionError" not in made.server.log()


def events(site):
    return json.loads(site.get("/events").body)[0]


def wait_event(site, event):
    deadline = time.monotonic() + SECONDS
    while event not in events(site):
        assert time.monotonic() < deadline, events(site)
        time.sleep(0.02)


def test_the_environment_is_that_of_the_pep(site):
    found = site.get("/show/caf%C3%A9?a=b%20c", x_one="1", content_type="text/x", x_under_score="0")
    seen = json.loads(found.body)
    assert (seen["REQUEST_METHOD"], seen["SCRIPT_NAME"]) == ("GET", "")
    assert seen["PATH_INFO"] == "/show/caf\u00e9".encode().decode("latin-1")
    assert (seen["QUERY_STRING"], seen["CONTENT_TYPE"]) == ("a=b%20c", "text/x")
    assert seen["SERVER_PROTOCOL"] == ("HTTP/3" if site.version == "http3" else "HTTP/1.1")
    assert (seen["SERVER_PORT"], seen["wsgi.url_scheme"]) == (str(site.server.port), "https")
    assert seen["REMOTE_ADDR"] == "127.0.0.1"
    assert (seen["HTTP_X_ONE"], seen["HTTP_X_UNDER_SCORE"]) == ("1", "0")
    assert seen["thread"].startswith("uringcore-wsgi-")


def test_names_that_cgi_would_confuse_are_left_out(site):
    if site.version == "http3":
        headers = [(b"x_user", b"forged"), (b"proxy", b"evil"), (b"x-user", b"real")]
        seen = json.loads(site.server.get("/show", headers=headers).content)
    else:
        with connected(site.server, secure=True) as raw:
            found = raw.get("/show", "X_User: forged", "Proxy: evil", "X-User: real")
        seen = json.loads(found.body)
    assert seen["HTTP_X_USER"] == "real" and "HTTP_PROXY" not in seen


@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
def test_content_of_a_request_is_streamed(site, size):
    body = (b"a line\n" + bytes(range(256)) * (size // 256 + 1))[:size]
    if site.version == "http3":
        found = site.server.get("/echo", method="POST", content=body).content
    else:
        with connected(site.server, secure=True) as raw:
            raw.send(f"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n")
            raw.send(body)
            found = raw.response().body
    assert found.split()[0].decode() == hashlib.sha256(body).hexdigest()


def test_an_iterable_is_streamed_and_closed(site):
    assert site.get("/parts").body == PART * 10
    wait_event(site, ["parts", 0])


def test_write_and_a_change_of_mind_work(site):
    assert site.get("/written").body == b"written, returned"
    found = site.get("/changed")
    assert (found.status, found.body) == (500, b"an error page")


def test_an_error_before_the_head_is_500(site):
    assert site.get("/fails").status == 500
    site.server.wait_log("RuntimeError: an application's own error")
    assert site.get("/parts").status == 200


@pytest.mark.parametrize("version", ["native", "h11"])
def test_an_error_after_content_cuts_the_response_off(version, make_site):
    site = make_site(version, app=f"{MODULE}:unvalidated")
    with connected(site.server, secure=True) as raw:
        raw.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n")
        assert raw.head().status == 200
        assert not raw.rest().endswith(b"0\r\n\r\n")
    site.server.wait_log("KeyError: 'too late'")
    assert site.get("/silent").status == 500
    wait_event(site, ["silent", 9])


@pytest.mark.parametrize("version", ["native", "h11"])
def test_a_slow_client_holds_the_application_up_and_one_that_leaves_ends_it(version, make_site):
    site = make_site(version, app=f"{MODULE}:unvalidated")
    with connected(site.server, secure=True) as raw:
        raw.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        assert raw.head().status == 200
        before = site.server.resident_bytes()
        for _ in range(50):
            site.get("/show")
        # Nothing accumulates while the client does not read.
        assert site.server.resident_bytes() - before < 64 << 20
    deadline = time.monotonic() + SECONDS
    while not any(name == "endless" and left for name, left in events(site)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrapped_file_is_sent_by_the_server(version, make_site):
    site = make_site(version, app=f"{MODULE}:unvalidated")
    found = site.get("/file")
    assert (found.status, found.body) == (200, PART * 20)
    # The module keeps the file open once. The thread closes the response's when the client has it.
    deadline = time.monotonic() + SECONDS
    while open_texts(site.server.process.pid) != 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_content_of_a_wrapped_file_is_what_it_reads(version, make_site):
    """`fileno` of a compressed file is that of the compressed bytes."""
    site = make_site(version, app=f"{MODULE}:unvalidated")
    for kind in OPENED:
        assert site.get(f"/opened/{kind}").body == PART[1:], kind


@pytest.mark.parametrize("options", [(), ("--log-level", "trace")], ids=["info", "trace"])
@pytest.mark.parametrize("version", ["native", "h11"])
def test_clients_that_leave_with_their_request_incomplete_keep_no_thread(
    version, options, make_site
):
    """Neither the application nor the server reads the rest of the content, or the end of the connection.
    At the level `trace`, uvicorn's log of messages is between the server and the application."""
    site = make_site(version, "--wsgi-threads", "2", *options, app=f"{MODULE}:unvalidated")
    for _ in range(3):
        with connected(site.server, secure=True) as raw:
            raw.send("POST /endless HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nxx")
            assert raw.head().status == 200
            raw.exactly(10 * len(PART))
    assert site.get("/show").status == 200


def open_texts(process):
    count = 0
    for entry in os.scandir(f"/proc/{process}/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(entry.path).endswith(".txt")
    return count


def test_threads_are_bounded(make_site):
    site = make_site("native", "--wsgi-threads", "3", app=f"{MODULE}:unvalidated")
    opened = [connected(site.server, secure=True) for _ in range(12)]
    raws = [one.__enter__() for one in opened]
    try:
        for raw in raws:
            raw.send("GET /busy HTTP/1.1\r\nHost: a\r\n\r\n")
        assert [raw.response().body for raw in raws] == [b"busy"] * 12
    finally:
        for one in opened:
            one.__exit__(None, None, None)
    assert json.loads(site.get("/events").body)[1]["most"] == 3


def test_a_stop_ends_an_application_that_sends_for_ever(make_site):
    site = make_site("native", "--timeout-graceful-shutdown", "1", app=f"{MODULE}:unvalidated")
    with connected(site.server, secure=True) as raw:
        raw.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        assert raw.head().status == 200
        assert site.server.stop() == 0


def test_asgi_applications_are_not_taken_for_wsgi(make_site):
    for version in ("native", "h11"):
        site = make_site(version)
        assert site.get("/show").status == 200


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("framework", ["flask", "django"])
def test_frameworks_run(version, framework, make_site):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed here")
    site = make_site(version, app=f"{MODULE}:{framework}")
    assert site.get("/stream").body == b"one two three"
    assert site.get("/file").body == PART * 20
    seen = json.loads(site.get("/url?a=b").body)
    assert seen["url"].startswith("https://localhost") and seen["url"].endswith("/url?a=b")
    assert seen["address"] == "127.0.0.1"
    content = (
        b'--B\r\nContent-Disposition: form-data; name="name"\r\n\r\nvalue\r\n'
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        + bytes(500_000)
        + b"\r\n--B--\r\n"
    )
    kind = "multipart/form-data; boundary=B"
    if version == "http3":
        headers = [(b"content-type", kind.encode())]
        found = site.server.get("/form", method="POST", headers=headers, content=content).content
    else:
        with connected(site.server, secure=True) as raw:
            raw.send(
                f"POST /form HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(content)}\r\n\r\n"
            )
            raw.send(content)
            found = raw.response().body
    assert json.loads(found) == {"name": "value", "file": 500_000}
