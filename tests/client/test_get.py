"""`uringcore get`: redirects, resumption, HTTP/1.1, and the messages for bad options."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from tests.quic.qlog_sequences import events_of
from tests.server.harness import ROOT, environment, forked_command
from tests.server.test_get_command import failure, get
from tests.support.child_processes import bound
from tests.support.free_ports import free_port
from tests.support.interpreter_roles import is_default_interpreter
from uringcore.devcert import DevelopmentCertificate
from uringcore.http3 import URLError
from uringcore.http3._get_redirects import RequestTarget, redirected

pytestmark = pytest.mark.skipif(
    not is_default_interpreter(),
    reason="the command's requests do not depend on the interpreter",
)
VERSIONS = {"http3": [], "http1": ["--http1.1"]}


@pytest.fixture(params=VERSIONS)
def version(request):
    """The arguments that choose a version of HTTP."""
    return VERSIONS[request.param]


def content(size):
    return bytes(number % 251 for number in range(size))


def test_a_header_that_is_given_stands_in_the_place_of_ours(site, version):
    arguments = ["-d", "{}", "-H", "Content-Type: application/json", "-H", "User-Agent: mine"]
    done = get(site, "/version", *version, *arguments)
    shown = json.loads(done.stdout)
    assert shown["headers"]["content-type"] == "application/json"
    assert shown["headers"]["user-agent"] == "mine"
    assert shown["headers"]["content-length"] == "2"


def test_host(site, version):
    done = get(site, "/version", *version, "-H", "host: example.org")
    assert json.loads(done.stdout)["headers"]["host"] == "example.org"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-H", "nothing"],
        ["-H", "te: gzip"],
        ["-H", "bad name: x"],
        ["-H", "x: a\nb"],
        ["-H", ":path: /"],
        ["-X", "BAD METHOD"],
        ["--qlog", "/nowhere"],
    ],
)
def test_invalid_requests_are_wrong_usage(site, arguments):
    failure(get(site, "/version", *arguments), 2)


@pytest.mark.parametrize(
    "arguments", [["-C", "x"], ["--max-redirs", "-1"], ["-o", "x", "-O"], ["-m", "0"]]
)
def test_contradictory_arguments_are_wrong_usage(arguments):
    done = forked_command("get", "https://localhost/", *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_redirects(site, version):
    done = get(site, "/redirect/2", *version)
    assert (done.returncode, done.stdout) == (0, "")
    done = get(site, "/redirect/2", *version, "-L", "-d", "body", "-v")
    shown = json.loads(done.stdout)
    assert shown["method"] == "GET"
    assert "content-type" not in shown["headers"]
    assert done.stderr.count("< HTTP/") == 4
    assert "7 redirects" in failure(
        get(site, "/redirect/20", *version, "-L", "--max-redirs", "7"), 47
    )


def test_a_body_is_sent_again_if_it_can_be(site, version, tmp_path):
    digest = get(site, "/digest", "-d", "body").stdout
    assert get(site, "/again/307", *version, "-L", "-d", "body").stdout == digest
    (tmp_path / "file").write_bytes(b"body")
    done = get(site, "/again/308", *version, "-L", "-T", str(tmp_path / "file"))
    assert done.stdout == digest
    done = get(site, "/again/307", *version, "-L", "-T", "-", input="body")
    assert "stdin" in failure(done, 65)


@pytest.mark.parametrize(
    ("status", "method", "expected", "body"),
    [
        (301, "GET", "GET", False),
        (301, "POST", "GET", False),
        (302, "PUT", "PUT", True),
        (303, "PUT", "GET", False),
        (303, "HEAD", "HEAD", True),
        (307, "POST", "POST", True),
        (308, "DELETE", "DELETE", True),
    ],
)
def test_methods_after_a_redirect(status, method, expected, body):
    asked = RequestTarget(
        method, "https://a/x/y", [("Content-Type", "x"), ("x", "y")], method != "GET"
    )
    following = redirected(asked, status, "../z")
    assert (following.method, following.url) == (expected, "https://a/z")
    assert following.has_body == body
    assert ("x", "y") in following.headers
    if expected != method:
        assert len(following.headers) == 1


def test_credentials_stay_with_their_origin():
    secrets = [("Authorization", "x"), ("Cookie", "x"), ("Host", "a"), ("Proxy-Authorization", "x")]
    asked = RequestTarget("GET", "https://a:1/", [*secrets, ("Accept", "x")])
    assert redirected(asked, 302, "/other").headers == asked.headers
    for elsewhere in ("https://b:1/", "https://a/", "//a:2/"):
        assert redirected(asked, 302, elsewhere).headers == [("Accept", "x")]
    assert redirected(asked, 200, "/other") is None
    assert redirected(asked, 302, None) is None
    with pytest.raises(URLError):
        redirected(asked, 302, "http://a:1/")


def test_the_rest_of_a_file(site, version, tmp_path):
    path = tmp_path / "file"
    url = "/range/100000"
    path.write_bytes(content(100000)[:40000])
    done = get(site, url, *version, "-C", "-", "-o", str(path), "-v")
    assert done.returncode == 0, done.stderr
    assert "206" in done.stderr
    assert path.read_bytes() == content(100000)
    # The file is complete, and stays unchanged.
    done = get(site, url, *version, "-C", "-", "-o", str(path))
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == content(100000)
    # The file is missing: all of it is fetched.
    path.unlink()
    assert get(site, url, *version, "-C", "-", "-o", str(path)).returncode == 0
    assert path.read_bytes() == content(100000)
    # Continue from a given offset.
    path.write_bytes(content(100000)[:500] + b"wrong")
    assert get(site, url, *version, "-C", "500", "-o", str(path)).returncode == 0
    assert path.read_bytes() == content(100000)


def test_the_rest_of_what_has_changed_is_not_appended(site, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"another resource")
    try:
        os.setxattr(path, "user.uringcore.validator", b'"other"')
    except OSError:
        pytest.skip("the file system has no extended attributes")
    done = get(site, "/range/1000", "-C", "-", "-o", str(path), "-v")
    assert "if-range" in done.stderr
    assert path.read_bytes() == content(1000)
    assert os.listxattr(path) == []


def test_impossible_resumptions_fail(site, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"part")
    failure(get(site, "/range/3", "-C", "-", "-o", str(path)), 33)
    failure(get(site, "/private", "-C", "-", "-o", str(path)), 33)
    failure(get(site, "/range/100", "-C", "5", "-o", str(path)), 33)
    failure(get(site, "/range/100", "-C", "-"), 33)
    assert path.read_bytes() == b"part"


def test_a_server_without_ranges_begins_again(site, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"part")
    assert get(site, "/set/x", "-C", "-", "-o", str(path)).returncode == 0
    assert path.read_bytes() == b"baked"


def test_a_file_is_kept_until_there_is_something_to_replace_it(site, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"longer than what comes")
    port = free_port()
    failure(forked_command("get", "-o", str(path), f"https://127.0.0.1:{port}/"), 7)
    failure(get(site, "/private", "-f", "-o", str(path)), 22)
    assert path.read_bytes() == b"longer than what comes"
    assert get(site, "/set/x", "-o", str(path)).returncode == 0
    assert path.read_bytes() == b"baked"


def test_remote_name(site, tmp_path):
    done = get(site, "/range/1000?x=/y", "-O", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "1000").read_bytes() == content(1000)
    assert "no file name" in failure(get(site, "/", "-O", cwd=tmp_path), 23)


def test_qlog(site, tmp_path):
    assert get(site, "/version", "--qlog", str(tmp_path)).returncode == 0
    (path,) = tmp_path.glob("*.sqlog")
    names = [event["name"] for event in events_of(path)]
    assert "connectivity:connection_started" in names
    assert "connectivity:connection_closed" in names


def test_http1(site):
    done = get(site, "/version", "--http1.1", "-v")
    assert json.loads(done.stdout)["version"] == "1.1"
    assert "< HTTP/1.1 200" in done.stderr
    done = get(site, "/version", "--http1.1", "-I")
    assert done.stdout.startswith("HTTP/1.1 200\n")


def test_http1_uploads(site, tmp_path):
    data = os.urandom(1000) * 3000
    (tmp_path / "big").write_bytes(data)
    expected = get(site, "/digest", "-T", str(tmp_path / "big")).stdout
    assert get(site, "/digest", "--http1.1", "-T", str(tmp_path / "big")).stdout == expected
    with (tmp_path / "big").open("rb") as stdin:
        done = get(site, "/digest", "--http1.1", "-T", "-", stdin=stdin)
    assert done.stdout == expected


def test_http1_failures(site, tmp_path):
    url = site.url + "/version"
    older, _ = DevelopmentCertificate.make().write(tmp_path)
    assert "certificate" in failure(forked_command("get", "--http1.1", "--cacert", older, url), 60)
    missing = forked_command("get", "--http1.1", "--cacert", "/nowhere/ca.pem", url)
    assert "/nowhere/ca.pem" in failure(missing, 60)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        failure(forked_command("get", "--http1.1", url), 7)
        silent.listen()
        done = forked_command("get", "--http1.1", "--connect-timeout", "0.5", url)
        assert "no answer within 0.5 s" in failure(done, 28)
    failure(forked_command("get", "--http1.1", "https://no-such-host.invalid/"), 6)


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_http1_time_limit(site, server, connection):
    """The response continues for as long as the test may take."""
    header = f"connection: {connection}"
    done = get(server, "/sleep/600", "--http1.1", "-m", "1", "-H", header)
    assert "not complete after 1 s" in failure(done, 28)


def test_http1_is_interrupted_while_it_waits_for_a_server(tmp_path):
    """A server that sends nothing, not even within a minute."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        arguments = ["get", "--http1.1", "--connect-timeout", "600", url]
        process = subprocess.Popen(
            bound([sys.executable, "-m", "uringcore", *arguments]), cwd=ROOT, env=environment()
        )
        try:
            silent.settimeout(60)
            with silent.accept()[0] as accepted:
                # The ClientHello has arrived: the client waits for the response.
                assert accepted.recv(1)
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == 130
        finally:
            process.kill()
            process.wait()
