"""Fixtures of the browser tests: one browser for all tests of a process, the pages' site, servers."""

from functools import cache
from pathlib import Path

import pytest

from tests.browser import browsers, servers
from tests.browser.certificates import certificate_hash
from tests.support.certificates import make
from tests.support.interpreter_roles import only_on_default
from tests.support.third_party_programs import Unavailable

HERE = Path(__file__).parent
ONLY_OURS = ["test_webtransport_chat.py", "test_webtransport_closing.py"]
collect_ignore = [] if servers.OURS in servers.LISTED else ONLY_OURS


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """A browser sees only the wire, which does not depend on the interpreter."""
    only_on_default(items, HERE, "browsers look at the wire on the default interpreter")
    for item in items:
        if item.path.is_relative_to(HERE) and "launched" in item.fixturenames:
            item.add_marker(pytest.mark.wire)


@pytest.fixture(scope="session")
def pki(tmp_path_factory):
    """An authority that the browsers trust, and a certificate of it that a page may also accept by
    its hash.
    """
    return make(tmp_path_factory.mktemp("pki"))


def need(name):
    """Skips a test if this browser is not available."""
    if reason := browsers.lacking(name):
        pytest.skip(reason)


@pytest.fixture(scope="session")
def launched(pki, tmp_path_factory):
    """Starts a browser at its first use."""
    running = {}

    def launch(name):
        need(name)
        if name not in running:
            profile = tmp_path_factory.mktemp(name) / "profile"
            running[name] = browsers.launch(name, profile, pki)
        return running[name]

    yield launch
    for browser in running.values():
        browser.close()


@pytest.fixture(params=browsers.NAMES)
def browser_name(request):
    return request.param


@pytest.fixture
def page(launched, browser_name):
    """A new tab of each browser."""
    with launched(browser_name).new_page() as page:
        yield page


@pytest.fixture(scope="session")
def site():
    from tests.browser.site import Site, Told

    running = Site(Told())
    yield running
    running.close()


@pytest.fixture(scope="session")
def start_webtransport(pki, site):
    """Starts WebTransport servers, which stop with the tests."""
    started = []

    def start(name, port=0):
        try:
            started.append(servers.Server(name, pki.server, site.told, port))
        except Unavailable as reason:
            pytest.skip(str(reason))
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def servers_kept(start_webtransport):
    """Returns a server by its name, shared by all tests of a process."""
    return cache(start_webtransport)


@pytest.fixture
def transport_page(page, pki, site):
    """A page with the hash of the servers' certificate."""
    page.open(f"{site.origin}/pages/webtransport.html")
    page.call("trust", certificate_hash(pki.server))
    return page
