"""Where the pages come from, and where they hear what a WebTransport server has seen.

Over http://localhost, which browsers hold for secure as they do https, so that the pages depend on nothing
that is tested. `/told?token=T&event=E` answers when a server has told of such an event in the session with
that token: a page that asks what the other end saw waits for just that.
"""

from __future__ import annotations

import http.server
import json
import threading
import urllib.parse
from pathlib import Path

FOLDERS = Path(__file__).parent
TOLD_SECONDS = 10
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


class Told:
    """What servers have told of sessions, by the session's token."""

    def __init__(self):
        self._changed = threading.Condition()
        self._told = {}

    def add(self, token, what):
        with self._changed:
            self._told.setdefault(token, []).append(what)
            self._changed.notify_all()

    def wait(self, token, event, seconds=TOLD_SECONDS):
        """The first such event of the session; or, when the time is over, all that was told instead."""

        def first():
            return next((one for one in self._told.get(token, ()) if one["event"] == event), None)

        with self._changed:
            found = self._changed.wait_for(first, seconds)
            return found or {"event": None, "told": self._told.get(token, [])}


class Site:
    """Serves `pages` and `platform`, each file by its path there."""

    def __init__(self, told):
        self.told = told
        handler = type("Handler", (Handler,), {"told": told})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="site")
        self._thread.start()
        self.origin = f"http://localhost:{self._server.server_address[1]}"

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    """One request for a file, or for what was told."""

    told: Told

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/told":
            asked = dict(urllib.parse.parse_qsl(url.query))
            told = self.told.wait(asked["token"], asked["event"])
            self._answer(200, "application/json", json.dumps(told).encode())
            return
        path = (FOLDERS / url.path.lstrip("/")).resolve()
        if path.suffix not in TYPES or not path.is_relative_to(FOLDERS) or not path.is_file():
            self._answer(404, "text/plain", b"not found")
            return
        self._answer(200, TYPES[path.suffix], path.read_bytes())

    def _answer(self, status, content_type, content):
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(content)))
        self.send_header("cache-control", "no-store")
        # Nobody else's in here: only then are a page's clocks as good as the machine's.
        self.send_header("cross-origin-opener-policy", "same-origin")
        self.send_header("cross-origin-embedder-policy", "require-corp")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format, *arguments):
        """Nothing: the tests' output is theirs."""
