"""curl, by its command line."""

from __future__ import annotations

import subprocess

from tests.interop.peers.installed import curl
from tests.interop.web.clients import Orders, expect, name
from tests.support.child_processes import bound

LACKING: dict[str, str] = {}
SECONDS = 40


def get(orders: Orders) -> None:
    _run(orders, *_downloads(orders, orders.urls))


def post(orders: Orders) -> None:
    arguments = []
    for url in orders.urls:
        content = f"@{orders.uploads / name(url)}"
        arguments += ["--next", *_common(orders), "--data-binary", content]
        arguments += ["-o", str(orders.downloads / name(url)), url]
    _run(orders, *arguments[1:], common=False)


def resumption(orders: Orders) -> None:
    _twice(orders)


def zerortt(orders: Orders) -> None:
    _twice(orders, "--tls-earlydata")


def goaway(orders: Orders) -> None:
    _run(orders, "-o", str(orders.downloads / name(orders.urls[0])), _held(orders))


def trailers(orders: Orders) -> None:
    fields, content = _shown(orders, "trailed")
    expect("the content", content, "trailed")
    expect("the trailer", fields[-1], "x-checked: yes")


def hints(orders: Orders) -> None:
    fields, content = _shown(orders, "hinted")
    expect("the content", content, "hinted")
    expect("responses", sum(line.startswith("HTTP/3 ") for line in fields), 2)
    expect("the first status", fields[0].split()[1], "103")
    expect("its link", fields[1].lower(), "link: </style.css>; rel=preload")


def _held(orders: Orders) -> str:
    return orders.url(f"/held/{name(orders.urls[0])}")


def _twice(orders: Orders, *options: str) -> None:
    """curl reuses a connection only for transfers from one local address, but a session for all
    transfers to the server.
    """
    second = ["--next", *_common(orders), *options, "--interface", "127.0.0.1"]
    first = [*options, *_downloads(orders, orders.urls[:1])]
    _run(orders, *first, *second, *_downloads(orders, orders.urls[1:]))


def _shown(orders: Orders, path: str) -> tuple[list[str], str]:
    """Returns the header lines and the content of a response."""
    content, head = orders.downloads / "content", orders.downloads / "head"
    _run(orders, "-D", str(head), "-o", str(content), orders.url(path))
    return [line for line in head.read_text().splitlines() if line], content.read_text()


def _downloads(orders: Orders, urls: list[str]) -> list[str]:
    return [part for url in urls for part in ("-o", str(orders.downloads / name(url)), url)]


def _common(orders: Orders) -> list[str]:
    return ["--http3-only", "-sS", "--fail", "-m", str(SECONDS), "--cacert", str(orders.authority)]


def _run(orders: Orders, *arguments: str, common: bool = True) -> None:
    command = [*curl(), *(_common(orders) if common else ()), *arguments]
    done = subprocess.run(
        bound(command), capture_output=True, text=True, check=False, timeout=2 * SECONDS
    )
    if done.returncode != 0:
        raise ValueError(f"status {done.returncode}: {done.stderr.strip()[-300:]}")
