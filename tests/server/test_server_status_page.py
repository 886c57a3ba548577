"""The status page: its parts and its requests. `tests/browser` tests it in browsers."""

import base64
import hashlib
import json
import re

import pytest

import uringcore
from tests.server.test_server_observability import METRICS_ON, fetch
from uringcore.server import _status_page as status_page


def test_the_page(start):
    server = start("--status-page", "/status")
    page = server.get("/status")
    assert page.status == 200
    assert page.header("content-type") == "text/html; charset=utf-8"
    text = page.content.decode()
    # The page loads nothing from other hosts.
    outside = re.findall(r"""(?:src|href)\s*=|url\(|@import|https?://[^"]*""", text)
    assert outside == ["http://www.w3.org/2000/svg"]
    with server.http1() as connection:
        connection.request("GET", "/status")
        assert connection.getresponse().read() == page.content


def test_the_policy_allows_what_is_in_the_page_and_no_more():
    body, headers = status_page.page()
    policy = dict(headers)[b"content-security-policy"].decode()
    assert policy.startswith("default-src 'none'; ")
    for element in ("style", "script"):
        (content,) = re.findall(f"<{element}>(.*?)</{element}>", body.decode(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy


def test_the_numbers(start):
    server = start("--status-page", "/status")

    async def look():
        async with server.connect() as client:
            await client.get("/")
            await client.get("/raises")
            return json.loads((await client.get("/status?data")).content)

    numbers = uringcore.run(look())
    assert numbers["requests"] == {"3": 2}
    assert numbers["errors"] == 1
    assert numbers["requests_open"] == 0
    assert (numbers["connections_quic"], numbers["connections_tcp"]) == (1, 0)
    assert numbers["processes"] == [server.process.pid]
    assert numbers["rtt"]["0.5"] > 0
    assert numbers["bytes_received"] > 1000
    (client,) = numbers["clients"]
    assert re.fullmatch(r"127\.0\.0\.1:\d+|\[::1\]:\d+", client["client"])


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_page_on_the_metrics_port_is_there_alone(start, workers):
    options = ["--metrics-port", "0", "--status-page", "/status", "--status-on-metrics-port"]
    server = start(*options, "--workers", workers)
    port, path = server.wait_log(r"Status page on http://127\.0\.0\.1:(\d+)(/\S+)").groups()
    assert path == "/status"
    status, fields, content = fetch(int(port), "/status")
    assert (status, fields["content-type"]) == (200, "text/html; charset=utf-8")
    assert fields["content-security-policy"] and fields["cache-control"] == "no-store"
    assert b"<script>" in content
    status, fields, content = fetch(int(port), "/status?data")
    assert (status, fields["content-type"]) == (200, "application/json")
    assert json.loads(content)["processes"]
    assert fetch(int(port), "/metrics")[0] == 200
    assert fetch(int(port), "/status", "POST")[0] == 405
    assert fetch(int(port), "/status/data")[0] == 404
    # The application's ports have neither page.
    for path in ("/status", "/status?data", "/metrics"):
        assert server.get(path).status == 404
        with server.http1() as connection:
            connection.request("GET", path)
            assert connection.getresponse().status == 404
    assert server.stop() == 0


def test_the_status_page_is_on_the_applications_port_by_default(start):
    server = start("--metrics-port", "0", "--status-page", "/status")
    port = int(server.wait_log(METRICS_ON).group(1))
    assert fetch(port, "/status")[0] == 404
    assert server.get("/status").status == 200
    assert server.get("/metrics").status == 404
