"""`--static` over native HTTP/1.1 without TLS: answers that are repeated without Python, and files that the
kernel sends."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.http.http1.client import connected

pytestmark = pytest.mark.either_backend

APPLICATION = "tests.http.features.application:app"
OLD = 1_700_000_000
LARGE = random.Random(26).randbytes(20_000_000)


def write(path, content, *, modified=OLD):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (modified, modified))
    return path


@pytest.fixture
def folder(tmp_path):
    site = tmp_path / "site"
    write(site / "plain.txt", b"plain")
    write(site / "page.html", b"<p>" * 20_000)
    write(site / "large.bin", LARGE)
    write(site / "exact.bin", LARGE[: 128 << 10])
    write(site / "more.bin", LARGE[: (128 << 10) + 1])
    write(tmp_path / "outside.txt", b"other")
    return site


@pytest.fixture
def site(folder, start_native):
    return start_native(*("--static", f"/assets={folder}", "--no-access-log"), app=APPLICATION)


def fields_of(found):
    return [(name, value) for name, value in found.fields if name.lower() != "date"]


@pytest.mark.parametrize("name", ["plain.txt", "page.html", "exact.bin", "more.bin"])
def test_every_answer_is_the_same(site, folder, name):
    with connected(site) as raw:
        first = raw.get(f"/assets/{name}")
        assert first.body == (folder / name).read_bytes()
        for _ in range(3):
            again = raw.get(f"/assets/{name}?version=2")
            assert (again.status, again.body) == (200, first.body)
            assert fields_of(again) == fields_of(first)


def test_many_files_are_right_whether_their_content_is_kept_or_not(site, folder):
    size, count = 128 << 10, 140
    for number in range(count):
        at = number * 1000
        write(folder / f"{number}.bin", LARGE[at : at + size])
    with connected(site) as raw:
        for _ in range(2):
            for number in range(count):
                found = raw.get(f"/assets/{number}.bin")
                assert found.body == LARGE[number * 1000 : number * 1000 + size]
        write(folder / f"{count - 1}.bin", b"new" * 1000, modified=OLD + 1)
        assert raw.get(f"/assets/{count - 1}.bin").body == b"new" * 1000


def test_requests_that_differ_get_their_own_answers(site):
    with connected(site) as raw:
        for _ in range(2):
            tag = raw.get("/assets/plain.txt").get("etag")
            assert raw.get("/assets/plain.txt", f"If-None-Match: {tag}").status == 304
            assert raw.get("/assets/plain.txt", "Range: bytes=1-2").body == b"la"
            assert raw.get("/assets/plain.txt", method="HEAD").body == b""
            assert raw.get("/assets/plain.txt", method="POST").status == 405
            assert raw.get("/assets/none.txt").status == 404
            assert raw.get("/debug").body == b"debugged"


def test_pipelined_requests_are_answered_in_order(site):
    with connected(site) as raw:
        raw.get("/assets/plain.txt")
        lines = "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        paths = ["/assets/plain.txt", "/debug", "/assets/page.html", "/assets/more.bin"] * 20
        raw.send("".join(map(lines.format, paths)))
        sizes = [len(raw.response().body) for _ in paths]
        assert sizes == [5, 8, 60_000, (128 << 10) + 1] * 20


def test_a_change_is_seen_at_once(site, folder, tmp_path):
    with connected(site) as raw:
        for _ in range(2):
            before = raw.get("/assets/plain.txt")
        write(folder / "plain.txt", b"third")
        after = raw.get("/assets/plain.txt")
        assert (after.status, after.body) == (200, b"third")
        assert after.get("etag") == before.get("etag"), "size and time are those of before"
        write(folder / "next.txt", b"fifth", modified=OLD + 1).rename(folder / "plain.txt")
        assert raw.get("/assets/plain.txt").body == b"fifth"
        (folder / "plain.txt").unlink()
        assert raw.get("/assets/plain.txt").status == 404
        (folder / "plain.txt").symlink_to(tmp_path / "outside.txt")
        assert raw.get("/assets/plain.txt").status == 404


def test_a_compressed_sibling_is_seen_within_a_second(site, folder):
    with connected(site) as raw:
        accepts = "Accept-Encoding: br"
        assert raw.get("/assets/plain.txt", accepts).get("content-encoding") is None
        write(folder / "plain.txt.br", b"brotli")
        deadline = time.monotonic() + 30
        while raw.get("/assets/plain.txt", accepts).body != b"brotli":
            assert time.monotonic() < deadline
        assert raw.get("/assets/plain.txt", accepts).get("content-encoding") == "br"
        assert raw.get("/assets/plain.txt").body == b"plain"


def test_no_sibling_of_a_file_that_is_gone_is_served(site, folder):
    write(folder / "plain.txt.br", b"brotli")
    with connected(site) as raw:
        accepts = "Accept-Encoding: br"
        for _ in range(2):
            assert raw.get("/assets/plain.txt", accepts).body == b"brotli"
        (folder / "plain.txt").unlink()
        assert raw.get("/assets/plain.txt", accepts).status == 404


def test_every_request_is_in_the_access_log(folder, start_native):
    site = start_native("--static", f"/assets={folder}", "--access-log", app=APPLICATION)
    with connected(site) as raw:
        for number in range(3):
            assert raw.get(f"/assets/plain.txt?{number}").body == b"plain"
    site.wait_log(r'(?s)plain.txt\?0.*plain.txt\?1.*plain.txt\?2 HTTP/1.1" 200')


def test_a_large_file_arrives_whole_and_the_connection_goes_on(site):
    with connected(site) as raw:
        for _ in range(3):
            assert raw.get("/assets/large.bin").body == LARGE
        found = raw.get("/assets/large.bin", "Range: bytes=1000000-19999999")
        assert (found.status, found.body) == (206, LARGE[1_000_000:])
        assert raw.get("/assets/plain.txt").body == b"plain"


def test_a_file_that_shrinks_ends_its_response_early(site, folder):
    write(folder / "huge.bin", bytes(64 << 20))
    with connected(site) as raw:
        raw.send("GET /assets/huge.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.head().status == 200
        os.truncate(folder / "huge.bin", 1000)
        assert 0 < len(raw.rest()) < 64 << 20


def test_a_client_that_leaves_a_large_file_harms_no_other(site):
    for _ in range(5):
        with connected(site) as raw:
            raw.send("GET /assets/large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert raw.head().status == 200
    with connected(site) as raw:
        assert raw.get("/assets/large.bin").body == LARGE
