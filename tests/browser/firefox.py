"""Stock Firefox, driven by WebDriver BiDi (W3C), which Firefox implements.

Playwright's driver needs more of BiDi than an extended support release has. This one needs little:
pages, scripts, console messages, screenshots.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import time

from websockets.sync.client import connect

from tests.browser.page import LOOK_SECONDS, SECONDS, Page
from tests.support.child_processes import bound

__all__ = ["Firefox"]

PREFERENCES = {
    # Firefox disables HTTP/3 if an authority was added, because that might be a proxy's.
    "network.http.http3.disable_when_third_party_roots_found": False,
    # localhost is 127.0.0.1, where the servers listen.
    "network.dns.disableIPv6": True,
}
WRAPPED = """async (json) => {
  const found = (%s);
  const value = typeof found === "function" ? found(JSON.parse(json)) : found;
  return JSON.stringify(await value ?? null);
}"""


class Firefox:
    """A browser with a new profile that trusts an authority."""

    def __init__(self, executable, certutil, profile, authority, **preferences):
        profile.mkdir()
        lines = [
            f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
            for name, value in {**PREFERENCES, **preferences}.items()
        ]
        (profile / "user.js").write_text("".join(lines))
        database = f"sql:{profile}"
        trust = ["-n", "tests", "-t", "C,,", "-i", str(authority.certfile)]
        for arguments in (["-N", "--empty-password"], ["-A", *trust]):
            command = [certutil, *arguments, "-d", database]
            subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        self._log = profile / "firefox.log"
        command = [executable, "--headless", "--remote-debugging-port=0"]
        command += ["--profile", str(profile), "about:blank"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                bound(command), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._ids = itertools.count(1)
        self._complaints = {}
        """Complaints by browsing context, one for each page."""
        self._stack = contextlib.ExitStack()
        self._stack.callback(self._kill)
        try:
            socket = connect(self._address() + "/session", max_size=None, open_timeout=SECONDS)
            self._socket = self._stack.enter_context(socket)
            self.call("session.new", capabilities={})
            self.call("session.subscribe", events=["log.entryAdded"])
        except BaseException:
            self.close()
            raise

    def call(self, method, seconds=SECONDS, **parameters):
        """Returns the result of a command."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        deadline = time.monotonic() + seconds
        while True:
            try:
                answer = json.loads(self._socket.recv(deadline - time.monotonic()))
            except TimeoutError:
                raise AssertionError(f"no answer from Firefox within {seconds} s") from None
            if answer.get("method") == "log.entryAdded":
                self._note(answer["params"])
            if answer.get("id") == number:
                assert answer["type"] == "success", answer
                return answer["result"]

    def new_page(self):
        """Opens an empty tab."""
        context = self.call("browsingContext.create", type="tab")["context"]
        complaints = self._complaints.setdefault(context, [])
        return FirefoxPage(self, context, complaints)

    def close(self):
        """Ends the browser."""
        self._stack.close()

    def _note(self, entry):
        if entry["level"] == "error":
            self._complaints.setdefault(entry["source"].get("context"), []).append(entry["text"])

    def _address(self):
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            log = self._log.read_text(errors="replace")
            if found := re.search(r"WebDriver BiDi listening on (ws://\S+)", log):
                return found[1]
            time.sleep(LOOK_SECONDS)
        raise AssertionError(f"Firefox does not start:\n{log}")

    def _kill(self):
        # This also kills the processes of its pages.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class FirefoxPage(Page):
    """A tab of Firefox."""

    def __init__(self, browser, context, complaints):
        self._browser = browser
        self._context = context
        self.complaints = complaints

    def open(self, url):
        self._browser.call(
            "browsingContext.navigate", context=self._context, url=url, wait="complete"
        )

    def evaluate(self, expression, argument=None, seconds=SECONDS):
        answer = self._browser.call(
            "script.callFunction",
            seconds,
            functionDeclaration=WRAPPED % expression,
            arguments=[{"type": "string", "value": json.dumps(argument)}],
            target={"context": self._context},
            awaitPromise=True,
        )
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return json.loads(answer["result"]["value"])

    def screenshot(self, path):
        taken = self._browser.call("browsingContext.captureScreenshot", context=self._context)
        path.write_bytes(base64.b64decode(taken["data"]))

    def close(self):
        self._browser.call("browsingContext.close", context=self._context)
