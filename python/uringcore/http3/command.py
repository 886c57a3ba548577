"""``uringcore get URL``: fetches a URL over HTTP/3. Here are its options; the transfer is in transfer.py,
what can go wrong with it in failures.py."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import socket
import sys

from uringcore import new_event_loop, run
from uringcore.http3.failures import EPILOG, INTERRUPTED, TIMED_OUT, WRONG_USAGE, Failure, named
from uringcore.http3.transfer import Transfer
from uringcore.quic.errors import QuicConnectionError

__all__ = ["main"]

# curl's numbers.
MALFORMED_URL = 3
NO_SUCH_HOST = 6
REFUSED = 7
HTTP_ERROR = 22
WRITE_ERROR = 23
READ_ERROR = 26
TIMED_OUT = 28
TLS_FAILED = 35
BODY_CUT_OFF = 56
CERTIFICATE_REFUSED = 60
INTERRUPTED = 130

READ_BYTES = 256 * 1024

# RFC 9110 section 5.6.2.
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

EPILOG = """exit status: 0 success, 2 wrong usage, 3 malformed URL, 6 unknown host, 7 nobody listens, 22 HTTP
status 400 or above with --fail, 23 cannot write, 26 cannot read what to send, 28 time-out, 35 TLS handshake
failed, 56 connection lost, 60 certificate not accepted"""


class Failure(Exception):
    """The end, with the exit code and the line that says why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parser().parse_args(arguments)
    try:
        check_loop(options.backend)
        return run(fetch(options), backend=options.backend)
    except Failure as failure:
        print(f"uringcore get: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return INTERRUPTED


def check_loop(backend: str | None) -> None:
    """A loop that cannot be had is told in one line, apart from what may go wrong on it."""
    try:
        new_event_loop(backend).close()
    except (OSError, RuntimeError, ValueError) as exc:
        raise Failure(WRONG_USAGE, str(exc)) from None


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
        help="fetch what comes after so many bytes of the output file, - for as many as it has",
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
        help="send this too, instead of a header of that name that would be sent",
    )
    add(
        "-L",
        "--location",
        action="store_true",
        help="follow redirects, without credentials to others",
    )
    add("--max-redirs", metavar="NUMBER", type=count, default=50, help="with -L; default: 50")
    add("-f", "--fail", action="store_true", help="no body and exit status 22 for 400 and above")
    add("-v", "--verbose", action="store_true", help="headers, protocol and timings on stderr")
    add("--connect-timeout", metavar="SECONDS", type=seconds, default=10.0, help="default: 10")
    add("-m", "--max-time", metavar="SECONDS", type=seconds, help="for the whole transfer")
    add("--http1.1", dest="http1", action="store_true", help="HTTP/1.1 over TLS instead of HTTP/3")
    add("--qlog", metavar="DIRECTORY", help="write a qlog trace of each connection there")
    add("--backend", choices=("uring", "epoll"), help="insist on a backend of the event loop")
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
    """The whole transfer, within its time limit; every expected failure as a :class:`Failure`."""
    with named(options):
        transfer = Transfer(options)
        try:
            return await asyncio.wait_for(transfer.run(), options.max_time)
        except asyncio.TimeoutError as exc:
            if options.max_time is None or isinstance(exc, QuicConnectionError):
                raise  # the idle time-out is one of both kinds
            raise Failure(TIMED_OUT, f"not complete after {options.max_time:g} s") from None


@contextlib.contextmanager
def failures_named(options: argparse.Namespace) -> Iterator[None]:
    """Turns what the client raises into exit codes."""
    url = options.url
    try:
        yield
    except URLError as exc:
        raise Failure(MALFORMED_URL, str(exc)) from None
    except socket.gaierror as exc:
        raise Failure(NO_SUCH_HOST, f"{url}: cannot resolve the host: {exc.strerror}") from None
    except QuicConfigurationError as exc:
        raise Failure(CERTIFICATE_REFUSED, str(exc)) from None
    except QuicConnectionRefusedError as exc:
        raise Failure(REFUSED, f"{url}: {exc}") from None
    except QuicCertificateError as exc:
        hint = "" if options.cacert else " (--cacert FILE names whom to trust)"
        raise Failure(CERTIFICATE_REFUSED, f"{url}: {exc}{hint}") from None
    except QuicTlsError as exc:
        raise Failure(TLS_FAILED, f"{url}: {exc}") from None
    except QuicIdleTimeoutError as exc:
        raise Failure(TIMED_OUT, f"{url}: {exc}") from None
    except (RequestFailed, QuicConnectionError) as exc:
        raise Failure(BODY_CUT_OFF, f"{url}: {exc}") from None
    except OSError as exc:
        # No route, no address of that family, no socket to be had.
        raise Failure(REFUSED, f"{url}: {exc.strerror or exc}") from None


class Transfer:
    """One request with where its body comes from and where the response's goes to."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.started = time.perf_counter()
        self.connected = self.started
        self.first_byte = self.started
        self.sent = 0
        self.received = 0
        self.progress: Progress | None = None

    async def run(self) -> int:
        options = self.options
        with contextlib.ExitStack() as files:
            content, content_headers = self.content(files)
            output = self.output(files)
            connection = connect(options.url, cafile=options.cacert, verify=not options.insecure)
            async with contextlib.AsyncExitStack() as stack:
                try:
                    client = await asyncio.wait_for(
                        stack.enter_async_context(connection), options.connect_timeout
                    )
                except asyncio.TimeoutError as exc:
                    if isinstance(exc, QuicConnectionError):
                        raise
                    text = f"{options.url}: no answer within {options.connect_timeout:g} s"
                    raise Failure(TIMED_OUT, text) from None
                self.connected = time.perf_counter()
                return await self.exchange(client, content, content_headers, output)

    async def exchange(
        self,
        client: Client,
        content: Content | None,
        headers: list[tuple[str, str]],
        output: BinaryIO,
    ) -> int:
        options = self.options
        ours = [("user-agent", f"uringcore/{_uringcore.__version__}"), *headers]
        given = [header_pair(text) for text in options.header]
        said = {name.lower() for name, _ in given}
        headers = [field for field in ours if field[0] not in said] + given
        method = options.request or self.default_method()
        if not TOKEN.fullmatch(method):
            raise Failure(2, f"-X {method!r} is not a request method")
        if options.verbose:
            self.show_request(client, method, headers)
        request = client.stream(method, options.url, headers=headers, content=content)
        try:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    response = await stack.enter_async_context(request)
                except URLError:
                    raise
                except ValueError as exc:
                    raise Failure(2, f"this cannot be asked over HTTP/3: {exc}") from None
                self.first_byte = time.perf_counter()
                if options.verbose:
                    show(f"< HTTP/3 {response.status}", response.headers, "< ")
                if options.fail and response.status >= 400:
                    raise Failure(HTTP_ERROR, f"{options.url}: HTTP status {response.status}")
                await self.receive(response, output)
        finally:
            if self.progress is not None:
                self.progress.finish()
        if options.verbose:
            self.show_timings()
        return 0

    async def receive(self, response: Response, output: BinaryIO) -> None:
        if self.options.head:
            lines = [f"HTTP/3 {response.status}".encode()]
            lines += [name + b": " + value for name, value in response.headers]
            self.write(output, b"\r\n".join([*lines, b"", b""]))
        total = response.content_length
        progress = self.start_progress("received", total)
        async for part in response.iter_bytes():
            self.received += len(part)
            self.write(output, part)
            if progress is not None:
                progress.update(self.received)
        with write_errors(self.options.output):
            output.flush()

    def write(self, output: BinaryIO, data: bytes) -> None:
        with write_errors(self.options.output):
            output.write(data)

    def start_progress(self, what: str, total: int | None) -> Progress | None:
        """A bar for long bodies, on a terminal that isn't the body's own."""
        if self.progress is not None:
            self.progress.finish()
            self.progress = None
        shown = not self.options.no_progress and sys.stderr.isatty()
        if shown and (self.options.output is not None or not sys.stdout.isatty()):
            self.progress = Progress(sys.stderr, what, total)
        return self.progress

    # Where the request's body comes from and the response's goes to

    def default_method(self) -> str:
        options = self.options
        if options.head:
            return "HEAD"
        if options.data is not None:
            return "POST"
        return "PUT" if options.upload_file is not None else "GET"

    def content(self, files: contextlib.ExitStack) -> tuple[Content | None, list[tuple[str, str]]]:
        """The request's body and the header fields that go with it."""
        options = self.options
        if options.data is not None:
            form = ("content-type", "application/x-www-form-urlencoded")
            if options.data.startswith("@"):
                with read_errors(options.data[1:]), open(options.data[1:], "rb") as file:
                    return file.read(), [form]
            return options.data.encode(), [form]
        name = options.upload_file
        if name is None:
            return None, []
        if name == "-":
            return self.upload(sys.stdin.buffer, name, None), []
        with read_errors(name):
            file = files.enter_context(open(name, "rb"))  # noqa: SIM115 - the stack closes it
            size = os.fstat(file.fileno()).st_size
        return self.upload(file, name, size), [("content-length", str(size))]

    async def upload(self, file: BinaryIO, name: str, size: int | None) -> AsyncIterator[bytes]:
        progress = self.start_progress("sent", size)
        while True:
            with read_errors(name):
                part = file.read(READ_BYTES)
            if not part:
                return
            self.sent += len(part)
            yield part
            if progress is not None:
                progress.update(self.sent)

    def output(self, files: contextlib.ExitStack) -> BinaryIO:
        name = self.options.output
        if name is None or name == "-":
            return sys.stdout.buffer
        with write_errors(name):
            return files.enter_context(open(name, "wb"))

    # --verbose

    def show_request(self, client: Client, method: str, headers: list[tuple[str, str]]) -> None:
        origin = client.origin
        show(f"* connected to {origin.host} port {origin.port} by HTTP/3 (QUIC, TLS 1.3)")
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        show(f"> {method} {self.options.url} HTTP/3", pairs, "> ")

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
    name, value = name.strip(), value.strip()
    if not separator or not TOKEN.fullmatch(name) or any(char in value for char in "\r\n\0"):
        raise Failure(2, f"-H {text!r} is not of the form NAME:VALUE")
    # Byte for byte what was typed: fields have no encoding.
    return name, os.fsencode(value).decode("latin-1")


@contextlib.contextmanager
def write_errors(name: str | None) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # The reader of our output has gone: no more of it, and no second error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Failure(WRITE_ERROR, "the output was closed") from None
    except OSError as exc:
        raise Failure(WRITE_ERROR, f"cannot write {name or 'stdout'}: {exc.strerror}") from None


@contextlib.contextmanager
def read_errors(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise Failure(READ_ERROR, f"cannot read {name}: {exc.strerror}") from None


def show(line: str, headers: list[tuple[bytes, bytes]] | None = None, prefix: str = "") -> None:
    print(line, file=sys.stderr)
    for name, value in headers or ():
        print(f"{prefix}{name.decode('latin-1')}: {value.decode('latin-1')}", file=sys.stderr)


def milliseconds(duration: float) -> str:
    return f"{duration * 1000:.1f} ms"
