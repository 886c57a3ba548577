"""httpx on our transport, `uringcore.contrib.httpx.AsyncHTTP3Transport`."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from tests.interop.web.clients import Orders, expect, name
from uringcore.contrib.httpx import AsyncHTTP3Transport

LACKING = {"trailers": "httpx does not show trailers"}


async def get(orders: Orders) -> None:
    async with _client(orders) as client:
        for url in orders.urls:
            orders.keep(url, _content(await client.get(url)))


async def post(orders: Orders) -> None:
    async with _client(orders) as client:
        for url in orders.urls:
            orders.keep(url, _content(await client.post(url, content=orders.upload(url))))


async def resumption(orders: Orders) -> None:
    await _twice(orders, early_data=False)


async def zerortt(orders: Orders) -> None:
    await _twice(orders, early_data=True)


async def goaway(orders: Orders) -> None:
    async with _client(orders) as client:
        url = orders.url(f"/held/{name(orders.urls[0])}")
        orders.keep(url, _content(await client.get(url)))


async def hints(orders: Orders) -> None:
    early: list[Any] = []
    async with _client(orders) as client:
        extensions = {"on_interim": lambda status, fields: early.append((status, fields))}
        response = await client.get(orders.url("/hinted"), extensions=extensions)
        expect("the content", _content(response), b"hinted")
    expect("early responses", [status for status, _ in early], [103])
    expect("its fields", dict(early[0][1])[b"link"], b"</style.css>; rel=preload")


async def altsvc(orders: Orders) -> None:
    """The first response comes over TCP and advertises HTTP/3; the second uses it."""
    # HTTP/3 gets as much time as a busy machine needs; other tests check the delay.
    async with _client(orders, http3="alt-svc", fallback_delay=20) as client:
        versions = [(await client.get(orders.urls[0])).http_version for _ in range(2)]
    expect("the versions", versions, ["HTTP/1.1", "HTTP/3"])


async def _twice(orders: Orders, early_data: bool) -> None:
    """The first connection is closed as idle; the second one resumes its session."""
    limits = httpx.Limits(keepalive_expiry=0.1)
    async with _client(orders, limits=limits, early_data=early_data) as client:
        orders.keep(orders.urls[0], _content(await client.get(orders.urls[0])))
        while client._transport._client._pools:  # type: ignore[attr-defined]
            await asyncio.sleep(0.02)
        for url in orders.urls[1:]:
            orders.keep(url, _content(await client.get(url)))


def _client(orders: Orders, **options: Any) -> httpx.AsyncClient:
    options.setdefault("http3", "always")
    transport = AsyncHTTP3Transport(verify=str(orders.authority), **options)
    return httpx.AsyncClient(transport=transport, timeout=20)


def _content(response: httpx.Response) -> bytes:
    expect("the status", response.status_code, 200)
    expect("the version", response.http_version, "HTTP/3")
    return response.content
