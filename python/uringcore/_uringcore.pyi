"""The Rust core. Private: use the modules of ``uringcore`` that wrap it."""

import asyncio
import contextvars
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, final

from typing_extensions import Buffer as ReadableBuffer
from typing_extensions import Self, disjoint_base

__all__ = [
    "BaseTransport",
    "Buffer",
    "BufferReadError",
    "BufferWriteError",
    "ConnectionIdIssued",
    "ConnectionIdRetired",
    "ConnectionTerminated",
    "ConnectionWritable",
    "DataReceived",
    "DatagramFrameReceived",
    "DatagramReceived",
    "DatagramTransport",
    "DirectReads",
    "FileOperation",
    "GoAwayReceived",
    "H3Connection",
    "H3Event",
    "Handle",
    "HandshakeCompleted",
    "HeadersReceived",
    "LoopCore",
    "MemorySessionStore",
    "MessageAborted",
    "PacketLog",
    "PingAcknowledged",
    "ProtocolNegotiated",
    "PushPromiseReceived",
    "QpackDecoder",
    "QpackEncoder",
    "QuicClientSetup",
    "QuicConnectionCore",
    "QuicEndpoint",
    "QuicEvent",
    "QuicServerSetup",
    "SSLTransport",
    "Spawn",
    "StopSendingReceived",
    "StreamAbandoned",
    "StreamDataReceived",
    "StreamFinished",
    "StreamReset",
    "StreamTransport",
    "StreamWritable",
    "TimerHandle",
    "TlsProtocol",
    "WebTransportStreamDataReceived",
    "__version__",
    "_op_abandon",
    "_op_read",
    "_op_write",
    "_sock_abandon",
    "_sock_accept",
    "_sock_connect",
    "_sock_fill",
    "_sock_hold",
    "_sock_receive",
    "_sock_receive_into",
    "_sock_send_all",
    "_sock_send_to",
    "_sock_take_held",
    "_sock_writable",
    "_watched",
    "file_close",
    "file_describe",
    "file_link",
    "file_mkdir",
    "file_open",
    "file_read",
    "file_rename",
    "file_stat",
    "file_symlink",
    "file_sync",
    "file_truncate",
    "file_unlink",
    "file_write",
    "make_dev_cert",
]
__version__: str

def make_dev_cert(names: list[str], days: int) -> list[bytes]: ...

# Operations that a future waits for (a closed loop or a loop in the kernel: RuntimeError).
def _watched(slf: LoopCore) -> list[tuple[int, bool, Any, Any]]: ...
def _op_read(loop: LoopCore, fd: int, size: int) -> asyncio.Future[bytes]: ...
def _op_write(loop: LoopCore, fd: int, data: ReadableBuffer) -> asyncio.Future[int]: ...
def _op_abandon(loop: LoopCore, future: asyncio.Future[Any]) -> None: ...

# The result, a future of it, or None for what asyncio's own code has to deal with.
def _sock_receive(loop: LoopCore, sock: Any, size: Any) -> Any: ...
def _sock_receive_into(loop: LoopCore, sock: Any, buf: Any) -> Any: ...
def _sock_accept(loop: LoopCore, sock: Any) -> Any: ...
def _sock_send_all(loop: LoopCore, sock: Any, data: Any) -> Any: ...
def _sock_send_to(loop: LoopCore, sock: Any, data: Any, address: Any) -> Any: ...
def _sock_connect(loop: LoopCore, sock: Any, address: Any) -> Any: ...
def _sock_writable(loop: LoopCore, sock: Any) -> Any: ...
def _sock_abandon(loop: LoopCore, sock: Any, future: asyncio.Future[Any]) -> None: ...
def _sock_fill(loop: LoopCore, sock: Any, buf: Any, data: bytes) -> int: ...
def _sock_hold(loop: LoopCore, sock: Any, result: Any) -> None: ...
def _sock_take_held(loop: LoopCore, sock: Any) -> Any: ...

@final
class TimerHandle(Handle):
    @property
    def _when(self) -> float: ...
    def when(self) -> float: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __lt__(self, value: TimerHandle, /) -> bool: ...
    def __le__(self, value: TimerHandle, /) -> bool: ...
    def __gt__(self, value: TimerHandle, /) -> bool: ...
    def __ge__(self, value: TimerHandle, /) -> bool: ...
    def __hash__(self) -> int: ...

@disjoint_base
class Handle:
    @property
    def _callback(self) -> Callable[..., Any] | None: ...
    @property
    def _args(self) -> tuple[Any, ...] | None: ...
    @property
    def _cancelled(self) -> bool: ...
    @property
    def _source_traceback(self) -> None: ...
    def cancel(self) -> None: ...
    def cancelled(self) -> bool: ...
    def get_context(self) -> contextvars.Context | None: ...

@final
class Spawn:
    def __new__(
        cls,
        executables: list[bytes],
        args: list[bytes],
        env: list[bytes] | None,
        cwd: bytes | None,
        stdio: list[int],
        pass_fds: list[int],
        umask: int,
        restore_signals: bool,
        start_new_session: bool,
        process_group: int,
    ) -> Spawn: ...
    def start(self) -> int: ...
    def finish(self) -> tuple[int, int, tuple[str, int] | None]: ...

@disjoint_base
class LoopCore:
    _stopping: bool
    _closed: bool
    _debug: bool
    _thread_id: int | None
    def __new__(cls, backend: str | None = None, busy_poll_us: int | None = None) -> LoopCore: ...
    @property
    def backend(self) -> str: ...
    @property
    def busy_poll_us(self) -> int | None: ...
    @property
    def _fallback_reason(self) -> str | None: ...
    def time(self) -> float: ...
    def stop(self) -> None: ...
    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle: ...
    def call_soon_threadsafe(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle: ...
    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle: ...
    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle: ...
    def _timer_handle_cancelled(self, handle: Any) -> None: ...
    def _run_once(self) -> None: ...
    def _add_callback(self, handle: Any) -> None: ...
    def _write_to_self(self) -> None: ...
    def _add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> Any: ...
    def _add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> Any: ...
    def _remove_reader(self, fd: Any) -> bool: ...
    def _remove_writer(self, fd: Any) -> bool: ...
    def _ensure_fd_no_transport(self, fd: Any) -> None: ...
    def _set_watchable(self, fd: int, watchable: bool) -> None: ...
    def _listen(
        self, fd: int, protocol_factory: Callable[[], Any], tls: Any, server: Any
    ) -> None: ...
    def _unlisten(self, fd: int) -> None: ...
    def _relisten(self, fd: int) -> None: ...
    def _core_close(self) -> None: ...
    def _after_fork_in_child(self) -> None: ...
    def _core_stats(self) -> dict[str, int]: ...

@disjoint_base
class BaseTransport:
    max_size: ClassVar[int]
    @property
    def _loop(self) -> Any: ...
    @property
    def _sock_fd(self) -> int: ...
    @property
    def _sock(self) -> socket.socket | None: ...
    @property
    def _extra(self) -> dict[str, Any]: ...
    @property
    def _server(self) -> Any: ...
    @property
    def _protocol(self) -> Any: ...
    @property
    def _protocol_connected(self) -> bool: ...
    @property
    def _protocol_paused(self) -> bool: ...
    @property
    def _paused(self) -> bool: ...
    @property
    def _closing(self) -> bool: ...
    @property
    def _conn_lost(self) -> int: ...
    @property
    def _high_water(self) -> int: ...
    @property
    def _low_water(self) -> int: ...
    def get_protocol(self) -> Any: ...
    def set_protocol(self, protocol: Any) -> None: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...
    def is_closing(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def _force_close(self, exc: BaseException | None) -> None: ...
    def _fatal_error(
        self, exc: BaseException, message: str = "Fatal error on transport"
    ) -> None: ...
    def is_reading(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_write_buffer_limits(self) -> tuple[int, int]: ...
    def get_write_buffer_size(self) -> int: ...

@final
class StreamTransport(BaseTransport):
    _start_tls_compatible: ClassVar[bool]
    _sendfile_compatible: ClassVar[Any]
    def __new__(
        cls,
        owner: LoopCore,
        socket: socket.socket,
        protocol: Any,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
        server: Any = None,
    ) -> StreamTransport: ...
    @property
    def _eof(self) -> bool: ...
    @property
    def _empty_waiter(self) -> asyncio.Future[None] | None: ...
    def write(self, data: ReadableBuffer) -> None: ...
    def writelines(self, list_of_data: Iterable[ReadableBuffer]) -> None: ...
    def can_write_eof(self) -> bool: ...
    def write_eof(self) -> None: ...
    def _make_empty_waiter(self) -> asyncio.Future[None]: ...
    def _reset_empty_waiter(self) -> None: ...

@final
class TlsProtocol:
    def __new__(
        cls,
        owner: LoopCore,
        app_protocol: Any,
        sslcontext: ssl.SSLContext | None,
        waiter: asyncio.Future[None] | None = None,
        server_side: bool = False,
        server_hostname: str | None = None,
        call_connection_made: bool = True,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> TlsProtocol: ...
    def connection_made(self, transport: Any) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool: ...
    def connection_lost(self, exc: BaseException | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def _check_handshake_timeout(self) -> None: ...
    def _check_shutdown_timeout(self) -> None: ...
    def _resume(self) -> None: ...
    def _get_app_transport(self) -> SSLTransport | None: ...
    def _get_extra_info(self, name: str, default: Any = None) -> Any: ...
    @property
    def _app_transport(self) -> SSLTransport | None: ...
    @property
    def _app_protocol(self) -> Any: ...
    @property
    def _transport(self) -> Any: ...
    @property
    def _loop(self) -> Any: ...
    @property
    def _sslcontext(self) -> ssl.SSLContext: ...
    @property
    def _sslobj(self) -> ssl.SSLObject: ...
    @property
    def _server_side(self) -> bool: ...
    @property
    def _extra(self) -> dict[str, Any]: ...

@final
class SSLTransport:
    _start_tls_compatible: ClassVar[bool]
    _sendfile_compatible: ClassVar[Any]
    @property
    def _loop(self) -> Any: ...
    @property
    def _ssl_protocol(self) -> TlsProtocol: ...
    @property
    def _closed(self) -> bool: ...
    @property
    def _protocol_paused(self) -> bool: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...
    def set_protocol(self, protocol: Any) -> None: ...
    def get_protocol(self) -> Any: ...
    def is_closing(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def _force_close(self, exc: BaseException | None = None) -> None: ...
    def is_reading(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def write(self, data: Any) -> None: ...
    def writelines(self, list_of_data: Iterable[Any]) -> None: ...
    def write_eof(self) -> None: ...
    def can_write_eof(self) -> bool: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_write_buffer_limits(self) -> tuple[int, int]: ...
    def get_write_buffer_size(self) -> int: ...
    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_read_buffer_limits(self) -> tuple[int, int]: ...
    def get_read_buffer_size(self) -> int: ...
    def _test__append_write_backlog(self, data: bytes) -> None: ...

@final
class DatagramTransport(BaseTransport):
    def __new__(
        cls,
        owner: LoopCore,
        socket: socket.socket,
        protocol: Any,
        address: Any = None,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> DatagramTransport: ...
    @property
    def _address(self) -> Any: ...
    def sendto(self, data: ReadableBuffer, addr: Any = None) -> None: ...

class QuicEvent:
    def __new__(cls) -> QuicEvent: ...

@final
class ConnectionIdIssued(QuicEvent):
    __match_args__: list[str]
    def __new__(cls, connection_id: bytes) -> ConnectionIdIssued: ...
    @property
    def connection_id(self) -> bytes: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class ConnectionIdRetired(QuicEvent):
    __match_args__: list[str]
    def __new__(cls, connection_id: bytes) -> ConnectionIdRetired: ...
    @property
    def connection_id(self) -> bytes: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class ConnectionTerminated(QuicEvent):
    __match_args__: tuple[str, str, str]
    def __new__(
        cls, error_code: int, frame_type: int | None, reason_phrase: str
    ) -> ConnectionTerminated: ...
    @property
    def error_code(self) -> int: ...
    @property
    def frame_type(self) -> int | None: ...
    @property
    def reason_phrase(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def alert(self) -> int | None: ...
    @property
    def errno(self) -> int | None: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class ConnectionWritable(QuicEvent):
    __match_args__: list[str]
    def __new__(cls, queued_bytes: int) -> ConnectionWritable: ...
    @property
    def queued_bytes(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class DatagramFrameReceived(QuicEvent):
    __match_args__: list[str]
    def __new__(cls, data: bytes) -> DatagramFrameReceived: ...
    @property
    def data(self) -> bytes: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class HandshakeCompleted(QuicEvent):
    __match_args__: list[str]
    def __new__(
        cls, alpn_protocol: str | None, early_data_accepted: bool, session_resumed: bool
    ) -> HandshakeCompleted: ...
    @property
    def alpn_protocol(self) -> str | None: ...
    @property
    def early_data_accepted(self) -> bool: ...
    @property
    def session_resumed(self) -> bool: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class PingAcknowledged(QuicEvent):
    __match_args__: list[str]
    def __new__(cls, uid: int) -> PingAcknowledged: ...
    @property
    def uid(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class ProtocolNegotiated(QuicEvent):
    __match_args__: list[str]
    def __new__(cls, alpn_protocol: str | None) -> ProtocolNegotiated: ...
    @property
    def alpn_protocol(self) -> str | None: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class StopSendingReceived(QuicEvent):
    __match_args__: list[str]
    def __new__(cls, error_code: int, stream_id: int) -> StopSendingReceived: ...
    @property
    def error_code(self) -> int: ...
    @property
    def stream_id(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class StreamDataReceived(QuicEvent):
    __match_args__: tuple[str, str, str]
    def __new__(
        cls, data: bytes, end_stream: bool, stream_id: int, *, early_data: bool = False
    ) -> StreamDataReceived: ...
    @property
    def early_data(self) -> bool: ...
    @property
    def data(self) -> bytes: ...
    @property
    def end_stream(self) -> bool: ...
    @property
    def stream_id(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class StreamFinished(QuicEvent):
    __match_args__: list[str]
    def __new__(cls, stream_id: int) -> StreamFinished: ...
    @property
    def stream_id(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class StreamReset(QuicEvent):
    __match_args__: list[str]
    def __new__(cls, error_code: int, stream_id: int) -> StreamReset: ...
    @property
    def error_code(self) -> int: ...
    @property
    def stream_id(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class StreamAbandoned(QuicEvent):
    __match_args__: list[str]
    def __new__(cls, stream_id: int) -> StreamAbandoned: ...
    @property
    def stream_id(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class StreamWritable(QuicEvent):
    __match_args__: list[str]
    def __new__(cls, stream_id: int) -> StreamWritable: ...
    @property
    def stream_id(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

class BufferReadError(ValueError): ...
class BufferWriteError(ValueError): ...

# aioquic's name; the type of readable buffers is collections.abc.Buffer (import it as ReadableBuffer).
@disjoint_base
class Buffer:
    def __new__(cls, capacity: int | None = 0, data: bytes | None = None) -> Buffer: ...
    @property
    def capacity(self) -> int: ...
    @property
    def data(self) -> bytes: ...
    def data_slice(self, start: int, end: int) -> bytes: ...
    def eof(self) -> bool: ...
    def seek(self, pos: int) -> None: ...
    def tell(self) -> int: ...
    def pull_bytes(self, length: int) -> bytes: ...
    def pull_uint8(self) -> int: ...
    def pull_uint16(self) -> int: ...
    def pull_uint32(self) -> int: ...
    def pull_uint64(self) -> int: ...
    def pull_uint_var(self) -> int: ...
    def push_bytes(self, value: bytes) -> None: ...
    def push_uint8(self, value: int) -> None: ...
    def push_uint16(self, value: int) -> None: ...
    def push_uint32(self, v: int) -> None: ...
    def push_uint64(self, v: int) -> None: ...
    def push_uint_var(self, value: int) -> None: ...

@final
class MemorySessionStore:
    def __new__(cls, capacity: int = 4096) -> MemorySessionStore: ...
    def __len__(self) -> int: ...
    def put(self, ticket: bytes, session: bytes) -> bool: ...
    def take(self, ticket: bytes) -> bytes | None: ...

@final
class QuicClientSetup:
    def __new__(
        cls,
        *,
        certificate_chain: list[bytes] | None,
        private_key: bytes | None,
        roots: bytes | None,
        session_ticket: dict[str, Any] | None,
        token: bytes,
        verify: bool,
        **common: Any,
    ) -> QuicClientSetup: ...
    @staticmethod
    def _can_be_trusted(certificate: bytes) -> bool: ...

@final
class QuicServerSetup:
    def __new__(
        cls,
        *,
        certificate_chain: list[bytes],
        client_required: bool,
        client_roots: bytes | None,
        early_data: bool,
        private_key: bytes,
        retry: bool,
        sessions: MemorySessionStore | None,
        **common: Any,
    ) -> QuicServerSetup: ...

@final
class QuicEndpoint:
    @staticmethod
    def on_loop(
        owner: LoopCore,
        fd: int,
        *,
        connection_id_length: int,
        server: QuicServerSetup | None = None,
        on_accept: Callable[[QuicEndpoint, int], object] | None = None,
        on_closed: Callable[[], object] | None = None,
    ) -> QuicEndpoint: ...
    @staticmethod
    def sans_io(
        *,
        connection_id_length: int,
        server: QuicServerSetup | None = None,
        on_accept: Callable[[QuicEndpoint, int], object] | None = None,
        now: float | None = None,
    ) -> QuicEndpoint: ...
    @property
    def connections(self) -> int: ...
    def stop_accepting(self) -> None: ...
    def drain(self, fd: int | None = None) -> bool: ...
    def close_connections(self, error_code: int = 0, reason_phrase: str = "") -> None: ...
    def close(
        self, error_code: int = 0, reason_phrase: str = "", fd: int | None = None
    ) -> bool: ...
    @property
    def may_end(self) -> bool: ...
    def stats(self) -> dict[str, int]: ...
    def receive_datagram(self, data: bytes, addr: Any, now: float) -> None: ...
    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Any]]: ...
    def get_timer(self) -> float | None: ...
    def handle_timer(self, now: float) -> None: ...
    def unreachable(self, addr: Any, errno: int, now: float) -> None: ...
    def deliver_events(self) -> None: ...

@final
class PacketLog:
    def take(self) -> list[tuple[float, str, str]]: ...

@disjoint_base
class QuicConnectionCore:
    def __new__(cls, *_args: Any, is_client: bool = True, **_kwargs: Any) -> QuicConnectionCore: ...
    def _set_side(self, is_client: bool) -> None: ...
    def _start_client(
        self,
        endpoint: QuicEndpoint | None,
        setup: QuicClientSetup,
        addr: Any,
        server_name: str,
        now: float,
    ) -> None: ...
    def _start_server(self, setup: QuicServerSetup) -> None: ...
    def _accepted(self, endpoint: QuicEndpoint, key: int) -> None: ...
    def _set_credential_handlers(
        self,
        on_ticket: Callable[[Any], object] | None,
        on_token: Callable[[bytes], object] | None,
    ) -> None: ...
    def _set_receiver(self, receiver: Callable[[list[Any]], object] | None) -> None: ...
    def _notify_finished(self) -> None: ...
    @property
    def _endpoint(self) -> QuicEndpoint | None: ...
    @property
    def _is_started(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def is_established(self) -> bool: ...
    def get_next_available_stream_id(self, is_unidirectional: bool = False) -> int: ...
    def send_stream_data(
        self, stream_id: int, data: ReadableBuffer, end_stream: bool = False
    ) -> None: ...
    def reset_stream(self, stream_id: int, error_code: int) -> None: ...
    def stop_stream(self, stream_id: int, error_code: int) -> None: ...
    def set_stream_priority(
        self, stream_id: int, urgency: int, incremental: bool = False
    ) -> None: ...
    def pause_stream(self, stream_id: int) -> None: ...
    def resume_stream(self, stream_id: int) -> None: ...
    def get_send_buffer_size(self, stream_id: int) -> int: ...
    @property
    def _is_full(self) -> bool: ...
    def send_datagram_frame(self, data: ReadableBuffer) -> None: ...
    @property
    def max_datagram_size(self) -> int | None: ...
    @property
    def _remote_max_datagram_frame_size(self) -> int | None: ...
    def send_ping(self, uid: int) -> None: ...
    def request_key_update(self) -> None: ...
    def change_connection_id(self) -> None: ...
    def close(
        self, error_code: int = 0, frame_type: int | None = None, reason_phrase: str = ""
    ) -> None: ...
    def get_peer_address(self) -> Any: ...
    @property
    def alpn_protocol(self) -> str | None: ...
    @property
    def original_destination_connection_id(self) -> bytes | None: ...
    @property
    def host_cid(self) -> bytes | None: ...
    def _packet_log(self) -> PacketLog | None: ...
    @property
    def server_name(self) -> str | None: ...
    def get_peer_certificates(self) -> list[bytes]: ...
    def stats(self) -> dict[str, Any]: ...
    def next_event(self) -> Any: ...
    def receive_datagram(self, data: bytes, addr: Any, now: float) -> None: ...
    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Any]]: ...
    def get_timer(self) -> float | None: ...
    def handle_timer(self, now: float) -> None: ...

@disjoint_base
class H3Connection:
    """An HTTP/3 connection (RFC 9114) over a QUIC connection object of aioquic's shape.

    See :mod:`uringcore.h3.connection` for what differs from aioquic.

    :param quic: The QUIC connection. Its ``configuration.is_client`` says which end this is.
    :param enable_webtransport: Announce and understand WebTransport streams and HTTP datagrams.
        Implies ``enable_connect_protocol``.
    :param close_on_malformed: Whether a malformed message closes the connection, as with aioquic,
        or only ends its stream, with :class:`MessageAborted` if its headers had been received.
    :param enable_connect_protocol: Announce extended CONNECT (RFC 9220): requests with
        ``:protocol``, such as those for WebSockets.
    """

    def __new__(
        cls,
        quic: Any,
        enable_webtransport: bool = False,
        *,
        close_on_malformed: bool = True,
        enable_connect_protocol: bool = False,
    ) -> Self: ...
    def handle_event(self, event: Any) -> list[H3Event]:
        """Handles a QUIC event and returns the HTTP events that follow from it.

        A fault of the peer closes the QUIC connection with the RFC's code; nothing is raised.
        """
    def send_headers(
        self,
        stream_id: int,
        headers: Iterable[tuple[bytes, bytes]],
        end_stream: bool = False,
    ) -> None:
        """Sends a field section: a request, an interim or final response, or trailers.

        :raises FrameUnexpected: if no field section may follow what was sent on the stream.
        :raises InvalidStreamTypeError: if the stream is not a client-initiated bidirectional one.
        :raises GoingAwayError: for a new request after the peer's GOAWAY.
        :raises ValueError: if the fields would make a malformed message (RFC 9114 section 4.2) or
            take more than the peer's SETTINGS_MAX_FIELD_SECTION_SIZE.
        """
    def send_data(
        self, stream_id: int, data: bytes | bytearray | memoryview, end_stream: bool
    ) -> None:
        """Sends content.

        :raises FrameUnexpected: unless a header section was sent and the message is not over.
        """
    def send_datagram(self, stream_id: int, data: bytes | bytearray | memoryview) -> None:
        """Sends an HTTP datagram that belongs to a request (RFC 9297 section 2.1).

        :raises InvalidStreamTypeError: if the stream is not a client-initiated bidirectional one.
        """
    def send_push_promise(self, stream_id: int, headers: Iterable[tuple[bytes, bytes]]) -> int:
        """Pushes are not supported: always raises.

        :raises RuntimeError: on a client.
        :raises InvalidStreamTypeError: if the stream is not a client-initiated bidirectional one.
        :raises NoAvailablePushIDError: otherwise.
        """
    def create_webtransport_stream(self, session_id: int, is_unidirectional: bool = False) -> int:
        """Begins a WebTransport stream in the session of a CONNECT request.

        Returns its identifier. Send on it with the QUIC connection's ``send_stream_data``.

        :raises InvalidStreamTypeError: if WebTransport is not enabled, or the session is not a
            client-initiated bidirectional stream.
        """
    def send_goaway(self, stream_id: int | None = None) -> int:
        """Announces the end of the connection (RFC 9114 section 5.2).

        A server refuses requests from ``stream_id`` on, by default all that have not begun.
        Returns the identifier that was sent.

        :raises ValueError: if it is above that of an earlier GOAWAY, or is no request stream.
        """
    def cancel_request(self, stream_id: int, error_code: int = 0x10C) -> None:
        """Gives a request up: resets what is still sent, refuses what is still received.

        Nothing happens if the request is over already. The default code is H3_REQUEST_CANCELLED.
        """
    @property
    def received_settings(self) -> dict[int, int] | None:
        """The peer's SETTINGS by identifier, or None before they arrived."""
    @property
    def sent_settings(self) -> dict[int, int]:
        """Our SETTINGS by identifier."""
    @property
    def open_requests(self) -> int:
        """How many requests and bidirectional WebTransport streams have state here."""
    @property
    def _quic(self) -> Any: ...
    @property
    def _is_client(self) -> bool: ...

class H3Event:
    """What an HTTP/3 connection tells its user: the base class of all events."""

    def __new__(cls) -> Self: ...

@final
class DataReceived(H3Event):
    """A piece of a message's content arrived."""

    __match_args__ = ("data", "stream_id", "stream_ended", "push_id")
    def __new__(
        cls, data: bytes, stream_id: int, stream_ended: bool, push_id: int | None = None
    ) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def data(self) -> bytes:
        """The content; empty when only the end arrived."""
    @property
    def stream_id(self) -> int:
        """The request's stream."""
    @property
    def stream_ended(self) -> bool:
        """Whether the message ends here."""
    @property
    def push_id(self) -> int | None:
        """Always None: pushes are not accepted."""

@final
class DatagramReceived(H3Event):
    """An HTTP datagram arrived (RFC 9297)."""

    __match_args__ = ("data", "stream_id")
    def __new__(cls, data: bytes, stream_id: int) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def data(self) -> bytes:
        """Its payload."""
    @property
    def stream_id(self) -> int:
        """The request's stream."""

@final
class HeadersReceived(H3Event):
    """A field section arrived: a request's or response's header section, or trailers."""

    __match_args__ = ("headers", "stream_id", "stream_ended", "push_id")
    def __new__(
        cls,
        headers: list[tuple[bytes, bytes]],
        stream_id: int,
        stream_ended: bool,
        push_id: int | None = None,
    ) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The field lines in order: name and value."""
    @property
    def stream_id(self) -> int:
        """The request's stream."""
    @property
    def stream_ended(self) -> bool:
        """Whether the message ends here."""
    @property
    def push_id(self) -> int | None:
        """Always None: pushes are not accepted."""

@final
class PushPromiseReceived(H3Event):
    """A server promised to push. Pushes are not accepted, so it never occurs."""

    __match_args__ = ("headers", "push_id", "stream_id")
    def __new__(cls, headers: list[tuple[bytes, bytes]], push_id: int, stream_id: int) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The promised request's field lines."""
    @property
    def push_id(self) -> int:
        """The push ID."""
    @property
    def stream_id(self) -> int:
        """The stream of the request that the push belongs to."""

@final
class WebTransportStreamDataReceived(H3Event):
    """Data arrived on a WebTransport stream."""

    __match_args__ = ("data", "stream_id", "stream_ended", "session_id")
    def __new__(cls, data: bytes, stream_id: int, stream_ended: bool, session_id: int) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def data(self) -> bytes:
        """The data; empty when only the end arrived."""
    @property
    def stream_id(self) -> int:
        """The stream."""
    @property
    def stream_ended(self) -> bool:
        """Whether the peer has finished sending on this stream."""
    @property
    def session_id(self) -> int:
        """The session: the stream of its CONNECT request."""

@final
class MessageAborted(H3Event):
    """A message was malformed and its stream given up (only with ``close_on_malformed=False``)."""

    __match_args__ = ("stream_id", "error_code")
    def __new__(cls, stream_id: int, error_code: int) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def stream_id(self) -> int:
        """The request's stream. It is reset already."""
    @property
    def error_code(self) -> int:
        """The code that was sent, such as H3_MESSAGE_ERROR."""

@final
class GoAwayReceived(H3Event):
    """The server takes no more requests (RFC 9114 section 5.2). May come again with a lower ID.

    Clients only: what a client's GOAWAY names is a push.
    """

    __match_args__ = ("stream_id",)
    def __new__(cls, stream_id: int) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def stream_id(self) -> int:
        """Requests on this stream and those above it are not processed; they may be retried."""

@final
class QpackEncoder:
    """Turns field lines into field sections (RFC 9204)."""

    def __new__(cls, max_table_capacity: int = 4096, *, may_block: bool = False) -> Self: ...
    def apply_settings(self, max_table_capacity: int, blocked_streams: int) -> bytes:
        """Takes the peer's SETTINGS and returns the bytes for the encoder stream."""
    def encode(self, stream_id: int, headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
        """Encodes a field section: the bytes for the encoder stream, and the section."""
    def feed_decoder(self, data: bytes) -> None:
        """Takes bytes of the peer's decoder stream.

        :raises ValueError: if they are invalid.
        """

@final
class QpackDecoder:
    """Turns field sections into field lines (RFC 9204)."""

    def __new__(
        cls,
        max_table_capacity: int = 4096,
        blocked_streams: int = 16,
        max_field_section_size: int = 65536,
    ) -> Self: ...
    def feed_encoder(self, data: bytes) -> int:
        """Takes bytes of the peer's encoder stream; returns how many insertions there ever were.

        :raises ValueError: if they are invalid.
        """
    def decode(self, stream_id: int, section: bytes) -> list[tuple[bytes, bytes]] | None:
        """Decodes a field section, or returns None if it has to wait for the encoder stream.

        :raises ValueError: if it is invalid or too large.
        """
    def cancel_stream(self, stream_id: int) -> None:
        """Gives the sections of a stream up."""
    def take_instructions(self) -> bytes:
        """The bytes for the decoder stream since the last call."""

@final
class FileOperation:
    """A file operation on the ring, under way or over."""

    @property
    def future(self) -> asyncio.Future[Any]:
        """What the one coroutine that started the operation awaits."""
    def abandon(self, late: Callable[[Any, BaseException | None], None]) -> None:
        """Asks the kernel to end it; ``late(result, error)`` is called when it is over."""

@final
class DirectReads:
    """Reads of what the kernel has in memory, for the files of one loop."""

    def __new__(cls, owner: LoopCore | None = None) -> Self: ...
    def read(self, fd: int, size: int, offset: int) -> bytes | bool | None:
        """Reads up to ``size`` bytes at ``offset``, or at the file's position if that is negative.

        ``bytes``: what was there, empty at the end of the file. ``None``: it would have to wait.
        ``False``: this kind of file cannot tell. ``True``: nothing was tried, let others run first.
        """
    def is_due(self) -> bool:
        """Whether it is time to let others run."""
    def rested(self) -> None:
        """Others have run: a new slice of time begins."""

def file_describe(fd: int) -> tuple[int, int, int, int | None]:
    """``(mode, size, block_size, position)`` as far as the kernel knows it without asking a disk."""

def file_open(
    slf: LoopCore,
    path: bytes,
    dir_fd: int,
    flags: int,
    mode: int,
    wait: bool,
    names: tuple[Any, ...],
) -> FileOperation: ...
def file_read(slf: LoopCore, fd: int, size: int, offset: int, aside: bool) -> FileOperation: ...
def file_write(slf: LoopCore, fd: int, data: Any, offset: int, aside: bool) -> FileOperation: ...
def file_sync(slf: LoopCore, fd: int, data_only: bool) -> FileOperation: ...
def file_truncate(slf: LoopCore, fd: int, length: int) -> FileOperation: ...
def file_close(slf: LoopCore, fd: int) -> FileOperation: ...
def file_stat(
    slf: LoopCore, path: bytes, dir_fd: int, flags: int, names: tuple[Any, ...] | None
) -> FileOperation: ...
def file_unlink(
    slf: LoopCore, path: bytes, dir_fd: int, flags: int, names: tuple[Any, ...]
) -> FileOperation: ...
def file_rename(
    slf: LoopCore,
    source: bytes,
    source_dir_fd: int,
    target: bytes,
    target_dir_fd: int,
    names: tuple[Any, ...],
) -> FileOperation: ...
def file_mkdir(
    slf: LoopCore, path: bytes, dir_fd: int, mode: int, names: tuple[Any, ...]
) -> FileOperation: ...
def file_symlink(
    slf: LoopCore, target: bytes, path: bytes, dir_fd: int, names: tuple[Any, ...]
) -> FileOperation: ...
def file_link(
    slf: LoopCore,
    source: bytes,
    source_dir_fd: int,
    target: bytes,
    target_dir_fd: int,
    flags: int,
    names: tuple[Any, ...],
) -> FileOperation: ...
