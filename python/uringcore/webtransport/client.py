"""``connect_webtransport``: a client's session, on a connection of its own."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from uringcore._uringcore import WebTransportClient
from uringcore.quic.connection import QuicConnection
from uringcore.quic.endpoint import connect_first
from uringcore.quic.errors import QuicError
from uringcore.quic.eyeballs import ATTEMPT_DELAY, interleaved
from uringcore.quic.native.config import ClientConfig
from uringcore.quic.native.link import Life
from uringcore.quic.native.making import Making
from uringcore.quic.sockets import resolve
from uringcore.webtransport.carrier import session_limits
from uringcore.webtransport.fields import HeadersLike, as_headers
from uringcore.webtransport.link import Asked, SessionLink, where
from uringcore.webtransport.session import WebTransportSession

__all__ = ["Connecting", "connect_webtransport"]


def connect_webtransport(
    url: str,
    config: ClientConfig | None = None,
    *,
    headers: HeadersLike = (),
    origin: str | None = None,
    protocols: Sequence[str] = (),
    server_certificate_hashes: Sequence[bytes] | None = None,
    timeout: float | None = 30.0,
    happy_eyeballs_delay: float | None = ATTEMPT_DELAY,
) -> Connecting:
    """Opens a WebTransport session: ``async with connect_webtransport(...) as session:``, or
    ``session = await connect_webtransport(...)``, and then the program closes it.

    ``url`` begins with ``https:``. ``origin`` and ``headers`` are said in the request, and ``protocols``
    are the application protocols offered, the preferred one first. ``server_certificate_hashes`` are
    SHA-256 hashes of certificates in DER, as browsers take them: the server has to show one of these,
    whoever signed it. ``timeout`` is how many seconds it may all take.

    Raises :class:`WebTransportRefused` when the server does not want the session,
    :class:`WebTransportError` when it does not speak WebTransport, ``TimeoutError``, ``ValueError`` for
    a URL or a header that cannot be, and what :func:`uringcore.quic.connect` raises.
    """
    config = ClientConfig() if config is None else config
    changes: dict[str, object] = {"alpn": ["h3"], "datagrams": True}
    if server_certificate_hashes is not None:
        changes["certificate_hashes"] = tuple(server_certificate_hashes)
    config = dataclasses.replace(config, **changes)  # type: ignore[arg-type]
    if isinstance(protocols, str | bytes):
        raise ValueError("protocols: must be a list of strings")
    host, port, asked = _read(url, as_headers(headers), origin, tuple(protocols))
    target = _Target((host, port), config, asked, timeout, happy_eyeballs_delay)
    return Connecting(target.connect)


def _read(
    url: str, headers: list[tuple[bytes, bytes]], origin: str | None, protocols: tuple[str, ...]
) -> tuple[str, int, Asked]:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError(f"url: must begin with https:// and a host, not {url!r}")
    if "#" in url or parts.username is not None:
        raise ValueError("url: has neither a fragment nor a user")
    host, port = parts.hostname, parts.port or 443
    named = f"[{host}]" if ":" in host else host
    authority = named if port == 443 else f"{named}:{port}"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii() or any(c <= " " for c in path):
        raise ValueError(f"url: the path has to be percent-encoded, not {path!r}")
    if origin is not None:
        headers = [*headers, (b"origin", origin.encode("ascii"))]
    return host, port, Asked(path, authority, origin, headers, protocols)


class _Life(Life):
    """The connection that the session is on."""

    def __init__(self, quic: QuicConnection, config: ClientConfig) -> None:
        super().__init__(quic, close_timeout=config.close_timeout)
        self.session: SessionLink | None = None
        self._farewell: asyncio.Task[None] | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self.client = WebTransportClient(
            quic,
            self.loop,
            session_limits(config),
            on_due=self._something_waits,
            transmit=self.transmit if self._flushes else None,
        )

    def ask(self, asked: Asked) -> SessionLink:
        """Asks for the session; ``answered`` is set by what comes of it."""
        core = self.client.connect(
            asked.authority, asked.path, list(asked.headers), list(asked.protocols)
        )
        self.session = SessionLink(
            core,
            self.quic,
            asked,
            close_timeout=self.close_timeout,
            on_change=self._session_changed,
            wait_gone=self.wait_closed,
        )
        return self.session

    def _something_waits(self) -> None:
        if not self.loop.is_closed():
            self._ticking = self.loop.call_later(1.0, self._tick)

    def _tick(self) -> None:
        if self.client.tick():
            self._something_waits()

    def _session_changed(self, session: SessionLink) -> None:
        if self._farewell is None and not self.loop.is_closed():
            self._farewell = self.loop.create_task(self._close_after(session))

    async def _close_after(self, session: SessionLink) -> None:
        """Closing drops what is queued, and our last word may be."""
        await session.wait_released()
        self.close(H3_NO_ERROR, "")

    def _over(self, make_error: Callable[[], QuicError], is_orderly: bool) -> None:
        self.client.closed()
        if self._ticking is not None:
            self._ticking.cancel()
        if self.session is not None:
            self.session.connection_lost(make_error)


class Connecting(Making[WebTransportSession]):
    """What :func:`connect_webtransport` returns: nothing happens before it is awaited or entered."""


@dataclasses.dataclass(frozen=True)
class _Target:
    """Whom to ask for which session, and how."""

    address: tuple[str, int]
    config: ClientConfig
    asked: Asked
    timeout: float | None
    delay: float | None

    async def connect(self) -> WebTransportSession:
        made_at = where(asyncio.get_running_loop())
        try:
            return await asyncio.wait_for(self._open(made_at), self.timeout)
        except asyncio.TimeoutError:
            # Another class than the built-in one before CPython 3.11.
            raise TimeoutError(f"no session within {self.timeout} seconds") from None

    async def _open(self, made_at: str) -> WebTransportSession:
        life = await self._reach()
        try:
            link = life.ask(self.asked)
            link.made_at = made_at
            await link.answered
        except BaseException:
            life.close(H3_REQUEST_CANCELLED, "")
            raise
        return WebTransportSession(link)

    async def _reach(self) -> _Life:
        loop = asyncio.get_running_loop()
        configuration = dataclasses.replace(self.config._configuration, reset_stream_at=True)
        if configuration.server_name is None:
            configuration = configuration._named(self.address[0])
        lives: dict[int, _Life] = {}

        def prepare(quic: QuicConnection) -> None:
            # Before it begins, so that not even the first packets' streams become events.
            lives[id(quic)] = _Life(quic, self.config)

        def of(quic: QuicConnection) -> _Life:
            return lives[id(quic)]

        life: _Life
        _, life = await connect_first(
            loop,
            of,
            interleaved(await resolve(loop, self.address)),
            configuration=configuration,
            prepare=prepare,
            happy_eyeballs_delay=self.delay,
        )
        return life


# RFC 9114 section 8.1.
H3_NO_ERROR, H3_REQUEST_CANCELLED = 0x100, 0x10C
