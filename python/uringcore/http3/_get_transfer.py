"""One transfer of ``uringcore get``: a request, its redirects, and the body of the response.

The command does one transfer at a time, so the loop itself reads and writes files.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import ssl
import sys
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

from uringcore import _uringcore
from uringcore._time_limit import within
from uringcore.http3._exchange import Response
from uringcore.http3._get_exit_status import (
    CANNOT_REWIND,
    CERTIFICATE_REFUSED,
    HTTP_ERROR,
    TIMED_OUT,
    TOO_MANY_REDIRECTS,
    WRONG_USAGE,
    CommandFailure,
    read_errors,
)
from uringcore.http3._get_http1 import HTTP1Client, HTTP1Response
from uringcore.http3._get_output_file import OutputFile, remote_name
from uringcore.http3._get_progress_bar import Progress, bytes_text
from uringcore.http3._get_redirects import RequestTarget, redirected
from uringcore.http3._request import Fields
from uringcore.http3._unpooled_connection import OriginConnection, client_configuration, connect
from uringcore.http3._url import Origin, parse_url
from uringcore.quic._errors import QuicConnectionError
from uringcore.quic._qlog_files import QuicSequenceLogger

__all__ = ["Transfer"]

READ_BYTES = 256 * 1024


class Transfer:
    """The transfer of one command line, with the sources and targets of bodies."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.protocol = "HTTP/1.1" if options.http1 else "HTTP/3"
        self.started = time.perf_counter()
        self.connected = self.started
        self.first_byte = self.started
        self.sent = 0
        self.received = 0
        self.progress: Progress | None = None
        self._upload: BinaryIO | None = None
        self._client: OriginConnection | HTTP1Client | None = None

    async def run(self) -> int:
        """Runs the transfer; returns the exit status, or raises a :class:`CommandFailure`."""
        options = self.options
        with contextlib.ExitStack() as files:
            asked = self.first_request(files)
            name = remote_name(options.url) if options.remote_name else options.output
            output = OutputFile(name, options.continue_at, files)
            asked.headers.extend(output.request_headers)
            async with contextlib.AsyncExitStack() as stack:
                try:
                    await self.follow(stack, asked, output)
                finally:
                    if self.progress is not None:
                        self.progress.finish()
        if options.verbose:
            self.show_timings()
        return 0

    async def follow(
        self, stack: contextlib.AsyncExitStack, asked: RequestTarget, output: OutputFile
    ) -> None:
        for _ in range(self.options.max_redirs + 1):
            origin, _ = parse_url(asked.url)
            client = await self.client(stack, origin, asked.url)
            following = await self.exchange(client, asked, output)
            if following is None:
                return
            if following.has_body and self.options.upload_file == "-":
                raise CommandFailure(CANNOT_REWIND, f"{asked.url}: redirected, and stdin is spent")
            asked = following
        raise CommandFailure(TOO_MANY_REDIRECTS, f"more than {self.options.max_redirs} redirects")

    async def exchange(
        self, client: OriginConnection | HTTP1Client, asked: RequestTarget, output: OutputFile
    ) -> RequestTarget | None:
        """Sends one request and handles its response. Returns the request that follows it (a redirect), if
        any."""
        options = self.options
        if options.verbose:
            self.show_request(client, asked)
        content: Any = self.content() if asked.has_body else None
        async with client.stream(
            asked.method,
            asked.url,
            headers=asked.headers,
            content=content,
            on_interim=self.show_head if options.verbose else None,
        ) as response:
            self.first_byte = time.perf_counter()
            if options.verbose:
                self.show_head(response.status, response.headers)
            if options.location:
                location = response.header("location")
                following = redirected(asked, response.status, location)
                if following is not None:
                    return following
            if options.fail and response.status >= 400:
                raise CommandFailure(HTTP_ERROR, f"{asked.url}: HTTP status {response.status}")
            if output.begin(response):
                await self.receive(response, output)
                if options.verbose and response.trailers:
                    show("* trailers", response.trailers, "< ")
        return None

    async def receive(self, response: Response | HTTP1Response, output: OutputFile) -> None:
        if self.options.head:
            lines = [f"{self.protocol} {response.status}".encode()]
            lines += [name + b": " + value for name, value in response.headers]
            output.write(b"\r\n".join([*lines, b"", b""]))
        total = response.content_length
        progress = self.start_progress("received", total and total + output.offset)
        async for part in response.iter_bytes():
            self.received += len(part)
            output.write(part)
            if progress is not None:
                progress.update(output.offset + self.received)
        output.finish()

    # The connection

    async def client(
        self, stack: contextlib.AsyncExitStack, origin: Origin, url: str
    ) -> OriginConnection | HTTP1Client:
        """The connection to ``origin``: the last request's, or a new one. HTTP/1.1 always needs a new one,
        because the body of a redirect is not read."""
        known = self._client
        here = None if known is None else (known.origin.host, known.origin.port)
        if known is None or self.options.http1 or here != (origin.host, origin.port):
            await stack.aclose()
            self._client = known = await self.connect(stack, url)
            self.connected = time.perf_counter()
        return known

    async def connect(
        self, stack: contextlib.AsyncExitStack, url: str
    ) -> OriginConnection | HTTP1Client:
        options = self.options
        connection: contextlib.AbstractAsyncContextManager[OriginConnection | HTTP1Client]
        if options.http1:
            connection = HTTP1Client.connect(
                url,
                cafile=options.cacert,
                verify=not options.insecure,
                timeout=options.connect_timeout,
            )
        else:
            connection = self.connect_http3(url)
        try:
            return await within(stack.enter_async_context(connection), options.connect_timeout)
        except (asyncio.TimeoutError, TimeoutError) as exc:
            if isinstance(exc, QuicConnectionError):
                raise  # QuicIdleTimeoutError is both a QuicError and a TimeoutError
            text = f"{url}: no answer within {options.connect_timeout:g} s"
            raise CommandFailure(TIMED_OUT, text) from None
        except (FileNotFoundError, PermissionError, ssl.SSLError) as exc:
            if isinstance(exc, ssl.SSLCertVerificationError) or not options.http1:
                raise
            if options.cacert is None or isinstance(exc, ssl.SSLError):
                raise
            text = f"cacert: cannot read {options.cacert}: {exc.strerror}"
            raise CommandFailure(CERTIFICATE_REFUSED, text) from None

    def connect_http3(self, url: str) -> contextlib.AbstractAsyncContextManager[OriginConnection]:
        options = self.options
        configuration = client_configuration(options.cacert, not options.insecure)
        if options.qlog is not None:
            try:
                configuration.quic_logger = QuicSequenceLogger(options.qlog)
            except ValueError:
                raise CommandFailure(
                    WRONG_USAGE, f"--qlog {options.qlog}: is no directory"
                ) from None
        return connect(url, configuration=configuration)

    # The request and its body

    def first_request(self, files: contextlib.ExitStack) -> RequestTarget:
        """Returns the first request. Header fields from the command line replace those that the command
        adds."""
        options = self.options
        given = [header_pair(text) for text in options.header]
        names = {name.lower() for name, _ in given}
        ours = [("user-agent", f"uringcore/{_uringcore.__version__}"), *self.body_headers(files)]
        headers = [one for one in ours if one[0] not in names] + given
        has_body = options.data is not None or options.upload_file is not None
        return RequestTarget(
            options.request or self.default_method(), options.url, headers, has_body
        )

    def default_method(self) -> str:
        options = self.options
        if options.head:
            return "HEAD"
        if options.data is not None:
            return "POST"
        return "PUT" if options.upload_file is not None else "GET"

    def body_headers(self, files: contextlib.ExitStack) -> list[tuple[str, str]]:
        """Opens the file of the body, and returns the header fields that describe the body."""
        options = self.options
        if options.data is not None:
            if options.data.startswith("@"):
                with read_errors(options.data[1:]), open(options.data[1:], "rb") as file:
                    self._data = file.read()
            else:
                self._data = options.data.encode()
            return [("content-type", "application/x-www-form-urlencoded")]
        name = options.upload_file
        if name == "-":
            self._upload = sys.stdin.buffer
        elif name is not None:
            with read_errors(name):
                self._upload = files.enter_context(open(name, "rb"))  # noqa: SIM115 - the stack closes the file
                return [("content-length", str(os.fstat(self._upload.fileno()).st_size))]
        return []

    def content(self) -> bytes | Iterator[bytes]:
        """Returns the request's body, from its beginning."""
        if self._upload is None:
            return self._data
        name = self.options.upload_file
        size = None
        if name != "-":
            with read_errors(name):
                self._upload.seek(0)
                size = os.fstat(self._upload.fileno()).st_size
        return self.parts(self._upload, name, size)

    def parts(self, file: BinaryIO, name: str, size: int | None) -> Iterator[bytes]:
        progress = self.start_progress("sent", size)
        self.sent = 0
        while True:
            with read_errors(name):
                part = file.read(READ_BYTES)
            if not part:
                return
            self.sent += len(part)
            yield part
            if progress is not None:
                progress.update(self.sent)

    # Output

    def start_progress(self, what: str, total: int | None) -> Progress | None:
        """A bar for long bodies, on a terminal that isn't the body's own."""
        options = self.options
        if self.progress is not None:
            self.progress.finish()
            self.progress = None
        shown = not options.no_progress and sys.stderr.isatty()
        in_file = options.output is not None or options.remote_name
        if shown and (in_file or not sys.stdout.isatty()):
            self.progress = Progress(sys.stderr, what, total)
        return self.progress

    def show_request(self, client: OriginConnection | HTTP1Client, asked: RequestTarget) -> None:
        origin = client.origin
        how = "TCP, TLS" if self.options.http1 else "QUIC, TLS 1.3"
        show(f"* connected to {origin.host} port {origin.port} by {self.protocol} ({how})")
        pairs = [
            (name.encode(), value.encode("latin-1", "replace")) for name, value in asked.headers
        ]
        show(f"> {asked.method} {asked.url} {self.protocol}", pairs, "> ")

    def show_head(self, status: int, fields: Fields) -> None:
        show(f"< {self.protocol} {status}", fields, "< ")

    def show_timings(self) -> None:
        done = time.perf_counter()
        lines = [
            f"* connect     {milliseconds(self.connected - self.started)}",
            f"* first byte  {milliseconds(self.first_byte - self.started)}",
            f"* total       {milliseconds(done - self.started)}",
        ]
        for what, amount in (("sent", self.sent), ("received", self.received)):
            if amount or what == "received":
                rate = amount / max(done - self.connected, 1e-9)
                lines.append(f"* {what:<10}  {bytes_text(amount)}, {bytes_text(rate)}/s")
        show("\n".join(lines))


def header_pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator or not name.strip():
        raise CommandFailure(WRONG_USAGE, f"-H {text!r} is not of the form NAME:VALUE")
    # Header fields have no encoding, so the value has the bytes of the command line.
    return name.strip(), os.fsencode(value.strip()).decode("latin-1")


def show(text: str, headers: Fields | None = None, prefix: str = "") -> None:
    print(text, file=sys.stderr)
    for name, value in headers or ():
        print(f"{prefix}{name.decode('latin-1')}: {value.decode('latin-1')}", file=sys.stderr)


def milliseconds(duration: float) -> str:
    return f"{duration * 1000:.1f} ms"
