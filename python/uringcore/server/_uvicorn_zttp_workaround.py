"""uvicorn's HTTP/2 implementation (zttp), with an end of requests that have no content.

zttp 0.0.35 marks the head of a request without content (``end_stream``) and sends no ``EndOfMessage``.
uvicorn 0.54 waits for ``EndOfMessage`` over HTTP/2, so an application that reads the content of a GET would
wait without end. This file can go once uvicorn uses ``end_stream``. It is imported only with the option
``http2``.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.auto_zttp_impl import AutoZttpProtocol
from uvicorn.protocols.http.zttp_h2_impl import ZttpH2Protocol

__all__ = ["HTTP2Protocol", "ZttpProtocol"]


class HTTP2Protocol(ZttpH2Protocol):
    """One connection of HTTP/2."""

    def handle_request(self, event: Any) -> None:
        """Starts the application for a request."""
        super().handle_request(event)
        cycle = self.cycles.get(event.stream_id)
        if cycle is not None and getattr(event, "end_stream", False):
            cycle.more_body = False
            cycle.message_event.set()


class ZttpProtocol(AutoZttpProtocol):
    """A connection that becomes HTTP/1.1 or HTTP/2."""

    def _switch(self, http2: bool, initial_data: bytes = b"") -> None:
        if not http2:
            super()._switch(http2, initial_data)
            return
        protocol = HTTP2Protocol(self.config, self.server_state, self.app_state, self.loop)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        if initial_data:
            protocol.data_received(initial_data)
