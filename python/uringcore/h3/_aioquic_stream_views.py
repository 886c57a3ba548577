"""aioquic's table of an HTTP/3 connection's streams, for subclasses that read and change it.

The streams are views: an attribute that the program has not set is read from the connection in Rust. If a
program sets one direction's end here, the connection drops that direction. The connection itself applies
frames to its streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from uringcore._uringcore import H3ConnectionCore
from uringcore.h3._aioquic_frames_and_headers import H3Stream, HeadersState
from uringcore.h3._codes_and_errors import StreamType

__all__ = ["LiveStream", "StreamTable"]

KEPT_AFTER_END_MAX = 1024
"Ended streams that a program has looked up; beyond this number they are dropped."


class LiveStream(H3Stream):
    """A stream of a connection. It is a context manager without effect, like aioquic 1.7's."""

    def __init__(self, http: H3ConnectionCore, stream_id: int) -> None:
        self._http = http
        self._set: dict[str, Any] = {}
        self._has_begun = False
        super().__init__(stream_id)
        # The base class has assigned its initial values, which do not count as set by the program.
        self._set.clear()
        if stream_id & 2:
            self.stream_type = _uni_stream_type(http, stream_id)

    def __enter__(self) -> LiveStream:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Does nothing: the connection drops ended streams itself."""

    @property
    def headers_recv_state(self) -> HeadersState:
        """The progress of the message that the peer sends."""
        return self._state_of("headers_recv_state", 0)

    @headers_recv_state.setter
    def headers_recv_state(self, state: HeadersState) -> None:
        self._set["headers_recv_state"] = state

    @property
    def headers_send_state(self) -> HeadersState:
        """The state of the message that this side sends: before its header section, after it, or after its
        trailers."""
        return self._state_of("headers_send_state", 2)

    @headers_send_state.setter
    def headers_send_state(self, state: HeadersState) -> None:
        self._set["headers_send_state"] = state
        if state is HeadersState.AFTER_TRAILERS:
            self._http._given_up(self.stream_id, True)

    @property
    def receiving_ended(self) -> bool:
        """True once the peer's direction of the stream has ended."""
        return self._has_ended("receiving_ended", 1)

    @receiving_ended.setter
    def receiving_ended(self, ended: bool) -> None:
        self._set["receiving_ended"] = ended
        if ended:
            self._http._given_up(self.stream_id, False)

    @property
    def sending_ended(self) -> bool:
        """True after this side has ended its direction of the stream."""
        return self._has_ended("sending_ended", 3)

    @sending_ended.setter
    def sending_ended(self, ended: bool) -> None:
        self._set["sending_ended"] = ended
        if ended:
            self._http._given_up(self.stream_id, True)

    ended = receiving_ended
    "The name in aioquic before 1.3."

    def advance(self) -> None:
        """Records a received field section that is not an interim response's.

        From the first one on, the state follows the events that the program has received: the connection may
        have parsed more.
        """
        before = self._set.get("headers_recv_state", HeadersState.INITIAL)
        is_first = before is HeadersState.INITIAL
        after = HeadersState.AFTER_HEADERS if is_first else HeadersState.AFTER_TRAILERS
        self._set["headers_recv_state"] = after

    def _state_of(self, name: str, index: int) -> HeadersState:
        if name in self._set:
            state: HeadersState = self._set[name]
            return state
        halves = self._halves()
        return HeadersState.INITIAL if halves is None else HeadersState(halves[index])

    def _has_ended(self, name: str, index: int) -> bool:
        if name in self._set:
            return bool(self._set[name])
        halves = self._halves()
        return halves is not None and bool(halves[index])

    def _halves(self) -> tuple[int, bool, int, bool] | None:
        halves = self._http._halves(self.stream_id)
        if halves is None and self._has_begun:
            return (2, True, 2, True)
        self._has_begun = halves is not None
        return halves


class StreamTable(Mapping[int, H3Stream]):
    """Open bidirectional streams and pushes, and streams that a program has looked up."""

    def __init__(self, http: H3ConnectionCore) -> None:
        self._http = http
        self._known: dict[int, LiveStream] = {}

    def get_or_create(self, stream_id: int) -> LiveStream:
        """Returns the stream, which may not have begun yet."""
        known = self._known.get(stream_id)
        if known is None:
            known = LiveStream(self._http, stream_id)
            if known.stream_type in (None, StreamType.PUSH):
                self._keep(known)
        return known

    def __getitem__(self, stream_id: int) -> LiveStream:
        if stream_id not in self._known and stream_id not in self._http._stream_ids():
            raise KeyError(stream_id)
        return self.get_or_create(stream_id)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted({*self._http._stream_ids(), *self._known}))

    def __len__(self) -> int:
        return len({*self._http._stream_ids(), *self._known})

    def _keep(self, stream: LiveStream) -> None:
        self._known[stream.stream_id] = stream
        if len(self._known) > KEPT_AFTER_END_MAX:
            is_open = {*self._http._stream_ids(), stream.stream_id}
            for stream_id in [one for one in self._known if one not in is_open]:
                del self._known[stream_id]


def _uni_stream_type(http: H3ConnectionCore, stream_id: int) -> StreamType | None:
    """Returns the type of a unidirectional stream."""
    if stream_id in http._stream_ids():
        return StreamType.PUSH
    own = http._own_streams()
    kinds = (StreamType.CONTROL, StreamType.QPACK_ENCODER, StreamType.QPACK_DECODER)
    return kinds[own.index(stream_id)] if stream_id in own else StreamType.CONTROL
