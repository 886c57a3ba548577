"""The command ``uringcore module:app``: uvicorn's options, and ours beside them.

The options of the installed uvicorn are taken as they are, so a new one of theirs works here at
once. What they mean is _config.py's business, and which of them HTTP/3 keeps to _options.py's.
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
from uringcore.quic._sequence_logger import TraceLimits
from uringcore.quic.limits import RetryPolicy
from uringcore.server._config import EARLY_DATA, LOOP, Config
from uringcore.server._limits import limit_options
from uringcore.server._options import PLACES, idle_options, option_name
from uringcore.server._serving import serve
from uringcore.server._startup import StartupError, ended_by_sigterm

__all__ = ["command"]

# uvicorn's own command turns these from what the command line gives into what Config takes.
LISTS = ("reload_dirs", "reload_includes", "reload_excludes")

SAID = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)

logger = logging.getLogger("uvicorn.error")

RETRY_POLICIES: dict[str, RetryPolicy] = {"auto": "auto", "always": True, "never": False}

LIMIT_HELP = {
    "max_requests": "Requests that one HTTP/3 connection may have open at once.",
    "max_requests_per_connection": "Requests of one HTTP/3 connection in all, then GOAWAY.",
    "max_header_bytes": "Size of an HTTP/3 request's headers above which 431 is answered.",
    "max_header_fields": "Fields of an HTTP/3 request's headers above which 431 is answered.",
    "max_early_resets": "Requests that an HTTP/3 client may give up unanswered, at once.",
    "early_reset_rate": "Requests a second that an HTTP/3 client may go on giving up unanswered.",
    "header_timeout": "Seconds for a request's headers to be complete.",
    "body_timeout": "Seconds that an application waits for the next of a request's body; then 408.",
    "body_rate": "Bytes of a body that earn it a second more.",
    "send_timeout": "Seconds within which a client takes something of a waiting response.",
    "send_rate": "Bytes a second that a client has to take of waiting responses; it may fall "
    "--http3-send-rate-grace behind. 0: no least rate.",
    "send_rate_grace": "Seconds that a client may fall behind --http3-send-rate. A gap in which it takes "
    "nothing counts as this long at most; --http3-send-timeout ends longer ones.",
    "keep_alive": "Seconds after which an HTTP/3 connection without requests is closed.",
    "max_open_files": "Files that stay open for waiting responses of one HTTP/3 connection.",
    "max_process_files": "Files open for HTTP/3 responses of a process, shared among client addresses.",
    "max_large_messages": "WebSocket messages above 256 KiB under way at once on one HTTP/3 connection.",
    "max_sessions": "WebTransport sessions at once on one HTTP/3 connection.",
    "max_session_streams": "Streams that a client may have open in one WebTransport session.",
    "max_session_uni_streams": "Unidirectional streams that it may have open in one WebTransport session.",
    "session_window": "Bytes of one WebTransport session that may wait to be read, where it has credit.",
    "session_datagram_buffer": "Bytes of one session's datagrams that may wait for the application.",
    "max_connections": "HTTP/3 connections at a time.",
    "max_connections_per_address": "HTTP/3 connections at a time from one IPv4 address or IPv6 /64.",
    "memory": "Bytes that HTTP/3 clients may make the server hold, in all its processes together.",
    "accept_rate": "HTTP/3 connections accepted a second, beyond --http3-accept-burst.",
    "accept_burst": "HTTP/3 connections accepted at once after a quiet time.",
    "max_handshakes": "HTTP/3 handshakes under way at a time.",
    "retry_handshakes": "Handshakes under way from which on --http3-retry auto sends Retries.",
    "handshake_timeout": "Seconds that a handshake may take.",
}

UNSAID = {
    "max_connections_per_address": "a quarter of --http3-max-connections, 8,192 at most",
    "max_process_files": "a quarter of RLIMIT_NOFILE, 16,384 at most",
    "memory": "a quarter of the memory, divided by --workers",
    "accept_burst": "one second of --http3-accept-rate",
}
"""The bounds of limits that are no number by default, and have one all the same."""

TRACE_HELP = {
    "trace_bytes": "Bytes of one trace, which ends there.",
    "total_bytes": "Bytes of all traces in the folder: the oldest are removed.",
    "traces": "Traces in the folder: the oldest are removed.",
    "open_traces": "HTTP/3 connections that are traced at once, in each process.",
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
            help="Drop an HTTP/3 connection without requests after this many silent seconds.",
        ),
        click.Option(
            ["--http3-retry"],
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            show_default=True,
            help="When new HTTP/3 clients have to prove their address first, which takes a round trip more.",
        ),
        click.Option(
            ["--http3-early-data"],
            type=click.Choice(EARLY_DATA),
            default="safe",
            show_default=True,
            help="0-RTT requests: safe methods of clients with a token run at once and others wait for the "
            "handshake; with refuse, unsafe methods get 425.",
        ),
        click.Option(
            ["--http3-webtransport/--no-http3-webtransport"],
            default=True,
            show_default=True,
            help="Take WebTransport sessions (ASGI scope 'webtransport').",
        ),
        click.Option(
            ["--http3-connect"],
            metavar="PROTOCOL",
            multiple=True,
            help="Let requests of extended CONNECT with this protocol (connect-udp, say) come to the "
            "application, with HTTP datagrams.",
        ),
        click.Option(
            ["--http3-origin", "http3_origins"],
            metavar="ORIGIN",
            multiple=True,
            help="Tell HTTP/3 clients that this server also serves this origin, for example "
            "https://www.example.org (ORIGIN frame, RFC 9412). The certificate must name it.",
        ),
        click.Option(
            ["--http3-token-key"],
            type=click.File("rb"),
            help="File with a secret of 32 bytes or more: address tokens outlive this process.",
        ),
        click.Option(
            ["--http3-reset-key"],
            type=click.File("rb"),
            help="File with such a secret for stateless resets: a server started again on the same address "
            "ends its former connections at once. Each machine makes another key of it, from its host name, "
            "which has to stay as it is: a container needs a fixed one.",
        ),
        click.Option(
            ["--http3-reset-group"],
            metavar="NAME",
            help="Let all machines with this name and one reset key have one key. Only behind a balancer "
            "that routes packets by connection ID: behind any other, anybody could end connections.",
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
            help="Folder for qlog traces of HTTP/3 connections, of --http3-qlog-open-traces at once. Meant "
            "for finding a fault, not for permanent use.",
        ),
        *options_of_traces(),
        *options_of_sight(),
        *options_of_limits(),
    ]


def options_of_traces() -> list[click.Parameter]:
    """The bounds of what --http3-qlog-dir writes."""
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


def options_of_sight() -> list[click.Parameter]:
    """How a server is seen from outside."""
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
            help="Answer with metrics for Prometheus there. Whoever reaches the server can read them.",
        ),
        click.Option(
            ["--metrics-port"],
            type=click.IntRange(0, 65535),
            help="Answer with them on this TCP port instead, without TLS.  [path: /metrics]",
        ),
        click.Option(
            ["--metrics-host"],
            default="127.0.0.1",
            show_default=True,
            help="The address of that port.",
        ),
        click.Option(
            ["--status-page"],
            metavar="PATH",
            help="Show connections, rates and round trips there, to whoever reaches the server.",
        ),
        click.Option(
            ["--status-on-metrics-port"],
            is_flag=True,
            help="Show that page on --metrics-port, and there alone.",
        ),
    ]


def options_of_limits() -> list[click.Parameter]:
    """One for each limit. A limit without a line in ``LIMIT_HELP`` raises ``KeyError``, when this module is
    imported."""
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
            keys: list[str] = []
            for name in ("http3_token_key", "http3_reset_key"):
                if options[name] is not None:
                    keys.append(options[name].name)
                    options[name] = options[name].read()
            if options.get("log_config") is None:
                # The command's own default, as uvicorn's: a program's None means something else.
                options.pop("log_config", None)
            for name in UNSAID:
                if options[f"http3_{name}"] is None:
                    # Not given. For a program None may stand for no limit at all.
                    del options[f"http3_{name}"]
            options["headers"] = [header_pair(text) for text in options.get("headers") or ()]
            config = Config(app, **options)
            for path in keys:
                # Not what comes by the standard input.
                if os.path.exists(path):
                    warn_if_exposed(path, logger)
            for line in idle_options(said(options), config, http3=config.http3):
                logger.warning(line)
            serve(config)
    except StartupError as exc:
        text = str(exc)
        if exc.option is not None:
            text = option_name(exc.option) + text.removeprefix(exc.option)
        click.echo(f"Error: {text}", err=True)
        sys.exit(exc.status)


def said(options: dict[str, Any]) -> set[str]:
    """The options that the user has given, on the command line or in the environment."""
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
