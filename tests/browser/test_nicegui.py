"""A page of NiceGUI in real browsers over each version of HTTP: its scripts load, and events go both ways."""

import pytest

from tests.server.harness import Server

pytest.importorskip("nicegui", reason="nicegui is in the extra `frameworks`")

APPLICATION = "tests.browser.nicegui_app:app"
SET = """async (text) => {
  const field = document.querySelector("input");
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}"""
CLICK = """() => { document.querySelector("#button").click(); }"""


@pytest.fixture(scope="session")
def start_program(pki, tmp_path_factory):
    started = []

    def start(*options, **more):
        certificate = str(pki.server.certfile), str(pki.server.keyfile)
        folder = tmp_path_factory.mktemp("server")
        options = ("--http", "native", *options)
        started.append(Server(folder, certificate, *options, app=APPLICATION, **more))
        return started[-1]

    yield start
    for server in started:
        assert server.stop() == 0
        server.check_log()


def text(element):
    return f"document.querySelector('#{element}')?.textContent"


@pytest.mark.parametrize("protocol", ["h2", "h3"])
def test_events_go_both_ways(page, start_program, protocol):
    if protocol == "h3":
        server = start_program()
        page.upgrade(server.url)
    else:
        server = start_program("--no-http3", http3=False)
        page.open(server.url)
    assert page.protocol() == protocol
    # The server pushes by a timer, once the page's Socket.IO is connected.
    page.wait_for(f"Number({text('ticks')}) > 2")
    page.evaluate(SET, "grün")
    for number in (1, 2):
        page.evaluate(CLICK)
        page.wait_for(f"{text('told')} === 'clicked {number} times by grün'")
    assert page.complaints == []
