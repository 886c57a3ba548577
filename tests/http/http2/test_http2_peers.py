"""Native HTTP/2 with independent clients: h2spec, Go's client, curl, nghttp2's programs, and httpx."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
import xml.etree.ElementTree as ET

import httpx
import pytest

from tests.http.http2.go_programs import go_client, h2spec
from tests.support.foreground_programs import debian
from tests.support.third_party_programs import Unavailable

pytestmark = pytest.mark.either_backend

CASES = 140
"""The minimum number of cases. Without it a suite that runs none would pass."""


def built(build):
    try:
        return build()
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_all_cases_of_h2spec(server, tmp_path):
    program = built(h2spec)
    report = tmp_path / "report.xml"
    # This application reads the whole request. Another one answers before the faults in its content arrive.
    path = ["-path", "/upload"]
    command = [program, "-port", str(server.port), "-report", report, *path]
    if server.is_secure:
        command.append("-tls")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    cases = list(ET.parse(report).iter("testcase"))
    failed = [case for case in cases if any(child.tag != "skipped" for child in case)]
    shown = {f"{case.get('package')}: {case.get('classname')}" for case in failed}
    if not server.is_secure:
        # Without TLS these bytes are a malformed request of HTTP/1.1. The connection is closed after a
        # response 400, which h2spec does not expect.
        shown -= {"http2/3.5: Sends invalid connection preface"}
    assert shown == set(), done.stdout + done.stderr
    assert len(cases) >= CASES


def test_gos_client(server):
    scheme = "https" if server.is_secure else "http"
    command = [built(go_client), "-url", f"{scheme}://localhost:{server.port}"]
    if server.is_secure:
        command += ["-authority", server.certificate]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def curl(server, *arguments, path="/"):
    program = shutil.which("curl")
    if program is None:
        pytest.skip("curl is not installed")
    asked = [program, "--version"]
    version = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60)
    if "nghttp2" not in version.stdout:
        pytest.skip("this curl has no HTTP/2")
    scheme = "https" if server.is_secure else "http"
    how = ["--cacert", server.certificate] if server.is_secure else []
    url = f"{scheme}://localhost:{server.port}{path}"
    command = [program, "-sS", "--ipv4", *how, *arguments, url]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def test_curl(server, tmp_path):
    how = "--http2" if server.is_secure else "--http2-prior-knowledge"
    version = curl(server, how, "-w", "%{http_version} %{http_code}", "-o", "/dev/null")
    assert version == b"2 200"
    assert len(curl(server, how, path="/flood/3000000")) == 3_000_000
    content = tmp_path / "content"
    content.write_bytes(bytes(2_000_000))
    posts = ["--data-binary", f"@{content}"]
    assert b'"bytes": 2000000' in curl(server, how, *posts, path="/upload")
    assert curl(server, how, "-I").startswith(b"HTTP/2 200")


def test_curl_over_http1(server, tmp_path):
    """curl offers HTTP/2 by an upgrade, which RFC 9113 has removed, and waits for a status 100."""
    content = tmp_path / "content"
    content.write_bytes(bytes(2_000_000))
    for version in ("--http1.1", "--http1.0", *([] if server.is_secure else ["--http2"])):
        posts = ["-H", "Expect: 100-continue", "--data-binary", f"@{content}"]
        said = curl(server, version, "-w", "%{http_version}", *posts, path="/upload")
        assert b'"bytes": 2000000' in said
        assert said.endswith(b"1" if version == "--http1.0" else b"1.1"), said
        assert len(curl(server, version, path="/flood/3000000")) == 3_000_000


def nghttp2(name, server, *arguments, paths=("/",)):
    program = debian(name)
    scheme = "https" if server.is_secure else "http"
    urls = [f"{scheme}://127.0.0.1:{server.port}{path}" for path in paths]
    command = [program.path, *map(str, arguments), *urls]
    return subprocess.run(
        command, env=program.environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.parametrize("window", [10, 16, 30], ids="2^{}".format)
def test_nghttp(server, tmp_path, window):
    content = tmp_path / "content"
    content.write_bytes(bytes(1_000_000))
    windows = ["-w", window, "-W", window]
    said = nghttp2("nghttp", server, "-nvs", *windows, paths=("/", "/flood/300000", "/trailers"))
    assert re.findall(r"recv .*:status: (\d+)", said) == ["200"] * 3
    assert "x-checksum: 42" in said
    said = nghttp2("nghttp", server, "-v", *windows, "-d", content, paths=["/upload"])
    assert '"bytes": 1000000' in said
    assert "RST_STREAM" not in said
    assert not re.search(r"recv GOAWAY.*\n.*error_code=(?!NO_ERROR)", said)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        (["-m", "100"], "/"),
        (["-m", "10", "-w", "10", "-W", "12"], "/burst/20000"),
        (["-m", "10", "-d"], "/upload"),
        (["--h1"], "/burst/20000"),
    ],
)
def test_h2load(server, tmp_path, options, path):
    if "-d" in options:
        content = tmp_path / "content"
        content.write_bytes(bytes(20_000))
        options = [*options, content]
    said = nghttp2("h2load", server, "-n", "2000", "-c", "10", *options, paths=[path])
    assert "2000 succeeded, 0 failed, 0 errored, 0 timeout" in said, said
    assert "status codes: 2000 2xx" in said, said


def test_httpx(server):
    scheme = "https" if server.is_secure else "http"
    trust = ssl.create_default_context(cafile=server.certificate) if server.is_secure else True
    with httpx.Client(
        http1=False,
        http2=True,
        verify=trust,
        trust_env=False,
        base_url=f"{scheme}://localhost:{server.port}",
    ) as client:
        response = client.get("/")
        assert (response.http_version, response.content) == ("HTTP/2", b"hello")
        assert client.post("/upload", content=bytes(500_000)).json()["bytes"] == 500_000
        assert len(client.get("/burst/2000000").content) == 2_000_000
