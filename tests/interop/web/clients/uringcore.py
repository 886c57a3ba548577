"""The client of uringcore: `uringcore.http3.Client`, and `uringcore get` to resume a download."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import uringcore
from tests.interop.web.clients import SECONDS, Orders, expect, httpx, name
from tests.support.child_processes import bound
from uringcore.http3 import Client, Limits, RequestFailedError, Response

run = uringcore.run
altsvc = httpx.altsvc


async def get(orders: Orders) -> None:
    async with _pool(orders) as pool:
        for url in orders.urls:
            orders.keep(url, _content(await pool.get(url)))


async def post(orders: Orders) -> None:
    async with _pool(orders) as pool:
        for url in orders.urls:
            orders.keep(url, _content(await pool.request("POST", url, content=orders.upload(url))))


async def resumption(orders: Orders) -> None:
    second = await _twice(orders, early_data=False)
    expect("resumed", second.get_extra_info("session_resumed"), True)


async def zerortt(orders: Orders) -> None:
    second = await _twice(orders, early_data=True)
    expect("early", second.was_early, True)


async def goaway(orders: Orders) -> None:
    async with _pool(orders) as pool:
        url = orders.url(f"/held/{name(orders.urls[0])}")
        orders.keep(url, _content(await pool.get(url)))


async def trailers(orders: Orders) -> None:
    async with _pool(orders) as pool:
        response = await pool.get(orders.url("/trailed"))
        expect("the content", _content(response), b"trailed")
        expect("the trailers", response.trailers, [(b"x-checked", b"yes")])


async def hints(orders: Orders) -> None:
    early: list[Any] = []
    async with _pool(orders) as pool:
        response = await pool.request(
            "GET", orders.url("/hinted"), on_interim=lambda *found: early.append(found)
        )
        expect("the content", _content(response), b"hinted")
    expect("early responses", [status for status, _ in early], [103])
    expect("its fields", dict(early[0][1])[b"link"], b"</style.css>; rel=preload")


async def broken(orders: Orders) -> None:
    """The request fails, and the next one gets a response on that connection."""
    async with _pool(orders) as pool:
        first = await pool.get(orders.urls[0])
        try:
            await pool.get(orders.url("/broken"))
        except RequestFailedError as error:
            print("as expected:", error, file=sys.stderr)
        else:
            raise ValueError("what was cut short passed for whole")
        second = await pool.get(orders.urls[0])
        for response in (first, second):
            orders.keep(orders.urls[0], _content(response))


async def websocket(orders: Orders) -> None:
    async with _pool(orders) as pool, pool.websocket(orders.url("/ws")) as socket:
        for message in ("hello", b"\0" * 100_000):
            await socket.send(message)
            expect("what comes back", await socket.receive(), message)


def resume(orders: Orders) -> None:
    """The first half exists from an earlier attempt."""
    for url in orders.urls:
        whole = orders.upload(url)
        orders.keep(url, whole[: len(whole) // 2])
        command = [sys.executable, "-m", "uringcore", "get", "-v", "--cacert", orders.authority]
        command += ["-C", "-", "-o", orders.downloads / name(url), url]
        done = subprocess.run(
            bound(command), capture_output=True, text=True, check=False, timeout=SECONDS
        )
        expect("the status", (done.returncode, done.stderr if done.returncode else ""), (0, ""))
        expect("partial", "206" in done.stderr, True)


async def _twice(orders: Orders, early_data: bool) -> Response:
    """The first connection is closed as idle; the second one resumes its session. Returns the
    second's first response.
    """
    limits = Limits(idle_timeout=0.1)
    async with _pool(orders, limits=limits, early_data=early_data) as pool:
        orders.keep(orders.urls[0], _content(await pool.get(orders.urls[0])))
        while pool._pools:
            await asyncio.sleep(0.02)
        second = [await pool.get(url) for url in orders.urls[1:]]
        for url, response in zip(orders.urls[1:], second, strict=True):
            orders.keep(url, _content(response))
        return second[0]


def _pool(orders: Orders, **options: Any) -> Client:
    return Client(cafile=str(orders.authority), **options)


def _content(response: Response) -> bytes:
    expect("the status", response.status, 200)
    return response.content
