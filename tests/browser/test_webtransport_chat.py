"""The chat of examples/webtransport_chat.py in two pages at once, with a screenshot of both."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.servers import ROOT
from tests.support.child_processes import bound

PICTURES = Path(".browser")
"""The folder of screenshots, which a person looks at."""


@pytest.fixture
def chat():
    """Returns the address of the page."""
    command = [sys.executable, "examples/webtransport_chat.py", "--port", "0", "--page-port", "0"]
    running = subprocess.Popen(bound(command), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    yield running.stdout.readline().strip()
    running.kill()
    running.wait()
    running.stdout.close()


def says(page, text):
    """Types a message as a user would."""
    page.evaluate("(said) => { text.value = said; text.dispatchEvent(new Event('change')); }", text)


def wait_shown(page, *lines):
    for line in lines:
        page.wait_for(f"log.innerText.includes({line!r})")


def test_two_pages_talk(launched, browser_name, chat):
    browser = launched(browser_name)
    with browser.new_page() as anna, browser.new_page() as ben:
        anna.open(f"{chat}?name=Anna")
        wait_shown(anna, "room: Anna is here")
        ben.open(f"{chat}?name=Ben")
        wait_shown(anna, "room: Ben is here")
        says(anna, "hello")
        wait_shown(ben, "Anna: hello")
        says(ben, "hello yourself")
        for page in (anna, ben):
            wait_shown(page, "Anna: hello", "Ben: hello yourself")
        # Datagrams show which guest is typing, and one may be lost.
        ben.evaluate("void (globalThis.typist = setInterval(() => text.oninput(), 50))")
        anna.wait_for("typing.textContent === 'Ben is writing'")
        folder = ROOT / PICTURES
        folder.mkdir(exist_ok=True)
        for name, page in (("anna", anna), ("ben", ben)):
            picture = folder / f"chat-{browser_name}-{name}.png"
            page.screenshot(picture)
            assert picture.read_bytes().startswith(b"\x89PNG")
