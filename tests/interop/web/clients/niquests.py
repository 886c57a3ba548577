"""niquests, whose HTTP/3 is qh3."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import niquests

from tests.interop.web.clients import Orders, expect, name

LACKING = {
    "resumption": "niquests keeps no session tickets",
    "zerortt": "niquests keeps no session tickets",
}
HTTP_3 = 30


def get(orders: Orders) -> None:
    with _session(orders) as session:
        for url in orders.urls:
            orders.keep(url, _content(session.get(url)))


def post(orders: Orders) -> None:
    with _session(orders) as session:
        for url in orders.urls:
            orders.keep(url, _content(session.post(url, data=orders.upload(url))))


def goaway(orders: Orders) -> None:
    with _session(orders) as session:
        url = orders.url(f"/held/{name(orders.urls[0])}")
        orders.keep(url, _content(session.get(url)))


def trailers(orders: Orders) -> None:
    with _session(orders) as session:
        response = session.get(orders.url("/trailed"))
        expect("the content", _content(response), b"trailed")
        expect("the trailer", (response.trailers or {}).get("x-checked"), "yes")


def hints(orders: Orders) -> None:
    early: list[Any] = []
    with _session(orders) as session:
        hooks = {"early_response": [early.append]}
        response = session.get(orders.url("/hinted"), hooks=hooks)
        expect("the content", _content(response), b"hinted")
    expect("early responses", [one.status_code for one in early], [103])
    expect("its link", early[0].headers["link"], "</style.css>; rel=preload")


def _session(orders: Orders) -> niquests.Session:
    """Returns a session that uses HTTP/3 at once."""
    address = urlsplit(orders.urls[0])
    session = niquests.Session(disable_http1=True, disable_http2=True)
    # Otherwise the environment would choose the trusted authorities.
    session.trust_env = False
    session.verify = str(orders.authority)
    session.quic_cache_layer.add_domain(address.hostname, address.port)
    return session


def _content(response: niquests.Response) -> bytes:
    expect("the status", response.status_code, 200)
    expect("the version", response.http_version, HTTP_3)
    return response.content or b""
