"""``SessionState``: the state of a session, from its request to its end.

Rust calls it for the answer, the drain and the end of the session. Not here: the program's interface
(``_session``); streams and datagrams, which are in Rust.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from uringcore._time_limit import within
from uringcore._uringcore import WebTransportSessionCore
from uringcore.quic._close_argument_checks import check_code, check_reason
from uringcore.quic._errors import QuicError
from uringcore.quic.connection import QuicConnection
from uringcore.webtransport._errors import (
    Headers,
    SessionClosedError,
    SessionRefusedError,
    WebTransportError,
)
from uringcore.webtransport._header_fields import HeadersLike, as_headers

__all__ = [
    "CODE_BITS",
    "REASON_BYTES_MAX",
    "RequestAttributes",
    "RequestParameters",
    "SessionState",
    "check_close",
    "check_path",
]

CODE_BITS = 32
REASON_BYTES_MAX = 1024
NO_SESSION = "the peer ended the session before it began"


class RequestParameters(NamedTuple):
    """The parameters of a client's request for a session."""

    path: str
    authority: str
    origin: str | None
    headers: Headers
    protocols: tuple[str, ...]

    @classmethod
    def by_program(
        cls,
        path: str,
        authority: str,
        origin: str | None,
        headers: HeadersLike,
        protocols: Sequence[str],
        *,
        said_in: str = "path",
    ) -> RequestParameters:
        """The parameters that a program gives. Raises ``ValueError`` with the argument's name; ``said_in`` is
        the name of the argument that has the path."""
        if isinstance(protocols, str | bytes):
            raise ValueError("protocols: must be a list of strings")
        check_path(path, said_in)
        lines = as_headers(headers)
        if origin is not None:
            lines.append((b"origin", origin.encode("ascii")))
        return cls(path, authority, origin, lines, tuple(protocols))


class Connection(Protocol):
    """The interface of a client's connection, as a session uses it."""

    async def open(self, asked: RequestParameters) -> SessionState:
        """Opens another session on the connection, and returns it after the server has accepted it."""
        ...

    async def wait_gone(self) -> None:
        """Waits until the connection has ended, if no session is left on it."""
        ...


class SessionState:
    """The state of one session, between the session in Rust and the program's object."""

    def __init__(
        self,
        core: WebTransportSessionCore,
        quic: QuicConnection,
        asked: RequestParameters,
        *,
        close_timeout: float,
        on_change: Callable[[SessionState], None] | None = None,
        connection: Connection | None = None,
        default_headers: Headers = (),
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.core = core
        self.quic = quic
        self.asked = asked
        self.close_timeout = close_timeout
        self.protocol: str | None = None
        self.response_headers: Headers = ()
        self.close_code: int | None = None
        self.close_reason: str = ""
        self.refused_with: int | None = None
        # Header fields that come first in a server's answer.
        self._default_headers = default_headers
        self.is_open: bool = False
        self._is_ended_here = False
        self.closed: asyncio.Event = asyncio.Event()
        self.draining: asyncio.Event = asyncio.Event()
        self.answered: asyncio.Future[None] | None = None
        """On a client, the future that waits for the server's answer."""
        self.made_at: str | None = None
        """The line of the program that made the session, in debug mode."""
        self._on_change = on_change
        self._drains = False
        self.connection = connection
        """On a client, the connection, on which the session may open further sessions."""
        self._make_error: Callable[[], QuicError] | None = None
        # Set when the peer has acknowledged the session's last capsule, so that the connection may end.
        self.released: asyncio.Event = asyncio.Event()
        core.set_receiver(self._core_event)

    @property
    def is_closed(self) -> bool:
        return self.closed.is_set()

    @property
    def is_abandoned(self) -> bool:
        """True if the session has ended without a close or a refusal of this side."""
        return self.is_closed and not self._is_ended_here

    def error(self) -> QuicError:
        """The exception that ended the session."""
        assert self._make_error is not None
        return self._make_error()

    async def wait_answered(self) -> None:
        """Waits until the server has accepted a client's session. Raises the exception that ended it
        before."""
        if self._make_error is not None:
            raise self._make_error()
        if not self.is_open:
            self.answered = self.loop.create_future()
            await self.answered

    def accept(self, headers: Headers, protocol: str | None) -> None:
        self.core.accept([*self._default_headers, *headers], protocol)
        self.protocol = protocol
        self.is_open = True
        if self._drains:
            self.core.drain()

    def close(self, code: int, reason: str) -> None:
        check_close(code, reason)
        if not self.is_closed and not self.loop.is_closed():
            self._is_ended_here = True
            self.core.close(code, reason)

    def refuse(self, status: int, headers: Headers = ()) -> None:
        """Refuses the session with ``status``, unless the request was answered already."""
        if not self.is_closed and not self.is_open and not self.loop.is_closed():
            self.core.refuse(status, [*self._default_headers, *headers])
            self._is_ended_here = True
            self.refused_with = status
            self._end(functools.partial(SessionRefusedError, status, headers), is_orderly=False)

    def drain(self) -> None:
        # A session that is accepted later is drained then.
        self._drains = True
        if self.is_open and not self.is_closed and not self.loop.is_closed():
            self.core.drain()

    async def open_another(self, connection: Connection, asked: RequestParameters) -> SessionState:
        """Opens another session on the connection. This session keeps the connection open until then."""
        if self._make_error is not None:
            raise self._make_error()
        return await connection.open(asked)

    def connection_lost(self, make_error: Callable[[], QuicError]) -> None:
        """Handles the end of the connection, which also ends the session."""
        self._end(make_error, is_orderly=False)
        self._release()

    def _core_event(self, what: str, *args: Any) -> None:
        if what == "accepted":
            self._accepted(*args)
        elif what == "refused":
            status, headers = args
            self._end(functools.partial(SessionRefusedError, status, headers), is_orderly=False)
            self._release()
        elif what == "draining":
            self.draining.set()
        elif what == "ended":
            self._ended(*args)
        elif what == "released":
            self._release()

    def _ended(self, code: int, reason: str, is_clean: bool) -> None:
        """Called when one side has closed the session, or when its CONNECT stream was reset (``is_clean`` is
        false)."""
        make_error: Callable[[], QuicError]
        make_error = functools.partial(SessionClosedError, code, reason)
        if is_clean:
            self.close_code, self.close_reason = code, reason
        elif not self.is_open:
            make_error = functools.partial(WebTransportError, reason or NO_SESSION)
        self._end(make_error, is_orderly=is_clean and code == 0)
        if not is_clean:
            # The peer has no capsule to acknowledge.
            self._release()

    def _accepted(self, headers: Headers, protocol: str | None) -> None:
        self.response_headers = headers
        self.protocol = protocol
        self.is_open = True
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(None)

    def _end(self, make_error: Callable[[], QuicError], *, is_orderly: bool) -> None:
        if self.is_closed:
            return
        self._make_error = make_error
        self.core.manager.end(make_error, is_orderly)
        if self.answered is not None and not self.answered.done():
            self.answered.set_exception(make_error())
            # The exception is read here, so that the loop does not report it if nothing awaits the future.
            self.answered.exception()
        self.closed.set()
        self.draining.set()
        if self._on_change is not None:
            self._on_change(self)

    def _release(self) -> None:
        self.released.set()
        on_change, self._on_change = self._on_change, None
        if on_change is not None:
            on_change(self)

    async def wait_gone(self) -> None:
        """Waits until the session has ended, and also its connection if no session is left on that."""
        await self.closed.wait()
        if self.connection is not None:
            await self.connection.wait_gone()

    async def wait_released(self) -> None:
        """Waits until the peer has acknowledged the last capsule, ``close_timeout`` seconds at most."""
        with contextlib.suppress(asyncio.TimeoutError):
            await within(self.released.wait(), self.close_timeout)


class RequestAttributes:
    """The attributes that a session request and its session have in common."""

    _link: SessionState

    @property
    def path(self) -> str:
        """The path and query of the client's request."""
        return self._link.asked.path

    @property
    def authority(self) -> str:
        """The host of the client's request, with the port if the request has one."""
        return self._link.asked.authority

    @property
    def origin(self) -> str | None:
        """The ``origin`` field, which browsers send: the page that opened the session."""
        return self._link.asked.origin

    @property
    def headers(self) -> Headers:
        """The request's header fields, as pairs of bytes with lower-case names."""
        return self._link.asked.headers

    @property
    def peer_address(self) -> tuple[str, int] | None:
        """The last validated address and port of the peer (RFC 9000 section 8). They change when the peer
        migrates to another network."""
        address = self._link.quic.get_peer_address()
        return None if address is None else (str(address[0]), int(address[1]))


def check_path(path: str, said_in: str) -> None:
    """Raises ``ValueError`` for an impossible path, with the name of its argument."""
    if not path.startswith("/") or not path.isascii() or any(c <= " " or c == "#" for c in path):
        reason = f"the path has to begin with / and be percent-encoded, not {path!r}"
        raise ValueError(f"{said_in}: {reason}")


def check_close(code: int, reason: str) -> None:
    """Raises ``ValueError`` for a code or a reason that a session cannot be closed with."""
    check_code(code, bits=CODE_BITS)
    check_reason(reason, bytes_max=REASON_BYTES_MAX)
