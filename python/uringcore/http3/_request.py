"""A request before it has a stream, and its body in parts.

Not here: the connection that it is sent on (``_client``), and its response (``_exchange``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from typing import Any

from uringcore._buffer_arguments import contiguous_bytes, is_buffer
from uringcore.http3._errors import ConnectionLostError, HTTP3Error, InvalidRequestError, URLError
from uringcore.http3._url import Origin, parse_url, target

__all__ = ["Content", "Fields", "Headers", "Request"]

Fields = list[tuple[bytes, bytes]]

BytesLike = bytes | bytearray | memoryview

Content = BytesLike | str | Iterable[BytesLike | str] | AsyncIterable[BytesLike | str]
"""A request's body: whole, or in parts that are sent as flow control allows. Text is sent as UTF-8."""

Headers = Iterable[tuple[str | bytes, str | bytes]] | Mapping[Any, Any]
"""Names and values as pairs, or a mapping. Of a multi-mapping ``multi_items`` is used."""

# Safe methods change nothing on the server, and idempotent ones may be repeated (RFC 9110 section 9.2).
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
IDEMPOTENT = SAFE | {"PUT", "DELETE"}

# A body that is given as bytes is sent in parts of this many bytes, which bounds the memory of a waiting
# request.
PART_BYTES = 256 * 1024


class Request:
    """A request to an origin. Raises :class:`InvalidRequestError` for fields that HTTP/3 does not allow.

    ``protocol`` is the protocol of an extended CONNECT (RFC 9220).
    """

    def __init__(
        self,
        method: str,
        origin: Origin,
        path: str,
        headers: Headers = (),
        content: Content | None = None,
        *,
        protocol: bytes | None = None,
    ) -> None:
        if method == "CONNECT" and protocol is None:
            # CONNECT asks for a tunnel to a host and a port (RFC 9114 section 4.4), for which this client has
            # no interface.
            raise InvalidRequestError("method: CONNECT asks for a tunnel, not for a URL")
        self.method = method
        self.origin = origin
        if isinstance(content, str) or (content is not None and is_buffer(content)):
            content = part_bytes(content)
        elif content is not None and not isinstance(content, (bytes, Iterable, AsyncIterable)):
            raise InvalidRequestError(
                f"content: {type(content).__name__} is no bytes, text or iterable of them"
            )
        self.content = content
        self.fields: Fields = request_fields(method, origin, path, headers)
        if protocol is not None:
            self.fields.insert(1, (b":protocol", protocol))
        if isinstance(content, bytes) and all(name != b"content-length" for name, _ in self.fields):
            self.fields.append((b"content-length", b"%d" % len(content)))
        self._is_begun = False

    @classmethod
    def to(
        cls,
        method: str,
        url: str,
        headers: Headers = (),
        content: Content | None = None,
        *,
        base: Origin | None = None,
        protocol: bytes | None = None,
    ) -> Request:
        """A request for a URL; with ``base``, for a path there or a URL of that origin.

        Raises :class:`URLError`.
        """
        if base is not None and url.startswith("/"):
            # A fragment is never sent (RFC 9110 section 4.2.5).
            path, _, query = url.partition("#")[0].partition("?")
            return cls(method, base, target(path, query), headers, content, protocol=protocol)
        origin, path = parse_url(url)
        if base is not None and (origin.host, origin.port) != (base.host, base.port):
            raise URLError(f"{url!r} is not on {base.authority}, where this client connects")
        return cls(method, base or origin, path, headers, content, protocol=protocol)

    @property
    def is_safe(self) -> bool:
        """True if it may be sent as 0-RTT data, which an attacker may repeat (RFC 8470 section 2.1)."""
        return self.method in SAFE and self.content is None

    @property
    def is_whole(self) -> bool:
        """True if the body can be sent from its beginning: it is in memory, or nothing of it was read yet."""
        whole = self.content is None or isinstance(self.content, (bytes, list, tuple))
        return whole or not self._is_begun

    def may_repeat(self, error: HTTP3Error) -> bool:
        """True if it can safely be sent again after ``error`` (RFC 9110 section 9.2.2)."""
        harmless = isinstance(error, ConnectionLostError) and self.method in IDEMPOTENT
        return self.is_whole and (error.retryable or harmless)

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Yields the body. Bytes are split into parts of a bounded size."""
        content = self.content
        self._is_begun = True
        if content is None:
            return
        if isinstance(content, bytes):
            view = memoryview(content)
            for start in range(0, len(content), PART_BYTES):
                yield bytes(view[start : start + PART_BYTES])
        elif isinstance(content, AsyncIterable):
            async for part in content:
                yield part_bytes(part)
        else:
            for piece in content:
                yield part_bytes(piece)


def request_fields(method: str, origin: Origin, path: str, headers: Headers) -> Fields:
    """The header section. A ``host`` field becomes ``:authority`` (RFC 9114 section 4.3.1)."""
    try:
        given = [(to_bytes(name).lower(), to_bytes(value)) for name, value in pairs(headers)]
        method_bytes = method.encode("ascii")
    except UnicodeEncodeError as exc:
        raise InvalidRequestError(f"{exc.object!r} cannot be sent in a header section") from None
    hosts = {value.strip() for name, value in given if name == b"host"}
    if len(hosts) > 1:
        raise InvalidRequestError("host: a request has one")
    return [
        (b":method", method_bytes),
        (b":scheme", b"https"),
        (b":authority", hosts.pop() if hosts else origin.authority.encode("ascii")),
        (b":path", path.encode("ascii")),
        *(field for field in given if field[0] != b"host"),
    ]


def pairs(headers: Headers) -> Iterable[tuple[str | bytes, str | bytes]]:
    """Names and values of header fields, from pairs or a mapping."""
    given: Iterable[Any] = headers
    if isinstance(headers, Mapping):
        given = getattr(headers, "multi_items", headers.items)()
    for pair in given:
        # A string of two characters is no pair of a name and a value.
        if isinstance(pair, (str, bytes)) or len(pair) != 2:
            raise InvalidRequestError(f"headers: {pair!r} is no pair of a name and a value")
        name, value = pair
        yield name, value


def to_bytes(text: str | bytes) -> bytes:
    if isinstance(text, str):
        return text.encode("latin-1")
    if not is_buffer(text):
        raise InvalidRequestError(f"headers: {text!r} is neither text nor bytes")
    return contiguous_bytes(text, "headers")


def part_bytes(part: object) -> bytes:
    if isinstance(part, str):
        return part.encode()
    if not is_buffer(part):
        raise InvalidRequestError(
            f"content: a part is {type(part).__name__}, neither bytes nor text"
        )
    return contiguous_bytes(part, "content")
