"""Files of a folder as an ASGI application: :class:`StaticFiles`.

Starlette and FastAPI mount it (``app.mount("/assets", StaticFiles("dist"))``), and the option ``--static``
serves it. On this server no byte of a file passes through Python, except for responses with several ranges,
and a file's descriptor is held only while its bytes are read. On other servers, and with uvicorn's protocol
classes, a thread reads each part.

The extension opens the files (``StaticFolder``), so that no name leaves the folder. A name in the kernel's
memory is opened at once, others on a thread.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import quote

from uringcore._uringcore import StaticFile, StaticFolder, accepted_codings
from uringcore.server._byte_ranges import ByteRange, Multipart, Unsatisfiable, byte_ranges
from uringcore.server._conditional_requests import Outcome, Validators, evaluate, range_applies
from uringcore.server._content_types import content_type, is_compressible

__all__ = ["StaticFiles"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PART_BYTES = 128 * 1024
"""Bytes of a message where the server has no messages for files."""

SUFFIXES = {"br": b".br", "zstd": b".zst", "gzip": b".gz"}
"""The endings of compressed siblings."""

OF_INTEREST = frozenset(
    {
        b"accept-encoding",
        b"if-match",
        b"if-modified-since",
        b"if-none-match",
        b"if-range",
        b"if-unmodified-since",
        b"range",
    }
)

WELL_KNOWN = ".well-known"
"""The folder of RFC 8615 is published although its name begins with a dot."""

METHODS = ("GET", "HEAD")

TEXTS = {
    404: b"Not Found",
    405: b"Method Not Allowed",
    412: b"Precondition Failed",
    416: b"Range Not Satisfiable",
    503: b"Service Unavailable",
}

logger = logging.getLogger("uvicorn.error")


class Found(NamedTuple):
    """The file that answers a request."""

    file: StaticFile
    name: bytes
    """The name of the file, without the ending of a compressed sibling."""
    kind: bytes
    coding: str | None
    """The coding of a compressed sibling."""
    varies: bool
    """The choice depends on Accept-Encoding."""


class MovedError(Exception):
    """The path names a folder, and its slash at the end is missing."""


class StaticFiles:
    """An ASGI application that serves the files of ``directory``, for GET and HEAD.

    - ``index``: the file that answers for a folder; ``None`` for 404. A folder's path without its slash at
      the end is redirected if it has such a file.
    - ``cache_control``: the value of Cache-Control of every file.
    - ``hidden``: also publish files and folders whose names begin with a dot. ``.well-known`` at the top is
      always published.
    - ``precompressed``: answer with ``app.js.br``, ``app.js.zst`` or ``app.js.gz`` in place of ``app.js``
      if the client prefers one of them. The siblings are not compared with the file, so a deployment
      has to write them together with it.

    Validators, conditions and ranges follow RFC 9110. A symbolic link is followed if it leads to a place
    inside of ``directory``; any other one counts as missing, as do devices, pipes, sockets, and files that
    the process must not read. Raises ``OSError`` if there is no such folder. If another folder takes its
    place later, that one is served within a second.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        index: str | None = "index.html",
        cache_control: str | None = None,
        hidden: bool = False,
        precompressed: bool = True,
    ) -> None:
        self._folder = StaticFolder(directory)
        self._index = None if index is None else os.fsencode(index)
        self._common = [(b"x-content-type-options", b"nosniff")]
        if cache_control is not None:
            self._common.append((b"cache-control", cache_control.encode("latin-1")))
        self._hidden = hidden
        self._precompressed = precompressed
        self.is_outermost = False
        """Nothing else sees the requests, so the extension may repeat answers without a call."""

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        if scope["type"] != "http":
            raise RuntimeError(f"StaticFiles serves HTTP requests, not {scope['type']!r}")
        if await self.serve(scope, send, route_path(scope)):
            return
        if scope["method"] in METHODS:
            await refuse(scope, send, 404)
        else:
            await refuse(scope, send, 405, (b"allow", b"GET, HEAD"))

    async def serve(self, scope: Any, send: Send, path: str) -> bool:
        """Answers a GET or HEAD for ``path``, a path below the folder. Returns False without an answer if
        there is no such file, or if the method is another one."""
        name = self._name(path)
        if name is None or scope["method"] not in METHODS:
            return False
        fields = fields_of_interest(scope["headers"])
        try:
            # The path of the published folder itself, without a slash.
            if not path and self._index is not None and await self._is_file(self._index):
                raise MovedError
            found = await self._find(name, fields.get(b"accept-encoding", ""))
        except MovedError:
            await redirect(scope, send)
            return True
        except OSError as error:
            await self._fail(scope, send, error)
            return True
        if found is None:
            return False
        try:
            await self._answer(scope, send, fields, found)
        finally:
            found.file.close()
        return True

    def _name(self, path: str) -> bytes | None:
        """Returns the name of a file below the folder; ``None`` if no file may have this path."""
        parts = path.removeprefix("/").split("/")
        if parts[-1] == "" and self._index is not None:
            parts[-1] = os.fsdecode(self._index)
        if not self._hidden and any(map(is_hidden, parts[1:] if parts[0] == WELL_KNOWN else parts)):
            return None
        # A part may be a folder above on other systems, and names what no file here should be called.
        if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
            return None
        try:
            return "/".join(parts).encode()
        except UnicodeEncodeError:
            return None

    async def _find(self, name: bytes, accepted: str) -> Found | None:
        """Returns the representation for a client. Raises :class:`MovedError` for a folder."""
        try:
            file = await self._open(name)
        except IsADirectoryError:
            if self._index is not None and await self._is_file(name + b"/" + self._index):
                raise MovedError from None
            return None
        if file is None:
            return None
        kind = content_type(name.decode())
        varies = self._precompressed and is_compressible(kind)
        if varies and accepted:
            for coding in accepted_codings(accepted):
                try:
                    sibling = await self._open(name + SUFFIXES[coding])
                except IsADirectoryError:
                    continue
                except BaseException:
                    file.close()
                    raise
                if sibling is not None:
                    file.close()
                    return Found(sibling, name, kind.encode(), coding, varies)
        return Found(file, name, kind.encode(), None, varies)

    async def _open(self, name: bytes) -> StaticFile | None:
        try:
            return self._folder.open(name, may_wait=False)
        except BlockingIOError:
            opened = functools.partial(self._folder.open, name, may_wait=True)
            return await asyncio.get_running_loop().run_in_executor(None, opened)

    async def _is_file(self, name: bytes) -> bool:
        try:
            file = await self._open(name)
        except IsADirectoryError:
            return False
        if file is None:
            return False
        file.close()
        return True

    async def _fail(self, scope: Any, send: Send, error: OSError) -> None:
        """Answers with 503 if there is no descriptor for the file. Raises any other error of the disk."""
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise error
        await refuse(scope, send, 503, (b"retry-after", b"1"))

    async def _answer(
        self, scope: Any, send: Send, fields: Mapping[bytes, str], found: Found
    ) -> None:
        file, size = found.file, found.file.size
        validators = Validators.of_file(size, file.modified_ns, time.time_ns(), found.coding)
        head = [
            *self._common,
            (b"etag", validators.etag.encode()),
            (b"last-modified", validators.last_modified.encode()),
        ]
        if found.varies:
            head.append((b"vary", b"accept-encoding"))
        outcome = evaluate(fields, validators)
        if outcome is Outcome.NOT_MODIFIED:
            file.close()
            await send({"type": "http.response.start", "status": 304, "headers": head})
            await send({"type": "http.response.body", "body": b""})
            return
        if outcome is Outcome.FAILED:
            await refuse(scope, send, 412)
            return
        head.append((b"accept-ranges", b"bytes"))
        if found.coding is not None:
            head.append((b"content-encoding", found.coding.encode()))
        ranges = None
        # Other methods have no ranges (RFC 9110 section 14.2).
        if b"range" in fields and scope["method"] == "GET" and range_applies(fields, validators):
            try:
                ranges = byte_ranges(fields[b"range"], size)
            except Unsatisfiable:
                await refuse(scope, send, 416, (b"content-range", b"bytes */%d" % size))
                return
        if ranges is not None and len(ranges) > 1:
            await send_parts(scope, send, head, found, ranges)
            return
        status, one = 200, ByteRange(0, size)
        if ranges is not None:
            status, one = 206, ranges[0]
            head.append((b"content-range", one.content_range(size)))
        head += [(b"content-type", found.kind), (b"content-length", b"%d" % one.length)]
        await send({"type": "http.response.start", "status": status, "headers": head})
        if scope["method"] == "HEAD":
            file.close()
            await send({"type": "http.response.body", "body": b""})
        else:
            is_whole = ranges is None and validators.is_strong
            folder = self._folder if self.is_outermost and is_whole else None
            await send_file(scope, send, found, one, folder)


def route_path(scope: Any) -> str:
    """Returns the path below the place where the application is mounted (``root_path``)."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        return path[len(root) :]
    return path


def is_hidden(part: str) -> bool:
    return part.startswith(".")


def fields_of_interest(headers: Any) -> dict[bytes, str]:
    """Returns the fields of a request that choose and condition a file. Lines of one field are joined."""
    found: dict[bytes, str] = {}
    for name, value in headers:
        if name in OF_INTEREST:
            text = value.decode("latin-1")
            found[name] = f"{found[name]}, {text}" if name in found else text
    return found


async def refuse(scope: Any, send: Send, status: int, *fields: tuple[bytes, bytes]) -> None:
    """Sends an error. The answer to a HEAD has no content."""
    text = TEXTS[status]
    head = [
        *fields,
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(text)),
    ]
    await send({"type": "http.response.start", "status": status, "headers": head})
    body = b"" if scope["method"] == "HEAD" else text
    await send({"type": "http.response.body", "body": body})


async def redirect(scope: Any, send: Send) -> None:
    """Redirects to the path with a slash at its end.

    The target is relative to the last part of the path, so it is right behind any proxy, and names no other
    host.
    """
    last = scope["path"].rpartition("/")[2]
    location = b"./" + quote(last).encode() + b"/"
    if scope["query_string"]:
        location += b"?" + scope["query_string"]
    head = [(b"location", location), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 308, "headers": head})
    await send({"type": "http.response.body", "body": b""})


async def send_parts(
    scope: Any, send: Send, head: list[tuple[bytes, bytes]], found: Found, ranges: list[ByteRange]
) -> None:
    """Sends several ranges as ``multipart/byteranges``.

    The parts are read by a thread: Starlette's ``BaseHTTPMiddleware`` takes the first
    ``http.response.pathsend`` for the end of the response.
    """
    content = Multipart(ranges, found.file.size, found.kind)
    head += [(b"content-type", content.content_type), (b"content-length", b"%d" % content.length)]
    await send({"type": "http.response.start", "status": 206, "headers": head})
    for part, one in content.parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
        await send_read(send, found.file, one, more_body=True)
    await send({"type": "http.response.body", "body": content.end})


async def send_file(
    scope: Any, send: Send, found: Found, part: ByteRange, folder: StaticFolder | None
) -> None:
    """Sends a part of a file as the end of a response: by the server if it accepts a file in
    ``http.response.pathsend``, else by a thread. With its ``folder``, the server may give the same answer to
    such requests until the file changes."""
    details = (scope.get("extensions") or {}).get("http.response.pathsend") or {}
    if "uringcore.static_file" in details:
        await send(
            {
                "type": "http.response.pathsend",
                "path": found.file,
                "offset": part.offset,
                "count": part.length,
                "more_body": False,
                "folder": folder,
                "original": None if found.coding is None else found.name,
            }
        )
        return
    await send_read(send, found.file, part, more_body=False)


async def send_read(send: Send, file: StaticFile, part: ByteRange, *, more_body: bool) -> None:
    """Sends a part of a file that a thread reads."""
    loop = asyncio.get_running_loop()
    offset, end = part.offset, part.offset + part.length
    while offset < end:
        # The file is closed between two parts, so that slow clients hold no descriptor.
        read = functools.partial(file.read, offset, min(end - offset, PART_BYTES))
        body = await loop.run_in_executor(None, read)
        if not body:
            raise OSError(errno.ESTALE, "a file became shorter while it was sent")
        offset += len(body)
        await send(
            {"type": "http.response.body", "body": body, "more_body": more_body or offset < end}
        )
    if part.length == 0:
        await send({"type": "http.response.body", "body": b"", "more_body": more_body})
