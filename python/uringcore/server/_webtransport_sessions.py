"""The WebTransport sessions of one server: an application task serves each of them.

ASGI requires an application to raise for a scope whose type it does not support. An application that raises
before it has sent a message or used the extension with the session object is assumed not to support
sessions: its clients get a 501.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable
from typing import Any

from uvicorn.server import ServerState

from uringcore._uringcore import WebTransportLimits
from uringcore.quic._errors import DatagramSendError, QuicError
from uringcore.webtransport._asgi import Application, AsgiSession
from uringcore.webtransport._session_lifecycle import SessionState

__all__ = ["SessionService"]

logger = logging.getLogger("uvicorn.error")


class SessionService:
    """The state that all sessions of one server share. ``report``, ``log_access`` and ``fresh_context`` come
    from ``AsgiService``; a session counts as a request in ``state``.
    """

    close_timeout = 5.0
    """Seconds that a session's end waits until the client has received the data that was sent."""

    def __init__(
        self,
        application: Application,
        *,
        limits: WebTransportLimits,
        state: ServerState,
        report: Callable[[str, str, Any], object],
        log_access: Callable[[dict[str, Any], int], object] | None,
        fresh_context: bool,
    ) -> None:
        self.default_headers: list[tuple[bytes, bytes]] = []
        """The first headers of every response to a session request."""
        self.limits = limits
        self._application = application
        self._state = state
        self._report = report
        self._log_access = log_access
        self._fresh_context = fresh_context
        self._is_foreign_told = False

    def run(self, link: SessionState, scope: dict[str, Any]) -> None:
        """Runs the application for a session that a client requests."""
        session = AsgiSession(link, scope)
        context = contextvars.Context() if self._fresh_context else contextvars.copy_context()
        task = context.run(link.loop.create_task, self._run(session, link))
        self._state.total_requests += 1
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    async def _run(self, session: AsgiSession, link: SessionState) -> None:
        # The value is read now, because the application or a proxy middleware may change it later.
        client = session.scope.get("client")
        try:
            await session.run(self._application)
        except Exception as error:  # noqa: BLE001 - an application may raise anything
            if session.is_untouched:
                self._log_application_error(error)
            elif session.was_over and is_only(error, QuicError):
                # The application got this exception because its client has disconnected. That is no fault, so
                # it is not logged.
                pass
            elif session.was_abandoned:
                text = "Exception in ASGI application after its client had gone"
                self._report("departure", text, (client, error))
            elif is_only(error, DatagramSendError):
                # A client can cause this exception: it announces the size of datagrams that it accepts, which
                # may be almost zero.
                text = "Exception in ASGI application, whose client takes no such datagram"
                self._report("departure", text, (client, error))
            else:
                self._report("application", "Exception in ASGI application\n", error)
        else:
            if not session.request.is_answered and not session.was_over:
                text = "ASGI callable returned without accepting or refusing the session."
                self._report("application", text, None)
        status = 200 if link.is_open else link.refused_with
        # If the client has disconnected first, no status was sent, so there is nothing to log.
        if status is not None and self._log_access is not None:
            self._log_access({**session.scope, "method": "CONNECT"}, status)

    def _log_application_error(self, error: Exception) -> None:
        if not self._is_foreign_told:
            self._is_foreign_told = True
            logger.info("WebTransport sessions are refused: the application raised %r.", error)


def is_only(error: BaseException, kind: type[BaseException]) -> bool:
    """True if an exception is an instance of ``kind``, or a group that contains only such."""
    parts = getattr(error, "exceptions", None)
    if isinstance(parts, tuple):
        return all(is_only(part, kind) for part in parts)
    return isinstance(error, kind)
