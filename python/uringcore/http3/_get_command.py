"""The options of ``uringcore get URL``, which fetches a URL over HTTP/3.

``_get_transfer`` has the transfer, ``_get_exit_status`` the error messages.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Literal

from uringcore import new_event_loop, run
from uringcore._time_limit import within
from uringcore.http3._get_exit_status import (
    EPILOG,
    INTERRUPTED,
    TIMED_OUT,
    WRONG_USAGE,
    CommandFailure,
    named,
)
from uringcore.http3._get_transfer import Transfer
from uringcore.quic._errors import QuicConnectionError

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parser().parse_args(arguments)
    try:
        check_loop(options.backend)
        return run(fetch(options), backend=options.backend)
    except CommandFailure as failure:
        print(f"uringcore get: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return INTERRUPTED


def check_loop(backend: Literal["uring", "epoll"] | None) -> None:
    """Reports in one line that no loop can be made, before anything else can fail on it."""
    try:
        new_event_loop(backend).close()
    except (OSError, RuntimeError, ValueError) as exc:
        raise CommandFailure(WRONG_USAGE, str(exc)) from None


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="uringcore get", description="Fetch a URL over HTTP/3.", epilog=EPILOG
    )
    add = result.add_argument
    add("url", metavar="URL")
    trust = result.add_mutually_exclusive_group()
    trust.add_argument("--cacert", metavar="FILE", help="trust the authorities in this PEM file")
    trust.add_argument("-k", "--insecure", action="store_true", help="accept any certificate")
    where = result.add_mutually_exclusive_group()
    where.add_argument(
        "-o", "--output", metavar="FILE", help="write the body there instead of to stdout"
    )
    where.add_argument(
        "-O",
        "--remote-name",
        action="store_true",
        help="write the body to a file of the URL's name",
    )
    add(
        "-C",
        "--continue-at",
        metavar="OFFSET",
        type=offset,
        help="resume the output file at this byte, - at its present size",
    )
    body = result.add_mutually_exclusive_group()
    body.add_argument("-d", "--data", metavar="DATA", help="POST this text, or @FILE")
    body.add_argument("-T", "--upload-file", metavar="FILE", help="PUT this file, - for stdin")
    add("-X", "--request", metavar="METHOD", help="the request method")
    add("-I", "--head", action="store_true", help="HEAD; write the response's headers to stdout")
    add(
        "-H",
        "--header",
        metavar="NAME:VALUE",
        action="append",
        default=[],
        help="send this header; it replaces a default header of that name",
    )
    add(
        "-L",
        "--location",
        action="store_true",
        help="follow redirects; other hosts get no credentials",
    )
    add("--max-redirs", metavar="NUMBER", type=count, default=50, help="with -L; default: 50")
    add("-f", "--fail", action="store_true", help="no body and exit status 22 for 400 and above")
    add("-v", "--verbose", action="store_true", help="headers, protocol and timings on stderr")
    add("--connect-timeout", metavar="SECONDS", type=seconds, default=10.0, help="default: 10")
    add("-m", "--max-time", metavar="SECONDS", type=seconds, help="time limit of the transfer")
    add("--http1.1", dest="http1", action="store_true", help="HTTP/1.1 over TLS instead of HTTP/3")
    add("--qlog", metavar="DIRECTORY", help="write a qlog trace of each connection there")
    add("--backend", choices=("uring", "epoll"), help="require this backend of the event loop")
    add("--no-progress", action="store_true", help="no progress bar")
    return result


def seconds(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def offset(text: str) -> str:
    if text != "-" and not text.isdecimal():
        raise argparse.ArgumentTypeError("must be a number of bytes, or -")
    return text


async def fetch(options: argparse.Namespace) -> int:
    """The whole transfer, within its time limit; every expected failure as a :class:`CommandFailure`."""
    with named(options):
        transfer = Transfer(options)
        try:
            return await within(transfer.run(), options.max_time)
        except asyncio.TimeoutError as exc:
            if options.max_time is None or isinstance(exc, QuicConnectionError):
                raise  # QuicIdleTimeoutError is both a QuicError and a TimeoutError
            raise CommandFailure(TIMED_OUT, f"not complete after {options.max_time:g} s") from None
