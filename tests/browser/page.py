"""A tab, as the tests use it: the same of each browser, whatever that is driven by."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod

SECONDS = 60
"""For one answer of a browser, and for one thing that a page waits for; a busy machine is slow."""
LOOK_SECONDS = 0.05


class Page(ABC):
    """A tab, closed at the end of its `with` block."""

    complaints: list[str]
    """What the browser has said of the page: blocked by its policy, not found, thrown."""

    @abstractmethod
    def open(self, url):
        """Goes to a URL and waits until the page is loaded."""

    @abstractmethod
    def evaluate(self, expression, argument=None, seconds=SECONDS):
        """The value of a JavaScript expression, or of a function with one argument, or what its promise
        becomes; JSON has to have a form for it."""

    @abstractmethod
    def screenshot(self, path):
        """Writes a picture, as PNG."""

    @abstractmethod
    def close(self):
        """Closes the tab."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def call(self, function, *arguments):
        """What a function of the page's returns, or what its promise becomes."""
        return self.evaluate(f"(given) => {function}(...given)", list(arguments))

    def wait_for(self, expression, seconds=SECONDS):
        """Until an expression is true; returns it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := self.evaluate(expression):
                return found
            time.sleep(LOOK_SECONDS)
        raise AssertionError(f"waited {seconds} s in vain for {expression}; {self.complaints}")

    def version(self):
        """The browser's major version."""
        return re.search(r"(?:Chrome|Firefox)/(\d+)", self.evaluate("navigator.userAgent"))[1]

    def protocol(self):
        """By which protocol the page has come."""
        navigation = "performance.getEntriesByType('navigation')[0].nextHopProtocol"
        return self.evaluate(navigation)

    def upgrade(self, url):
        """Opens a page again and again until it comes over HTTP/3, as Alt-Svc has offered; returns by what
        it came first. A browser connects in the background and uses what is there: how many visits that
        takes is its own.
        """
        self.open(url)
        first = self.protocol()
        deadline = time.monotonic() + SECONDS
        while self.protocol() != "h3":
            if time.monotonic() > deadline:
                raise AssertionError(f"{url} still comes over {self.protocol()}; {self.complaints}")
            time.sleep(LOOK_SECONDS)
            self.open(url)
        return first
