"""httpx's exceptions for those of :mod:`uringcore.http3`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx

from uringcore.http3 import errors
from uringcore.quic.errors import QuicConnectionRefusedError, QuicIdleTimeoutError

__all__ = ["mapped"]

# The first that fits.
_KINDS: tuple[tuple[type[errors.HTTP3Error], type[httpx.TransportError]], ...] = (
    (errors.ConnectTimeout, httpx.ConnectTimeout),
    (errors.ReadTimeout, httpx.ReadTimeout),
    (errors.WriteTimeout, httpx.WriteTimeout),
    (errors.PoolTimeout, httpx.PoolTimeout),
    (errors.ConnectFailed, httpx.ConnectError),
    (errors.RequestInvalid, httpx.LocalProtocolError),
    (errors.URLError, httpx.UnsupportedProtocol),
    (errors.HTTP3Error, httpx.RemoteProtocolError),
)


@contextlib.contextmanager
def mapped(request: httpx.Request) -> Iterator[None]:
    """Within it, what HTTP/3 raises is raised as httpx's; the original is its ``__cause__``."""
    try:
        yield
    except errors.HTTP3Error as exc:
        raise _kind(exc)(str(exc), request=request) from exc


def _kind(error: errors.HTTP3Error) -> type[httpx.TransportError]:
    if isinstance(error, errors.ConnectionLost):
        # Silence and unreachable networks are nobody's breach of the protocol.
        network = isinstance(error.__cause__, (QuicIdleTimeoutError, QuicConnectionRefusedError))
        return httpx.ReadError if network else httpx.RemoteProtocolError
    return next(theirs for ours, theirs in _KINDS if isinstance(error, ours))
