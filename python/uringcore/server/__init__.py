"""An ASGI server for HTTP/1.1, HTTP/2, HTTP/3 and WebSocket on one port number.

uvicorn provides the frame: options, lifespan, logging, signals. This package passes the requests that the
extension reads to ASGI applications.
:func:`uringcore.server.run` serves an application from a program; the command ``uringcore app:app`` does
it from a shell. ``Server`` and ``Config`` are uvicorn's classes of these names with HTTP/3 added:
``Server(Config(app, ...)).run()``, or ``await Server(...).serve()`` in a program that has a loop.

| file | noun |
| --- | --- |
| ``_command``, ``_shell_completion`` | the command's options; their shell completion |
| ``_startup_errors`` | errors that keep a server from starting |
| ``_options_without_effect`` | uvicorn's options that apply to TCP alone, and options without effect |
| ``_config`` | a server's configuration, checked before anything starts |
| ``_option_checks``, ``_certificate_checks`` | checks of options and certificates, with one-line errors |
| ``_server`` | uvicorn's server with HTTP/3 added |
| ``_listening_sockets`` | the sockets that a server listens on, TCP and UDP |
| ``_systemd_sockets`` | the sockets that systemd passes on |
| ``_quic_listener`` | the QUIC endpoints of a server |
| ``_certificate_reload``, ``_file_signature`` | detection of a renewed certificate; changed files |
| ``_credential_reload`` | certificates and keys that are read again while the server runs |
| ``_sni_certificates`` | ``--ssl-sni-certificate``: certificates of further hosts |
| ``_certificate_subject`` | a certificate's subject as text, for ASGI's ``tls`` extension |
| ``_asgi_service_factory`` | the service of the extension that runs the application |
| ``_native_tls`` | TLS of those by rustls, and the options for which CPython's ``ssl`` does it |
| ``_native_tcp`` | HTTP/1.1 and HTTP/2 over TCP in the extension, the default of ``http`` |
| ``_uvicorn_zttp_workaround`` | uvicorn's HTTP/2, with an end of requests without content |
| ``_lifespan`` | the application's start-up and shutdown |
| ``_cancel_shield`` | a shield against the cancel scopes of anyio, for the end of a server |
| ``_cancellation_log`` | the log lines of applications that a stop cancels |
| ``_reloader`` | the parent process of a server with ``--reload`` |
| ``_supervisor`` | the parent process of several workers |
| ``_worker_process`` | one worker process, from both sides |
| ``_run_modes`` | running a server until it ends: in this process, below ``--reload``, or in workers |
| ``_fd_limit_and_stdio`` | the limit of open files, and the three standard descriptors |
| ``_shared_process_folder`` | folders that the processes of a server share |
| ``_secret_keys`` | the secrets of address tokens and stateless resets, and their files |
| ``_stateless_reset_key`` | the stateless reset key derived from ``http3_reset_key`` |
| ``_shared_udp_ports`` | UDP ports that workers share, and each worker's place on them |
| ``gunicorn`` | gunicorn's worker class |
| ``_terminal_detection`` | detection of a controlling terminal |
| ``_http3_shared_state`` | the state that all HTTP/3 connections of a server share |
| ``_http3_connection`` | the life of one HTTP/3 connection |
| ``_http3_limits`` | the limits of a server |
| ``_tcp_shutdown`` | TCP connections that would outlast a stopping server |
| ``_client_liveness_at_shutdown`` | detection of vanished clients of a stopping connection |
| ``_request_log`` | the access log and the error log |
| ``_json_log`` | the log as JSON |
| ``_metrics_middleware`` | request counting, and the metrics and status pages |
| ``_shared_result`` | a report that concurrent callers share |
| ``_request_counters``, ``_stats_snapshot`` | event counters; a snapshot of a server |
| ``_metric_definitions``, ``_status_page`` | a report as OpenMetrics; the status page and its data |
| ``_metrics_port`` | a separate TCP port for metrics |
| ``_worker_stats_exchange`` | exchange of reports among the processes of one server |
| ``_common_asgi_scope`` | the part of ASGI's scope that all requests share |
| ``_web_options`` | options of the features in the next rows |
| ``_proxy_protocol`` | ``--proxy-protocol``: the header that a proxy sends before a client's bytes |
| ``_redirect_port`` | ``--redirect-http``: a port whose requests are redirected to HTTPS |
| ``_request_ids``, ``_trace_context`` | ``--request-ids``: identifiers of requests; ``traceparent`` |
| ``_request_hook`` | ``--request-hook``: an observer of requests, such as OpenTelemetry |
| ``_wsgi``, ``_wsgi_environ`` | WSGI applications as ASGI applications; the environment of a request |
| ``_wsgi_thread_pool`` | the threads of WSGI applications |
| ``_static_files_application`` | files of a folder as an ASGI application |
| ``_static_routes`` | the option ``--static`` |
| ``_conditional_requests``, ``_byte_ranges``, ``_content_types`` | conditions, ranges, types of files |
| ``_webtransport_sessions`` | WebTransport sessions, each served by an application task |

The extension serves the requests themselves: it makes the scope, runs the application in a task, and
implements ``receive`` and ``send``.

WebSocket over HTTP/3 (RFC 9220) works as over HTTP/1.1, with uvicorn's ``ws_`` options and without
compression. A request in 0-RTT data runs at once if its method is safe and an address validation token proves
the client's address. The application sees this in its scope (``scope["extensions"]["uringcore.early_data"]``
and ``early-data: 1``). Every other one waits for the handshake: ``http3_early_data``. ``scope["client"]``,
the access log and ``--forwarded-allow-ips`` use the last address that the client has proved (RFC 9000
sections 8 and 9.3), so a packet from a forged source changes none of them. The server schedules responses by
the priority that their client requests (RFC 9218), or by the one in the application's own ``priority``
header.

WebTransport sessions arrive on the same port, with a scope of the type ``webtransport``:
:mod:`uringcore.webtransport._asgi` lists the messages. If an application raises for such a scope, the
server answers its clients with 501.

HTTP datagrams (RFC 9297): the option ``http3_connect`` names protocols of extended CONNECT, such as
``connect-udp`` (RFC 9298), that the application implements. Their requests are ``http`` scopes with the
method ``CONNECT`` and ``scope["extensions"]["http.datagram"] = {"protocol": "connect-udp", "max_size":
1180}``. Then ``receive()`` also returns ``{"type": "http.datagram.receive", "data": b"..."}``, and ``send()``
accepts ``{"type": "http.datagram.send", "data": b"..."}`` after ``http.response.start``. Each datagram
travels in a QUIC DATAGRAM frame, and one above ``max_size`` is dropped. ``max_size`` is ``None`` if the
client does not support DATAGRAM frames. Where content consists of capsules (RFC 9297 section 3:
``connect-udp``, or ``capsule-protocol: ?1``) datagrams are also received in capsules, and sent in capsules to
a client without DATAGRAM frames; capsules of other kinds are ignored. There the application must send whole
capsules in each content message. Sending a datagram never waits: one that finds no buffer space is dropped.

The memory and time that one HTTP/3 client can occupy are bounded. Each limit is an option
(``http3_max_requests`` is ``--http3-max-requests``), a field of
:class:`~uringcore.server._http3_limits.HTTP3Limits`, for WebTransport of
:class:`~uringcore.server._http3_limits.SessionLimits`, or, for all connections together, of
:class:`~uringcore.quic.limits.ServerLimits`. Names without their prefix ``http3_``:

| resource | bound | when exceeded |
| --- | --- | --- |
| a WebSocket's message | ``ws_max_size`` (uvicorn's: 16 MiB) | closed with 1009 |
| a WebSocket's queued messages | ``ws_max_queue`` (uvicorn's: 32), 256 KiB | the client waits for credit |
| messages above 256 KiB under way | ``max_large_messages`` (4) a connection | the client waits for credit |
| a request's datagrams queued for the application | 128 KiB | the oldest are dropped |
| a connection's datagrams queued for sending | 1 MiB | the oldest are dropped |
| concurrent requests of a connection | ``max_requests`` (100) | the client waits for a stream |
| requests of a connection in all | ``max_requests_per_connection`` (none) | GOAWAY |
| a request's header section | ``max_header_bytes`` (64 KiB), ``max_header_fields`` (256) | 431, or a reset |
| unfinished header sections of a connection | four times that | H3_EXCESSIVE_LOAD |
| the time for a header section | ``header_timeout`` (10 s) | H3_REQUEST_REJECTED |
| requests cancelled by the client | ``max_early_resets`` (1,000), then 33 a second | H3_EXCESSIVE_LOAD |
| a request's body, not yet received | 256 KiB, and a window of 1 MiB | the client waits for credit |
| bodies of a connection together | a window of 8 MiB | as above |
| the time that an application waits for a body | ``body_timeout`` (60 s), ``body_rate`` | 408 |
| a response's body, not yet sent | 128 KiB, queued in parts | ``send`` waits until 32 KiB are left |
| responses of a connection together | 4 MiB, and a part a stream | as above |
| a client that reads nothing of a response | ``send_timeout`` (10 min), or of one before it | reset |
| a client that reads too slowly | ``send_rate`` (240 bytes a second), ``send_rate_grace`` (60 s) | reset |
| files open for responses that wait | ``max_open_files`` (16) | opened again for each part |
| files of the process | ``max_process_files`` (1/4 of RLIMIT_NOFILE, 16,384 at most) | opened later |
| concurrent sessions of a connection | ``max_sessions`` (1,024) | H3_REQUEST_REJECTED |
| a session's streams | ``max_session_streams``, ``max_session_uni_streams`` (256) | the client waits |
| a session's data, not yet received | ``session_window`` (16 MiB), and the windows above | the client waits |
| a session's datagrams, not yet received | ``session_datagram_buffer`` (1 MiB) | the oldest are dropped |
| a client's silence | ``idle_timeout`` (30 s) | the connection is closed |
| a connection without requests | ``keep_alive`` (120 s) | as above |
| connections and handshakes | ``max_connections``, ``max_handshakes`` and others | refused, or a Retry |
| traces (``qlog_dir``) | ``qlog_trace_bytes`` and others | cut, or the oldest are removed |
| memory held for all clients | ``memory`` (a quarter of the available memory) | H3_EXCESSIVE_LOAD |
| memory held for clients of one address | as much as is left | 64 KiB of credit at a time |
| log lines that a client causes | ``log_lines`` (10), then one a minute | dropped and counted |
| log lines that all clients cause | 20 times that | as above |
| the same silence in a graceful stop | 1 s, with open requests 3 s | the connection is closed |
| a closed TCP connection's client, in a graceful stop | 1 s | its close is not waited for |
| a TCP client whose handshake was under way at the stop | 1 s without a request | it is closed |
| a graceful stop | ``timeout_graceful_shutdown`` (30 s) | applications are cancelled |
| its wait for the last acknowledgements | 10 s | the connection is closed |
| a forced stop's wait for applications that it has cancelled | 1 s | left to the loop's end |

All connections of a process share the open files of ``http.response.pathsend`` and ``zerocopysend``. Their
number is divided among client addresses (IPv6 by /64), so a slow reader takes no descriptor from other
clients. If it is used up, or the system has no descriptor left, a response waits and its file is opened
later. Files that the application opens itself, and TCP clients, are not
counted. The command, and :func:`run`, raise the soft limit of RLIMIT_NOFILE to the hard one (up to
524,288) at the start, and child processes inherit that; a :class:`Server` that a program runs by itself,
and gunicorn, do not change the limit. The hard limit (``LimitNOFILE=`` of a systemd unit, ``ulimit -Hn``)
bounds all descriptors.

Signals work as in uvicorn. SIGTERM and SIGINT stop gracefully; a second SIGINT stops at once, also during
start-up. If a program replaces uvicorn's ``Server.handle_exit``, its replacement is called. With
``--workers`` a third SIGINT kills, and a worker that does not finish its start-up is killed after
``timeout_graceful_shutdown``. With workers SIGHUP replaces all processes, one after the other: the new one
serves before the old one retires, and no connection is refused meanwhile. HTTP/3 clients get GOAWAY and
HTTP/1.1 clients ``connection: close`` with their next response. SIGTTIN and SIGTTOU change the number of
workers. Without workers SIGHUP reloads the certificate and the keys; a change of the
certificate's files does so in any case.

A server can use sockets that are already bound: ``--fd`` and ``--http3-fd``, systemd's (``ListenStream=`` and
``ListenDatagram=``, distinguished by their type), or ``Server(config).run(sockets=[...])`` of
:mod:`uringcore.server._server`. Workers need ``--http3-port`` then, because each worker binds a UDP socket
of its own.

Serving needs the extra ``uringcore[server]``; importing this package itself does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uringcore.server._startup_errors import StartupError, require_uvicorn
from uringcore.server._static_files_application import StaticFiles

if TYPE_CHECKING:
    from uringcore.server._config import Config
    from uringcore.server._server import Server

__all__ = ["Config", "Server", "StartupError", "StaticFiles", "run"]


def run(app: Any, **options: Any) -> None:
    """Serves ``app`` until SIGINT or SIGTERM.

    ``app`` is an ASGI application or an import string ``"module:attribute"``. ``options`` are
    uvicorn's keyword arguments and those of
    :class:`Config`: ``http3``, ``dev_cert``, ``backend`` and the
    ``http3_`` limits. Raises :class:`StartupError` when the options cannot work, and ``SystemExit``
    when start-up fails later, as uvicorn does.
    """
    require_uvicorn()
    from uringcore.server._config import Config
    from uringcore.server._run_modes import serve

    serve(Config(app, **options))


# Hidden from type checkers: a module-level `__getattr__` would make them accept any name, also misspelt ones.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Imports ``Config`` and ``Server`` on first use: they need uvicorn, this package does not."""
        if name not in ("Config", "Server"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            require_uvicorn()
        except StartupError as exc:
            raise ImportError(str(exc), name="uvicorn") from None
        if name == "Config":
            from uringcore.server._config import Config

            return Config
        from uringcore.server._server import Server

        return Server
