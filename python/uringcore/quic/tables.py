"""What programs written for aioquic look up in the private tables of its connection: which streams are
open and how far they are, and the path.

They are views: each question is answered by the connection, in Rust, as things are then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from uringcore._uringcore import QuicConnectionCore

__all__ = ["NetworkPath", "Stream", "Streams"]


@dataclass(frozen=True)
class NetworkPath:
    """A path that a connection uses."""

    addr: Any
    """The peer's address, as it is in ``get_peer_address``."""

    is_validated: bool
    """True if the peer has proved to receive packets there (RFC 9000 section 8)."""


@dataclass(frozen=True)
class _Receiver:
    is_finished: bool


@dataclass(frozen=True)
class _Sender:
    is_finished: bool
    buffer_is_empty: bool
    _reset_error_code: int | None


class Stream:
    """A stream that was open when it was looked up."""

    def __init__(self, quic: QuicConnectionCore, stream_id: int) -> None:
        self._quic = quic
        self.stream_id = stream_id

    @property
    def is_finished(self) -> bool:
        """Whether the stream is over in both directions."""
        return self._quic._stream_state(self.stream_id) is None

    @property
    def receiver(self) -> _Receiver:
        """Whether what the peer sends has ended."""
        state = self._quic._stream_state(self.stream_id)
        return _Receiver(is_finished=state is None or not state[0])

    @property
    def sender(self) -> _Sender:
        """Whether all that this side sends was acknowledged, and whether it was reset: the code is not
        kept, and 0 stands for it."""
        state = self._quic._stream_state(self.stream_id)
        return _Sender(
            is_finished=state is None or not state[1],
            buffer_is_empty=self._quic.get_send_buffer_size(self.stream_id) == 0,
            _reset_error_code=0 if state is not None and state[2] else None,
        )


class Streams(Mapping[int, Stream]):
    """The streams of a connection that are not over, by their numbers."""

    def __init__(self, quic: QuicConnectionCore) -> None:
        self._quic = quic

    def __getitem__(self, stream_id: int) -> Stream:
        if self._quic._stream_state(stream_id) is None:
            raise KeyError(stream_id)
        return Stream(self._quic, stream_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self._quic._stream_ids())

    def __len__(self) -> int:
        return len(self._quic._stream_ids())
