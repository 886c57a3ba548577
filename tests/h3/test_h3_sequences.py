"""Random sequences of sends: if ``H3Connection`` accepts a send, aioquic's HTTP/3 and our own
accept the result.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.h3.aioquic_pair import LIBRARIES, Pair, needs_current_aioquic
from uringcore.h3.connection import FrameUnexpected

REGULAR = [(b":scheme", b"https"), (b":authority", b"localhost"), (b":path", b"/")]
REQUESTS = {
    method: [(b":method", method), *fields]
    for method, fields in {
        b"GET": REGULAR,
        b"HEAD": REGULAR,
        b"POST": REGULAR,
        b"CONNECT": [(b":authority", b"localhost:443")],
    }.items()
}
STATUSES = [b"103", b"200", b"204", b"302", b"404"]
TRAILERS = [(b"x-checksum", b"1")]
STEPS = 60


class Exchange:
    """Requests on a pair: one side makes random sends and the other only responds."""

    def __init__(self, pair: Pair, ours: str, seed: int) -> None:
        self.pair, self.ours, self.random = pair, ours, random.Random(seed)
        self.methods: dict[int, bytes] = {}
        self.without_content: set[int] = set()
        self.refused = 0

    def begin(self) -> None:
        method = self.random.choice(list(REQUESTS))
        stream_id = self.pair.client.get_next_available_stream_id()
        self.methods[stream_id] = method
        if method == b"HEAD":
            self.without_content.add(stream_id)
        self.pair.http["client"].send_headers(stream_id, REQUESTS[method])

    def step(self) -> None:
        """Makes one more send on our side, which the API may reject."""
        stream_id = self.random.choice(list(self.methods))
        http = self.pair.http[self.ours]
        ends = self.random.random() < 0.2
        try:
            match self.random.randrange(3):
                case 0:
                    http.send_headers(stream_id, TRAILERS, end_stream=ends)
                case 1:
                    # A send does not check for content that HTTP forbids.
                    is_empty = self.ours == "server" and stream_id in self.without_content
                    http.send_data(stream_id, b"" if is_empty else b"content", ends)
                case _ if self.ours == "server":
                    self.respond(stream_id, ends)
        except (FrameUnexpected, ValueError):
            self.refused += 1

    def respond(self, stream_id: int, ends: bool = False) -> None:
        status = self.random.choice(STATUSES)
        fields = [(b":status", status), (b"x", b"y")]
        self.pair.http["server"].send_headers(stream_id, fields, end_stream=ends)
        if status == b"204":
            self.without_content.add(stream_id)

    def answer(self) -> None:
        """Responds to open requests as a well-behaved server does."""
        for event in self.pair.take("server"):
            if type(event).__name__ == "HeadersReceived" and event.headers[0][0] == b":method":
                status = self.random.choice([b"200", b"404"])
                http = self.pair.http["server"]
                http.send_headers(event.stream_id, [(b":status", status)], end_stream=False)

    def is_open(self) -> bool:
        """A closed connection reports its end late, but accepts no more requests."""
        self.pair.take("server")
        self.begin()
        self.pair.transfer()
        return bool(self.pair.take("server"))


@needs_current_aioquic
@pytest.mark.parametrize("peer", LIBRARIES)
@pytest.mark.parametrize("ours", ["client", "server"])
def test_the_peer_accepts_every_call_that_is_not_refused(
    certificate: Any, ours: str, peer: str
) -> None:
    refused = 0
    for seed in range(8):
        pair = Pair(certificate)
        sides = {"client": peer, "server": peer, ours: "uringcore"}
        pair.add_http(sides["client"], sides["server"])
        exchange = Exchange(pair, ours, seed)
        for index in range(STEPS):
            if index % 6 == 0:
                exchange.begin()
            exchange.step()
            if exchange.random.random() < 0.5:
                pair.transfer()
                if ours == "client":
                    exchange.answer()
        pair.transfer()
        assert not pair.resets, f"seed {seed}: {pair.resets}"
        assert exchange.is_open(), f"seed {seed}: the connection was closed"
        refused += exchange.refused
    assert refused, "nothing that is not allowed was tried"
