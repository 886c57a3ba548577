"""``SessionRequest``: a client's request for a session, until it is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from uringcore.quic._typed_api.unclosed_objects import made_at, on_loop
from uringcore.webtransport._errors import Headers, WebTransportError
from uringcore.webtransport._header_fields import HeadersLike, as_headers, first
from uringcore.webtransport._session import Session
from uringcore.webtransport._session_lifecycle import (
    RequestAttributes,
    RequestParameters,
    SessionState,
)

__all__ = ["SessionRequest", "accepted", "parameters_of"]

_Result = TypeVar("_Result")


def parameters_of(scope: dict[str, Any]) -> RequestParameters:
    """The parameters of a request for a session, from its ASGI scope."""
    headers: Headers = list(scope["headers"])
    query = scope["query_string"]
    return RequestParameters(
        path=(scope["raw_path"] + (b"?" + query if query else b"")).decode("ascii"),
        authority=first(headers, b"host") or "",
        origin=first(headers, b"origin"),
        headers=headers,
        protocols=tuple(scope["subprotocols"]),
    )


def accepted(
    link: SessionState, served: Sequence[str], protocol: str | None = None, headers: Headers = ()
) -> Session:
    """Accepts a session with ``protocol``, or else with the first of ``served`` that the client offers.
    Raises as :meth:`SessionRequest.accept`."""
    offered = link.asked.protocols
    if protocol is None:
        protocol = next((name for name in served if name in offered), None) if offered else None
    elif protocol not in offered:
        raise ValueError(f"protocol: {protocol!r} is not among those offered")
    if link.is_closed:
        raise WebTransportError("the client has gone")
    link.accept(headers, protocol)
    link.made_at = made_at(link.loop)
    return Session(link)


class SessionRequest(RequestAttributes):
    """A client's request for a session, to accept or to refuse. A request that the program forgets is
    refused."""

    def __init__(self, link: SessionState, protocols: Sequence[str] = ()) -> None:
        """The constructor is not for programs. ``protocols`` are the protocols that the server supports, the
        preferred one first."""
        self._link = link
        self._served = protocols
        self._is_answered = False

    @property
    def protocols(self) -> tuple[str, ...]:
        """The application protocols that the client offers, the preferred one first."""
        return self._link.asked.protocols

    @property
    def is_answered(self) -> bool:
        """True if the request was accepted or refused."""
        return self._is_answered

    @property
    def is_gone(self) -> bool:
        """True if the client has cancelled the request, or its connection has ended."""
        return self._link.is_closed

    async def accept(self, *, protocol: str | None = None, headers: HeadersLike = ()) -> Session:
        """Opens the session. ``protocol`` is one of those offered; by default the first of the server's
        protocols that the client offers, if any. ``headers`` are those of the answer.

        Raises :class:`WebTransportError` when the client is gone, ``ValueError`` for a protocol that was not
        offered or a header that is not allowed, and ``RuntimeError`` for a second answer.
        """
        return self._answer(accepted, self._link, self._served, protocol, as_headers(headers))

    def refuse(self, status: int = 403, headers: HeadersLike = ()) -> None:
        """Answers with a status from 300 to 599. Does nothing when the client is gone.

        Raises ``ValueError`` for another status or a header that is not allowed, and ``RuntimeError`` for a
        second answer.
        """
        if not isinstance(status, int):
            raise TypeError(f"status: must be an int, not {type(status).__name__}")
        if not 300 <= status <= 599:
            raise ValueError(f"status must be from 300 to 599, not {status}")
        self._answer(self._link.refuse, status, as_headers(headers))

    def _answer(self, answer: Callable[..., _Result], *args: object) -> _Result:
        if self._is_answered:
            raise RuntimeError("the request has been answered")
        # If the call raises an exception, the request stays unanswered.
        result = answer(*args)
        self._is_answered = True
        return result

    def __repr__(self) -> str:
        return f"<{type(self).__name__} path={self.path!r} origin={self.origin!r}>"

    def __del__(self) -> None:
        # The object has no attributes if its constructor has failed.
        if not self.__dict__.get("_is_answered", True):
            on_loop(self._link.loop, self._link.refuse, 500)
