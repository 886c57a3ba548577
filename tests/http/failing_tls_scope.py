"""An application of a server that cannot make the scopes of its requests."""

from __future__ import annotations

from tests.http.unread_responses import app
from uringcore.server import _native_tcp

__all__ = ["app"]


def fail(*_: object) -> None:
    raise RuntimeError("there is no scope")


_native_tcp.tls_extension = fail
