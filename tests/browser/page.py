"""A tab, as the tests use it: one interface for all browsers and drivers."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod

SECONDS = 60
"""Time limit for a browser's answer, and for a condition of a page; a busy machine is slow."""
LOOK_SECONDS = 0.05


class Page(ABC):
    """A tab, closed at the end of its `with` block."""

    complaints: list[str]
    """The browser's reports about the page: blocked by its policy, not found, thrown exceptions."""

    @abstractmethod
    def open(self, url):
        """Goes to a URL and waits until the page is loaded."""

    @abstractmethod
    def evaluate(self, expression, argument=None, seconds=SECONDS):
        """Returns the value of a JavaScript expression, or of a function with one argument, or of
        its promise; it must have a JSON form.
        """

    @abstractmethod
    def screenshot(self, path):
        """Writes a screenshot as PNG."""

    @abstractmethod
    def close(self):
        """Closes the tab."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def call(self, function, *arguments):
        """Returns the result of a function of the page, or of its promise."""
        return self.evaluate(f"(given) => {function}(...given)", list(arguments))

    def wait_for(self, expression, seconds=SECONDS):
        """Waits until an expression is true; returns it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := self.evaluate(expression):
                return found
            time.sleep(LOOK_SECONDS)
        raise AssertionError(f"not true within {seconds} s: {expression}; {self.complaints}")

    def version(self):
        """The browser's major version."""
        return re.search(r"(?:Chrome|Firefox)/(\d+)", self.evaluate("navigator.userAgent"))[1]

    def protocol(self):
        """Returns the protocol that loaded the page."""
        navigation = "performance.getEntriesByType('navigation')[0].nextHopProtocol"
        return self.evaluate(navigation)

    def upgrade(self, url):
        """Opens a page repeatedly until it comes over HTTP/3, as offered by Alt-Svc; returns the
        protocol of the first visit. A browser connects in the background and uses any existing
        connection, so the number of visits varies.
        """
        self.open(url)
        first = self.protocol()
        deadline = time.monotonic() + SECONDS
        while self.protocol() != "h3":
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{url} is still loaded over {self.protocol()}; {self.complaints}"
                )
            time.sleep(LOOK_SECONDS)
            self.open(url)
        return first
