"""Checks of a server's addresses and protocols, made before anything starts.

uvicorn would report most of these mistakes after the application's start-up, with a traceback.
_certificate_checks.py checks certificates.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from uvicorn.config import HTTP_PROTOCOLS, STARTUP_FAILURE, WS_PROTOCOLS, Config
from uvicorn.importer import ImportFromStringError, import_from_string

from uringcore.server._native_tcp import CONNECT
from uringcore.server._startup_errors import StartupError

__all__ = [
    "check_environment",
    "check_http3_port",
    "check_metrics_port",
    "check_options",
    "check_paths",
    "check_protocols",
    "check_qlog_dir",
]

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The syntax of a token (RFC 9110 section 5.6.2)."""

ELSEWHERE = {
    "websocket": "served without",
    "webtransport": "not available through this option",
    "webtransport-h3": "not available through this option",
    # Addresses and routes are sent in capsules (RFC 9484 section 4.7), for which ASGI has no messages.
    "connect-ip": "not supported: ASGI has no message for its capsules",
}

UDS_BYTES_MAX = 107
"""The maximum length of the path of a Unix socket: 108 bytes with the terminating zero (unix(7))."""


def check_environment(options: Mapping[str, Any]) -> None:
    """Checks the variables that uvicorn reads with its options. Raises :class:`StartupError`."""
    if options.get("env_file") is not None:
        try:
            importlib.import_module("dotenv")
        except ModuleNotFoundError:
            raise StartupError(
                "--env-file needs python-dotenv, which is not installed: pip install python-dotenv"
            ) from None
    workers = os.environ.get("WEB_CONCURRENCY", "1")
    if options.get("workers") is None and not workers.isdecimal():
        raise StartupError(f"WEB_CONCURRENCY: must be a number of workers, not {workers!r}")


def check_options(config: Config) -> None:
    """Raises :class:`StartupError` with the option at fault and the reason."""
    if not 0 <= config.port <= 65535:
        raise StartupError(f"--port: must be 0 to 65535, not {config.port}")
    if config.uds is not None and config.fd is not None:
        raise StartupError("--uds and --fd: both set the address, so only one of them can be given")
    if config.uds is not None:
        check_uds(config.uds)
    # uvicorn has the option `http2` from 0.53 on.
    if getattr(config, "http2", False) and config.http != "zttp":
        raise StartupError(
            "--http2 needs --http zttp (pip install zttp); the default, --http native, has HTTP/2 without it"
        )
    check_protocol("--http", config.http, HTTP_PROTOCOLS.get(str(config.http)))
    if config.ws != "none" and (config.ws != "auto" or config.http != CONNECT):
        check_protocol("--ws", config.ws, WS_PROTOCOLS.get(str(config.ws)))
    for name, value in config.headers:
        check_header(name, value)


def check_http3_port(port: int | None, fd: int | None) -> None:
    """Raises :class:`StartupError` if both options that name HTTP/3's socket are given."""
    if port is not None and fd is not None:
        raise StartupError(
            "--http3-port and --http3-fd: both set the address of HTTP/3, so only one of them can be given"
        )


def check_uds(path: str) -> None:
    """Raises :class:`StartupError` if bind would fail on the path. Does not change the path."""
    if path.startswith("\0"):
        return  # An abstract socket has no folder.
    folder = Path(path).parent
    if len(os.fsencode(path)) > UDS_BYTES_MAX:
        why = f"longer than the {UDS_BYTES_MAX} bytes that a socket may have"
    elif not folder.is_dir():
        why = f"No such file or directory (the folder {folder} does not exist)"
    elif not os.access(folder, os.W_OK | os.X_OK):
        why = f"Permission denied (the folder {folder} is not writable)"
    elif os.path.lexists(path) and not Path(path).is_socket():
        why = "the file exists and is not a socket"
    else:
        return
    raise StartupError(f"cannot listen on --uds {path}: {why}", status=STARTUP_FAILURE)


def check_protocol(option: str, choice: object, known: str | None) -> None:
    """Imports the protocol's implementation, which the server needs a little later anyway."""
    if not isinstance(choice, str):
        return
    try:
        import_from_string(known or choice)
    except ModuleNotFoundError as exc:
        if known is None:
            raise
        raise StartupError(
            f"{option} {choice} needs {exc.name}, which is not installed: pip install {exc.name}"
        ) from None
    except ImportFromStringError as exc:
        raise StartupError(f"{option} {choice}: {exc}") from None


def check_header(name: str, value: str) -> None:
    try:
        field = name.encode("latin-1") + value.encode("latin-1")
    except UnicodeEncodeError:
        raise StartupError(f"--header: {name}: {value} is not in ISO 8859-1") from None
    if not name or any(byte in field for byte in b"\r\n\0"):
        raise StartupError(f"--header: {name + ':' + value!r} is not of the form Name:Value")


def check_paths(metrics_path: str | None, status_page: str | None, *, one_port: bool) -> None:
    """Checks the paths of the server's own pages, which must differ if they share one port."""
    for option, path in (("--metrics-path", metrics_path), ("--status-page", status_page)):
        if path is not None and (not path.startswith("/") or "?" in path or "#" in path):
            raise StartupError(f"{option}: must be a path that begins with /, not {path!r}")
    if one_port and metrics_path is not None and metrics_path == status_page:
        raise StartupError(f"--metrics-path and --status-page are both {status_page}")


def check_metrics_port(config: Config, host: str, port: int | None) -> None:
    """Checks the metrics port. Other conflicts of addresses are reported when it is bound."""
    status_page = getattr(config, "status_page", None)
    if getattr(config, "status_on_metrics_port", False) and (port is None or status_page is None):
        missing = "--metrics-port" if port is None else "--status-page"
        raise StartupError(f"--status-on-metrics-port: there is no {missing}")
    if port is None:
        return
    if not 0 <= port <= 65535:
        raise StartupError(f"--metrics-port: must be 0 to 65535, not {port}")
    is_given = config.uds is not None or config.fd is not None or "LISTEN_FDS" in os.environ
    if port and (host, port) == (config.host, config.port) and not is_given:
        raise StartupError(f"--metrics-port and --port are both {port}")


def check_protocols(protocols: Iterable[str]) -> None:
    """Checks the protocol names that extended CONNECT requests may use."""
    for name in protocols:
        if not TOKEN.fullmatch(name):
            raise StartupError(f"--http3-connect: {name!r} is not a protocol name")
        if name in ELSEWHERE:
            raise StartupError(f"--http3-connect: {name} is {ELSEWHERE[name]}")


def check_qlog_dir(path: str | None) -> None:
    if path is None:
        return
    if not Path(path).is_dir():
        raise StartupError(f"--http3-qlog-dir: there is no folder {path}")
    if not os.access(path, os.W_OK | os.X_OK):
        raise StartupError(f"--http3-qlog-dir: no permission to write in {path}")
