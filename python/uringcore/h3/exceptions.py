"""The exceptions for wrong calls of an HTTP/3 connection's methods. Errors of the peer close the connection
instead."""

from __future__ import annotations

__all__ = ["GoingAwayError", "H3Error", "InvalidStreamTypeError", "NoAvailablePushIDError"]


class H3Error(Exception):
    """Base class of the exceptions in this module."""


class InvalidStreamTypeError(H3Error):
    """The type of the stream does not allow sending this."""


class NoAvailablePushIDError(H3Error):
    """The client allows no push, or no further one."""


class GoingAwayError(H3Error):
    """The peer announced with GOAWAY that it will not process this request (RFC 9114 section 5.2).

    Nothing was sent. The request can be repeated on a new connection. aioquic ignores GOAWAY and
    has no such exception.
    """
