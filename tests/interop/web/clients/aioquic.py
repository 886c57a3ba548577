"""aioquic, with its own client API."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlsplit

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, ProtocolNegotiated, StreamReset

from tests.interop.web.clients import Orders, expect, name

LACKING: dict[str, str] = {}
Fields = list[tuple[bytes, bytes]]


async def get(orders: Orders) -> None:
    async with _connected(orders) as client:
        await _files(orders, client, orders.urls)


async def post(orders: Orders) -> None:
    async with _connected(orders) as client:
        for url in orders.urls:
            heads, content = await client.ask("POST", url, orders.upload(url))
            expect("the status", dict(heads[0])[b":status"], b"200")
            orders.keep(url, content)


async def resumption(orders: Orders) -> None:
    await _twice(orders)


async def zerortt(orders: Orders) -> None:
    await _twice(orders, wait_connected=False)


async def goaway(orders: Orders) -> None:
    async with _connected(orders) as client:
        url = orders.url(f"/held/{name(orders.urls[0])}")
        await _files(orders, client, [url])


async def trailers(orders: Orders) -> None:
    async with _connected(orders) as client:
        heads, content = await client.ask("GET", orders.url("/trailed"))
        expect("the content", content, b"trailed")
        expect("the trailers", heads[1:], [[(b"x-checked", b"yes")]])


async def hints(orders: Orders) -> None:
    async with _connected(orders) as client:
        heads, content = await client.ask("GET", orders.url("/hinted"))
        expect("the content", content, b"hinted")
        expect("statuses", [dict(head)[b":status"] for head in heads], [b"103", b"200"])
        expect("its link", dict(heads[0])[b"link"], b"</style.css>; rel=preload")


class Client(QuicConnectionProtocol):
    """One connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.http: H3Connection | None = None
        self.asked: dict[int, tuple[list[Fields], bytearray, asyncio.Future[None]]] = {}

    async def ask(self, method: str, url: str, content: bytes = b"") -> tuple[list[Fields], bytes]:
        """Returns field sections and content of the response."""
        if self.http is None:
            self.http = H3Connection(self._quic)
        address = urlsplit(url)
        stream_id = self._quic.get_next_available_stream_id()
        head = [(b":method", method), (b":scheme", "https"), (b":authority", address.netloc)]
        head.append((b":path", address.path))
        fields = [(key, value.encode()) for key, value in head]
        self.http.send_headers(stream_id, fields, end_stream=not content)
        if content:
            self.http.send_data(stream_id, content, True)
        ended = asyncio.get_running_loop().create_future()
        found = self.asked[stream_id] = ([], bytearray(), ended)
        self.transmit()
        await ended
        return found[0], bytes(found[1])

    def quic_event_received(self, event: Any) -> None:
        if isinstance(event, ProtocolNegotiated) and self.http is None:
            self.http = H3Connection(self._quic)
        if isinstance(event, (ConnectionTerminated, StreamReset)):
            for _, _, ended in self.asked.values():
                if not ended.done():
                    ended.set_exception(ConnectionError(str(event)))
        if self.http is None:
            return
        for http_event in self.http.handle_event(event):
            heads, content, ended = self.asked[http_event.stream_id]
            if isinstance(http_event, HeadersReceived):
                heads.append(http_event.headers)
            elif isinstance(http_event, DataReceived):
                content += http_event.data
            if http_event.stream_ended and not ended.done():
                ended.set_result(None)


async def _twice(orders: Orders, **options: Any) -> None:
    """The second connection presents the first one's ticket."""
    loop = asyncio.get_running_loop()
    ticket: asyncio.Future[Any] = loop.create_future()

    def keep(found: Any) -> None:
        if not ticket.done():
            ticket.set_result(found)

    async with _connected(orders, session_ticket_handler=keep) as client:
        await _files(orders, client, orders.urls[:1])
        await ticket
    async with _connected(orders, ticket=ticket.result(), **options) as client:
        await _files(orders, client, orders.urls[1:])
        expect("resumed", client._quic.tls.session_resumed, True)
        if options:
            expect("early data accepted", client._quic.tls.early_data_accepted, True)


async def _files(orders: Orders, client: Client, urls: list[str]) -> None:
    for url in urls:
        heads, content = await client.ask("GET", url)
        expect("the status", dict(heads[0])[b":status"], b"200")
        orders.keep(url, content)


def _connected(
    orders: Orders, *, ticket: Any = None, **options: Any
) -> AbstractAsyncContextManager[Any]:
    configuration = QuicConfiguration(alpn_protocols=["h3"], session_ticket=ticket)
    configuration.load_verify_locations(str(orders.authority))
    address = urlsplit(orders.urls[0])
    return connect(
        address.hostname or "",
        address.port or 443,
        configuration=configuration,
        create_protocol=Client,
        **options,
    )
