"""The transport behind one QUIC stream's reader and writer.

:mod:`uringcore.asyncio.protocol` makes these and calls them for the connection's events.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from uringcore._stored_exceptions import without_traceback
from uringcore.quic.connection import QuicConnection

__all__ = ["QuicStreamAdapter"]


class _Connection(Protocol):
    """The attributes of a connection's protocol that a stream uses."""

    _loop: asyncio.AbstractEventLoop
    _quic: QuicConnection
    _streams: dict[int, QuicStreamAdapter]

    def transmit(self) -> None: ...
    async def drain(self, stream_id: int | None = None) -> None: ...


class QuicStreamAdapter(asyncio.Transport):
    """A QUIC stream as an asyncio transport, for the stream's ``StreamReader`` and ``StreamWriter``."""

    def __init__(self, protocol: _Connection, stream_id: int) -> None:
        super().__init__({"stream_id": stream_id})
        self.protocol = protocol
        self.stream_id = stream_id
        self.reader: asyncio.StreamReader | None = None
        self.reading: bool = True
        self.writing: bool = protocol._quic._stream_can_send(stream_id)
        self.write_error: Exception | None = None
        self._closing = False
        self._close_waiter: asyncio.Future[None] | None = None

    # asyncio.Transport --------------------------------------------------------------------------

    def can_write_eof(self) -> bool:
        """True if this side can send on the stream."""
        return self.protocol._quic._stream_can_send(self.stream_id)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queues ``data``. On a stream that has failed it is discarded, as in asyncio."""
        if self._closing:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self.write_error is not None:
            return
        try:
            self.protocol._quic.send_stream_data(self.stream_id, data)
        except ConnectionResetError as exc:
            self.write_failed(exc)
        self.protocol.transmit()

    def write_eof(self) -> None:
        """Ends the sending direction of the stream, after the queued data."""
        if self._closing:
            return
        self._closing = True
        if self.write_error is not None or not self.writing:
            return
        try:
            self.protocol._quic.send_stream_data(self.stream_id, b"", end_stream=True)
        except ConnectionResetError as exc:
            self.write_failed(exc)
        self.protocol.transmit()

    def close(self) -> None:
        """Ends the sending direction. The peer's data can still be read to its end."""
        if self.can_write_eof():
            self.write_eof()
        else:
            self._closing = True

    def abort(self) -> None:
        """Resets the sending direction and stops the receiving one, with error code 0."""
        quic = self.protocol._quic
        self._closing = True
        # This raises an exception if the peer has ended the direction, while the event of that is not handled
        # yet.
        if self.writing:
            with contextlib.suppress(ConnectionResetError):
                quic.reset_stream(self.stream_id, 0)
            self.write_failed(ConnectionResetError("the stream was aborted"))
        if self.reading:
            with contextlib.suppress(ConnectionResetError):
                quic.stop_stream(self.stream_id, 0)
            self.read_failed(ConnectionResetError("the stream was aborted"))
        self.protocol.transmit()

    def is_closing(self) -> bool:
        """True if the sending direction has ended."""
        return self._closing

    def get_write_buffer_size(self) -> int:
        """The number of bytes that wait to be sent."""
        return self.protocol._quic.get_send_buffer_size(self.stream_id)

    def pause_reading(self) -> None:
        """Stops reading: the peer runs out of credit and stops sending."""
        if self.reading:
            self.protocol._quic.pause_stream(self.stream_id)
            self.protocol.transmit()

    def resume_reading(self) -> None:
        """Resumes reading."""
        if self.reading:
            self.protocol._quic.resume_stream(self.stream_id)
            self.protocol.transmit()

    # Calls of the protocol ------------------------------------------------------------------------

    def data_received(self, data: bytes, end_stream: bool) -> None:
        """Passes received data to the reader, and the end of the stream."""
        if self.reader is None or not self.reading:
            return
        self.reader.feed_data(data)
        if end_stream:
            self.read_ended()

    def read_ended(self) -> None:
        """Ends the reader's data."""
        if self.reading and self.reader is not None:
            self.reading = False
            self.reader.feed_eof()
            self._forget_if_over()

    def read_failed(self, error: Exception) -> None:
        """Makes the reader raise ``error``."""
        if self.reading and self.reader is not None:
            self.reading = False
            self.reader.set_exception(error)
            self._forget_if_over()

    def write_finished(self) -> None:
        """Called when the peer has acknowledged all sent data and the end of the sending direction."""
        self.writing = False
        if self._close_waiter is not None and not self._close_waiter.done():
            self._close_waiter.set_result(None)
        self._forget_if_over()

    def write_failed(self, error: Exception) -> None:
        """Makes the writer raise ``error``."""
        if self.writing:
            self.write_error = error
            self.write_finished()

    def close_waiter(self) -> asyncio.Future[None]:
        """Returns a future that is done when the sending side has ended."""
        if self._close_waiter is None:
            self._close_waiter = self.protocol._loop.create_future()
            if not self.writing:
                self._close_waiter.set_result(None)
        return self._close_waiter

    def _forget_if_over(self) -> None:
        if not self.reading and not self.writing:
            self.protocol._streams.pop(self.stream_id, None)


class StreamFlow:
    """The methods of a protocol that ``StreamWriter`` calls."""

    def __init__(self, adapter: QuicStreamAdapter) -> None:
        self._adapter = adapter

    async def _drain_helper(self) -> None:
        if self._adapter.write_error is not None:
            raise without_traceback(self._adapter.write_error)
        await self._adapter.protocol.drain(self._adapter.stream_id)

    def _get_close_waiter(self, stream: asyncio.StreamWriter) -> asyncio.Future[None]:
        return self._adapter.close_waiter()
