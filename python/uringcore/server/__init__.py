"""An ASGI server for HTTP/1.1, WebSocket and HTTP/3 on one port number.

uvicorn is the TCP side and the frame: options, lifespan, logging, HTTP/1.1 and WebSocket. This
package is the UDP side: HTTP/3 requests to ASGI. :func:`uringcore.server.run` serves an application
from a program; the command ``uringcore app:app`` does it from a shell. ``Server`` and ``Config`` are
what uvicorn has under these names, with HTTP/3: ``Server(Config(app, ...)).run()``, or
``await Server(...).serve()`` in a program that has a loop.

| file | noun |
| --- | --- |
| ``_command``, ``_completion`` | the command's options; what a shell offers of them |
| ``_startup`` | what keeps a server from starting |
| ``_options`` | uvicorn's options beside HTTP/3: those of TCP alone, those that do nothing |
| ``_config`` | what the server is set up with, checked before anything starts |
| ``_checks``, ``_credentials`` | what cannot work, in one line |
| ``_server`` | uvicorn's server with the HTTP/3 side beside it |
| ``_sockets`` | what a server listens on, TCP and UDP |
| ``_activation`` | the sockets that systemd passes on |
| ``_listener`` | the QUIC endpoints of a server |
| ``_certificate``, ``_signature`` | a certificate that is renewed while the server runs; changes of a file |
| ``_subject`` | a certificate's subject as text, for ASGI's ``tls`` extension |
| ``_http2`` | uvicorn's HTTP/2, with an end of requests without content |
| ``_lifespan`` | the application's own start and end |
| ``_shield`` | a shield against the cancel scopes of anyio, for the end of a server |
| ``_cancellations`` | the log lines of applications that a stop cancels |
| ``_reloader`` | the process above a server that ``--reload`` replaces |
| ``_supervisor`` | the process above several workers |
| ``_worker`` | one worker process, from both sides |
| ``_serving`` | running a server until it ends: in this process, below ``--reload``, or in workers |
| ``_descriptors`` | the limit of open files, and the three standard descriptors |
| ``_shared_folder`` | folders that the processes of a server share |
| ``_reset_key`` | the key of stateless resets that ``http3_reset_key`` names |
| ``_ports`` | UDP ports that workers share, and who has which place |
| ``gunicorn`` | gunicorn's worker class |
| ``_terminal`` | whether SIGHUP came of a terminal's end |
| ``_service`` | what all HTTP/3 connections of a server share |
| ``_connection`` | the life of one HTTP/3 connection |
| ``_limits`` | what a server takes on |
| ``_lingering`` | TCP connections that would outlast a stopping server |
| ``_watch`` | whether a stopping connection's client is there |
| ``_log`` | the access log, and what goes wrong |
| ``_json_log`` | the log as JSON |
| ``_observer`` | what counts requests, and answers for the pages below |
| ``_shared_result`` | a report that concurrent callers share |
| ``_counts``, ``_report`` | what is counted as it happens; how a server stands at one moment |
| ``_metrics``, ``_status_page`` | what a report is called for Prometheus; what a browser shows |
| ``_metrics_port`` | a TCP port of their own for metrics |
| ``_worker_reports`` | the processes of one server, which tell each other |
| ``_scope`` | the part of ASGI's scope that all requests share |
| ``_webtransport`` | sessions, each an application's |

Requests themselves are answered in the extension: a scope, a task that runs the application, and
what its ``receive`` and ``send`` do.

WebSocket (RFC 9220) is what it is over HTTP/1.1, with uvicorn's ``ws_`` options and without compression.
A request that comes as 0-RTT data runs at once if it may be repeated and an address validation token
proves where its client is. It says so to the application
(``scope["extensions"]["uringcore.early_data"]`` and ``early-data: 1``). Every other one waits for the
handshake: ``http3_early_data``. ``scope["client"]``, the access log and ``--forwarded-allow-ips`` use the
last address that the client has proved to be at (RFC 9000 sections 8 and 9.3), so a packet from a forged
source changes none of them. Responses are served by the priority that their client asks for (RFC 9218), or
by the one in the application's own ``priority`` header.

WebTransport sessions come on the same port, with a scope of the type ``webtransport``:
:mod:`uringcore.webtransport._asgi` has the messages. An application that raises for such a scope is left
alone, and its clients get a 501.

HTTP datagrams (RFC 9297): an application that speaks a protocol of extended CONNECT, such as
``connect-udp`` (RFC 9298), has its name given by ``http3_connect``. Its requests are ``http`` scopes
with the method ``CONNECT`` and ``scope["extensions"]["http.datagram"] = {"protocol": "connect-udp",
"max_size": 1180}``. Then ``receive()`` gives ``{"type": "http.datagram.receive", "data": b"..."}`` as
well, and ``send()`` takes ``{"type": "http.datagram.send", "data": b"..."}`` behind
``http.response.start``. A datagram goes as a QUIC DATAGRAM frame, and one above ``max_size`` is lost;
``max_size`` is ``None`` of a client that has no such frames. Where content is capsules (RFC 9297
section 3: ``connect-udp``, or ``capsule-protocol: ?1``) datagrams come and, to such a client, go in
capsules; capsules of other kinds are ignored, and what the application itself sends as content has to
be whole capsules in each message. Nobody waits for a datagram: what finds no room is lost.

What one HTTP/3 client can make the server keep, and for how long, is bounded. Each limit is an option
(``http3_max_requests`` is ``--http3-max-requests``), a field of
:class:`~uringcore.server._limits.HTTP3Limits`, for WebTransport of
:class:`~uringcore.server._limits.SessionLimits`, or, for all connections together, of
:class:`~uringcore.quic.limits.ServerLimits`. Without their ``http3_``:

| what | bound | when full |
| --- | --- | --- |
| a WebSocket's message | ``ws_max_size`` (uvicorn's: 16 MiB) | closed with 1009 |
| a WebSocket's messages that wait | ``ws_max_queue`` (uvicorn's: 32), 256 KiB | the client waits for credit |
| messages above 256 KiB under way | ``max_large_messages`` (4) a connection | the client waits for credit |
| a request's datagrams that wait for the application | 128 KiB | the oldest are dropped |
| a connection's datagrams that wait to be sent | 1 MiB | the oldest are dropped |
| requests of a connection at once | ``max_requests`` (100) | the client waits for a stream |
| requests of a connection in all | ``max_requests_per_connection`` (none) | GOAWAY |
| a request's header section | ``max_header_bytes`` (64 KiB), ``max_header_fields`` (256) | 431, or a reset |
| unfinished header sections of a connection | four times that | H3_EXCESSIVE_LOAD |
| the time for a header section | ``header_timeout`` (10 s) | H3_REQUEST_REJECTED |
| requests given up by the client | ``max_early_resets`` (1,000), then 33 a second | H3_EXCESSIVE_LOAD |
| a request's body, not yet received | 256 KiB, and a window of 1 MiB | the client waits for credit |
| bodies of a connection together | a window of 8 MiB | as above |
| the time for a body that is waited for | ``body_timeout`` (60 s), ``body_rate`` | 408 |
| a response's body, not yet sent | 128 KiB, queued in parts | ``send`` waits until 32 KiB are left |
| responses of a connection together | 4 MiB, and a part a stream | as above |
| a client that takes nothing of a response | ``send_timeout`` (10 min), or of one before it | reset |
| a client that takes little of it | ``send_rate`` (240 bytes a second), ``send_rate_grace`` (60 s) | reset |
| files open for responses that wait | ``max_open_files`` (16) | opened again for each part |
| files of the process | ``max_process_files`` (1/4 of RLIMIT_NOFILE, 16,384 at most) | opened later |
| sessions of a connection at once | ``max_sessions`` (1,024) | H3_REQUEST_REJECTED |
| a session's streams | ``max_session_streams``, ``max_session_uni_streams`` (256) | the client waits |
| a session's data, not yet received | ``session_window`` (16 MiB), and the windows above | the client waits |
| a session's datagrams, not yet received | ``session_datagram_buffer`` (1 MiB) | the oldest are dropped |
| a client's silence | ``idle_timeout`` (30 s) | the connection is closed |
| a connection without requests | ``keep_alive`` (120 s) | as above |
| connections and handshakes | ``max_connections``, ``max_handshakes`` and others | refused, or a Retry |
| traces (``qlog_dir``) | ``qlog_trace_bytes`` and others | cut, or the oldest are removed |
| what all clients make the server hold | ``memory`` (a quarter of what there is) | H3_EXCESSIVE_LOAD |
| what clients of one address hold of it | as much as is left | 64 KiB of credit at a time |
| log lines that a client causes | ``log_lines`` (10), then one a minute | left out and counted |
| log lines that all clients cause | 20 times that | as above |
| the same silence in a graceful stop | 1 s, with open requests 3 s | the connection is closed |
| a closed TCP connection's client, in a graceful stop | 1 s | its last word is not waited for |
| a TCP client whose handshake was under way at the stop | 1 s without a request | it is closed |
| a graceful stop | ``timeout_graceful_shutdown`` (30 s) | applications are cancelled |
| its wait for the last acknowledgements | 10 s | the connection is closed |
| a forced stop's wait for applications that it has cancelled | 1 s | left to the loop's end |

Files of ``http.response.pathsend`` and ``zerocopysend`` have places of the process's, shared among client
addresses (IPv6 by /64): a client that reads slowly costs no descriptor that another one needs. Where all
places are in use, or the system has no descriptor left, a response waits and its file is opened later. Files
that the application opens itself, and TCP clients, are not counted. The command, and :func:`run`, raise the
soft limit of RLIMIT_NOFILE to the hard one (up to 524,288) at the start, and programs that the server starts
inherit that; a :class:`Server` that a program runs by itself, and gunicorn, leave the limit alone. The hard
limit (``LimitNOFILE=`` of a systemd unit, ``ulimit -Hn``) bounds all descriptors.

Signals, as uvicorn's. SIGTERM and SIGINT stop gracefully, a second SIGINT at once, also during start-up;
programs that replace uvicorn's ``Server.handle_exit`` are called. With ``--workers`` a third kills, and a
worker that never gets started is killed after ``timeout_graceful_shutdown``. With workers
SIGHUP replaces all processes, one after the other: the new one serves before the old one is told, no
connection is refused meanwhile, HTTP/3 clients get GOAWAY and HTTP/1.1 clients ``connection: close`` with
their next response. SIGTTIN and SIGTTOU change the number of workers. Without workers SIGHUP reads the
certificate again, as a change of its files does in any case.

Sockets may be given: ``--fd`` and ``--http3-fd``, systemd's (``ListenStream=`` and ``ListenDatagram=``, told
apart by their type), or as ``Server(config).run(sockets=[...])`` of :mod:`uringcore.server._server`. Workers
need a UDP port of their own (``--http3-port``): a UDP socket is one process's.

Needs the extra ``uringcore[server]``; importing this package itself does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uringcore.server._startup import StartupError, require_uvicorn

if TYPE_CHECKING:
    from uringcore.server._config import Config
    from uringcore.server._server import Server

__all__ = ["Config", "Server", "StartupError", "run"]


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
    from uringcore.server._serving import serve

    serve(Config(app, **options))


# Hidden from type checkers: a module with a `__getattr__` has every name for them, misspelt ones included.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """``Config`` and ``Server``, when they are asked for: they need uvicorn, this package does not."""
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
