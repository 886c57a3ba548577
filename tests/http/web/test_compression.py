"""`--compress` over native HTTP/1.1 and HTTP/3: negotiation, fields, streams, and the bounds of encoders."""

from __future__ import annotations

import gzip
import os
import subprocess

import pytest

from tests.http.http1.client import Raw, connected
from tests.http.web.application import TEXT
from tests.http.web.conftest import Site
from tests.server.harness import command
from tests.support import debian_packages, third_party_programs

VERSIONS = ("native", "http3")


def decoded(found):
    """The content of an answer without its coding."""
    coding = found["content-encoding"]
    if coding is None:
        return found.body
    if coding == "gzip":
        return gzip.decompress(found.body)
    try:
        program = debian_packages.program({"br": "brotli", "zstd": "zstd"}[coding])
    except third_party_programs.Unavailable as reason:
        pytest.skip(str(reason))
    ended = subprocess.run(
        [program.path, "-d", "-c"],
        input=found.body,
        env=program.environment,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return ended.stdout


@pytest.fixture(scope="module", params=VERSIONS)
def site(request, backend, certificate, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compress")
    (folder / "page.html").write_bytes(TEXT)
    os.utime(folder / "page.html", (1_700_000_000, 1_700_000_000))
    (folder / "page.html.gz").write_bytes(gzip.compress(b"sibling"))
    made = Site(
        request.param,
        folder,
        certificate,
        backend,
        "tests.http.web.application:app",
        ["--compress", "--static", f"/files={folder}"],
    )
    yield made
    made.end()


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip, br", "br"),
        ("gzip", "gzip"),
        ("x-gzip", "gzip"),
        ("gzip;q=1.0, br;q=0.5", "gzip"),
        ("*;q=0.1", "zstd"),
        ("identity;q=1, gzip;q=0.5", None),
        ("deflate", None),
        ("gzip;q=0", None),
    ],
)
def test_the_client_chooses_the_coding(site, accepted, coding):
    for path in ("/text/1", "/text/5", "/text/5?length"):
        found = site.get(path, accept_encoding=accepted)
        assert (found.status, found["content-encoding"]) == (200, coding)
        assert found["vary"] == "accept-encoding"
        if coding is None:
            assert found.body == TEXT
        else:
            assert len(found.body) < len(TEXT) / 3
            assert found["content-length"] in (None, str(len(found.body)))
            assert decoded(found) == TEXT


def test_without_the_field_nothing_is_compressed(site):
    found = site.get("/text/1")
    assert (found["content-encoding"], found["vary"], found.body) == (None, "accept-encoding", TEXT)


@pytest.mark.parametrize(
    "path",
    [
        "/picture",
        "/field?content-encoding=br",
        "/field?content-encoding=identity",
        "/field?cache-control=no-transform",
        "/field?content-range=bytes%200-1/2",
        "/field?repr-digest=x",
    ],
)
def test_what_must_not_change_stays_as_it_is(site, path):
    found = site.get(path, accept_encoding="gzip")
    assert found["content-encoding"] in (None, "br", "identity")
    assert (found["vary"], found.body) == (None, TEXT)


def test_small_content_and_content_that_would_grow_are_sent_plainly(site):
    for path, size in (("/small", 1000), ("/noise", 6144)):
        found = site.get(path, accept_encoding="gzip")
        assert (found["content-encoding"], len(found.body)) == (None, size)
        assert found["content-length"] == str(size)
        assert found["vary"] == "accept-encoding"


def test_validators_become_weak_and_ranges_are_withdrawn(site):
    plain = site.get("/validated")
    assert (plain["etag"], plain["accept-ranges"]) == ('"one"', "bytes")
    found = site.get("/validated", accept_encoding="gzip")
    assert (found["etag"], found["accept-ranges"]) == ('W/"one"', None)
    assert found["vary"] == "origin, accept-encoding"
    again = site.get("/validated", accept_encoding="gzip", if_none_match='W/"one"')
    assert (again.status, again["etag"]) == (304, 'W/"one"')
    again = site.get("/validated", if_none_match='"one"')
    assert (again.status, again["etag"]) == (304, '"one"')


def test_a_head_has_the_fields_of_a_get(site):
    found = site.get("/field?x=y", "HEAD", accept_encoding="gzip")
    assert (found.status, found["content-encoding"], found.body) == (200, "gzip", b"")
    assert (found["content-length"], found["vary"]) == (None, "accept-encoding")
    found = site.get("/small", "HEAD", accept_encoding="gzip")
    assert (found["content-encoding"], found["content-length"]) == (None, "1000")


def test_files_are_compressed_unless_they_have_siblings_or_are_sent_in_part(site):
    found = site.get("/files/page.html", accept_encoding="zstd")
    assert (found["content-encoding"], decoded(found)) == ("zstd", TEXT)
    assert found["etag"].startswith('W/"')
    found = site.get("/files/page.html", accept_encoding="gzip")
    assert decoded(found) == b"sibling"
    found = site.get("/files/page.html", accept_encoding="zstd", range="bytes=0-9999")
    assert (found.status, found["content-encoding"], found.body) == (206, None, TEXT[:10_000])
    assert (
        site.get("/files/page.html", accept_encoding="zstd", range="bytes=0-1, 500-501").status
        == 206
    )


def test_a_path_of_the_application_is_compressed(site, tmp_path):
    path = tmp_path / "large.txt"
    path.write_bytes(TEXT * 20)
    found = site.get(f"/path?{path}", accept_encoding="gzip")
    assert (found["content-encoding"], decoded(found)) == ("gzip", TEXT * 20)


def test_trailers_follow_compressed_content(site):
    if site.version == "http3":
        found = site.server.get("/trailers", headers=[(b"accept-encoding", b"gzip")])
        trailers, body = dict(found.trailers), found.content
        assert trailers == {b"x-end": b"1"}
    else:
        with connected(site.server, secure=True) as raw:
            found = raw.get("/trailers", "Accept-Encoding: gzip", "TE: trailers")
        assert found.trailers == (("x-end", "1"),)
        body = found.body
    assert gzip.decompress(body) == TEXT


def test_each_message_of_a_stream_is_readable_at_once(make_site):
    """The second event is sent after the client has read the first one."""
    site = make_site("native", "--compress", "--compress-codings", "gzip")
    with connected(site.server, secure=True) as raw, connected(site.server, secure=True) as other:
        raw.send("GET /events HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n")
        head = raw.head()
        assert (head.get("content-encoding"), head.get("transfer-encoding")) == ("gzip", "chunked")
        stream = gzip.zlib.decompressobj(31)
        events = b""
        while events != b"data: one\n\n":
            events += stream.decompress(raw.exactly(int(raw.until(b"\r\n"), 16)))
            assert raw.exactly(2) == b"\r\n"
        assert other.get("/go").status == 200
        while size := int(raw.until(b"\r\n"), 16):
            events += stream.decompress(raw.exactly(size))
            assert raw.exactly(2) == b"\r\n"
        assert events == b"data: one\n\ndata: two\n\n"
        assert stream.eof


def test_without_a_free_encoder_a_stream_is_sent_plainly(make_site):
    site = make_site("native", "--compress", "--compress-streams", "1")
    fields = ("Accept-Encoding: gzip",)
    request = "GET /events HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n"
    with (
        connected(site.server, secure=True) as first,
        connected(site.server, secure=True) as second,
    ):
        first.send(request)
        assert first.head().get("content-encoding") == "gzip"
        second.send(request)
        head = second.head()
        assert (head.get("content-encoding"), head.get("vary")) == (None, "accept-encoding")
        # A response in one message needs no encoder for longer than a call.
        with connected(site.server, secure=True) as third:
            assert third.get("/page", *fields).get("content-encoding") == "gzip"
    # The encoder is free when its client has gone.
    with connected(site.server, secure=True) as raw:
        while True:
            with connected(site.server, secure=True) as another:
                if another.get("/text/2", *fields).get("content-encoding") == "gzip":
                    break
        assert raw.get("/text/2", *fields).status == 200


def test_an_application_that_fails_in_the_middle_gives_no_complete_answer(make_site):
    site = make_site("native", "--compress")
    with connected(site.server, secure=True) as raw:
        raw.send("GET /failing HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n")
        assert raw.head().get("content-encoding") == "gzip"
        assert not raw.rest().endswith(b"0\r\n\r\n")


def test_slow_clients_of_much_compressible_content_hold_nothing_up(make_site, tmp_path):
    """100 MiB of zeros become a few kilobytes, so no client ever holds the response up: the loop does."""
    path = tmp_path / "zeros.txt"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    site = make_site("native", "--compress", "--compress-codings", "zstd")
    with connected(site.server, secure=True) as raw, connected(site.server, secure=True) as other:
        raw.send(f"GET /path?{path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: zstd\r\n\r\n")
        assert raw.head().get("content-encoding") == "zstd"
        # This answer comes before the end of the other one.
        assert other.get("/small").status == 200
        assert len(raw.until(b"\r\n0\r\n\r\n")) < 1 << 20


def test_levels_and_codings_are_options(make_site):
    sizes = []
    for level in ("1", "9"):
        site = make_site(
            "native",
            *("--compress", "--compress-level", level, "--compress-min-size", "10"),
            *("--compress-codings", "gzip"),
        )
        found = site.get("/text/1", accept_encoding="zstd, gzip")
        assert found["content-encoding"] == "gzip"
        sizes.append(len(found.body))
        assert site.get("/small", accept_encoding="gzip")["content-encoding"] == "gzip"
    assert sizes[0] > sizes[1]


def test_uvicorns_classes_do_not_compress_and_the_command_says_so(make_site):
    site = make_site("h11", "--compress")
    assert site.get("/text/1", accept_encoding="gzip")["content-encoding"] is None
    assert (
        "--compress does nothing: uvicorn's HTTP/1.1 (--http, --ws) does not compress."
        in site.server.log()
    )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--compress-codings", "deflate"), "'deflate' is not one of zstd, br, gzip"),
        (("--compress-codings", "gzip,gzip"), "must name each coding once"),
        (("--compress-codings", ""), "'' is not one of zstd, br, gzip"),
    ],
)
def test_mistakes_are_refused_in_one_line(options, why):
    ended = command("tests.http.web.application:app", "--compress", *options)
    assert ended.returncode == 1
    assert ended.stderr == f"Error: --compress-codings: {why}\n"


def test_a_client_that_leaves_frees_its_encoder_over_http_1(make_site):
    site = make_site("native", "--compress", "--compress-streams", "2")
    for _ in range(8):
        raw = Raw(site.server, secure=True)
        raw.send("GET /events HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n")
        raw.head()
        raw.close()
    while True:
        found = site.get("/text/2", accept_encoding="gzip")
        if found["content-encoding"] == "gzip":
            break
