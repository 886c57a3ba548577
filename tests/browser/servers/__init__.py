"""WebTransport servers as processes: one program on uringcore, one on webtransport-go, with equal
behaviour.

    PROGRAM --certificate FILE --key FILE --port PORT

prints one JSON object a line, `{"port": 4433}` first and then the events of sessions that have a
token (`{"token": "...", "event": ...}`). SIGTERM ends it. The path selects the server's behaviour
in a session:

| path | the server |
| --- | --- |
| `/echo` | echoes bidirectional streams and datagrams; answers a unidirectional stream with one of its own |
| `/opens` | opens a bidirectional stream and echoes it |
| `/lengths` | answers a datagram with its length in decimal |
| `/headers` | sends the request's headers as JSON on a unidirectional stream |
| `/cookie` | accepts with `set-cookie: foo=bar` |
| `/status?status=N` | rejects with this status |
| `/close?code=N&reason=R` | closes the session when a byte has arrived on a unidirectional stream |
| `/stops?code=N` | stops and resets each stream of the client when its first bytes arrive |
| `/resets?code=N` | sends `hello` on a unidirectional stream and resets it |
| `/record?token=T` | sends `hello` on streams of either kind; records begins, ends, resets, stops, close |

Others are 404.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.support.child_processes import bound
from tests.support.third_party_programs import in_go

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
STOP_SECONDS = 20

OURS, GO = "uringcore", "webtransport-go"
LISTED = (OURS, GO)
"""Servers under test. webtransport-go tests the pages and the driver: a failure with it is not
uringcore's.
"""


def program(name):
    """Returns the command that starts a server, without its options."""
    if name == OURS:
        return [sys.executable, "-m", "tests.browser.servers.ours"]
    return [str(in_go(HERE / "webtransportgo"))]


class Server:
    """A running server, whose events go to `told`."""

    def __init__(self, name, identity, told, port=0):
        command = [*program(name), "--certificate", str(identity.certfile)]
        command += ["--key", str(identity.keyfile), "--port", str(port)]
        self.name = name
        self._told = told
        self._process = subprocess.Popen(
            bound(command),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"{name} ended with {self._process.wait()} before it served")
        self.port = json.loads(line)["port"]
        self._reader = threading.Thread(target=self._read, name=f"{name} tells")
        self._reader.start()

    def url(self, path):
        return f"https://localhost:{self.port}{path}"

    def stop(self):
        """Stops the server, and returns when it has ended."""
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_SECONDS)
        finally:
            self.kill()
        assert status == 0, f"{self.name} ended with {status}"

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def _read(self):
        for line in self._process.stdout:
            what = json.loads(line)
            self._told.add(what.pop("token"), what)
