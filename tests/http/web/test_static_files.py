"""`--static` and `StaticFiles` over each version of HTTP, on a folder with everything that a folder can
contain."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.http.http1.client import Raw, connected
from tests.http.web.conftest import VERSIONS, Site
from tests.server.harness import command

OLD = 1_700_000_000
TEXT = b"".join(b"line %d of a script\n" % number for number in range(500))
BIG = bytes(range(256)) * 4096  # 1 MiB


def write(path, content, *, modified=OLD):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (modified, modified))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder `site` below a folder with a secret."""
    top = tmp_path_factory.mktemp("static")
    site = top / "site"
    write(top / "secret.txt", b"secret")
    write(top / "sites" / "secret.txt", b"secret")
    write(site / "app.js", TEXT)
    write(site / "app.js.br", b"brotli")
    write(site / "app.js.zst", b"zstd")
    write(site / "app.js.gz", b"gzip")
    write(site / "plain.txt", b"plain")
    write(site / "empty.txt", b"")
    write(site / "big.bin", BIG)
    write(site / "picture.png", b"png")
    write(site / "picture.png.gz", b"never")
    write(site / "caf\u00e9 1.html", "<p>caf\u00e9</p>".encode())
    write(site / "index.html", b"top")
    write(site / "docs" / "index.html", b"docs")
    write(site / "bare" / "one.txt", b"one")
    write(site / ".env", b"hidden")
    write(site / ".git" / "config", b"hidden")
    write(site / "docs" / ".htaccess", b"hidden")
    write(site / ".well-known" / "security.txt", b"Contact: us")
    write(site / "back\\slash.txt", b"odd")
    (site / "inside.txt").symlink_to("plain.txt")
    (site / "outside.txt").symlink_to("../secret.txt")
    (site / "absolute.txt").symlink_to(top / "secret.txt")
    (site / "up").symlink_to("..")
    os.mkfifo(site / "fifo")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(site / "sock"))
    return site


@pytest.fixture(scope="module", params=VERSIONS)
def site(request, backend, certificate, tmp_path_factory, folder):
    options = ["--static", f"/assets={folder}", "--static", f"/={folder / 'docs'}"]
    options += ["--static-cache-control", "public, max-age=60"]
    made = Site(
        request.param,
        tmp_path_factory.mktemp("server"),
        certificate,
        backend,
        "tests.http.web.application:app",
        options,
    )
    yield made
    made.end()


def test_a_file_is_served_with_its_type_validators_and_cache_control(site):
    found = site.get("/assets/plain.txt")
    assert (found.status, found.body) == (200, b"plain")
    assert found["content-type"] == "text/plain; charset=utf-8"
    assert found["content-length"] == "5"
    assert found["last-modified"] == formatdate(OLD, usegmt=True)
    assert re.fullmatch(r'"[0-9a-f]+-5"', found["etag"])
    assert found["cache-control"] == "public, max-age=60"
    assert found["accept-ranges"] == "bytes"
    assert found["vary"] == "accept-encoding"
    assert found["x-content-type-options"] == "nosniff"


def test_a_large_file_and_an_empty_one_are_sent_whole(site):
    assert site.get("/assets/big.bin").body == BIG
    found = site.get("/assets/empty.txt")
    assert (found.status, found["content-length"], found.body) == (200, "0", b"")


def test_a_head_has_the_fields_of_a_get(site):
    get, head = site.get("/assets/big.bin"), site.get("/assets/big.bin", "HEAD")
    assert (head.status, head.body) == (200, b"")
    for name in ("content-length", "content-type", "etag", "last-modified", "accept-ranges"):
        assert head[name] == get[name]


def test_other_methods_are_refused(site):
    found = site.get("/assets/plain.txt", "DELETE")
    assert (found.status, found["allow"]) == (405, "GET, HEAD")


def test_names_are_decoded_once(site):
    assert site.get("/assets/caf%C3%A9%201.html").body == "<p>caf\u00e9</p>".encode()
    assert site.get("/assets/caf%25C3%25A9%25201.html").status == 404
    assert site.get("/assets/pl%61in.txt?v=1").body == b"plain"


def test_a_folder_has_its_index_and_needs_a_slash(site):
    assert site.get("/assets/").body == b"top"
    assert site.get("/assets/docs/").body == b"docs"
    for path, target in (("/assets/docs?a=b", "./docs/?a=b"), ("/assets", "./assets/")):
        found = site.get(path)
        assert (found.status, found["location"]) == (308, target)
    assert site.get("/assets/bare").status == 404
    assert site.get("/assets/bare/").status == 404
    assert site.get("/assets/plain.txt/").status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/docs/../../secret.txt",
        "/docs/%2e%2e/%2e%2e/secret.txt",
        "/..%5csecret.txt",
        "/..\\secret.txt",
        "/%252e%252e/secret.txt",
        "/..;/secret.txt",
        "/./plain.txt",
        "//plain.txt",
        "/docs//index.html",
        "/%2fetc/passwd",
        "/plain.txt%00",
        "/plain.txt%00.png",
        "/..%c0%afsecret.txt",
        "/..%ef%bc%8fsecret.txt",
        "/back%5cslash.txt",
        "/C:/plain.txt",
        "/outside.txt",
        "/absolute.txt",
        "/up/secret.txt",
        "/up/site/plain.txt",
        "/.env",
        "/%2eenv",
        "/.git/config",
        "/docs/.htaccess",
        "/docs/.well-known/x",
        "/fifo",
        "/sock",
        "/" + "a" * 5000,
        "/none.txt",
    ],
)
def test_nothing_else_is_served(site, path):
    found = site.get("/assets" + path)
    # Some of these are no valid request.
    assert found.status in (400, 404)
    assert b"secret" not in found.body and b"hidden" not in found.body


def test_a_link_that_stays_inside_and_the_well_known_folder_are_served(site):
    assert site.get("/assets/inside.txt").body == b"plain"
    assert site.get("/assets/.well-known/security.txt").body == b"Contact: us"


def test_below_the_root_the_application_gets_what_is_no_file(site):
    assert site.get("/").body == b"docs"
    assert site.get("/index.html").body == b"docs"
    assert b'"path": "/other"' in site.get("/other").body
    assert b'"method": "POST"' in site.get("/index.html", "POST", content_length="0").body
    assert site.get("/assetsx").body != b"top"


@pytest.mark.parametrize(
    ("accepted", "coding", "body"),
    [
        ("gzip, deflate, br, zstd", "br", b"brotli"),
        ("gzip, zstd", "zstd", b"zstd"),
        ("gzip", "gzip", b"gzip"),
        ("br;q=0.1, gzip;q=0.2", "gzip", b"gzip"),
        ("*", "br", b"brotli"),
        ("br;q=0, *;q=0.5", "zstd", b"zstd"),
        ("identity, br;q=0.5", None, TEXT),
        ("deflate", None, TEXT),
        ("", None, TEXT),
    ],
)
def test_compressed_siblings_are_negotiated(site, accepted, coding, body):
    found = site.get("/assets/app.js", accept_encoding=accepted)
    assert (found.status, found["content-encoding"], found.body) == (200, coding, body)
    assert found["content-type"] == "text/javascript; charset=utf-8"
    assert found["vary"] == "accept-encoding"
    assert found["content-length"] == str(len(body))
    other = site.get("/assets/app.js", accept_encoding="deflate")
    assert (found["etag"] == other["etag"]) == (coding is None)


def test_files_of_compressed_types_have_no_siblings(site):
    found = site.get("/assets/picture.png", accept_encoding="gzip")
    assert (found.body, found["content-encoding"], found["vary"]) == (b"png", None, None)
    # The sibling itself is an ordinary file.
    found = site.get("/assets/app.js.gz")
    assert (found["content-type"], found["content-encoding"]) == ("application/gzip", None)


def test_conditions_are_evaluated_in_the_order_of_the_rfc(site):
    path = "/assets/plain.txt"
    first = site.get(path)
    etag, date = first["etag"], first["last-modified"]
    later, earlier = formatdate(OLD + 1, usegmt=True), formatdate(OLD - 1, usegmt=True)
    for status, fields in [
        (304, {"if_none_match": etag}),
        (304, {"if_none_match": f'"other", W/{etag}'}),
        (304, {"if_none_match": "*"}),
        (200, {"if_none_match": '"other"'}),
        (304, {"if_modified_since": date}),
        (304, {"if_modified_since": later}),
        (200, {"if_modified_since": earlier}),
        (200, {"if_modified_since": "yesterday"}),
        (304, {"if_modified_since": "Tue Nov 14 22:13:20 2023"}),
        # If-None-Match wins.
        (200, {"if_none_match": '"other"', "if_modified_since": date}),
        (200, {"if_match": etag}),
        (200, {"if_match": "*"}),
        (412, {"if_match": '"other"'}),
        (412, {"if_match": f"W/{etag}"}),
        (412, {"if_unmodified_since": earlier}),
        (200, {"if_unmodified_since": date}),
        (200, {"if_match": etag, "if_unmodified_since": earlier}),
        (412, {"if_match": '"other"', "if_none_match": etag}),
    ]:
        found = site.get(path, **fields)
        assert found.status == status, fields
        if status == 304:
            assert (found.body, found["etag"], found["vary"]) == (b"", etag, "accept-encoding")
            assert found["cache-control"] == "public, max-age=60"
            assert found["content-type"] is None


def test_the_validators_of_a_sibling_are_its_own(site):
    found = site.get("/assets/app.js", accept_encoding="br")
    again = site.get("/assets/app.js", accept_encoding="br", if_none_match=found["etag"])
    assert (again.status, again["etag"]) == (304, found["etag"])
    other = site.get("/assets/app.js", accept_encoding="gzip", if_none_match=found["etag"])
    assert other.status == 200


@pytest.mark.parametrize(
    ("value", "first", "last"),
    [
        ("bytes=0-99", 0, 99),
        ("bytes=1000-", 1000, len(BIG) - 1),
        ("bytes=-7", len(BIG) - 7, len(BIG) - 1),
        ("bytes=-99999999", 0, len(BIG) - 1),
        ("bytes=5-99999999", 5, len(BIG) - 1),
        ("Bytes=200000-500000", 200_000, 500_000),
        # Ranges that touch become one.
        ("bytes=0-9, 10-19", 0, 19),
        ("bytes=20-29,0-25", 0, 29),
        ("bytes=0-9, 99999999-", 0, 9),
    ],
)
def test_one_range_is_a_part_of_the_file(site, value, first, last):
    found = site.get("/assets/big.bin", range=value)
    assert found.status == 206
    assert found["content-range"] == f"bytes {first}-{last}/{len(BIG)}"
    assert found.body == BIG[first : last + 1]
    assert found["content-length"] == str(len(found.body))


@pytest.mark.parametrize(
    "value",
    [
        "bytes=5-4",
        "bytes=a-b",
        "bytes=-",
        "bytes=",
        "bytes",
        "lines=0-1",
        "bytes=0-1,x",
        "bytes=" + "9" * 400 + "-",
        "bytes=" + ",".join(f"{at}-{at}" for at in range(0, 20_000, 1000)),
    ],
)
def test_other_values_of_range_are_ignored(site, value):
    found = site.get("/assets/plain.txt", range=value)
    assert (found.status, found.body) == (200, b"plain")


def test_a_range_behind_the_end_is_refused(site):
    for value in ("bytes=5-", "bytes=-0", "bytes=99-100, 200-"):
        found = site.get("/assets/plain.txt", range=value)
        assert (found.status, found["content-range"]) == (416, "bytes */5")
    assert site.get("/assets/empty.txt", range="bytes=0-").status == 200


def test_several_ranges_are_multipart_content(site):
    found = site.get("/assets/big.bin", range="bytes=500000-500009, -3, 0-9")
    assert found.status == 206 and found["content-range"] is None
    assert found["content-length"] == str(len(found.body))
    kind, boundary = found["content-type"].split("; boundary=")
    assert kind == "multipart/byteranges"
    start, *parts, end = found.body.split(b"--" + boundary.encode())
    assert (start, end) == (b"\r\n", b"--\r\n")
    size = len(BIG)
    for part, (first, last) in zip(
        parts, [(500_000, 500_009), (size - 3, size - 1), (0, 9)], strict=True
    ):
        head, content = part.split(b"\r\n\r\n", 1)
        assert f"content-range: bytes {first}-{last}/{size}".encode() in head.split(b"\r\n")
        assert b"content-type: application/octet-stream" in head.split(b"\r\n")
        assert content == BIG[first : last + 1] + b"\r\n"


def test_if_range_needs_a_strong_validator_that_matches(site):
    path = "/assets/big.bin"
    first = site.get(path, "HEAD")
    for status, validator in [
        (206, first["etag"]),
        (206, first["last-modified"]),
        (200, '"other"'),
        (200, "W/" + first["etag"]),
        (200, formatdate(OLD + 1, usegmt=True)),
        (200, "nonsense"),
    ]:
        found = site.get(path, range="bytes=0-9", if_range=validator)
        assert found.status == status, validator


def test_a_head_ignores_a_range(site):
    assert site.get("/assets/big.bin", "HEAD", range="bytes=0-9").status == 200


def test_ranges_are_those_of_the_chosen_sibling(site):
    found = site.get("/assets/app.js", accept_encoding="br", range="bytes=0-2")
    assert (found.status, found.body, found["content-encoding"]) == (206, b"bro", "br")
    assert found["content-range"] == "bytes 0-2/6"


def test_a_file_that_has_just_changed_has_a_weak_tag(site, folder):
    write(folder / "fresh.txt", b"fresh", modified=time.time() + 3600)
    found = site.get("/assets/fresh.txt")
    assert found["etag"].startswith('W/"')
    assert site.get("/assets/fresh.txt", range="bytes=0-1", if_range=found["etag"]).status == 200
    assert site.get("/assets/fresh.txt", if_none_match=found["etag"]).status == 304


def test_a_renewed_file_is_served_with_another_tag(site, folder):
    path = write(folder / "renewed.txt", b"before")
    before = site.get("/assets/renewed.txt")
    write(folder / "next.txt", b"behind", modified=OLD + 1).rename(path)
    after = site.get("/assets/renewed.txt", if_none_match=before["etag"])
    assert (after.status, after.body) == (200, b"behind")


def test_a_folder_that_replaces_the_published_one_is_served(make_site, tmp_path):
    write(tmp_path / "one" / "a.txt", b"one")
    write(tmp_path / "two" / "a.txt", b"two")
    link = tmp_path / "current"
    link.symlink_to("one")
    site = make_site("native", "--static", f"/files={link}")
    assert site.get("/files/a.txt").body == b"one"
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(link)
    deadline = time.monotonic() + 30
    while site.get("/files/a.txt").body != b"two":
        assert time.monotonic() < deadline


# The code that sends is common to native HTTP/1.1 and HTTP/3: tests/http/features/test_files.py and
# tests/http/hostile/test_hostile_files.py have these two over HTTP/3.
@pytest.mark.parametrize("version", ["native", "h11"])
def test_a_file_that_shrinks_ends_its_response_early(version, make_site, tmp_path):
    """The response is large, so that its client holds it up until the file has changed."""
    path = write(tmp_path / "large.bin", bytes(64 << 20))
    site = make_site(version, "--static", f"/files={tmp_path}")
    with connected(site.server, secure=True) as raw:
        raw.send("GET /files/large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = raw.head()
        assert head.status == 200
        os.truncate(path, 1000)
        received = len(raw.rest())
    assert 0 < received < 64 << 20
    assert site.get("/files/large.bin").body == bytes(1000)


@pytest.mark.parametrize("version", ["native", "h11"])
def test_slow_clients_hold_no_descriptor_each(version, make_site, tmp_path):
    """Sixty clients read nothing of a large file: the native server keeps a few files open for them, and the
    classes of uvicorn none."""
    write(tmp_path / "large.bin", bytes(32 << 20))
    site = make_site(version, "--static", f"/files={tmp_path}", "--http3-max-process-files", "4")
    clients = [Raw(site.server, secure=True) for _ in range(60)]
    try:
        for one in clients:
            one.send("GET /files/large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for one in clients:
            assert one.head().status == 200
        assert site.get("/files/large.bin", "HEAD").status == 200
        links = [
            os.readlink(entry)
            for entry in Path(f"/proc/{site.server.process.pid}/fd").iterdir()
            if entry.is_symlink()
        ]
        assert sum(link.endswith("large.bin") for link in links) <= 4
    finally:
        for one in clients:
            one.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_starlette_mounts_it(version, make_site, folder, tmp_path):
    program = tmp_path / "mounted_site.py"
    program.write_text(
        f"from tests.http.web.application import mounted\napp = mounted({str(folder)!r})\n"
    )
    site = make_site(version, "--app-dir", str(tmp_path), app="mounted_site:app")
    found = site.get("/files/plain.txt")
    assert (found.status, found.body, found["cache-control"]) == (200, b"plain", "no-cache")
    assert site.get("/files/docs")["location"] == "./docs/"
    assert site.get("/files/big.bin", range="bytes=7-8").body == BIG[7:9]
    assert site.get("/files/none").status == 404
    assert site.get("/files/..%2fsecret.txt").status == 404


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_complete_behind_middleware_that_passes_messages_on(
    version, make_site, folder, tmp_path
):
    program = tmp_path / "middleware_site.py"
    program.write_text(
        "from tests.http.web.application import behind_middleware\n"
        f"app = behind_middleware({str(folder)!r})\n"
    )
    site = make_site(version, "--app-dir", str(tmp_path), app="middleware_site:app")
    assert site.get("/files/big.bin").body == BIG
    assert site.get("/files/big.bin", range="bytes=7-8").body == BIG[7:9]
    found = site.get("/files/big.bin", range="bytes=0-9, 300000-499999, -3")
    assert (found.status, found["content-length"]) == (206, str(len(found.body)))
    boundary = found["content-type"].split("; boundary=")[1]
    parts = [part.partition(b"\r\n\r\n")[2] for part in found.body.split(b"--" + boundary.encode())]
    assert parts[1:-1] == [part + b"\r\n" for part in (BIG[:10], BIG[300_000:500_000], BIG[-3:])]


def test_a_folder_that_is_opened_without_a_free_descriptor_is_not_served_in_a_lesser_way(tmp_path):
    """The descriptor that the check of the kernel's abilities needs is missing; later it is there."""
    program = """
import errno, os, resource, sys
from uringcore._uringcore import StaticFolder
folder = sys.argv[1]
os.symlink("one", os.path.join(folder, "link"))
with open(os.path.join(folder, "one"), "w") as file:
    file.write("one")
has_links = StaticFolder(folder).open(b"link", may_wait=True) is not None
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
while True:
    try:
        taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        break
os.close(taken.pop())
try:
    StaticFolder(folder)
except OSError as error:
    assert error.errno == errno.EMFILE, error
else:
    assert not has_links, "opened"
os.close(taken.pop())
assert (StaticFolder(folder).open(b"link", may_wait=True) is not None) is has_links
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)


def test_it_runs_on_other_servers():
    """uvicorn without uringcore's loop: the code reads the file with a thread."""
    program = """
import asyncio, tempfile, pathlib
from uringcore.server import StaticFiles
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "a.txt").write_bytes(b"content")
sent = []
async def send(message): sent.append(message)
async def main():
    scope = {"type": "http", "method": "GET", "path": "/a.txt", "headers": [], "query_string": b""}
    await StaticFiles(folder)(scope, None, send)
asyncio.run(main())
assert sent[0]["status"] == 200, sent
assert b"".join(one.get("body", b"") for one in sent) == b"content", sent
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("/a", "not of the form /PREFIX=FOLDER"),
        ("a=/tmp", "not a path that begins with /"),
        ("/a?b=/tmp", "not a path that begins with /"),
        ("/a=/nowhere/at/all", "there is no folder /nowhere/at/all"),
    ],
)
def test_mistakes_are_refused_in_one_line(value, why):
    ended = command("tests.http.web.application:app", "--static", value)
    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: --static: ") and why in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_cache_control_without_files_is_mentioned():
    ended = command(
        "tests.http.web.none:app", "--static-cache-control", "no-store", "--http", "h11"
    )
    assert "--static-cache-control does nothing: there is no --static." in ended.stderr
