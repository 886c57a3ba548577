"""Chromium, driven by Playwright on a thread and a loop of its own.

Playwright's synchronous API would keep a loop running in the test's thread, where tests run loops
themselves. If the test run is killed, Playwright's process sees its pipe closed and ends the
browser.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading

from playwright.async_api import async_playwright

from tests.browser.certificates import spki_hash
from tests.browser.page import SECONDS, Page

__all__ = ["Chromium"]

FEATURES = ("EnableWebsocketsOverHttp3",)


class Chromium:
    """A browser with a new profile that accepts certificates with the key of `identity`."""

    def __init__(self, executable, profile, identity, *arguments, features=FEATURES):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="playwright", daemon=True
        )
        self._thread.start()
        self._stack = contextlib.ExitStack()
        self._stack.callback(self._end_thread)
        try:
            self._playwright = self.call(async_playwright().start())
            self._stack.callback(lambda: self.call(self._playwright.stop()))
            self._context = self._launch(executable, profile, identity, arguments, features)
        except BaseException:
            self.close()
            raise

    def _launch(self, executable, profile, identity, arguments, features):
        told = [
            "--no-proxy-server",
            "--enable-quic",
            # localhost is 127.0.0.1, where the servers listen.
            "--host-resolver-rules=MAP localhost 127.0.0.1",
            f"--ignore-certificate-errors-spki-list={spki_hash(identity.certificate)}",
            # For a host whose certificate has no public authority, Chromium uses QUIC only if this
            # option forces QUIC on an origin of that host. The option names an unused port: on
            # other ports Chromium discovers HTTP/3 by Alt-Svc, as anywhere.
            "--origin-to-force-quic-on=localhost:1",
            f"--enable-features={','.join(features)}",
            *arguments,
        ]
        launch = self._playwright.chromium.launch_persistent_context
        return self.call(launch(str(profile), headless=True, executable_path=executable, args=told))

    def call(self, coroutine, seconds=SECONDS):
        """Returns the result of a Playwright coroutine."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise AssertionError(f"no answer from Chromium within {seconds} s") from None

    def new_page(self):
        """Opens an empty tab."""
        return self.call(self._new_page())

    async def _new_page(self):
        # On Playwright's thread: it accepts handlers on no other.
        page = await self._context.new_page()
        complaints = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
        return ChromiumPage(self, page, complaints)

    def close(self):
        """Ends the browser, and Playwright."""
        self._stack.close()

    def _end_thread(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class ChromiumPage(Page):
    """A tab of Chromium."""

    def __init__(self, browser, page, complaints):
        self._browser = browser
        self._page = page
        self.complaints = complaints

    def open(self, url):
        self._browser.call(self._page.goto(url))

    def evaluate(self, expression, argument=None, seconds=SECONDS):
        return self._browser.call(self._page.evaluate(expression, argument), seconds)

    def screenshot(self, path):
        self._browser.call(self._page.screenshot(path=str(path)))

    def close(self):
        self._browser.call(self._page.close())
