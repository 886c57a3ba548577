"""Clients as endpoints: `python -m tests.interop.web NAME client --certs DIR --downloads DIR`.

A client is a module here with a function for each case that it supports, `get` for `web-get`, which
raises an error. The interpreter needs only the client's own library.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin, urlsplit

__all__ = ["SECONDS", "Lacking", "Orders", "expect", "main"]

UNSUPPORTED = 127
SECONDS = 50.0


class Lacking(Exception):
    """The client does not support it; the message names the missing feature."""


@dataclass(frozen=True)
class Orders:
    """The orders for a client."""

    urls: list[str]
    authority: Path
    """The PEM file of the authority."""
    uploads: Path
    """The directory with the content for each POST, in files of the URLs' names."""
    downloads: Path
    """The directory that receives each response's content, in files of the URLs' names."""

    def url(self, path: str) -> str:
        """Returns another URL on that server."""
        return urljoin(self.urls[0], path)

    def keep(self, url: str, content: bytes) -> None:
        (self.downloads / name(url)).write_bytes(content)

    def upload(self, url: str) -> bytes:
        return (self.uploads / name(url)).read_bytes()


def name(url: str) -> str:
    return urlsplit(url).path.rpartition("/")[2]


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise ValueError(f"{what}: {found!r}, not {wanted!r}")


def main(arguments: Sequence[str]) -> int:
    """Runs $TESTCASE; returns the exit status."""
    client, *rest = arguments
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["client"])
    parser.add_argument("--certs", type=Path, required=True)
    parser.add_argument("--downloads", type=Path, required=True)
    options = parser.parse_args(rest)
    orders = Orders(
        os.environ["REQUESTS"].split(),
        options.certs / "ca.pem",
        Path(os.environ["UPLOADS"]),
        options.downloads,
    )
    case = os.environ["TESTCASE"].partition("-")[2]
    module = importlib.import_module(f"tests.interop.web.clients.{client}")
    play = getattr(module, case, None)
    try:
        if play is None:
            raise Lacking(module.LACKING[case])
        if inspect.iscoroutinefunction(play):
            run = getattr(module, "run", asyncio.run)
            run(asyncio.wait_for(play(orders), SECONDS))
        else:
            play(orders)
    except Lacking as lacking:
        print(f"{client}: {lacking}", file=sys.stderr)
        return UNSUPPORTED
    except Exception as error:
        traceback.print_exc()
        print(f"{client}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0
