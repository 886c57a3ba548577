"""Views of aioquic's private tables, for programs that read them: the open streams with their offsets, and
the path.

Each read gets the connection's present state from Rust.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from uringcore._uringcore import QuicConnectionCore

__all__ = ["NetworkPath", "Stream", "StreamCodes", "Streams"]


@dataclass(frozen=True)
class NetworkPath:
    """A path that a connection uses."""

    addr: Any
    """The peer's address, in the form in which ``get_peer_address`` returns it."""

    is_validated: bool
    """True if the peer has proved to receive packets there (RFC 9000 section 8)."""


class StreamCodes:
    """The codes with which this side has reset and stopped streams, which the connection itself does not
    store.
    """

    def __init__(self) -> None:
        self._resets: dict[int, int] = {}
        self._stops: dict[int, int] = {}

    def note_reset(self, stream_id: int, error_code: int) -> None:
        """Records that this side has reset its sending part of a stream."""
        _note(self._resets, stream_id, error_code)

    def note_stop(self, stream_id: int, error_code: int) -> None:
        """Records a request to stop sending."""
        _note(self._stops, stream_id, error_code)

    def reset_of(self, stream_id: int) -> int | None:
        """Returns the error code of a stream's reset. ``None`` if there was no reset, or if its record was
        dropped."""
        return self._resets.get(stream_id)

    def stop_of(self, stream_id: int) -> int | None:
        """Returns the error code of a STOP_SENDING on a stream. ``None`` if there was none, or if its record
        was dropped."""
        return self._stops.get(stream_id)


def _note(codes: dict[int, int], stream_id: int, error_code: int) -> None:
    if stream_id in codes:
        return
    if len(codes) >= _CODES_MAX:
        del codes[next(iter(codes))]
    codes[stream_id] = error_code


@dataclass(frozen=True)
class _Receiver:
    is_finished: bool
    stop_pending: bool
    _stop_error_code: int | None


@dataclass(frozen=True)
class _Sender:
    is_finished: bool
    reset_pending: bool
    _reset_error_code: int | None
    _quic: QuicConnectionCore
    _stream_id: int

    @property
    def buffer_is_empty(self) -> bool:
        return not self._quic.get_send_buffer_size(self._stream_id)

    @property
    def _buffer(self) -> bytes:
        """A copy of the data that waits to be sent, made at each access."""
        return self._quic._queued_data(self._stream_id)


class Stream:
    """A stream, with its state at the time of the look-up."""

    def __init__(self, quic: QuicConnectionCore, stream_id: int, codes: StreamCodes) -> None:
        self._quic = quic
        self._codes = codes
        self.stream_id = stream_id

    @property
    def is_finished(self) -> bool:
        """True if the stream has ended in both directions."""
        return self._quic._stream_state(self.stream_id) is None

    @property
    def receiver(self) -> _Receiver:
        """Returns true if the peer's data has ended, and the code of a request to stop, if there was one.

        The request is pending until the connection begins.
        """
        state = self._quic._stream_state(self.stream_id)
        code = self._codes.stop_of(self.stream_id)
        return _Receiver(
            is_finished=state is None or not state[0],
            stop_pending=code is not None and not self._quic._is_started,
            _stop_error_code=code,
        )

    @property
    def sender(self) -> _Sender:
        """Returns true if all data of this side was acknowledged, the data that waits to be sent, and the
        code of a reset.

        A dropped code is 0. A reset is pending until the connection begins.
        """
        state = self._quic._stream_state(self.stream_id)
        code = self._codes.reset_of(self.stream_id)
        is_reset = state is not None and state[2]
        return _Sender(
            is_finished=state is None or not state[1],
            reset_pending=code is not None and not self._quic._is_started,
            _reset_error_code=0 if code is None and is_reset else code,
            _quic=self._quic,
            _stream_id=self.stream_id,
        )


class Streams(Mapping[int, Stream]):
    """The open streams of a connection, by number."""

    def __init__(self, quic: QuicConnectionCore, codes: StreamCodes) -> None:
        self._quic = quic
        self._codes = codes

    def __getitem__(self, stream_id: int) -> Stream:
        if self._quic._stream_state(stream_id) is None:
            raise KeyError(stream_id)
        return Stream(self._quic, stream_id, self._codes)

    def __iter__(self) -> Iterator[int]:
        return iter(self._quic._stream_ids())

    def __len__(self) -> int:
        return len(self._quic._stream_ids())


# The maximum number of streams whose codes are stored. The oldest codes are dropped.
_CODES_MAX = 256
