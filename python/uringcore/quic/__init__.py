"""QUIC (RFC 9000).

A client and a server, typed, without events::

    from uringcore import quic

    async with quic.connect("example.org", 4433, alpn=["echo"]) as connection:
        async with connection.open_stream() as stream:
            await stream.send(b"hello")
            await stream.finish()
            print(await stream.read())

    async with quic.listen("::", 4433, certificate=(cert, key), alpn=["echo"]) as listener:
        async for connection in listener:
            ...

They run on uringcore's loop, and on any other asyncio loop, where every datagram passes through Python.

The public modules. ``configuration``, ``connection``, ``events``, ``logger`` and ``packet`` are aioquic's:

| file | noun |
| --- | --- |
| ``_typed_api`` | the client and the server above |
| ``configuration`` | ``QuicConfiguration`` |
| ``connection`` | ``QuicConnection``: commands in, events out |
| ``events`` | the events of a connection |
| ``_errors`` | exceptions of connections and streams |
| ``logger`` | qlog traces: ``_aioquic_qlog``'s and ``_qlog_files``'s classes |
| ``_aioquic_qlog`` | qlog traces in memory |
| ``_qlog_files`` | qlog traces written to files as events happen, bounded |
| ``packet`` | numbers of RFC 9000: error codes, frame types, versions |
| ``limits`` | ``ServerLimits``, and the policy for Retry packets |
| ``sessions`` | session stores of servers |
| ``workers`` | ``PortGroup``: several processes on one UDP port |
| ``metrics``, ``stats`` | counters for Prometheus; the keys of ``protocol.stats()`` |

The modules behind them:

| file | noun |
| --- | --- |
| ``_open_endpoint``, ``_endpoint_transport`` | opening a UDP socket with its connections; its transport |
| ``_foreign_loops`` | the transport on a loop that is not uringcore's |
| ``_udp_sockets`` | UDP sockets: resolved, bound, with their buffers |
| ``_host_argument_checks`` | checks of hosts and ports |
| ``_happy_eyeballs`` | the choice among a name's addresses (RFC 8305) |
| ``_configuration_fields`` | the fields of a configuration |
| ``_configuration_conversion`` | conversion of a configuration for the extension |
| ``_credential_loading`` | loading certificates and keys |
| ``_named_certificate`` | selecting one of a server's certificates |
| ``_accept_settings`` | the protocol object, configuration and worker of a new connection |
| ``_close_argument_checks`` | checks of arguments of closes and resets |
| ``_available_memory`` | the memory of this process, and the part that clients may fill |
| ``_session_store_thread`` | the thread that calls a session store |
| ``_frames_and_transport_parameters`` | records of frames and parameters |
| ``_packet_headers`` | headers of packets in the clear, for programs that route datagrams |
| ``_openmetrics_text`` | the text format of OpenMetrics |
| ``_worker_process_group`` | the processes of a ``PortGroup`` |
| ``_worker_states`` | the state of each place on their port |
| ``_connection_lifecycle``, ``_client_migration`` | handshake, pings and end; a client's change of network |
| ``_aioquic_private_names``, ``_aioquic_private_tables`` | aioquic's private attributes that programs read |
| ``_handshake_results`` | results of the TLS handshake under aioquic's names |
| ``_aioquic_client_hello_hook`` | a ClientHello for programs that replace aioquic's handler |
| ``_non_ip_peer_addresses`` | names of peers that are not IP addresses |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uringcore._uringcore import BidirectionalStream, ReceiveStream, SendStream
    from uringcore.quic._errors import (
        ConnectionClosedError,
        DatagramSendError,
        ListenerClosedError,
        QuicAlpnError,
        QuicCertificateError,
        QuicConfigurationError,
        QuicConnectionError,
        QuicConnectionRefusedError,
        QuicError,
        QuicIdleTimeoutError,
        QuicTlsError,
        QuicVersionError,
        StreamClosedError,
        StreamError,
        StreamResetError,
        StreamStoppedError,
    )
    from uringcore.quic._typed_api.certificates import Certificate
    from uringcore.quic._typed_api.config import ClientConfig, ServerConfig
    from uringcore.quic._typed_api.connect import connect
    from uringcore.quic._typed_api.connection import Connection
    from uringcore.quic._typed_api.listener import Listener, listen
    from uringcore.quic.limits import ServerLimits

__all__ = [
    "BidirectionalStream",
    "Certificate",
    "ClientConfig",
    "Connection",
    "ConnectionClosedError",
    "DatagramSendError",
    "Listener",
    "ListenerClosedError",
    "QuicAlpnError",
    "QuicCertificateError",
    "QuicConfigurationError",
    "QuicConnectionError",
    "QuicConnectionRefusedError",
    "QuicError",
    "QuicIdleTimeoutError",
    "QuicTlsError",
    "QuicVersionError",
    "ReceiveStream",
    "SendStream",
    "ServerConfig",
    "ServerLimits",
    "StreamClosedError",
    "StreamError",
    "StreamResetError",
    "StreamStoppedError",
    "connect",
    "listen",
]

# The modules of names that are imported at their first use. They cannot be imported here, because they import
# each other and this package.
_HOMES = {
    "_uringcore": {"BidirectionalStream", "ReceiveStream", "SendStream"},
    "quic.limits": {"ServerLimits"},
    "quic._typed_api.connect": {"connect"},
    "quic._typed_api.certificates": {"Certificate"},
    "quic._typed_api.config": {"ClientConfig", "ServerConfig"},
    "quic._typed_api.connection": {"Connection"},
    "quic._typed_api.listener": {"Listener", "listen"},
}


# Hidden from type checkers, which would accept every name of a module with a `__getattr__`, also misspelt
# ones.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        home = next((home for home, names in _HOMES.items() if name in names), "quic._errors")
        found: object = getattr(importlib.import_module(f"uringcore.{home}"), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
