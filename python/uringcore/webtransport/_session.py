"""``Session``: the program's interface to a session. Streams and datagrams are in Rust."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from uringcore import _time_limit
from uringcore._uringcore import ConnectionBase
from uringcore.quic._typed_api.await_and_async_with import AwaitableContext, DeliveredOnExit
from uringcore.quic._typed_api.unclosed_objects import end_forgotten, made_at
from uringcore.webtransport._errors import Headers
from uringcore.webtransport._header_fields import HeadersLike
from uringcore.webtransport._session_lifecycle import (
    RequestAttributes,
    RequestParameters,
    SessionState,
)

__all__ = ["Session", "opening", "within"]

_Result = TypeVar("_Result")


class Session(DeliveredOnExit, RequestAttributes, ConnectionBase):
    """A session, made by :func:`~uringcore.webtransport.connect` and by :meth:`SessionRequest.accept`.

    Streams are those of :class:`uringcore.quic.Connection`; their error codes have 32 bits here. Data stays
    unread until the program reads it, and flow control stops the peer.

    ``async with session:`` closes the session at the end of the block. Without an exception it waits first
    until the peer has acknowledged the data that was finished on streams, ``close_timeout`` seconds at most;
    after an exception it closes at once.

    A session that the program forgets is closed when it is collected, with a ``ResourceWarning`` in debug
    mode that names the line where it was made.
    """

    def __new__(cls, link: SessionState) -> Session:
        """The constructor is not for programs."""
        self = super().__new__(cls, link.core.manager)
        self._link = link
        return self

    @property
    def id(self) -> int:
        """The session's ID, which is the ID of its CONNECT stream."""
        return self._link.core.id

    @property
    def response_headers(self) -> Headers:
        """The header fields of the response; empty on a server."""
        return self._link.response_headers

    @property
    def protocol(self) -> str | None:
        """The application protocol that the server has chosen, if any."""
        return self._link.protocol

    @property
    def draft(self) -> str:
        """The draft of WebTransport in use: ``"02"``, ``"07"``, ``"14"`` or ``"15"``."""
        return self._link.core.draft

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER, if the peer has sent one."""
        chain = self._link.quic.get_peer_certificates()
        return chain[0] if chain else None

    @property
    def is_closed(self) -> bool:
        """True if the session has ended."""
        return self._link.is_closed

    @property
    def close_code(self) -> int | None:
        """The code of the close; ``None`` while the session is open, and if it ended with its connection."""
        return self._link.close_code

    @property
    def close_reason(self) -> str:
        """The reason of the close."""
        return self._link.close_reason

    @property
    def is_draining(self) -> bool:
        """True if the peer has asked this side to end the session."""
        return self._link.draining.is_set()

    def open_session(
        self,
        path: str = "/",
        *,
        headers: HeadersLike = (),
        origin: str | None = None,
        protocols: Sequence[str] = (),
        timeout: float | None = 30.0,
    ) -> AwaitableContext[Session]:
        """Opens another session on a client's connection: ``async with session.open_session("/chat") as
        other:``, or ``other = await session.open_session("/chat")``.

        ``path`` includes the query, and goes to the same host; other arguments are those of
        :func:`~uringcore.webtransport.connect`. Sessions of one connection share its congestion window and
        its receive window. Each ends on its own, and the connection ends with the last one; a program that
        uses sessions one after the other keeps one of them open.

        Raises :class:`SessionRefusedError` when the server refuses the session, and
        :class:`WebTransportError` when it accepts no further session on this connection: because of its
        limit, or because it is going away, which :attr:`is_draining` shows. Raises the exception of this
        session when it is over, ``TimeoutError``, ``ValueError`` for a path or a header that is not allowed,
        and ``RuntimeError`` on a server.
        """
        link = self._link
        if link.connection is None:
            raise RuntimeError("sessions are a client's to open")
        asked = RequestParameters.by_program(path, self.authority, origin, headers, protocols)
        return opening(functools.partial(link.open_another, link.connection, asked), timeout)

    def stats(self) -> dict[str, int]:
        """Counters of the session: streams, datagrams and bytes in both directions."""
        return self._link.core.stats()

    def drain(self) -> None:
        """Asks the peer to end the session. The session itself does not change."""
        self._link.drain()

    async def wait_draining(self) -> None:
        """Waits until the peer has requested the session's end, or the session has ended."""
        await self._link.draining.wait()

    def close(self, code: int = 0, reason: str = "") -> None:
        """Closes the session at once, with a code of 32 bits and a reason of 1,024 bytes at most.

        Streams are reset, and queued data is dropped: see :meth:`wait_delivered`. A second close does
        nothing.

        Raises ``ValueError`` for a code or a reason that is too long.
        """
        self._link.close(code, reason)

    async def wait_closed(self) -> None:
        """Waits until the session has ended, for any reason. If no other session is left on a client's
        connection, it also waits until that connection has ended. Never raises the cause.
        """
        await self._link.wait_gone()

    @property
    def _close_timeout(self) -> float:
        return self._link.close_timeout

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        try:
            peer = self.peer_address
        except RuntimeError:
            # The address can be read only on the loop's thread.
            peer = None
        return f"<{type(self).__name__} {state} path={self.path!r} peer={peer}>"

    def __del__(self) -> None:
        link = self._link
        if not link.is_closed and not link.loop.is_closed():
            end_forgotten("session", self, link.made_at, link.loop, link.close, 0, "")


def opening(
    ask: Callable[[], Coroutine[Any, Any, SessionState]], timeout: float | None
) -> AwaitableContext[Session]:
    """A session to await or to enter. ``ask()`` returns the session once it is open, within ``timeout``
    seconds.
    """

    async def make(origin: str | None) -> Session:
        # If the session opens only after the time limit, nothing references it. So it is closed when it is
        # collected.
        link = await ask()
        link.made_at = origin
        return Session(link)

    async def make_in_time() -> Session:
        origin = made_at(asyncio.get_running_loop())
        return await within(timeout, make(origin), missed="no session")

    return AwaitableContext(make_in_time)


async def within(
    seconds: float | None, work: Awaitable[_Result], *, missed: str = "not"
) -> _Result:
    """The result of ``work``. Raises the built-in ``TimeoutError`` after ``seconds``."""
    try:
        return await _time_limit.within(work, seconds)
    except asyncio.TimeoutError:
        # Before CPython 3.11 asyncio.TimeoutError is not the built-in TimeoutError.
        raise TimeoutError(f"{missed} within {seconds} seconds") from None
