"""Maps the exceptions of :mod:`uringcore.http3` to those of httpx, or of httpx2."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from uringcore.contrib.httpx._httpx_modules import library_of
from uringcore.http3 import _errors as errors
from uringcore.quic._errors import QuicConnectionRefusedError, QuicIdleTimeoutError

if TYPE_CHECKING:
    import httpx

__all__ = ["mapped"]

# The name of httpx's exception for each class of errors. The first class that fits applies.
_KINDS: tuple[tuple[type[errors.HTTP3Error], str], ...] = (
    (errors.ConnectTimeoutError, "ConnectTimeout"),
    (errors.ReadTimeoutError, "ReadTimeout"),
    (errors.WriteTimeoutError, "WriteTimeout"),
    (errors.PoolTimeoutError, "PoolTimeout"),
    (errors.ConnectError, "ConnectError"),
    (errors.InvalidRequestError, "LocalProtocolError"),
    (errors.URLError, "UnsupportedProtocol"),
    (errors.HTTP3Error, "RemoteProtocolError"),
)


@contextlib.contextmanager
def mapped(request: httpx.Request) -> Iterator[None]:
    """Raises the exception of the request's library for an error of HTTP/3; the original is its
    ``__cause__``.
    """
    try:
        yield
    except errors.HTTP3Error as exc:
        kind: type[httpx.TransportError] = getattr(library_of(request), _kind(exc))
        raise kind(str(exc), request=request) from exc


def _kind(error: errors.HTTP3Error) -> str:
    if isinstance(error, errors.ConnectionLostError):
        # A peer that does not answer, or a network that is unreachable, is a network error and no violation
        # of the protocol.
        network = isinstance(error.__cause__, (QuicIdleTimeoutError, QuicConnectionRefusedError))
        return "ReadError" if network else "RemoteProtocolError"
    return next(theirs for ours, theirs in _KINDS if isinstance(error, ours))
