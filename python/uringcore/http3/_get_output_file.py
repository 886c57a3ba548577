"""The output of ``uringcore get``: stdout, a file, or the rest of a partial file.

A file that is begun carries the response's validator as an extended attribute, where the file system
has them, so that the rest is only appended if the resource has not changed (``If-Range``, RFC 9110
section 13.1.5).
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from typing import IO, Protocol
from urllib.parse import urlsplit

from uringcore.http3._get_exit_status import (
    CANNOT_RESUME,
    WRITE_ERROR,
    CommandFailure,
    write_errors,
)

__all__ = ["OutputFile"]

VALIDATOR = "user.uringcore.validator"

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")


class _Response(Protocol):
    @property
    def status(self) -> int: ...
    def header(self, name: str) -> str | None: ...


class OutputFile:
    """``continue_at`` is a number of bytes, ``"-"`` for the file's present size, or ``None``."""

    def __init__(
        self, name: str | None, continue_at: str | None, files: contextlib.ExitStack
    ) -> None:
        self.name = None if name == "-" else name
        self.offset = 0
        """Bytes that the file has already."""
        self._resumes = continue_at is not None
        self._file: IO[bytes] = sys.stdout.buffer
        if self.name is None:
            if self._resumes:
                raise CommandFailure(CANNOT_RESUME, "-C continues a file: name it with -o or -O")
            return
        with write_errors(self.name):
            # The file keeps its old content until a response replaces it, so it is not emptied here.
            mode = "r+b" if self._resumes and os.path.exists(self.name) else "ab"
            self._file = files.enter_context(open(self.name, mode))  # noqa: SIM115 - the stack's
            if continue_at is not None:
                size = self._file.seek(0, os.SEEK_END)
                self.offset = size if continue_at == "-" else int(continue_at)
                if self.offset > size:
                    text = f"{self.name} has {size} bytes, fewer than {self.offset}"
                    raise CommandFailure(CANNOT_RESUME, text)

    @property
    def request_headers(self) -> list[tuple[str, str]]:
        """Returns the header fields that ask for the missing rest of the file."""
        if not self.offset:
            return []
        headers = [("range", f"bytes={self.offset}-")]
        with contextlib.suppress(OSError):
            validator = os.getxattr(self._file.fileno(), VALIDATOR)
            headers.append(("if-range", validator.decode("latin-1")))
        return headers

    def begin(self, response: _Response) -> bool:
        """Handles the header section of a response. Returns true if the content of the response is to be
        written."""
        if self._resumes and not self._continues(response):
            return False
        if self.name is not None:
            if not self._resumes and stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                self._truncate(0)
            self._keep_validator(response)
        return True

    def write(self, data: bytes) -> None:
        """Writes a part of the content."""
        with write_errors(self.name):
            self._file.write(data)

    def finish(self) -> None:
        """Called when all content was written."""
        with write_errors(self.name):
            self._file.flush()
        if self.name is not None:
            with contextlib.suppress(OSError):
                os.removexattr(self._file.fileno(), VALIDATOR)

    def _continues(self, response: _Response) -> bool:
        found = _CONTENT_RANGE.match(response.header("content-range") or "")
        start, total = found.groups() if found else (None, None)
        if response.status == 206 and start == str(self.offset):
            self._truncate(self.offset)
            return True
        if response.status == 416 and total == str(self.offset):
            return False  # the file is complete
        if response.status == 200:
            # The response has the whole resource, because it has changed, or because the server supports no
            # ranges.
            self.offset = 0
            self._truncate(0)
            return True
        text = f"cannot resume {self.name}: HTTP status {response.status}"
        if response.status == 206:
            text = f"cannot resume {self.name}: the server sent another part"
        raise CommandFailure(CANNOT_RESUME, text)

    def _truncate(self, size: int) -> None:
        with write_errors(self.name):
            self._file.seek(size)
            self._file.truncate()

    def _keep_validator(self, response: _Response) -> None:
        """Stores the response's validator, if it is a strong one: If-Range needs that (RFC 9110 section
        13.1.5)."""
        tag = response.header("etag")
        strong = tag if tag is not None and not tag.startswith("W/") else None
        validator = strong or response.header("last-modified")
        with contextlib.suppress(OSError):
            if validator is not None:
                os.setxattr(self._file.fileno(), VALIDATOR, validator.encode("latin-1"))
            elif not self.offset:
                os.removexattr(self._file.fileno(), VALIDATOR)


def remote_name(url: str) -> str:
    """Returns the last part of a URL's path, which ``-O`` uses as the name of the file."""
    name = urlsplit(url).path.rpartition("/")[2]
    if name in ("", ".", ".."):
        raise CommandFailure(
            WRITE_ERROR, f"{url}: the URL has no file name for -O: name it with -o"
        )
    return name
