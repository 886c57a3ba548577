"""An application of a server that cannot make the scopes of its requests."""

from __future__ import annotations

from tests.http.unread_responses import app
from uringcore.server import _http1

__all__ = ["app"]


def fail(*_: object) -> None:
    raise RuntimeError("there is no scope")


_http1.tls_extension = fail
