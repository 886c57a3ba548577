"""The environment of a WSGI request (PEP 3333), from an ASGI scope."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["environ_of"]

UNSAFE = frozenset({b"proxy"})
"""Fields that CGI's names would confuse: ``HTTP_PROXY`` is an option of many programs (httpoxy)."""


def environ_of(scope: Any, stream: Any, file_wrapper: Any, *, multiprocess: bool) -> dict[str, Any]:
    """Returns the environment. ``stream`` becomes ``wsgi.input``."""
    root = scope.get("root_path", "")
    path = scope["path"]
    if root and path.startswith(root):
        path = path[len(root) :]
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": native(root),
        "PATH_INFO": native(path),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": "HTTP/" + scope["http_version"],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": stream,
        # The end of the content is the end of the stream, also without CONTENT_LENGTH.
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": multiprocess,
        "wsgi.run_once": False,
        "wsgi.file_wrapper": file_wrapper,
    }
    host, port = scope.get("server") or ("localhost", 80)
    # The path of a Unix socket is no name of a host.
    environ["SERVER_NAME"] = "localhost" if port is None else host
    environ["SERVER_PORT"] = str(port or 80)
    if scope.get("client"):
        environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = scope["client"][0], str(scope["client"][1])
    add_fields(environ, scope["headers"])
    return environ


def native(text: str) -> str:
    """Returns a text in the form of PEP 3333: each character is a byte."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def add_fields(environ: dict[str, Any], headers: Any) -> None:
    for name, value in headers:
        # "x_user" and "x-user" would have one name. Proxies check and remove the second one.
        if b"_" in name or name in UNSAFE:
            continue
        text = value.decode("latin-1")
        key = name.decode("latin-1").upper().replace("-", "_")
        if key not in ("CONTENT_LENGTH", "CONTENT_TYPE"):
            key = "HTTP_" + key
        if key in environ:
            separator = "; " if key == "HTTP_COOKIE" else ","
            text = environ[key] + separator + text
        environ[key] = text
