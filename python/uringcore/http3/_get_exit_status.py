"""Failures of ``uringcore get``: exit statuses, which are curl's where curl has one, and one line with the
reason."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import os
import socket
import ssl
import sys
from collections.abc import Iterator

from uringcore._exception_pickling import PickledWithFields
from uringcore.http3._errors import HTTP3Error, InvalidRequestError, ReadTimeoutError, URLError
from uringcore.quic._errors import (
    QuicCertificateError,
    QuicConfigurationError,
    QuicConnectionError,
    QuicConnectionRefusedError,
    QuicIdleTimeoutError,
    QuicTlsError,
)

__all__ = ["CommandFailure", "named", "read_errors", "write_errors"]

# Exit statuses, with curl's numbers.
WRONG_USAGE = 2
MALFORMED_URL = 3
NO_SUCH_HOST = 6
REFUSED = 7
HTTP_ERROR = 22
WRITE_ERROR = 23
READ_ERROR = 26
TIMED_OUT = 28
CANNOT_RESUME = 33
TLS_FAILED = 35
TOO_MANY_REDIRECTS = 47
BODY_CUT_OFF = 56
CERTIFICATE_REFUSED = 60
CANNOT_REWIND = 65
INTERRUPTED = 130

EPILOG = """exit status: 0 success, 2 wrong usage, 3 malformed URL, 6 unknown host, 7 cannot connect, 22 HTTP
status 400 or above with --fail, 23 cannot write, 26 cannot read what to send, 28 time-out, 33 cannot
resume, 35 TLS handshake failed, 47 too many redirects, 56 connection lost or response malformed, 60
certificate not accepted, 65 body cannot be sent again after a redirect, 130 interrupted"""


class CommandFailure(PickledWithFields, Exception):
    """An exception that ends the command with an exit status and one line of text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@contextlib.contextmanager
def named(options: argparse.Namespace) -> Iterator[None]:
    """Turns exceptions of a client into a :class:`CommandFailure`."""
    try:
        yield
    except (HTTP3Error, QuicConfigurationError, OSError, http.client.HTTPException) as exc:
        raise command_failure(exc, options) from None


def command_failure(exc: Exception, options: argparse.Namespace) -> CommandFailure:
    """Returns the failure for an exception: the first row of the table that fits. Subclasses come before
    their base classes."""
    if isinstance(exc, QuicConnectionError) and isinstance(exc.__cause__, QuicConnectionError):
        exc = exc.__cause__  # the cause has a more specific class
    text = f"{options.url}: {exc}"
    hint = "" if options.cacert else " (--cacert FILE names the authorities to trust)"
    if isinstance(exc, socket.gaierror):
        text = f"{options.url}: cannot resolve the host: {exc.strerror}"
        return CommandFailure(NO_SUCH_HOST, text)
    if isinstance(exc, (URLError, QuicConfigurationError)):
        code = MALFORMED_URL if isinstance(exc, URLError) else CERTIFICATE_REFUSED
        return CommandFailure(code, str(exc))
    if isinstance(exc, (QuicCertificateError, ssl.SSLCertVerificationError)):
        return CommandFailure(CERTIFICATE_REFUSED, text + hint)
    for kinds, code in _CODES:
        if isinstance(exc, kinds):
            return CommandFailure(code, text)
    # The error is that of a socket: no route, no address of a family, or no free socket.
    return CommandFailure(REFUSED, f"{options.url}: {getattr(exc, 'strerror', None) or exc}")


_CODES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((InvalidRequestError,), WRONG_USAGE),
    ((QuicTlsError, ssl.SSLError), TLS_FAILED),
    ((ConnectionRefusedError, QuicConnectionRefusedError), REFUSED),
    ((QuicIdleTimeoutError, ReadTimeoutError, TimeoutError, asyncio.TimeoutError), TIMED_OUT),
    ((HTTP3Error, ConnectionError, http.client.HTTPException), BODY_CUT_OFF),
)


@contextlib.contextmanager
def write_errors(name: str | None) -> Iterator[None]:
    """Reports errors of writing to a file, or to stdout."""
    try:
        yield
    except BrokenPipeError:
        # The reader of stdout has closed it. stdout becomes /dev/null, so that the flush at exit does not
        # fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise CommandFailure(WRITE_ERROR, "the output was closed") from None
    except OSError as exc:
        raise CommandFailure(
            WRITE_ERROR, f"cannot write {name or 'stdout'}: {exc.strerror}"
        ) from None


@contextlib.contextmanager
def read_errors(name: str) -> Iterator[None]:
    """Reports errors of reading a file."""
    try:
        yield
    except OSError as exc:
        raise CommandFailure(READ_ERROR, f"cannot read {name}: {exc.strerror}") from None
