"""uvicorn's options: which of them apply to TCP alone, and which have no effect beside the others.

uvicorn and _config.py implement the options. Every option of uvicorn's has an entry in :data:`PLACES`,
which a test compares with the uvicorn that is installed.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Collection, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from uvicorn.config import LOOP_FACTORIES

from uringcore.quic._available_memory import CONNECTION_BYTES
from uringcore.quic._qlog_files import TraceLimits
from uringcore.server._http3_limits import SessionLimits
from uringcore.server._native_tcp import CONNECT, NATIVE_WS, SHARED_LIMITS
from uringcore.server._systemd_sockets import is_activated

if TYPE_CHECKING:
    from uvicorn.config import Config

__all__ = ["PLACES", "idle_options", "option_name"]

HTTP1_LIMIT = "see --http3-max-header-bytes"

PLACES: dict[str, str | None] = {
    "app": None,
    "host": None,
    "port": None,
    "uds": "HTTP/3 is served on a UDP port",
    "fd": "HTTP/3 is served on a UDP port",
    "reload": None,
    "reload_dirs": None,
    "reload_includes": None,
    "reload_excludes": None,
    "reload_delay": None,
    "workers": None,
    "loop": None,
    "http": "HTTP/3 has one implementation",
    "http2": "HTTP/3 has --http3",
    "ws": "HTTP/3 has one implementation; none disables it",
    "ws_max_size": None,
    "ws_max_queue": None,
    "ws_ping_interval": None,
    "ws_ping_timeout": None,
    "ws_per_message_deflate": None,
    "lifespan": None,
    "interface": None,
    "env_file": None,
    "log_config": None,
    "log_level": None,
    "access_log": None,
    "use_colors": None,
    "proxy_headers": None,
    "server_header": None,
    "date_header": None,
    "forwarded_allow_ips": None,
    "root_path": None,
    "limit_concurrency": None,
    "backlog": "see --http3-max-handshakes",
    "limit_max_requests": None,
    "limit_max_requests_jitter": None,
    "timeout_keep_alive": "see --http3-keep-alive and --http3-idle-timeout",
    "timeout_notify": None,
    "timeout_graceful_shutdown": None,
    "timeout_worker_healthcheck": None,
    "callback_notify": None,
    "ssl_keyfile": None,
    "ssl_certfile": None,
    "ssl_keyfile_password": None,
    "ssl_version": "HTTP/3 uses TLS 1.3 only",
    "ssl_cert_reqs": None,
    "ssl_ca_certs": None,
    "ssl_ciphers": "HTTP/3 uses TLS 1.3 with its three suites",
    "ssl_context_factory": "HTTP/3 needs a certificate file, not a context",
    "headers": None,
    "version": None,
    "app_dir": None,
    "h11_max_incomplete_event_size": HTTP1_LIMIT,
    "reset_contextvars": None,
    "factory": None,
}
"""The reason why an option of uvicorn's applies to TCP alone, in half a line; ``None`` if the option applies
to HTTP/3 too, or to the process."""

SPELLINGS = {
    "headers": "--header",
    "reload_dirs": "--reload-dir",
    "reload_includes": "--reload-include",
    "reload_excludes": "--reload-exclude",
}


def option_name(name: str) -> str:
    """Returns an option as it is spelled on the command line."""
    return SPELLINGS.get(name, "--" + name.replace("_", "-"))


def idle_options(given: Collection[str], config: Config, *, http3: bool) -> Iterator[str]:
    """Yields a line for each option that was given and has no effect beside the others.

    ``given`` are the names of the options that the user has set.
    """
    for names, why in reasons(config, http3=http3):
        for name in sorted(names.intersection(given)):
            yield f"{option_name(name)} does nothing: {why}."
    yield from compression_effects(given, config, http3=http3)
    if not http3:
        shared = SHARED_LIMITS if getattr(config, "is_native_http", False) else frozenset()
        for name in sorted(given):
            if name.startswith("http3_") and name.removeprefix("http3_") not in shared:
                yield f"{option_name(name)} does nothing: HTTP/3 is off."


def compression_effects(given: Collection[str], config: Config, *, http3: bool) -> Iterator[str]:
    """Yields a line if ``--compress`` does not apply to HTTP/1.1: uvicorn's classes do not compress."""
    if "compress" not in given or getattr(config, "is_native_http", False):
        return
    if http3:
        yield "--compress applies to HTTP/3 alone: uvicorn's HTTP/1.1 (--http, --ws) does not compress."
    else:
        yield "--compress does nothing: uvicorn's HTTP/1.1 (--http, --ws) does not compress."


Reasons = Iterator[tuple[frozenset[str], str]]


def reasons(config: Config, *, http3: bool) -> Reasons:
    """Yields the options without effect, and the reasons."""
    yield from reasons_of_sockets(config, http3=http3)
    yield from reasons_of_tls(config)
    yield from reasons_of_processes(config)
    yield from reasons_of_observability(config)
    yield from reasons_of_protocols(config)
    yield from reasons_of_web(config)
    if http3 or getattr(config, "is_native_http", False):
        yield from reasons_of_limits(config)
    if http3:
        yield from reasons_of_http3(config)


def reasons_of_sockets(config: Config, *, http3: bool) -> Reasons:
    how = "--uds" if config.uds is not None else "--fd" if config.fd is not None else None
    if how is None and is_activated(os.environ):
        how = "systemd"
    if how is None:
        return
    yield frozenset({"port"}), f"{how} sets the address"
    # --host applies to UDP if --http3-port is given.
    if not http3 or getattr(config, "http3_port", None) is None:
        yield frozenset({"host"}), f"{how} sets the address"


def reasons_of_tls(config: Config) -> Reasons:
    if not config.is_ssl:
        names = {name for name in PLACES if name.startswith("ssl_")}
        yield frozenset(names), "there is no certificate (--ssl-certfile, --dev-cert)"
    elif not config.ssl_cert_reqs:
        why = "clients are not asked for a certificate (--ssl-cert-reqs 1 or 2)"
        yield frozenset({"ssl_ca_certs"}), why


def reasons_of_processes(config: Config) -> Reasons:
    loop = config.loop
    if loop in LOOP_FACTORIES and loop not in ("auto", "none"):
        yield frozenset({"backend"}), f"--loop {loop} is not uringcore's"
    if config.limit_max_requests is None:
        yield frozenset({"limit_max_requests_jitter"}), "there is no --limit-max-requests"
    if config.reload:
        yield frozenset({"timeout_worker_healthcheck"}), "--reload has no workers"
    else:
        yield frozenset({"reload_delay"}), "there is no --reload"
        if not config.use_subprocess:
            yield frozenset({"timeout_worker_healthcheck"}), "there is no --workers"


def reasons_of_observability(config: Config) -> Reasons:
    if isinstance(config.log_config, str):
        yield frozenset({"log_format", "use_colors"}), "--log-config sets the format"
    elif getattr(config, "log_format", "text") == "json":
        yield frozenset({"use_colors"}), "--log-format json has no colours"
    if getattr(config, "metrics_port", None) is None:
        yield frozenset({"metrics_host"}), "there is no --metrics-port"


def reasons_of_protocols(config: Config) -> Reasons:
    if not config.proxy_headers and not getattr(
        getattr(config, "web", None), "proxy_protocol", False
    ):
        yield frozenset({"forwarded_allow_ips"}), "--no-proxy-headers is given"
    if not uses_h11(config):
        yield frozenset({"h11_max_incomplete_event_size"}), "HTTP/1.1 is not read by h11"
    if config.http == CONNECT and config.ws not in NATIVE_WS:
        yield frozenset({"ws"}), "--http native has one implementation, which none disables"
    why = no_websocket(config)
    if why is not None:
        yield frozenset(name for name in PLACES if name.startswith("ws_")), why


def no_websocket(config: Config) -> str | None:
    """Returns the reason if WebSocket is off for all versions of HTTP, else ``None``."""
    if config.ws == "none":
        return "--ws none serves no WebSocket"
    return "WSGI does not support WebSocket" if config.interface == "wsgi" else None


def reasons_of_limits(config: Config) -> Reasons:
    """Yields reasons for the limits that HTTP/3 and native HTTP/1.1 share."""
    without = no_websocket(config)
    if without is not None:
        yield frozenset({"http3_max_large_messages"}), without
    clients = getattr(config, "quic_limits", None)
    if clients is not None and clients.accept_rate is None:
        yield frozenset({"http3_accept_burst"}), "there is no --http3-accept-rate"
    responses = getattr(config, "http3_limits", None)
    if responses is not None and responses.send_rate == 0:
        yield frozenset({"http3_send_rate_grace"}), "--http3-send-rate 0 sets no minimum rate"


def reasons_of_http3(config: Config) -> Reasons:
    is_wsgi = config.interface == "wsgi"
    if not getattr(config, "http3_webtransport", True):
        names = {f"http3_{field.name}" for field in fields(SessionLimits)}
        why = (
            "WSGI does not support WebTransport"
            if is_wsgi
            else "--no-http3-webtransport accepts no sessions"
        )
        yield frozenset(names), why
    if is_wsgi:
        yield frozenset({"http3_webtransport"}), "WSGI does not support WebTransport"
        yield frozenset({"http3_connect"}), "WSGI does not support extended CONNECT"
    if getattr(config, "http3_qlog_dir", None) is None:
        names = {f"http3_qlog_{field.name}" for field in fields(TraceLimits)}
        yield frozenset(names), "there is no --http3-qlog-dir"
    if getattr(config, "http3_retry", "auto") != "auto":
        yield frozenset({"http3_retry_handshakes"}), "--http3-retry is not auto"
    limits = getattr(config, "quic_limits", None)
    if limits is not None:
        for name, most in limits._too_large_for_memory().items():
            why = f"--http3-memory has room for {most:,} of them, of {CONNECTION_BYTES >> 10} KiB each"
            yield frozenset({f"http3_{name}"}), why


def reasons_of_web(config: Config) -> Reasons:
    web = getattr(config, "web", None)
    if web is None:
        return
    if not web.static:
        yield frozenset({"static_cache_control"}), "there is no --static"
    if not web.proxy_protocol:
        yield frozenset({"proxy_protocol_timeout"}), "there is no --proxy-protocol"
    if web.redirect_http is None:
        yield frozenset({"redirect_https_port"}), "there is no --redirect-http"
    if not web.compress:
        names = {field.name for field in fields(web) if field.name.startswith("compress_")}
        yield frozenset(names), "there is no --compress"


def uses_h11(config: Config) -> bool:
    """True if h11 reads HTTP/1.1: uvicorn's choice if httptools is not installed."""
    if config.http == "auto":
        return importlib.util.find_spec("httptools") is None
    return config.http not in ("httptools", "zttp", CONNECT)
