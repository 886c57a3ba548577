"""The client's side of one HTTP/3 connection: sends requests, and passes events to the exchange of their
stream.

A malformed response ends its request (RFC 9114 section 4.1.2); a connection error of section 8.1 ends the
connection (:mod:`uringcore.h3`). Not here: the choice of a connection (``_client``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from uringcore.asyncio.protocol import QuicConnectionProtocol
from uringcore.h3.connection import ErrorCode, H3Connection, Setting
from uringcore.h3.events import (
    DataReceived,
    GoAwayReceived,
    H3Event,
    HeadersReceived,
    MessageAborted,
)
from uringcore.h3.exceptions import GoingAwayError
from uringcore.http3._errors import (
    ConnectionLostError,
    InvalidRequestError,
    MalformedResponseError,
    RequestFailedError,
    RequestNotProcessedError,
    RequestResetError,
    WriteTimeoutError,
)
from uringcore.http3._exchange import Exchange, InterimHandler, Response, end_upload
from uringcore.http3._request import Request
from uringcore.http3._timeouts_and_limits import Timeouts
from uringcore.quic._errors import QuicConnectionError, error_from_event
from uringcore.quic.events import (
    ConnectionTerminated,
    HandshakeCompleted,
    ProtocolNegotiated,
    QuicEvent,
    StopSendingReceived,
    StreamReset,
)

__all__ = ["HTTP3ClientProtocol"]


class HTTP3ClientProtocol(QuicConnectionProtocol):
    """The protocol of one HTTP/3 connection on the client's side."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._http: H3Connection | None = None
        self._exchanges: dict[int, Exchange] = {}
        self._going_away = False
        self._settled = asyncio.Event()
        self.lost: QuicConnectionError | None = None
        """The exception that ended the connection."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the handshake is complete, when the server sends GOAWAY, and when the connection
        ends."""

    @property
    def is_established(self) -> bool:
        """True if the handshake is complete: data sent from now on is no 0-RTT data."""
        return self._connected or self._quic.is_established

    @property
    def takes_requests(self) -> bool:
        """True if the connection is open and the server has not sent GOAWAY."""
        return self._http is not None and self.lost is None and not self._going_away

    def begin(self) -> None:
        """Begins HTTP/3 on the connection, once. Before the handshake is complete, data sent is 0-RTT
        data."""
        if self._http is None:
            self._http = H3Connection(
                self._quic,
                max_push_id=None,
                close_on_malformed=False,
                enable_connect_protocol=False,
            )

    def quic_event_received(self, event: QuicEvent) -> None:
        """Called for every QUIC event of the connection."""
        if isinstance(event, ProtocolNegotiated):
            self.begin()
            self.transmit()
        elif isinstance(event, HandshakeCompleted):
            self.on_change()
        elif isinstance(event, ConnectionTerminated):
            self._connection_lost(error_from_event(event))
        elif self._http is not None:
            for http_event in self._http.handle_event(event):
                self._http_event_received(http_event)
            if not self._settled.is_set() and self._http.received_settings is not None:
                self._settled.set()
            if isinstance(event, StreamReset) and event.stream_id in self._exchanges:
                self._exchanges[event.stream_id].handle_error(RequestResetError(event.error_code))
            elif isinstance(event, StopSendingReceived) and event.stream_id in self._exchanges:
                self._exchanges[event.stream_id].handle_stop(event.error_code)

    def _http_event_received(self, event: H3Event) -> None:
        if isinstance(event, DataReceived):
            exchange = self._exchanges.get(event.stream_id)
            if exchange is not None:
                exchange.handle_data(event.data, ended=event.stream_ended)
        elif isinstance(event, HeadersReceived):
            exchange = self._exchanges.get(event.stream_id)
            if exchange is not None:
                exchange.handle_headers(event.headers, ended=event.stream_ended)
        elif isinstance(event, MessageAborted):
            exchange = self._exchanges.get(event.stream_id)
            if exchange is not None:
                exchange.handle_error(MalformedResponseError(event.error_code))
        elif isinstance(event, GoAwayReceived):
            self._going_away = True
            for exchange in self._exchanges.values():
                if exchange.stream_id >= event.stream_id:
                    exchange.handle_error(RequestNotProcessedError())
            self.on_change()

    def _connection_lost(self, error: QuicConnectionError) -> None:
        self.lost = error
        self._settled.set()
        for exchange in self._exchanges.values():
            exchange.handle_error(ConnectionLostError.by(error))
        self.on_change()

    # Requests

    async def fetch(
        self,
        request: Request,
        timeouts: Timeouts,
        on_interim: InterimHandler | None = None,
    ) -> Response:
        """Sends a request and waits for its response's header section; the body follows both ways.

        Raises an :class:`~uringcore.http3.HTTP3Error`, or an exception of the request's body.
        """
        exchange = self.open(request, on_interim)
        upload = None
        if not exchange.request_ended:
            upload = asyncio.ensure_future(self._send_body(exchange, request, timeouts.write))
        try:
            await exchange.wait_headers(timeouts.read)
            return Response(exchange, timeouts, upload)
        except BaseException:
            try:
                await end_upload(upload)
            finally:
                self.finish(exchange)
            raise

    def open(self, request: Request, on_interim: InterimHandler | None = None) -> Exchange:
        """Sends a request's header section on a new stream, which :meth:`finish` releases."""
        if self.lost is not None:
            raise ConnectionLostError.by(self.lost, unsent=True)
        if self._http is None:
            raise RequestFailedError("the connection is not established")
        if self._going_away:
            raise RequestNotProcessedError
        stream_id = self._quic.get_next_available_stream_id()
        end_stream = request.content is None
        try:
            self._http.send_headers(stream_id, request.fields, end_stream)
        except GoingAwayError as exc:
            raise RequestNotProcessedError from exc
        except ValueError as exc:
            raise InvalidRequestError(str(exc)) from exc
        exchange = Exchange(self, stream_id, on_interim, was_early=not self.is_established)
        exchange.request_ended = end_stream
        self._exchanges[stream_id] = exchange
        self.transmit()
        return exchange

    async def offers_extended_connect(self) -> bool:
        """True if the server's SETTINGS allow requests with ``:protocol`` (RFC 9220)."""
        await self._settled.wait()
        if self.lost is not None:
            raise ConnectionLostError.by(self.lost, unsent=True)
        assert self._http is not None
        return (self._http.received_settings or {}).get(Setting.ENABLE_CONNECT_PROTOCOL) == 1

    async def _send_body(self, exchange: Exchange, request: Request, timeout: float | None) -> None:
        """Sends a body as fast as flow control allows, until the server stops it.

        An exception ends the exchange, and is raised where the program waits for the response.
        """
        try:
            await self._send_parts(exchange, request, timeout)
        except Exception as exc:  # noqa: BLE001 - a body may be any program's iterator
            exchange.handle_error(exc)

    async def _send_parts(
        self, exchange: Exchange, request: Request, timeout: float | None
    ) -> None:
        async with contextlib.aclosing(request.parts()) as parts:
            async for part in parts:
                if exchange.request_stopped or exchange.failed:
                    break
                try:
                    await self.send(exchange, part, timeout=timeout)
                except ConnectionResetError:
                    # The server has stopped the stream, or the connection has ended. The event that follows
                    # ends the exchange.
                    return
        if exchange.failed or exchange.request_ended:
            return
        exchange.handle_request_ended()
        if not exchange.request_stopped:
            await self.send(exchange, b"", timeout=None, end_stream=True)

    async def send(
        self, exchange: Exchange, data: bytes, *, timeout: float | None, end_stream: bool = False
    ) -> None:
        """Sends a part of a request's content, and waits until the send buffer has room.

        Raises ``ConnectionResetError`` when the server has stopped the stream, or the connection is lost.
        """
        assert self._http is not None
        if exchange.request_stopped:
            raise ConnectionResetError("the server has stopped the request body")
        self._http.send_data(exchange.stream_id, data, end_stream)
        self.transmit()
        if not end_stream:
            await self._wait_sent(exchange.stream_id, timeout)

    async def _wait_sent(self, stream_id: int, timeout: float | None) -> None:
        """Waits until the send buffer has room. Raises if it does not shrink for ``timeout`` seconds."""
        quic = self._quic
        if timeout is None or not self._is_stream_full(stream_id):
            await self.drain(stream_id)
            return
        drained = asyncio.ensure_future(self.drain(stream_id))
        # If the wait is cancelled, nothing reads the exception of `drained`, and the loop would report it. So
        # it is read here.
        drained.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            while not drained.done():
                before = quic.get_send_buffer_size(stream_id)
                await asyncio.wait([drained], timeout=timeout)
                if not drained.done() and quic.get_send_buffer_size(stream_id) >= before:
                    raise WriteTimeoutError(f"the server has accepted no data for {timeout:g} s")
            drained.result()
        finally:
            drained.cancel()

    def finish(self, exchange: Exchange) -> None:
        """Releases an exchange, complete or not."""
        del self._exchanges[exchange.stream_id]
        exchange.handle_error(RuntimeError("the response was closed before its end was read"))
        complete = exchange.ended and exchange.request_ended
        if self._http is not None and self.lost is None and not complete:
            try:
                self._http.cancel_request(exchange.stream_id, ErrorCode.H3_REQUEST_CANCELLED)
            except (ConnectionResetError, ValueError):
                return  # QUIC has released the stream already
            self.transmit()

    def pause_stream(self, stream_id: int) -> None:
        """Stops reading a stream."""
        self._quic.pause_stream(stream_id)

    def resume_stream(self, stream_id: int) -> None:
        """Reads a paused stream again."""
        if self.lost is None:
            self._quic.resume_stream(stream_id)
            self.transmit()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See :meth:`Response.get_extra_info <uringcore.http3.Response.get_extra_info>`."""
        if name == "peername":
            return self._quic.get_peer_address() or default
        if name == "peer_certificates":
            return self._quic.get_peer_certificates()
        if name == "stats":
            return self.stats()
        if name == "session_resumed":
            return self._quic.tls.session_resumed
        return default if self._transport is None else self._transport.get_extra_info(name, default)
