"""The status page: what it is made of, what it asks for, and how a real browser shows it."""

import base64
import hashlib
import json
import re

import pytest

import uringcore
from tests.support.chromium import CHROMIUM, Chromium
from uringcore.server import status_page


def test_the_page(start):
    server = start("--status-page", "/status")
    page = server.get("/status")
    assert page.status == 200
    assert page.header("content-type") == "text/html; charset=utf-8"
    text = page.content.decode()
    # Nothing from elsewhere.
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


@pytest.mark.skipif(CHROMIUM is None, reason="chromium, Debian's package, is not installed here")
@pytest.mark.parametrize("protocol", ["http/1.1", "h3"])
def test_in_a_browser(start, tmp_path, protocol):
    server = start("--status-page", "/status")
    arguments = ["--disable-quic"]
    if protocol == "h3":
        arguments = ["--enable-quic", f"--origin-to-force-quic-on=localhost:{server.port}"]
    with Chromium(tmp_path, server.certificate, *arguments) as browser:
        browser.open(server.url + "/status")
        # A rate needs two looks.
        browser.wait_for(
            "document.querySelector('#chart-requests output')?.textContent.endsWith('/s')"
        )
        navigation = "performance.getEntriesByType('navigation')[0].nextHopProtocol"
        assert browser.evaluate(navigation) == protocol
        state = browser.evaluate("document.getElementById('state').textContent")
        assert state.startswith(f"Process {server.process.pid}, ")
        shown = browser.evaluate(
            "Object.fromEntries([...document.querySelectorAll('figure')].map("
            "figure => [figure.id, figure.querySelector('output').textContent]))"
        )
        assert len(shown) == 14
        assert shown["chart-http3"] == ("1" if protocol == "h3" else "0")
        assert shown["chart-memory"].endswith(" MiB")
        points = "document.querySelector('#chart-memory polyline').getAttribute('points')"
        browser.wait_for(f"{points}.split(' ').length >= 3")
        line = [float(point.split(",")[1]) for point in browser.evaluate(points).split()]
        assert all(0 <= height <= 39 for height in line)
        rows = browser.evaluate("document.querySelectorAll('#clients tr').length")
        assert rows == (1 if protocol == "h3" else 0)
        # Requests that are made are seen.
        server.get("/")
        browser.wait_for("/ 1 requests/.test(document.getElementById('state').textContent)")
        server.kill()
        browser.wait_for("document.getElementById('state').className === 'lost'")
        complaints = [one for one in browser.complaints if "ERR_" not in str(one)]
    assert complaints == []
