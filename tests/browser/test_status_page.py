"""The status page of `uringcore APP` in real browsers."""

import pytest

from tests.server.conftest import start

__all__ = ["start"]


@pytest.fixture
def certificate(pki):
    """The certificate of the servers, which the browsers trust."""
    return str(pki.server.certfile), str(pki.server.keyfile)


@pytest.mark.parametrize("protocol", ["h2", "h3"])
def test_the_status_page(page, start, protocol):
    http3 = protocol == "h3"
    server = start("--status-page", "/status", *([] if http3 else ["--no-http3"]), http3=http3)
    if http3:
        page.upgrade(server.url + "/status")
    page.open(server.url + "/status")
    # A rate needs two samples.
    page.wait_for("document.querySelector('#chart-requests output')?.textContent.endsWith('/s')")
    assert page.protocol() == protocol
    state = page.evaluate("document.getElementById('state').textContent")
    assert state.startswith(f"Process {server.process.pid}, ")
    shown = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('figure')].map("
        "figure => [figure.id, figure.querySelector('output').textContent]))"
    )
    assert len(shown) == 16
    assert shown["chart-http3"] == ("1" if http3 else "0")
    assert shown["chart-memory"].endswith(" MiB")
    points = "document.querySelector('#chart-memory polyline').getAttribute('points')"
    page.wait_for(f"{points}.split(' ').length >= 3")
    line = [float(point.split(",")[1]) for point in page.evaluate(points).split()]
    assert all(0 <= height <= 39 for height in line)
    rows = page.evaluate("document.querySelectorAll('#clients tr').length")
    assert rows == (1 if http3 else 0)
    # The page shows new requests.
    requests = "document.getElementById('state').textContent.match(/ ([0-9]+) requests/)[1]"
    before = int(page.evaluate(requests))
    assert page.evaluate("fetch('/').then(response => response.text())") == "hello"
    page.wait_for(f"{requests} > {before}")
    server.stop()
    page.wait_for("document.getElementById('state').className === 'lost'")
    assert [one for one in page.complaints if not is_expected(one)] == []


def is_expected(complaint):
    """Recognises the browsers' messages about a stopped server, and about Firefox's own request for
    an icon.
    """
    return any(word in complaint for word in ("ERR_", "NetworkError", "favicon.ico"))
