"""``AsyncHTTP3Transport``: sends httpx's requests over HTTP/3 or TCP.

HTTP/3 is implemented by :class:`uringcore.http3.Client`, TCP by another httpx transport. This module chooses
between them, and converts httpx's objects.

A request is first tried over HTTP/3, if an alternative is known, and never over both at a time. It is tried
over TCP afterwards only if no byte of it was sent, or if it may be repeated.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

from uringcore.contrib.httpx._errors import mapped
from uringcore.contrib.httpx._httpx_modules import (
    LIBRARIES,
    AsyncBaseTransport,
    AsyncByteStream,
    library_of,
)
from uringcore.contrib.httpx._trusted_authorities import quic_configuration, tls_context
from uringcore.http3 import (
    AlternativeCache,
    Client,
    ConnectError,
    ConnectTimeoutError,
    HTTP3Error,
    InvalidRequestError,
    Limits,
    PoolTimeoutError,
    Response,
    Timeouts,
    URLError,
)
from uringcore.http3._alt_svc import Alternative
from uringcore.http3._request import Request
from uringcore.http3._resumption_cache import Route
from uringcore.http3._url import Origin
from uringcore.quic._errors import QuicIdleTimeoutError
from uringcore.quic.configuration import QuicConfiguration

if TYPE_CHECKING:
    import httpx

__all__ = ["AsyncHTTP3Transport"]

MISDIRECTED = 421

# Defaults: the maximum number of connections of HTTP/3, and of TCP; the seconds for which an idle one is
# kept.
MOST, KEPT_SECONDS = 100, 5.0


class AsyncHTTP3Transport(AsyncBaseTransport):
    """A transport for ``AsyncClient`` of httpx and of httpx2 that uses HTTP/3, on any asyncio loop.

    ``http3`` chooses the requests. ``"alt-svc"``: those to origins with a valid ``Alt-Svc`` field (RFC 7838).
    Such a request waits for a connection for ``fallback_delay`` seconds at most, 0.25 by default, before it
    goes over TCP, through httpx's own transport; an alternative that does not answer is not tried for a
    minute, then for two, and so on up to a day. ``"always"``: every request, and only ``https`` URLs.

    ``verify`` (an SSL context, a path of authorities, or a bool), ``cert`` and ``trust_env`` are httpx's, for
    both sides. An SSL context of truststore trusts the system's authorities and the authorities loaded into
    it, over QUIC as well. Without ``verify`` httpx trusts certifi's authorities and httpx2 the system's;
    where both are installed, the library of the first request decides. ``http1``, ``http2`` and ``limits``
    are httpx's as well; limits count the connections of each side by itself. ``tcp`` is a transport to use
    for TCP instead of one that is made; ``configuration`` sets everything about QUIC, trust included.
    ``alternatives`` stores ``Alt-Svc`` fields, and several transports may share it.

    Time-outs of requests apply to each phase, and errors are httpx's. Responses have the extensions
    ``http_version`` (``b"HTTP/3"``), ``stream_id`` and ``network_stream``, whose ``get_extra_info`` has
    ``server_addr``, ``client_addr`` and ``stats``. Requests may have ``sni_hostname``, ``target`` and
    ``trace``, as in httpcore, and ``on_interim``, which is called with the status and header fields of each
    interim response over HTTP/3. httpx's proxies work over TCP only, and are refused.

    Raises ``ValueError`` for a ``proxy``, a ``tcp`` that has one, and an SSL context in ``verify`` whose
    authorities cannot be read from it, and ``OSError`` for files of authorities that cannot be read.
    """

    def __init__(
        self,
        verify: ssl.SSLContext | str | bool = True,
        cert: Any = None,
        trust_env: bool = True,
        *,
        http3: Literal["alt-svc", "always"] = "alt-svc",
        http1: bool = True,
        http2: bool = False,
        limits: httpx.Limits | None = None,
        tcp: AsyncBaseTransport | None = None,
        configuration: QuicConfiguration | None = None,
        alternatives: AlternativeCache | None = None,
        fallback_delay: float = 0.25,
        early_data: bool = True,
        proxy: Any = None,
    ) -> None:
        if http3 not in ("alt-svc", "always"):
            raise ValueError(f"http3: {http3!r} is neither 'alt-svc' nor 'always'")
        if proxy is not None or _has_proxy(tcp):
            raise ValueError("proxy: HTTP/3 goes to the server itself, not through a proxy")
        self._tcp_options: dict[str, Any] = {"http1": http1, "http2": http2}
        self._limits = limits
        self._given_configuration = configuration
        self._early_data = early_data
        self._always = http3 == "always"
        self._fallback_delay = fallback_delay
        self._given_tcp = tcp
        # A transport over TCP for each library. If the program passes one, both libraries use that.
        self._tcp: dict[Any, AsyncBaseTransport] = {}
        self._context: ssl.SSLContext | None = None
        self._configuration = configuration
        self._client: Client | None = None
        is_the_same = verify is not True or cert is not None
        # The trusted authorities are read here, because reading them may fail and blocks.
        self._trust = {
            library: self._read_trust(library, verify, cert, trust_env)
            for library in (LIBRARIES[:1] if is_the_same else LIBRARIES)
        }
        if len(self._trust) == 1:
            self._begin(LIBRARIES[0])
        self.alternatives: AlternativeCache = (
            AlternativeCache() if alternatives is None else alternatives
        )
        """The alternatives that ``Alt-Svc`` fields have named."""

    def _read_trust(
        self, library: Any, verify: Any, cert: Any, trust_env: bool
    ) -> tuple[ssl.SSLContext | None, QuicConfiguration]:
        """Returns the SSL context for TCP and QUIC's configuration."""
        configuration = self._given_configuration
        if configuration is not None and not self._makes_tcp:
            return None, configuration
        context = tls_context(library, verify, cert, trust_env)
        if configuration is None:
            configuration = quic_configuration(library, context, verify, cert, trust_env)
        return context, configuration

    @property
    def _makes_tcp(self) -> bool:
        return self._given_tcp is None and not self._always

    def _begin(self, library: Any) -> Client:
        """Makes the transports for HTTP/3 and for TCP. If the program has named no authorities, they trust
        those of ``library``."""
        self._context, self._configuration = self._trust[library]
        self._trust.clear()
        if self._makes_tcp:
            self._tcp_of(library)
        self._client = Client(
            configuration=self._configuration,
            limits=_limits(self._limits),
            early_data=self._early_data,
        )
        return self._client

    def _tcp_of(self, library: Any) -> AsyncBaseTransport:
        if self._given_tcp is not None:
            return self._given_tcp
        tcp: AsyncBaseTransport | None = self._tcp.get(library)
        if tcp is None:
            limits = self._limits
            if limits is None:
                limits = library.Limits(max_connections=MOST, keepalive_expiry=KEPT_SECONDS)
            tcp = library.AsyncHTTPTransport(
                verify=self._context, limits=limits, **self._tcp_options
            )
            self._tcp[library] = tcp
        return tcp

    @property
    def _trusts_other_hosts(self) -> bool:
        # Without verified certificates, an alternative service is used only on the origin's own host (RFC
        # 7838 section 2.1).
        assert self._configuration is not None
        return self._configuration.verify_mode != ssl.CERT_NONE

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Called by httpx for each request."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError("AsyncHTTP3Transport runs on asyncio's loops only") from None
        if self._client is None:
            self._begin(library_of(request))
        if request.url.scheme != "https":
            return await self._over_plain_tcp(request)
        origin = _origin(request)
        if self._always:
            with mapped(request):
                asked = _converted(request, origin)
                route = Route(origin, _host(request.url), origin.port)
                return await self._over_http3(request, asked, route)
        alternative = self._choose(origin)
        if alternative is not None:
            with mapped(request):
                response = await self._over_alternative(request, origin, alternative)
            if response is not None:
                return response
        return await self._over_tcp(request, origin)

    async def aclose(self) -> None:
        """Closes all connections."""
        try:
            if self._client is not None:
                await self._client.aclose()
        finally:
            given = [] if self._given_tcp is None else [self._given_tcp]
            for tcp in [*given, *self._tcp.values()]:
                await tcp.aclose()

    # Requests over each protocol

    async def _over_plain_tcp(self, request: httpx.Request) -> httpx.Response:
        library = library_of(request)
        if self._always:
            text = f"{request.url}: HTTP/3 needs an https:// URL"
            unsupported: httpx.UnsupportedProtocol = library.UnsupportedProtocol(
                text, request=request
            )
            raise unsupported
        return await self._tcp_of(library).handle_async_request(request)

    async def _over_tcp(self, request: httpx.Request, origin: Origin) -> httpx.Response:
        response = await self._tcp_of(library_of(request)).handle_async_request(request)
        self._learn(origin, response)
        return response

    async def _over_alternative(
        self, request: httpx.Request, origin: Origin, alternative: Alternative
    ) -> httpx.Response | None:
        """Returns the response, or ``None`` if TCP may and should be used instead."""
        asked = _converted(request, origin)
        asked.fields.append((b"alt-used", alternative.authority.encode("ascii")))
        route = Route(origin, alternative.host, alternative.port)
        try:
            response = await self._over_http3(
                request, asked, route, patience=self._fallback_delay, repeat=False
            )
        except HTTP3Error as exc:
            silent = isinstance(exc.__cause__, QuicIdleTimeoutError)
            if isinstance(exc, (ConnectError, ConnectTimeoutError)) or silent:
                self.alternatives.broke(origin, alternative)
            if isinstance(exc, PoolTimeoutError) or not asked.may_repeat(exc):
                raise
            return None
        self.alternatives.record_success(origin, alternative)
        if response.status_code == MISDIRECTED:
            # The status 421 means that the alternative does not serve the origin (RFC 7838 section 6).
            self.alternatives.forget(origin, alternative)
            if asked.is_whole:
                await response.aclose()
                return None
        self._learn(origin, response)
        return response

    async def _over_http3(
        self,
        request: httpx.Request,
        asked: Request,
        route: Route,
        *,
        patience: float | None = None,
        repeat: bool = True,
    ) -> httpx.Response:
        assert self._client is not None
        trace = _Trace(request)
        await trace.report("started", {"request": request})
        try:
            response = await self._client._send(
                asked,
                route=route,
                on_interim=request.extensions.get("on_interim"),
                timeouts=_timeouts(request),
                patience=patience,
                repeat=repeat,
            )
        except HTTP3Error as exc:
            await trace.report("failed", {"exception": exc})
            raise
        try:
            await trace.report("complete", {"return_value": (response.status, response.headers)})
        except BaseException:
            await response.aclose()
            raise
        answer: httpx.Response = library_of(request).Response(
            response.status,
            headers=response.headers,
            stream=_Body(response, request),
            extensions={
                "http_version": b"HTTP/3",
                "network_stream": _NetworkStream(response),
                "stream_id": response.stream_id,
            },
        )
        return answer

    # Alternatives

    def _choose(self, origin: Origin) -> Alternative | None:
        """Returns the connected alternative, otherwise the first that is not known to be broken."""
        assert self._client is not None
        found = [
            one
            for one in self.alternatives.find(origin)
            if self._trusts_other_hosts or one.host == origin.host
        ]
        for alternative in found:
            if self._client._is_connected(Route(origin, alternative.host, alternative.port)):
                return alternative
        for alternative in found:
            if not self.alternatives.is_broken(origin, alternative):
                return alternative
        return None

    def _learn(self, origin: Origin, response: httpx.Response) -> None:
        fields = response.headers.get_list("alt-svc")
        # A 421 may come from a server other than the origin's, so its Alt-Svc field is ignored (RFC 7838
        # section 6).
        if fields and response.status_code != MISDIRECTED:
            age = response.headers.get("age", "")
            seconds = float(age) if age.isdecimal() else 0.0
            self.alternatives.learn(origin, ", ".join(fields), age=seconds)


class _Body(AsyncByteStream):
    """A response's body."""

    def __init__(self, response: Response, request: httpx.Request) -> None:
        self._response = response
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with mapped(self._request):
            async for part in self._response.iter_bytes():
                yield part

    async def aclose(self) -> None:
        await self._response.aclose()


class _NetworkStream:
    """httpcore's extension ``network_stream``: information about the connection. It cannot send or
    receive."""

    _NAMES = {"server_addr": "peername", "client_addr": "sockname"}  # noqa: RUF012 - never changed

    def __init__(self, response: Response) -> None:
        self._response = response

    def get_extra_info(self, info: str) -> Any:
        """``server_addr``, ``client_addr``, ``peer_certificates``, ``session_resumed``, ``stats``."""
        return self._response.get_extra_info(self._NAMES.get(info, info))


class _Trace:
    """httpcore's ``trace`` extension."""

    def __init__(self, request: httpx.Request) -> None:
        self._function: Callable[[str, dict[str, Any]], Awaitable[None]] | None = (
            request.extensions.get("trace")
        )

    async def report(self, what: str, info: dict[str, Any]) -> None:
        if self._function is not None:
            await self._function(f"http3.handle_request.{what}", info)


def _host(url: httpx.URL) -> str:
    return url.raw_host.decode("ascii").strip("[]")


def _origin(request: httpx.Request) -> Origin:
    """The origin whose certificate is needed: the URL's host, or httpcore's ``sni_hostname``."""
    url = request.url
    host = request.extensions.get("sni_hostname") or _host(url)
    port = 443 if url.port is None else url.port
    return Origin(host, port, url.netloc.decode("ascii"))


def _converted(request: httpx.Request, origin: Origin) -> Request:
    if origin.port == 0:
        raise URLError(f"{str(request.url)!r}: the port must be from 1 to 65535")
    stream: Any = request.stream
    if isinstance(stream, library_of(request).ByteStream):
        # The parts are joined, because bytes can be sent again in a second try.
        stream = b"".join(stream) or None
    path = _text(request.extensions.get("target", request.url.raw_path))
    return Request(request.method, origin, path, request.headers.raw, stream)


def _text(target: bytes) -> str:
    """Decodes the request target that httpcore's extension ``target`` sets, which is sent unchanged."""
    try:
        return target.decode("ascii")
    except UnicodeDecodeError:
        raise InvalidRequestError(f"target: {target!r} is not ASCII") from None


def _timeouts(request: httpx.Request) -> Timeouts:
    given = request.extensions.get("timeout", {})
    return Timeouts(*(given.get(phase) for phase in ("connect", "read", "write", "pool")))


def _limits(limits: httpx.Limits | None) -> Limits:
    most = MOST if limits is None else limits.max_connections
    kept = KEPT_SECONDS if limits is None else limits.keepalive_expiry
    return Limits(
        connections=sys.maxsize if most is None else most,
        idle_timeout=86400.0 if kept is None else kept,
    )


def _has_proxy(tcp: AsyncBaseTransport | None) -> bool:
    """True if ``tcp`` uses a proxy, which HTTP/3 requests would bypass."""
    pool = getattr(tcp, "_pool", None)
    return type(pool).__name__ in ("AsyncHTTPProxy", "AsyncSOCKSProxy")
