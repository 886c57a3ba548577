"""The output, the files and the exit status of `uringcore get`."""

import json
import os
import pty
import re
import socket
import subprocess
import sys

import pytest

from tests.server.conftest import backends
from tests.server.harness import ROOT, environment, forked_command
from tests.support.free_ports import free_port
from uringcore.devcert import DevelopmentCertificate
from uringcore.http3._get_progress_bar import bytes_text, progress_line
from uringcore.http3._url import URLError, parse_url


@pytest.fixture(scope="module", params=backends()[-1:])
def backend(request):
    """One backend of the server, since the client is another process."""
    return request.param


def get(server, path, *arguments, **options):
    url = server.url + path
    return forked_command("get", "--cacert", server.certificate, url, *arguments, **options)


def test_body_goes_to_stdout(server):
    done = get(server, "/")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello", "")


def test_output_file(server, tmp_path):
    path = tmp_path / "body"
    done = get(server, "/flood/3000000", "-o", str(path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert path.stat().st_size == 3000000


def test_insecure(server):
    assert forked_command("get", "--insecure", server.url + "/").stdout == "hello"


def test_ip_address(server):
    url = f"https://127.0.0.1:{server.port}/"
    assert forked_command("get", "--cacert", server.certificate, url).stdout == "hello"


def test_method_data_and_headers(server):
    done = get(server, "/scope/x?q=1", "-X", "PATCH", "-d", "a=b", "-H", "X-One: 1")
    scope = json.loads(done.stdout)
    assert scope["method"] == "PATCH"
    headers = dict(tuple(field) for field in scope["headers"])
    assert headers["x-one"] == "1"
    assert headers["content-type"] == "application/x-www-form-urlencoded"
    assert headers["content-length"] == "3"
    assert headers["user-agent"].startswith("uringcore/")


def test_a_given_field_takes_the_place_of_ours(server):
    given = ["-H", "Content-Type: application/json", "-H", "User-Agent: mine"]
    scope = json.loads(get(server, "/scope/x", "-d", "{}", *given).stdout)
    for name, value in (("content-type", "application/json"), ("user-agent", "mine")):
        assert [field[1] for field in scope["headers"] if field[0] == name] == [value]


def test_a_given_host_is_the_authority(server):
    scope = json.loads(get(server, "/scope/x", "-H", "Host: example.org:44").stdout)
    assert [value for name, value in scope["headers"] if name == "host"] == ["example.org:44"]


def test_fields_are_sent_as_they_were_typed(server):
    scope = json.loads(get(server, "/scope/x", "-H", "X-Snow: ☃ é").stdout)
    (value,) = [value for name, value in scope["headers"] if name == "x-snow"]
    assert value == "☃ é"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-H", "no separator"],
        ["-H", "a name: x"],
        ["-H", ": x"],
        ["-H", ":path: /x"],
        ["-H", "naïve: x"],
        ["-H", "x: a\r\ny: b"],
        ["-H", "host: a", "-H", "host: b"],
        ["-X", "B AD"],
        ["-X", "É"],
        ["-X", "CONNECT"],
    ],
)
def test_invalid_requests_of_the_client(server, arguments):
    failure(get(server, "/", *arguments), 2)


def test_data_from_file(server, tmp_path):
    (tmp_path / "data").write_bytes(b"from file")
    done = get(server, "/echo", "-d", f"@{tmp_path / 'data'}")
    assert done.stdout == "from file"


def test_upload_file(server, tmp_path):
    path = tmp_path / "big"
    path.write_bytes(os.urandom(1000) * 5000)
    assert json.loads(get(server, "/upload", "-T", str(path)).stdout)["bytes"] == 5_000_000


def test_upload_stdin(server):
    done = get(server, "/echo", "-T", "-", input="through the pipe")
    assert done.stdout == "through the pipe"


def test_head(server):
    done = get(server, "/", "-I")
    assert done.stdout.startswith("HTTP/3 200\n")
    assert "content-length: 5\n" in done.stdout


def test_verbose(server):
    done = get(server, "/", "-v")
    assert done.stdout == "hello"
    assert "> GET" in done.stderr
    assert "< HTTP/3 200" in done.stderr
    assert "< content-length: 5" in done.stderr
    for what in ("connect", "first byte", "total"):
        assert re.search(rf"\* {what} +\d+\.\d ms", done.stderr), done.stderr
    assert re.search(r"\* received +5 B, .*/s", done.stderr)


def test_verbose_shows_what_comes_before_a_response_and_behind_it(server):
    shown = get(server, "/hints", "-v").stderr
    assert "< HTTP/3 103\n< link: </style.css>; rel=preload\n< HTTP/3 200\n" in shown
    assert "* trailers\n< x-checksum: 42\n" in get(server, "/trailers", "-v").stderr


def failure(done, status):
    """Checks the exit status of a failed command; returns its one line on stderr."""
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith("uringcore get: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_http_error_is_no_failure_by_default(server):
    done = get(server, "/nowhere")
    assert (done.returncode, done.stdout) == (0, "not found")
    done = get(server, "/nowhere", "--fail")
    assert "HTTP status 404" in failure(done, 22)
    assert done.stdout == ""


def test_unknown_issuer(server):
    assert "certificate" in failure(forked_command("get", server.url + "/"), 60)


def test_older_certificate_of_that_name(server, tmp_path):
    """A certificate of an earlier start is a common mistake."""
    older, _ = DevelopmentCertificate.make().write(tmp_path)
    done = forked_command("get", "--cacert", older, server.url + "/")
    assert "certificate" in failure(done, 60)


def test_wrong_name(certificate, start, tmp_path):
    other = DevelopmentCertificate.make(["example.org"]).write(tmp_path)
    server = start(certificate=other)
    assert "certificate" in failure(get(server, "/"), 60)


def test_a_port_without_a_listener():
    port = free_port()
    assert "refused" in failure(forked_command("get", f"https://127.0.0.1:{port}/"), 7)


def test_silent_peer():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        done = forked_command("get", "--connect-timeout", "0.5", url)
    assert "no answer within 0.5 s" in failure(done, 28)


def test_unknown_host():
    done = forked_command("get", "https://no-such-host.invalid/")
    assert "cannot resolve" in failure(done, 6)


@pytest.mark.parametrize(
    "url", ["http://localhost/", "localhost", "https://", "https://x:y/", "https://u:p@host/"]
)
def test_malformed_url(url):
    failure(forked_command("get", url), 3)


def test_missing_cacert():
    done = forked_command("get", "--cacert", "/nowhere/ca.pem", "https://127.0.0.1:1/")
    assert "/nowhere/ca.pem" in failure(done, 60)


def test_unreadable_upload(server):
    assert "cannot read /nowhere" in failure(get(server, "/upload", "-T", "/nowhere"), 26)


def test_unwritable_output(server):
    done = get(server, "/", "-o", "/nowhere/x")
    assert "cannot write /nowhere/x: No such file or directory" in failure(done, 23)


def test_reset_by_the_application(server):
    done = get(server, "/raises-midway")
    assert "H3_INTERNAL_ERROR" in failure(done, 56)


def test_time_limit(server):
    assert "not complete after 1 s" in failure(get(server, "/sleep/600", "-m", "1"), 28)


def test_closed_pipe(server):
    """`uringcore get ... | head -c 10` ends on its own and without an error message."""
    base = f"{sys.executable} -m uringcore get --cacert {server.certificate}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{base} {server.url}/flood/50000000 | head -c 10"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 23
    assert len(done.stdout) == 10
    assert b"Traceback" not in done.stderr


def test_progress_bar_on_a_terminal(server, tmp_path):
    """Shows a long body's progress on a terminal at stderr; the body goes to a file."""
    leader, follower = pty.openpty()
    arguments = ["--cacert", server.certificate, "-o", str(tmp_path / "body")]
    process = subprocess.Popen(
        [sys.executable, "-m", "uringcore", "get", *arguments, server.url + "/slow-flood"],
        cwd=ROOT,
        env=environment() | {"COLUMNS": "100"},
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(leader)
    assert process.wait(30) == 0
    assert re.search(rb"\[#+ *\] +\d+%", shown), shown
    assert b"100%" in shown


def test_progress_lines():
    assert progress_line("received", 512, None, 100.0, 80) == "512 B received, 100 B/s"
    line = progress_line("sent", 50 << 20, 100 << 20, 10 << 20, 100)
    assert line.startswith("[#")
    assert line.endswith("50%  50.0 MiB of 100.0 MiB  10.0 MiB/s  5 s left")
    assert len(line) < 100
    assert len(progress_line("sent", 1, 100, 1.0, 20)) < 20


def test_bytes_text():
    assert [bytes_text(value) for value in (0, 1023, 1024, 1536, 3 << 30)] == [
        "0 B", "1023 B", "1.0 KiB", "1.5 KiB", "3.0 GiB",
    ]  # fmt: skip


def test_parse_url():
    origin, target = parse_url("https://localhost:8443/a b?x=é#fragment")
    assert (origin.host, origin.port, origin.authority) == ("localhost", 8443, "localhost:8443")
    assert target == "/a%20b?x=%C3%A9"
    origin, target = parse_url("https://[::1]:1?q")
    assert (origin.host, origin.port, origin.authority, target) == ("::1", 1, "[::1]:1", "/?q")
    assert parse_url("https://example.org:443")[0].authority == "example.org"
    assert parse_url("https://bücher.example/")[0].host == "xn--bcher-kva.example"
    with pytest.raises(URLError):
        parse_url("https://example.org:99999/")
