"""``connect``: a client's connection, with its first session.

A connection belongs to its sessions, which have equal rights: each can open others (``open_session``), and
the connection ends with the last one. A separate connection object would need its own end and its own
warning. While a session is open, the server's SETTINGS have arrived, so a request that they forbid fails
before anything is sent. A close drops queued data, so the connection ends only after the peer has
acknowledged the last session's last capsule.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from uringcore._uringcore import WebTransportClient
from uringcore.quic._errors import QuicError
from uringcore.quic._happy_eyeballs import ATTEMPT_DELAY, interleaved
from uringcore.quic._host_argument_checks import check_target, server_name_of
from uringcore.quic._open_endpoint import connect_first
from uringcore.quic._typed_api.await_and_async_with import AwaitableContext
from uringcore.quic._typed_api.config import ClientConfig
from uringcore.quic._typed_api.connection_event_dispatch import BaseConnectionProtocol
from uringcore.quic._udp_sockets import resolve
from uringcore.quic.connection import QuicConnection
from uringcore.webtransport._header_fields import HeadersLike
from uringcore.webtransport._server_connection import (
    over_http3,
    quic_configuration,
    session_limits,
)
from uringcore.webtransport._session import Session, opening
from uringcore.webtransport._session_lifecycle import RequestParameters, SessionState

__all__ = ["connect"]


def connect(
    url: str,
    config: ClientConfig | None = None,
    *,
    headers: HeadersLike = (),
    origin: str | None = None,
    protocols: Sequence[str] = (),
    server_certificate_hashes: Sequence[bytes] | None = None,
    timeout: float | None = 30.0,
    happy_eyeballs_delay: float | None = ATTEMPT_DELAY,
) -> AwaitableContext[Session]:
    """Opens a WebTransport session on a new connection.

    ``async with connect(...) as session:`` closes the session at the end of the block; after ``session =
    await connect(...)`` the program closes it. :meth:`Session.open_session` opens further sessions on the
    same connection.

    ``url`` begins with ``https:``. ``origin`` and ``headers`` go into the request, and so do ``protocols``,
    the application protocols offered, the preferred one first. ``server_certificate_hashes`` are SHA-256
    hashes of certificates in DER, as in browsers: the server must show one of these certificates, which
    any issuer may have signed. ``timeout`` bounds the whole, in seconds. The next address of a name is tried
    ``happy_eyeballs_delay`` seconds after the one before (RFC 8305). Each call makes a copy of ``config``,
    which remembers no address token of earlier calls.

    Raises :class:`SessionRefusedError` when the server refuses the session, :class:`WebTransportError` when
    it does not support WebTransport, ``TimeoutError``, ``ValueError`` for a URL or a header that is not
    allowed, and the exceptions of :func:`uringcore.quic.connect`.
    """
    config = ClientConfig() if config is None else config
    changes: dict[str, object] = {}
    if server_certificate_hashes is not None:
        changes["certificate_hashes"] = tuple(server_certificate_hashes)
    config = over_http3(config, **changes)
    host, port, authority, path = _read(url)
    asked = RequestParameters.by_program(path, authority, origin, headers, protocols, said_in="url")
    target = (host, port)
    return opening(
        functools.partial(_connect, target, config, asked, happy_eyeballs_delay), timeout
    )


def _read(url: str) -> tuple[str, int, str, str]:
    """Parses the URL of a session. Returns host, port, authority and path."""
    try:
        parts = urlsplit(url)
        given_port = parts.port
    except ValueError as exc:
        raise ValueError(f"url: {exc}") from None
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError(f"url: must begin with https:// and a host, not {url!r}")
    if "#" in url or parts.username is not None:
        raise ValueError("url: has neither a fragment nor a user")
    if given_port == 0:
        raise ValueError("url: the port must be from 1 to 65535, not 0")
    host, port = parts.hostname, given_port or 443
    named = f"[{host}]" if ":" in host else host
    authority = named if port == 443 else f"{named}:{port}"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return host, port, authority, path


async def _connect(
    address: tuple[str, int], config: ClientConfig, asked: RequestParameters, delay: float | None
) -> SessionState:
    life = await _connect_to_address(address, config, delay)
    try:
        return await life.open(asked)
    except BaseException:
        life.close(H3_REQUEST_CANCELLED, "")
        raise


async def _connect_to_address(
    address: tuple[str, int], config: ClientConfig, delay: float | None
) -> _Life:
    """Makes a connection without a session."""
    loop = asyncio.get_running_loop()
    check_target(*address)
    configuration = quic_configuration(config)
    if configuration.server_name is None:
        configuration = configuration._named(server_name_of(address[0]))
    lives: dict[int, _Life] = {}

    def prepare(quic: QuicConnection) -> None:
        # Made before the connection starts, so that a stream in the server's first packets goes to this
        # object.
        lives[id(quic)] = _Life(quic, config)

    def of(quic: QuicConnection) -> _Life:
        return lives[id(quic)]

    life: _Life
    _, life = await connect_first(
        loop,
        of,
        interleaved(await resolve(loop, address)),
        configuration=configuration,
        prepare=prepare,
        happy_eyeballs_delay=delay,
    )
    return life


class _Life(BaseConnectionProtocol):
    """The life of a connection that carries only sessions, and that ends with the last one."""

    def __init__(self, quic: QuicConnection, config: ClientConfig) -> None:
        super().__init__(quic, close_timeout=config.close_timeout)
        self._sessions: set[SessionState] = set()
        """Sessions that are requested or open, or whose close the server has not acknowledged yet."""
        self._closing: asyncio.Task[None] | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._client = WebTransportClient(
            quic,
            self.loop,
            session_limits(config),
            on_due=self._schedule_tick,
            transmit=self.transmit if self._flushes else None,
        )

    async def open(self, asked: RequestParameters) -> SessionState:
        """Requests a session, and waits until the server has accepted it."""
        link = self._ask(asked)
        try:
            await link.wait_answered()
        except BaseException:
            # The caller was cancelled. The session may be open already, so it is closed.
            link.close(0, "")
            raise
        return link

    async def wait_gone(self) -> None:
        """Waits until the connection has ended, if no session is left on it."""
        if self._closing is not None:
            await self.wait_closed()

    def _ask(self, asked: RequestParameters) -> SessionState:
        core = self._client.connect(
            asked.authority, asked.path, list(asked.headers), list(asked.protocols)
        )
        link = SessionState(
            core,
            self.quic,
            asked,
            close_timeout=self.close_timeout,
            on_change=self._session_changed,
            connection=self,
        )
        # If the server's SETTINGS forbid the request, the session has ended at once.
        if not link.released.is_set():
            self._sessions.add(link)
        return link

    def _schedule_tick(self) -> None:
        if not self.loop.is_closed():
            self._ticking = self.loop.call_later(1.0, self._tick)

    def _tick(self) -> None:
        waits = True
        try:
            waits = self._client.tick()
        finally:
            if waits:
                self._schedule_tick()

    def _session_changed(self, session: SessionState) -> None:
        if session.released.is_set():
            self._sessions.discard(session)
        is_idle = all(one.is_closed for one in self._sessions)
        if is_idle and self._closing is None and not self.loop.is_closed():
            self._closing = self.loop.create_task(self._close_when_released())

    async def _close_when_released(self) -> None:
        """Closes the connection after the last capsules are acknowledged, because a close drops queued
        data."""
        await asyncio.gather(*(session.wait_released() for session in self._sessions))
        self.close(H3_NO_ERROR, "")

    def _over(self, make_error: Callable[[], QuicError], is_orderly: bool) -> None:
        self._client.closed()
        if self._ticking is not None:
            self._ticking.cancel()
        for session in list(self._sessions):
            session.connection_lost(make_error)


# Error codes (RFC 9114 section 8.1).
H3_NO_ERROR, H3_REQUEST_CANCELLED = 0x100, 0x10C
