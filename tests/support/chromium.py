"""A headless Chromium, driven by its DevTools protocol: opens a page and is asked about it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from websockets.sync.client import connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
"""Where it is; Debian's package has that name."""


def spki_hash(certfile):
    """By which Chromium is told to take a certificate."""
    key = x509.load_pem_x509_certificate(Path(certfile).read_bytes()).public_key()
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(spki).digest()).decode()


class Chromium:
    """A browser of its own, with a profile in ``folder``, that takes the certificate in ``certfile``."""

    def __init__(self, folder, certfile, *arguments):
        self._log = Path(folder) / "chromium.log"
        command = [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-proxy-server", "--host-resolver-rules=MAP localhost 127.0.0.1"),
            *(f"--user-data-dir={folder}/profile", "--remote-debugging-port=0"),
            *(f"--ignore-certificate-errors-spki-list={spki_hash(certfile)}", *arguments),
            "about:blank",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._ids = itertools.count(1)
        self._complaints = []
        self._session = None
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._stack.close()
        # Its renderers too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def open(self, url):
        """A tab with this page."""
        browser = self._wait(
            lambda: re.search(r"DevTools listening on (ws://\S+)", self._read_log())
        )
        connection = connect(browser.group(1), max_size=None, open_timeout=60)
        self._connection = self._stack.enter_context(connection)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self._call("Log.enable")
        self._call("Runtime.enable")
        self._call("Page.navigate", url=url)

    def evaluate(self, expression):
        """The value of a JavaScript expression in the page; JSON has to have a form for it."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression):
        """Until an expression is true."""
        return self._wait(lambda: self.evaluate(expression))

    @property
    def complaints(self):
        """What the browser has said of the page: blocked by its policy, not found, thrown."""
        return self._complaints

    def _call(self, method, **params):
        message = {"id": next(self._ids), "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._connection.send(json.dumps(message))
        while True:
            answer = json.loads(self._connection.recv(timeout=60))
            if answer.get("id") == message["id"]:
                assert "error" not in answer, answer
                return answer["result"]
            if answer.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self._complaints.append(answer["params"])

    def _read_log(self):
        return self._log.read_text(errors="replace")

    def _wait(self, look, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = look()
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"waited for {seconds} s in vain:\n{self._read_log()}")
