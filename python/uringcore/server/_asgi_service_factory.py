"""Makes the service of the extension that runs the application for requests of one version of HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config as UvicornConfig
from uvicorn.server import Server as UvicornServer

from uringcore._uringcore import AsgiService
from uringcore.server._common_asgi_scope import (
    DEBUG_EXTENSIONS,
    EXTENSIONS,
    common_scope,
    encode_path,
)
from uringcore.server._http3_limits import websocket_limits
from uringcore.server._http3_shared_state import direct
from uringcore.server._request_log import RequestLog

__all__ = ["logs_access", "make_asgi"]

logger = logging.getLogger("uvicorn.error")


def make_asgi(
    server: UvicornServer,
    log: RequestLog,
    overloaded: Callable[[], bool],
    http_version: str,
    scheme: str,
) -> AsgiService:
    """Makes the service. It calls ``overloaded`` only if the options limit the concurrency."""
    config = server.config
    extensions: dict[str, Any] = dict(EXTENSIONS)
    if logger.isEnabledFor(logging.DEBUG):
        extensions.update(DEBUG_EXTENSIONS)
    return AsgiService(
        config.loaded_app,
        event_loop=asyncio.get_running_loop(),
        scope=common_scope(
            asgi_version=config.asgi_version,
            root_path=config.root_path,
            http_version=http_version,
            scheme=scheme,
        ),
        root_path=config.root_path,
        raw_root_path=encode_path(config.root_path),
        state=server.lifespan.state,
        extensions=extensions,
        tasks=server.server_state.tasks,
        report=log.report,
        log_access=log.access if logs_access(config) else None,
        overloaded=None if config.limit_concurrency is None else overloaded,
        fresh_context=getattr(config, "reset_contextvars", False),
        websockets=websocket_limits(config),
        direct=direct(config.loaded_app),
        compression=getattr(config, "compression", None),
        repeats_files=repeats_files(config),
    )


def repeats_files(config: UvicornConfig) -> bool:
    """True if the extension may answer requests for files itself: nothing else observes the requests."""
    web = getattr(config, "web", None)
    return (
        web is not None
        and not web.request_ids
        and web.request_hook is None
        and getattr(config, "observer", None) is None
        and not logs_access(config)
        and config.limit_concurrency is None
    )


def logs_access(config: UvicornConfig) -> bool:
    """True if requests are written to the access log."""
    return config.access_log and logging.getLogger("uvicorn.access").hasHandlers()
