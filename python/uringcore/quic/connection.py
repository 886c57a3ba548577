"""One QUIC connection: commands in, events out, with aioquic's API.

The same class serves in two ways. On a loop (``uringcore.asyncio.connect`` and ``serve``, or
``loop.create_quic_endpoint``) the loop handles packets and timers, and events go to the protocol. Without a
loop the caller passes datagrams and the time in, and gets datagrams and events out::

    client = QuicConnection(configuration=configuration)
    client.connect(("192.0.2.1", 4433), now=0.0)
    for data, address in client.datagrams_to_send(now=0.0):
        ...

Everything that is called often is in Rust; this module has the parts that run once a connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

from uringcore._uringcore import QuicClientSetup, QuicConnectionCore, QuicEndpoint, QuicServerSetup
from uringcore.buffer import UINT_VAR_MAX, UINT_VAR_MAX_SIZE
from uringcore.quic import events
from uringcore.quic._aioquic_client_hello_hook import HelloHook, destination_of
from uringcore.quic._aioquic_private_names import (
    END_STATES,
    PrivateNames,
    QuicConnectionId,
    QuicConnectionState,
)
from uringcore.quic._aioquic_private_tables import NetworkPath, Stream, StreamCodes, Streams
from uringcore.quic._aioquic_qlog import QuicLoggerTrace
from uringcore.quic._errors import (
    QuicAlpnError,
    QuicCertificateError,
    QuicConnectionError,
    QuicConnectionRefusedError,
    QuicIdleTimeoutError,
    QuicTlsError,
)
from uringcore.quic._handshake_results import HandshakeView
from uringcore.quic._host_argument_checks import server_name_of
from uringcore.quic._non_ip_peer_addresses import PeerNames
from uringcore.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration
from uringcore.quic.packet import (
    CONNECTION_ID_MAX_SIZE,
    NON_ACK_ELICITING_FRAME_TYPES,
    PROBING_FRAME_TYPES,
    RETRY_INTEGRITY_TAG_SIZE,
    STATELESS_RESET_TOKEN_SIZE,
    QuicErrorCode,
    QuicProtocolVersion,
    pull_quic_header,
)
from uringcore.quic.sessions import _TicketCallbacks

if TYPE_CHECKING:
    _LoggerAdapter = logging.LoggerAdapter[logging.Logger]
else:
    _LoggerAdapter = logging.LoggerAdapter

__all__ = [
    "CONNECTION_ID_MAX_SIZE",
    "END_STATES",
    "NON_ACK_ELICITING_FRAME_TYPES",
    "PROBING_FRAME_TYPES",
    "RETRY_INTEGRITY_TAG_SIZE",
    "SMALLEST_MAX_DATAGRAM_SIZE",
    "STATELESS_RESET_TOKEN_SIZE",
    "UDP_HEADER_SIZE",
    "UINT_VAR_MAX",
    "UINT_VAR_MAX_SIZE",
    "NetworkAddress",
    "QuicAlpnError",
    "QuicCertificateError",
    "QuicConnection",
    "QuicConnectionAdapter",
    "QuicConnectionError",
    "QuicConnectionId",
    "QuicConnectionRefusedError",
    "QuicConnectionState",
    "QuicErrorCode",
    "QuicIdleTimeoutError",
    "QuicTlsError",
    "QuicTokenHandler",
    "dump_cid",
    "is_version_compatible",
    "logger",
    "pull_quic_header",
    "stream_is_client_initiated",
    "stream_is_unidirectional",
]

logger: logging.Logger = logging.getLogger("quic")
"aioquic's logger. uringcore logs little here; programs log through a connection's ``_logger``."

UDP_HEADER_SIZE = 8
"Bytes of a UDP header, which ``max_datagram_size`` does not count."

NetworkAddress = Any
QuicTokenHandler = Callable[[bytes], None]


class _HttpConnection(Protocol):
    """An HTTP/3 object on top of a connection. It is notified if the program resets or stops a stream in
    QUIC."""

    def _given_up(self, stream_id: int, reset: bool) -> None: ...


class QuicConnectionAdapter(_LoggerAdapter):
    """Adds the connection's ID to log messages."""

    def process(
        self, msg: str, kwargs: MutableMapping[str, Any]
    ) -> tuple[str, MutableMapping[str, Any]]:
        """Returns the log message with the connection's ID in brackets before it."""
        extra = self.extra or {}
        return f"[{extra.get('id')}] {msg}", kwargs


def dump_cid(cid: bytes) -> str:
    """Returns a connection id in hexadecimal."""
    return cid.hex()


def is_version_compatible(from_version: int, to_version: int) -> bool:
    """True if a handshake begun in one version can continue in the other (RFC 9369 section 4)."""
    both = {QuicProtocolVersion.VERSION_1, QuicProtocolVersion.VERSION_2}
    return from_version != to_version and {from_version, to_version} == both


def stream_is_client_initiated(stream_id: int) -> bool:
    """True if the client opened the stream (RFC 9000 section 2.1)."""
    return not stream_id & 1


def stream_is_unidirectional(stream_id: int) -> bool:
    """True if only one side sends on the stream (RFC 9000 section 2.1)."""
    return bool(stream_id & 2)


# Methods of the core that are called for each datagram. They are stored here, because `super()` would search
# the base classes at each call.
_receive_datagram = QuicConnectionCore.receive_datagram
_datagrams_to_send = QuicConnectionCore.datagrams_to_send
_next_event = QuicConnectionCore.next_event
_get_timer = QuicConnectionCore.get_timer
_handle_timer = QuicConnectionCore.handle_timer


class QuicConnection(PrivateNames, QuicConnectionCore):
    """A QUIC connection.

    aioquic's servers pass in the id of the original packet, which is ignored here, and the id of a Retry,
    which is refused: the endpoint does address validation.
    """

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
        original_destination_connection_id: bytes | None = None,
        retry_source_connection_id: bytes | None = None,
        session_ticket_fetcher: Any = None,
        session_ticket_handler: Any = None,
        token_handler: Any = None,
    ) -> None:
        super().__init__()
        if retry_source_connection_id is not None:
            raise ValueError("retry_source_connection_id: Retry is done by the endpoint")
        self._configuration = configuration
        self._is_client = configuration.is_client
        self._attached: QuicEndpoint | None = None
        self._named_host_cid: bytes | None = None
        self._completed: events.HandshakeCompleted | None = None
        self._quic_logger: QuicLoggerTrace | None = None
        self._trace_is_due = False
        self._trace_is_over = False
        self._log_adapter: QuicConnectionAdapter | None = None
        self._http: weakref.ref[_HttpConnection] | None = None
        self._handle_hello: Callable[..., object] | None = None
        self._hello_hook: HelloHook | None = None
        self._is_initialized = False
        self._peer_names = PeerNames()
        # True once the handshake has begun: then a datagram needs only the conversion of the peer's address.
        self._takes_datagrams = False
        self._codes = StreamCodes()
        self._ended: events.ConnectionTerminated | None = None
        # True if an endpoint moves the datagrams; False if the program does. An endpoint resolves host names.
        self._is_on_socket = False
        self._set_side(configuration.is_client)
        if configuration.is_client:
            self._set_credential_handlers(session_ticket_handler, token_handler)
        elif token_handler is not None:
            raise ValueError("token_handler: a server gets no tokens")
        self._session_store: _TicketCallbacks | None = None
        if not configuration.is_client and (session_ticket_fetcher or session_ticket_handler):
            self._session_store = _TicketCallbacks(session_ticket_fetcher, session_ticket_handler)

    @property
    def configuration(self) -> QuicConfiguration:
        """The configuration given at the start."""
        return self._configuration

    def connect(self, addr: NetworkAddress, now: float) -> None:
        """Begins the handshake with the server at ``addr``, a ``(host, port)`` tuple. Clients only.

        ``now`` is the time in seconds on any monotonic clock; on a loop it is not used. Without a loop
        ``addr`` may be anything hashable that names the server to the program.

        Raises ``QuicConfigurationError`` for an invalid field, ``ValueError`` for an invalid address or
        server name, ``RuntimeError`` when called twice or on a server.
        """
        if not self._is_client:
            raise RuntimeError("connect() is for clients: the configuration says is_client=False")
        setup = self._configuration.setup()
        assert isinstance(setup, QuicClientSetup)
        name = self._configuration.server_name
        if name is None:
            name = server_name_of(addr[0] if isinstance(addr, tuple) and addr else "")
        if self._attached is None and not self._is_on_socket:
            addr = self._peer_names.begin(addr)
        self._start_client(self._attached, setup, addr, name, now, self._named_host_cid)
        self._is_initialized = True
        self._initialize(self.original_destination_connection_id or b"")
        self._start_trace()

    def _initialize(self, peer_cid: bytes) -> None:
        """Does nothing. It is called once before a connection's first packet, on a client right after
        ``connect``, for programs that replace this method of aioquic's.
        """

    def receive_datagram(self, data: bytes, addr: NetworkAddress, now: float) -> None:
        """Processes one UDP datagram from ``addr``; ``next_event`` and ``datagrams_to_send`` follow.

        Without a loop only: a loop receives for its connections. ``addr`` may be anything hashable that names
        the peer to the program.
        """
        if self._takes_datagrams:
            if addr != self._peer_names.plain:
                addr = self._peer_names.address_of(addr, self._addresses_in_use)
            _receive_datagram(self, data, addr, now)
        else:
            self._take_first(data, addr, now)

    def _take_first(self, data: bytes, addr: NetworkAddress, now: float) -> None:
        if not self._is_client and not self._is_initialized and self._attached is None:
            self._is_initialized = True
            self._initialize(destination_of(data) or b"")
            if self._handle_hello is not None:
                self._hello_hook = HelloHook(self._handle_hello, self._configuration, now)
        if self._hello_hook is None or self._hello_hook.hello is not None:
            self._take_datagram(data, addr, now)
        else:
            self._read_hello(self._hello_hook, data, addr, now)

    def _read_hello(self, hook: HelloHook, data: bytes, addr: NetworkAddress, now: float) -> None:
        trace = self._trace_for(destination_of(data) or b"")
        trigger = hook.feed(data, addr, now)
        if trigger is not None and trace is not None:
            dropped = {"raw": {"length": len(data)}, "trigger": trigger}
            trace.log_event(category="transport", event="packet_dropped", data=dropped)
        if hook.is_contradictory:
            code, reason = QuicErrorCode.PROTOCOL_VIOLATION, "contradictory CRYPTO frames"
            self._end_unbegun(events.ConnectionTerminated(code, 6, reason, kind="local"))
            return
        try:
            kept = hook.take()
        except BaseException:
            code, reason = QuicErrorCode.INTERNAL_ERROR, "the ClientHello was not accepted"
            self._end_unbegun(events.ConnectionTerminated(code, 6, reason, kind="local"))
            raise
        # The hook is compared, because the program may have closed the connection in the meantime.
        if kept is not None and self._hello_hook is hook:
            for datagram in kept:
                self._take_datagram(*datagram)

    def _end_unbegun(self, event: events.ConnectionTerminated) -> None:
        """Ends a server's connection before its handshake began, without a packet to the peer."""
        self._hello_hook = None
        self._abandon()
        self._receive([event])

    def _take_datagram(self, data: bytes, addr: NetworkAddress, now: float) -> None:
        if not self._is_client and self._endpoint is None and not self._is_started:
            setup = self._configuration.setup(session_store=self._session_store)
            assert isinstance(setup, QuicServerSetup)
            hello = None if self._hello_hook is None else self._hello_hook.hello
            self._start_server(setup, self._named_host_cid, hello)
            self._trace_is_due = True
        addr = self._peer_names.address_of(addr, self._addresses_in_use)
        _receive_datagram(self, data, addr, now)
        if not self._is_started:
            return
        self._hello_hook = None
        self._takes_datagrams = True
        if self._trace_is_due:
            self._trace_is_due = False
            self._start_trace()

    def get_timer(self) -> float | None:
        """The time at which to call ``handle_timer``, in the caller's seconds. ``None`` on a loop."""
        timer = _get_timer(self)
        if self._hello_hook is None:
            return timer
        deadline = self._hello_hook.deadline
        return deadline if timer is None else min(timer, deadline)

    def handle_timer(self, now: float) -> None:
        """Handles the timers that have expired at ``now``."""
        if self._hello_hook is not None and now >= self._hello_hook.deadline:
            code, reason = QuicErrorCode.INTERNAL_ERROR, "Idle timeout"
            self._end_unbegun(events.ConnectionTerminated(code, 0, reason, kind="idle_timeout"))
        else:
            _handle_timer(self, now)

    def next_event(self) -> events.QuicEvent | None:
        """Returns the next event, or ``None``. Without a loop only: a loop delivers them to the protocol.

        ``ConnectionTerminated`` comes when nothing more is to be sent or answered, as in aioquic: after a
        close that is three probe time-outs later (RFC 9000 section 10.2), when ``get_timer`` is ``None``.
        Programs stop moving datagrams then, and the peer would not get a close that is still to be sent.
        """
        event: events.QuicEvent | None = _next_event(self)
        if event is None:
            return None if self._ended is None else self._take_end()
        if self._quic_logger is not None:
            self._log(event)
        if type(event) is events.HandshakeCompleted:
            self._completed = event
        elif isinstance(event, events.ConnectionTerminated):
            self._note_close(event, is_pending=self._close_pending)
            self._ended = event
            return self._take_end()
        return event

    def _take_end(self) -> events.ConnectionTerminated | None:
        if self._ended is None or self.get_timer() is not None:
            return None
        event, self._ended = self._ended, None
        return event

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, NetworkAddress]]:
        """Returns the datagrams to send now, as ``(data, address)``. Empty on a loop, which sends
        automatically.
        """
        datagrams = _datagrams_to_send(self, now)
        if self._peer_names.names:
            datagrams = self._peer_names.with_program_names(datagrams)
        self._close_pending = False
        if self._trace_is_over:
            self._end_trace()
        return datagrams

    def close(
        self, error_code: int = 0, frame_type: int | None = None, reason_phrase: str = ""
    ) -> None:
        """Closes the connection: with an application's code, or with ``frame_type`` with the transport's.

        Raises ``ValueError`` for a code or frame type that does not fit in 62 bits.
        """
        super().close(error_code, frame_type, reason_phrase)
        if self._close_event is None and not self.is_closed:
            event = events.ConnectionTerminated(
                int(error_code), frame_type, reason_phrase, kind="local"
            )
            self._note_close(event, is_pending=True)
            if self._hello_hook is not None:
                self._end_unbegun(event)

    def reset_stream(self, stream_id: int, error_code: int) -> None:
        """Abandons our side of a stream (RFC 9000 section 19.4), in HTTP/3 on top as well."""
        super().reset_stream(stream_id, error_code)
        self._codes.note_reset(stream_id, error_code)
        self._note_given_up(stream_id, True)

    def stop_stream(self, stream_id: int, error_code: int) -> None:
        """Requests the peer to stop sending on a stream (RFC 9000 section 19.5), for HTTP/3 on top as
        well.
        """
        super().stop_stream(stream_id, error_code)
        self._codes.note_stop(stream_id, error_code)
        self._note_given_up(stream_id, False)

    def _note_given_up(self, stream_id: int, reset: bool) -> None:
        http = None if self._http is None else self._http()
        if http is not None:
            http._given_up(stream_id, reset)

    @property
    def tls(self) -> HandshakeView:
        """The results of the TLS handshake, in aioquic's form."""
        return HandshakeView(self)

    @property
    def host_cid(self) -> bytes | None:
        """The connection id that this side begins with.

        Without a loop it is known from the start, so that a program can route the peer's packets by it;
        ``ConnectionIdIssued`` announces later ones. On a loop: ``None`` until packets move.
        """
        known = super().host_cid
        if known is not None or self._attached is not None:
            return known
        if self._named_host_cid is None and not self._is_started:
            self._named_host_cid = os.urandom(self._configuration.connection_id_length)
        return self._named_host_cid

    @property
    def _streams(self) -> Streams:
        """aioquic's table of streams, which programs for aioquic read."""
        return Streams(self, self._codes)

    def _get_or_create_stream_for_send(self, stream_id: int) -> Stream:
        """Returns the stream. A new stream of this side is opened. Raises ``ValueError`` if this side cannot
        send on it."""
        if stream_id not in self._streams:
            self.send_stream_data(stream_id, b"")
        elif not self._stream_can_send(stream_id):
            raise ValueError("Cannot send data on peer-initiated unidirectional stream")
        return Stream(self, stream_id, self._codes)

    def get_peer_address(self) -> NetworkAddress:
        """Returns the last address that the peer has proved, or None before the connection began.

        Before a server's client has proved any address, it is the source of its packets, as programs for
        aioquic expect: 0-RTT data without a token has no other address.
        """
        return self._validated_address() or self._packet_address()

    def _validated_address(self) -> NetworkAddress:
        """Returns the last address that the peer has proved (RFC 9000 section 8), or None."""
        return self._peer_names.name_of(super().get_peer_address())

    def _packet_address(self) -> NetworkAddress:
        """Returns the present destination of packets, proved or not; None before the beginning and after the
        end.
        """
        return self._peer_names.name_of(super()._packet_address())

    def _addresses_in_use(self) -> list[Any]:
        return [super().get_peer_address(), super()._packet_address()]

    @property
    def _network_paths(self) -> list[NetworkPath]:
        """Returns aioquic's list of paths: the validated path first, then the path of sent packets if it
        differs.

        aioquic puts the path of sent packets first, and programs use that as the client's address. An
        attacker could choose it, by sending a copy of a packet from another address.
        """
        address, current = self._validated_address(), self._packet_address()
        paths = []
        if address is not None:
            is_validated = self.is_established or not self._is_client
            paths.append(NetworkPath(address, is_validated))
        if current is not None and current != address:
            paths.append(NetworkPath(current, False))
        return paths

    @property
    def _logger(self) -> QuicConnectionAdapter:
        """aioquic's name of the logger that adds the connection's ID to messages."""
        if self._log_adapter is None:
            odcid = self.original_destination_connection_id
            self._log_adapter = QuicConnectionAdapter(logger, {"id": dump_cid(odcid or b"")})
        return self._log_adapter

    def _attach(self, endpoint: QuicEndpoint) -> None:
        """Makes ``connect`` use ``endpoint``, which chooses the connection ids."""
        self._attached = endpoint
        self._named_host_cid = None

    @classmethod
    def _adopt(
        cls, configuration: QuicConfiguration, endpoint: QuicEndpoint, key: int
    ) -> QuicConnection:
        """Wraps a connection that a server's endpoint has just accepted."""
        self = cls(configuration=configuration)
        self._accepted(endpoint, key)
        self._start_trace()
        return self

    def _start_trace(self) -> None:
        trace = self._trace_for(self.original_destination_connection_id or b"")
        if trace is not None:
            configuration = self._configuration
            versions = configuration.supported_versions
            chosen = configuration.original_version or versions[0]
            trace._begin(
                self._packet_log(), versions, chosen, list(configuration.alpn_protocols or [])
            )

    def _trace_for(self, odcid: bytes) -> QuicLoggerTrace | None:
        """Returns the connection's trace, created at the first call; None without a logger."""
        logger = self._configuration.quic_logger
        if self._quic_logger is None and logger is not None:
            self._quic_logger = logger.start_trace(is_client=self._is_client, odcid=odcid)
        return self._quic_logger

    def _log(self, event: events.QuicEvent) -> None:
        trace = self._quic_logger
        if trace is None:
            return
        trace.log_quic_event(event)
        if isinstance(event, events.ConnectionTerminated):
            # The packet with the CONNECTION_CLOSE is not sent yet. The trace is written after that, so that
            # it contains the packet.
            try:
                asyncio.get_running_loop().call_soon(self._end_trace)
            except RuntimeError:
                self._trace_is_over = True

    def _end_trace(self) -> None:
        trace, self._quic_logger = self._quic_logger, None
        logger = self._configuration.quic_logger
        if trace is not None and logger is not None:
            logger.end_trace(trace)

    def _stream_can_send(self, stream_id: int) -> bool:
        ours = stream_is_client_initiated(stream_id) == self._is_client
        return ours or not stream_is_unidirectional(stream_id)

    def _stream_can_receive(self, stream_id: int) -> bool:
        ours = stream_is_client_initiated(stream_id) == self._is_client
        return not ours or not stream_is_unidirectional(stream_id)
