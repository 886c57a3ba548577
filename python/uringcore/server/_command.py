"""The command ``uringcore module:app``: uvicorn's options, and ours beside them.

The options are copied from the installed uvicorn, so options of later versions work as well. _config.py
defines their meaning, and _options_without_effect.py the ones that HTTP/3 ignores.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
from dataclasses import asdict
from typing import Any

import click
from click.core import ParameterSource
from uvicorn.main import main as uvicorn_command

from uringcore import _uringcore
from uringcore._private_files import warn_if_exposed
from uringcore.quic._qlog_files import TraceLimits
from uringcore.quic.limits import RetryPolicy
from uringcore.server._config import EARLY_DATA, LOOP, Config
from uringcore.server._http3_limits import limit_options
from uringcore.server._options_without_effect import PLACES, idle_options, option_name
from uringcore.server._startup_errors import StartupError, ended_by_sigterm
from uringcore.server._web_options import WebOptions

__all__ = ["command"]

# Options that the command line gives as tuples and Config takes as lists or None, as in uvicorn's own
# command.
LISTS = ("reload_dirs", "reload_includes", "reload_excludes")

SAID = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)

logger = logging.getLogger("uvicorn.error")

RETRY_POLICIES: dict[str, RetryPolicy] = {"auto": "auto", "always": True, "never": False}

LIMIT_HELP = {
    "max_requests": "Requests that one HTTP/3 connection may have open at once.",
    "max_requests_per_connection": "Requests of one HTTP/3 connection in all, then GOAWAY.",
    "max_header_bytes": "Size of an HTTP/3 request's headers above which 431 is answered.",
    "max_header_fields": "Fields of an HTTP/3 request's headers above which 431 is answered.",
    "max_early_resets": "Requests that an HTTP/3 or HTTP/2 client may cancel before a response, at once.",
    "early_reset_rate": "Requests a second that an HTTP/3 client may cancel beyond --http3-max-early-resets.",
    "header_timeout": "Seconds for a request's headers to be complete.",
    "body_timeout": "Seconds that an application waits for more of a request's body; then 408.",
    "body_rate": "Bytes of a body that extend its time limit by one second.",
    "send_timeout": "Seconds within which a client must read something of a waiting response.",
    "send_rate": "Bytes a second that a client must read of waiting responses; it may fall "
    "--http3-send-rate-grace behind. 0: no minimum rate.",
    "send_rate_grace": "Seconds that a client may fall behind --http3-send-rate. A gap in which it reads "
    "nothing counts as this long at most; --http3-send-timeout ends longer ones.",
    "keep_alive": "Seconds after which an HTTP/3 connection without requests is closed.",
    "max_open_files": "Files that stay open for waiting responses of one HTTP/3 connection.",
    "max_process_files": "Files open for HTTP/3 responses of a process, shared among client addresses.",
    "max_large_messages": "Concurrent WebSocket messages above 256 KiB on one HTTP/3 connection.",
    "max_sessions": "Concurrent WebTransport sessions on one HTTP/3 connection.",
    "max_session_streams": "Streams that a client may have open in one WebTransport session.",
    "max_session_uni_streams": "Unidirectional streams that a client may have open in one session.",
    "session_window": "Unread bytes of one WebTransport session, if its draft has flow control of sessions.",
    "session_datagram_buffer": "Bytes of one session's datagrams that may wait for the application.",
    "max_connections": "Concurrent HTTP/3 connections.",
    "max_connections_per_address": "Concurrent HTTP/3 connections from one IPv4 address or IPv6 /64.",
    "memory": "Bytes that the server may hold for HTTP/3 clients, in all its processes together.",
    "accept_rate": "HTTP/3 connections accepted a second, beyond --http3-accept-burst.",
    "accept_burst": "HTTP/3 connections accepted at once after an idle period.",
    "max_handshakes": "Concurrent HTTP/3 handshakes.",
    "retry_handshakes": "Number of concurrent handshakes from which on --http3-retry auto sends Retries.",
    "handshake_timeout": "Seconds that a handshake may take.",
}

UNSAID = {
    "max_connections_per_address": "a quarter of --http3-max-connections, 8,192 at most",
    "max_process_files": "a quarter of RLIMIT_NOFILE, 16,384 at most",
    "memory": "a quarter of the memory, divided by --workers",
    "accept_burst": "one second of --http3-accept-rate",
}
"""The default in words, for limits whose default is not a number."""

TRACE_HELP = {
    "trace_bytes": "Bytes of one trace, which ends at this size.",
    "total_bytes": "Bytes of all traces in the folder; the oldest are removed.",
    "traces": "Traces in the folder; the oldest are removed.",
    "open_traces": "HTTP/3 connections that are traced at the same time, in each process.",
}


def our_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--http3/--no-http3"],
            default=True,
            show_default=True,
            help="Serve HTTP/3 on the UDP port of the same number.",
        ),
        click.Option(
            ["--dev-cert"],
            is_flag=True,
            help="Make a certificate for localhost, valid for 14 days, and print its hashes.",
        ),
        click.Option(
            ["--backend"],
            type=click.Choice(["uring", "epoll"]),
            default=None,
            help="Use only this backend of the event loop.  [default: io_uring where it works]",
        ),
        click.Option(
            ["--http3-port"],
            type=click.IntRange(0, 65535),
            help="UDP port of HTTP/3.  [default: --port; none beside --uds and --fd]",
        ),
        click.Option(
            ["--http3-fd"],
            type=int,
            help="Serve HTTP/3 on the UDP socket with this file descriptor.",
        ),
        click.Option(
            ["--http3-idle-timeout"],
            type=click.FloatRange(min=1),
            default=30.0,
            show_default=True,
            help="Close an HTTP/3 connection without requests after this many seconds of silence.",
        ),
        click.Option(
            ["--http3-retry"],
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            show_default=True,
            help="When new HTTP/3 clients must prove their address first, which takes one more round trip.",
        ),
        click.Option(
            ["--http3-early-data"],
            type=click.Choice(EARLY_DATA),
            default="safe",
            show_default=True,
            help="0-RTT requests: safe methods of clients with an address token run at once, and others wait "
            "for the handshake; with refuse, unsafe methods get 425.",
        ),
        click.Option(
            ["--http3-webtransport/--no-http3-webtransport"],
            default=True,
            show_default=True,
            help="Accept WebTransport sessions (ASGI scope 'webtransport').",
        ),
        click.Option(
            ["--http3-connect"],
            metavar="PROTOCOL",
            multiple=True,
            help="Pass requests of extended CONNECT with this protocol (for example connect-udp) to the "
            "application, with HTTP datagrams.",
        ),
        click.Option(
            ["--http3-token-key"],
            type=click.File("rb"),
            help="File with a secret of at least 32 bytes: address tokens stay valid after a restart.",
        ),
        click.Option(
            ["--http3-reset-key"],
            type=click.File("rb"),
            help="File with a secret of at least 32 bytes for stateless resets: after a restart on the same "
            "address the server ends its former connections at once. Each machine derives its key from the "
            "secret and its host name, which must not change: a container needs a fixed one.",
        ),
        click.Option(
            ["--http3-reset-group"],
            metavar="NAME",
            help="Derive one reset key for all machines with this name and one secret. Only behind a load "
            "balancer that routes packets by connection ID: behind any other, anybody could end connections.",
        ),
        click.Option(
            ["--ssl-sni-certificate"],
            metavar="HOST=CERTFILE:KEYFILE",
            multiple=True,
            help="Certificate for clients that request this host, over each HTTP version; others get that of "
            "--ssl-certfile. *.NAME stands for all hosts with one more label.",
        ),
        click.Option(
            ["--http3-log-lines"],
            type=click.IntRange(min=1),
            default=10,
            show_default=True,
            help="Log lines that one HTTP/3 client may cause at once, then one a minute; "
            "all clients together may cause 20 times as many.",
        ),
        click.Option(
            ["--http3-qlog-dir"],
            type=click.Path(file_okay=False),
            help="Folder for qlog traces of HTTP/3 connections, at most --http3-qlog-open-traces at a time. "
            "For diagnosis, not for permanent use.",
        ),
        *options_of_web(),
        *options_of_traces(),
        *options_of_observability(),
        *options_of_limits(),
    ]


def options_of_web() -> list[click.Parameter]:
    """The options of files and compression."""
    defaults = WebOptions()
    return [
        click.Option(
            ["--static"],
            metavar="/PREFIX=FOLDER",
            multiple=True,
            help="Serve the files of this folder below this path, over each HTTP version. Below the prefix / "
            "the application gets the requests for which there is no file.",
        ),
        click.Option(
            ["--static-cache-control"],
            metavar="VALUE",
            help="Cache-Control of the files of --static.",
        ),
        click.Option(
            ["--compress"],
            is_flag=True,
            help="Compress responses for clients that accept it, over HTTP/3 and --http native.",
        ),
        click.Option(
            ["--compress-codings"],
            default=",".join(defaults.codings),
            show_default=True,
            help="Codings of --compress, in the order of preference.",
        ),
        click.Option(
            ["--compress-min-size"],
            type=click.IntRange(min=0),
            default=defaults.compress_min_size,
            show_default=True,
            help="Bytes of content below which responses are not compressed.",
        ),
        click.Option(
            ["--compress-level"],
            type=click.IntRange(1, 9),
            help="1 (fast) to 9 (small).  [default: zstd 3, br 4, gzip 6]",
        ),
        click.Option(
            ["--compress-streams"],
            type=click.IntRange(min=0),
            default=defaults.compress_streams,
            show_default=True,
            help="Responses of a process that are compressed at the same time, without those of up to "
            "128 KiB in one message. Further ones are not compressed.",
        ),
        click.Option(
            ["--proxy-protocol"],
            is_flag=True,
            help="Expect a header of the PROXY protocol (version 1 or 2) before TLS and HTTP on each TCP "
            "connection. Only peers of --forwarded-allow-ips may connect.",
        ),
        click.Option(
            ["--proxy-protocol-timeout"],
            type=click.FloatRange(min=0, min_open=True),
            default=defaults.proxy_protocol_timeout,
            show_default=True,
            help="Seconds within which this header must be complete.",
        ),
        click.Option(
            ["--redirect-http"],
            metavar="PORT",
            type=click.IntRange(0, 65535),
            help="Redirect requests on this TCP port of --host to HTTPS (308), if the certificate is for "
            "their host.",
        ),
        click.Option(
            ["--redirect-https-port"],
            type=click.IntRange(1, 65535),
            help="Port of HTTPS in these redirects.  [default: --port]",
        ),
        click.Option(
            ["--request-ids"],
            is_flag=True,
            help="Give each request an identifier and a W3C trace context: in scope['state'], in the log, "
            "and as X-Request-ID, which proxies of --forwarded-allow-ips may set.",
        ),
        click.Option(
            ["--wsgi-threads"],
            type=click.IntRange(min=1),
            default=defaults.wsgi_threads,
            show_default=True,
            help="Threads of a process for the requests of a WSGI application.",
        ),
        click.Option(
            ["--request-hook"],
            metavar="MODULE:ATTRIBUTE",
            help="Object whose methods request_started and request_ended observe each request, with "
            "OpenTelemetry's attributes.",
        ),
    ]


def options_of_traces() -> list[click.Parameter]:
    """One option for each bound of --http3-qlog-dir's traces."""
    return [
        click.Option(
            [f"--http3-qlog-{name.replace('_', '-')}"],
            type=int,
            default=value,
            show_default=True,
            help=TRACE_HELP[name],
        )
        for name, value in asdict(TraceLimits()).items()
    ]


def options_of_observability() -> list[click.Parameter]:
    """The options of the log, of the metrics and of the status page."""
    return [
        click.Option(
            ["--log-format"],
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="Form of the log. JSON is one object a line, also in the access log.",
        ),
        click.Option(
            ["--metrics-path"],
            metavar="PATH",
            help="Serve metrics for Prometheus at this path. Every client of the server can read them.",
        ),
        click.Option(
            ["--metrics-port"],
            type=click.IntRange(0, 65535),
            help="Serve the metrics on this TCP port instead, without TLS.  [path: /metrics]",
        ),
        click.Option(
            ["--metrics-host"],
            default="127.0.0.1",
            show_default=True,
            help="The address of the metrics port.",
        ),
        click.Option(
            ["--status-page"],
            metavar="PATH",
            help="Serve a page with connections, rates and round trips at this path, to every client.",
        ),
        click.Option(
            ["--status-on-metrics-port"],
            is_flag=True,
            help="Serve the status page on --metrics-port only.",
        ),
    ]


def options_of_limits() -> list[click.Parameter]:
    """One option for each limit. A limit without a line in ``LIMIT_HELP`` raises ``KeyError`` when this
    module is imported."""
    return [
        click.Option(
            [f"--http3-{name.replace('_', '-')}"],
            type=option.type,
            default=None if name in UNSAID else option.default,
            show_default=UNSAID.get(name, "no limit" if option.default is None else True),
            help=LIMIT_HELP[name],
        )
        for name, option in limit_options().items()
    ]


def uvicorn_options() -> list[click.Parameter]:
    options: list[click.Parameter] = []
    for original in uvicorn_command.params:
        option = copy.copy(original)
        if option.name == "version":
            option = click.Option(
                ["--version"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=print_version,
                help="Display the versions of uringcore, uvicorn and Python and exit.",
            )
        elif option.name == "loop":
            option.default = LOOP
        elif option.name == "interface" and isinstance(option, click.Option):
            option.help = "Interface of the application. 'auto' also detects WSGI (Flask, Django)."
        elif option.name == "http" and isinstance(option, click.Option):
            option.metavar = f"[native|uvicorn|{(option.metavar or '').strip('[]')}]"
            option.help = (
                "HTTP/1.1 implementation. 'native' is uringcore's own, which has HTTP/2, WebSocket and the "
                "limits of the --http3- options. 'uvicorn' leaves the choice to uvicorn. 'auto' is "
                "'native', or 'uvicorn' if --ws names a class of uvicorn's."
            )
        elif option.name == "ws" and isinstance(option, click.Option):
            option.help = (
                "WebSocket implementation. 'auto' is that of --http; the classes are uvicorn's, and need "
                "its HTTP/1.1."
            )
        elif option.name == "timeout_graceful_shutdown":
            option.default = 30
        elif option.name == "port":
            option.type = click.IntRange(0, 65535)
        place = PLACES.get(option.name or "")
        if place is not None and isinstance(option, click.Option):
            option.help = f"{option.help}  [TCP alone: {place}]"
        options.append(option)
    return options


def print_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if not value or context.resilient_parsing:
        return
    import platform

    import uvicorn

    click.echo(
        f"uringcore {_uringcore.__version__} with uvicorn {uvicorn.__version__}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )
    context.exit()


def start(app: str, **options: Any) -> None:
    """Checks the options, then serves."""
    app_dir = options.pop("app_dir", None)
    if app_dir is not None:
        sys.path.insert(0, app_dir)
    for name in LISTS:
        options[name] = list(options.get(name) or ()) or None
    try:
        with ended_by_sigterm():
            options["http3_retry"] = RETRY_POLICIES[options["http3_retry"]]
            keys: dict[str, str] = {}
            for kind in ("token", "reset"):
                name = f"http3_{kind}_key"
                if options[name] is not None:
                    keys[kind] = options[name].name
                    options[name] = options[name].read()
            if options.get("log_config") is None:
                # uvicorn uses its own logging configuration only if `log_config` is absent. With None it
                # would configure no logging at all.
                options.pop("log_config", None)
            for name in UNSAID:
                if options[f"http3_{name}"] is None:
                    # The option was not given. It is removed, because None may mean that there is no limit.
                    del options[f"http3_{name}"]
            options["headers"] = [header_pair(text) for text in options.get("headers") or ()]
            config = Config(app, **options)
            # SIGHUP reads these files again, but not keys from standard input.
            config.keys.files = {kind: path for kind, path in keys.items() if os.path.isfile(path)}
            for path in config.keys.files.values():
                warn_if_exposed(path, logger)
            for line in idle_options(given_options(options), config, http3=config.http3):
                logger.warning(line)
            # Half of what the command imports; a command line that is refused needs nothing of it.
            from uringcore.server._run_modes import serve

            serve(config)
    except StartupError as exc:
        text = str(exc)
        if exc.option is not None:
            text = option_name(exc.option) + text.removeprefix(exc.option)
        click.echo(f"Error: {text}", err=True)
        sys.exit(exc.status)


def given_options(options: dict[str, Any]) -> set[str]:
    """Returns the options that the user has given, on the command line or in the environment."""
    context = click.get_current_context()
    return {name for name in options if context.get_parameter_source(name) in SAID}


def header_pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator:
        raise StartupError(f"--header: {text!r} is not of the form Name:Value")
    return name.strip(), value.strip()


command = click.Command(
    "uringcore",
    callback=start,
    params=[*uvicorn_options(), *our_options()],
    context_settings=uvicorn_command.context_settings,
    help="Serve the ASGI application APP (module:attribute) over HTTP/1.1 and HTTP/3.\n\n"
    "`uringcore get URL` fetches a URL over HTTP/3; see `uringcore get --help`.",
)
