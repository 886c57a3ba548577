"""Native HTTP/2 with independent clients: h2spec's cases, Go's client, curl, and httpx."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import xml.etree.ElementTree as ET

import httpx
import pytest

from tests.http.http2.go_programs import go_client, h2spec
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
    how = ["--cacert", server.certificate] if server.is_secure else ["--http2-prior-knowledge"]
    url = f"{scheme}://localhost:{server.port}{path}"
    command = [program, "-sS", "--http2", "--ipv4", *how, *arguments, url]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def test_curl(server, tmp_path):
    version = curl(server, "-w", "%{http_version} %{http_code}", "-o", "/dev/null")
    assert version == b"2 200"
    assert len(curl(server, path="/flood/3000000")) == 3_000_000
    content = tmp_path / "content"
    content.write_bytes(bytes(2_000_000))
    assert b'"bytes": 2000000' in curl(server, "--data-binary", f"@{content}", path="/upload")
    assert curl(server, "-I").startswith(b"HTTP/2 200")


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
