"""aioquic serves the paths of `application`: `aioquic_server HOST PORT CERTIFICATE KEY`, files from
$WWW.

Its connection class also serves the tests of our own client (tests/client/scripted_server.py).
"""

from __future__ import annotations

import asyncio
import re
import sys
from types import SimpleNamespace
from typing import Any

from aioquic.asyncio import serve
from aioquic.quic.configuration import QuicConfiguration

from tests.client.scripted_server import Answers
from tests.interop.web.application import LINK, TRAILER, www


class Site(Answers):
    """One connection."""

    peer: Any = SimpleNamespace(
        connections=[], log=[], has_websockets=True, is_mute=False, leaves_at_once=False
    )

    def ended(self, stream_id: int) -> None:
        request = self.requests[stream_id]
        name = request[b":path"].decode().strip("/")
        if request[b":method"] == b"POST":
            self.answer(stream_id, request[b"content"])
        elif name in ("hinted", "trailed", "broken"):
            getattr(self, f"do_{name}")(stream_id, request)
        else:
            self.file(stream_id, request, name)

    def file(self, stream_id: int, request: dict[Any, Any], name: str) -> None:
        content = (www() / name).read_bytes()
        found = re.fullmatch(rb"bytes=(\d+)-", request.get(b"range", b""))
        if found is None:
            self.answer(stream_id, content, fields=[(b"etag", b'"one"')])
            return
        first = int(found.group(1))
        shown = b"bytes %d-%d/%d" % (first, len(content) - 1, len(content))
        fields = [(b"content-range", shown), (b"etag", b'"one"')]
        self.answer(stream_id, content[first:], 206, fields)

    def do_hinted(self, stream_id: int, request: dict[Any, Any]) -> None:
        self.interim(stream_id, [(b":status", b"103"), (b"link", LINK)])
        self.answer(stream_id, b"hinted")

    def do_trailed(self, stream_id: int, request: dict[Any, Any]) -> None:
        self.http.send_headers(stream_id, [(b":status", b"200")])
        self.http.send_data(stream_id, b"trailed", False)
        self.http.send_headers(stream_id, [TRAILER], end_stream=True)

    def do_broken(self, stream_id: int, request: dict[Any, Any]) -> None:
        self.answer(stream_id, bytes(500), fields=[(b"content-length", b"1000")])


async def main(host: str, port: str, certificate: str, key: str) -> None:
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
    configuration.load_cert_chain(certificate, key)
    tickets: dict[bytes, Any] = {}
    await serve(
        host,
        int(port),
        configuration=configuration,
        create_protocol=Site,
        session_ticket_fetcher=lambda label: tickets.pop(label, None),
        session_ticket_handler=lambda ticket: tickets.update({ticket.ticket: ticket}),
    )
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
