"""Alternative services (RFC 7838): other places where an origin is served over HTTP/3.

:func:`parse_alt_svc` reads the header field. :class:`AlternativeCache` keeps alternatives as long as the
field allows, and remembers those that did not answer. Not here: connecting to them.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from uringcore.http3._url import Origin

__all__ = ["Alternative", "AlternativeCache", "parse_alt_svc"]

MAX_AGE = 86400.0
"""Seconds for which an alternative without ``ma`` is valid (RFC 7838 section 3.1)."""

MAX_AGE_MAX = 365 * 86400.0

BROKEN_SECONDS = 60.0
"""Seconds for which an alternative that did not answer is not used; doubled after each further failure."""

BROKEN_SECONDS_MAX = 86400.0

# The syntax of `alt-value` (RFC 7838 section 3): an alternative, and parameters as tokens or quoted strings.
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_VALUE = re.compile(
    rf"(?P<protocol>{_TOKEN})=(?P<authority>{_QUOTED})"
    rf"(?P<parameters>(?:[ \t]*;[ \t]*{_TOKEN}=(?:{_TOKEN}|{_QUOTED}))*)(?:[ \t]*,[ \t,]*|$)"
)
# The syntax of `uri-host` and `port` (RFC 3986). Other text is refused, because it would be sent in Alt-Used
# and passed to the resolver.
_AUTHORITY = re.compile(r"(?P<host>[A-Za-z0-9._~-]*|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_SECONDS = re.compile(r"[0-9]{1,18}")

ALTERNATIVES_MAX = 8
"""The alternatives of one origin, the preferred ones first. Further ones are ignored."""
# A list's elements may be empty (RFC 9110 section 5.6.1.2).
_EMPTY = " \t,"
_PARAMETER = re.compile(rf";[ \t]*({_TOKEN})=({_TOKEN}|{_QUOTED})")


@dataclass(frozen=True)
class Alternative:
    """A host and port at which an origin is served over HTTP/3. An empty ``host`` means the origin's own
    host."""

    host: str
    port: int
    max_age: float = MAX_AGE
    """The number of seconds for which the alternative is valid."""
    persist: bool = False
    """True if it stays valid after a change of networks (RFC 7838 section 3.1)."""

    @property
    def authority(self) -> str:
        """The value of ``Alt-Used`` (RFC 7838 section 5)."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_alt_svc(value: str) -> list[Alternative] | None:
    """The HTTP/3 services that an ``Alt-Svc`` field names, the preferred one first; ``None`` for
    ``clear``. A field that does not follow the grammar names none (RFC 7838 section 3)."""
    if value.strip() == "clear":
        return None
    found: list[Alternative] = []
    value = value.strip(_EMPTY)
    at = 0
    while at < len(value):
        match = _VALUE.match(value, at)
        if match is None:
            return []
        at = match.end()
        alternative = _alternative(match)
        if alternative is not None and len(found) < ALTERNATIVES_MAX:
            found.append(alternative)
    return found


def _alternative(match: re.Match[str]) -> Alternative | None:
    if unquote(match["protocol"]) != "h3":
        return None
    authority = _AUTHORITY.fullmatch(_unquoted(match["authority"]))
    if authority is None or not 0 < int(authority["port"]) < 65536:
        return None
    max_age, persist = MAX_AGE, False
    for name, given in _PARAMETER.findall(match["parameters"]):
        text = _unquoted(given)
        if name == "ma":
            if _SECONDS.fullmatch(text) is None:
                return None
            max_age = min(float(text), MAX_AGE_MAX)
        elif name == "persist":
            persist = text == "1"
    return Alternative(authority["host"].strip("[]"), int(authority["port"]), max_age, persist)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


@dataclass
class _Broken:
    until: float
    times: int = 1


class AlternativeCache:
    """Alternative services of at most ``capacity`` origins; the least recently used origin is removed first.

    ``clock`` returns the time in seconds. Several transports of one loop may share a cache.
    """

    def __init__(
        self, capacity: int = 1000, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._capacity = capacity
        self._clock = clock
        # The alternatives of each origin, each with the time at which it expires.
        self._known: OrderedDict[tuple[str, int], list[tuple[Alternative, float]]] = OrderedDict()
        self._broken: OrderedDict[tuple[str, int, str, int], _Broken] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, origin: Origin, value: str, *, age: float = 0.0) -> None:
        """Stores the ``Alt-Svc`` field of a response of ``origin`` that was ``age`` seconds old (its ``Age``
        field). It replaces all earlier alternatives of the origin (RFC 7838 section 3)."""
        key = (origin.host, origin.port)
        self._known.pop(key, None)
        now = self._clock()
        found = [
            (
                Alternative(one.host or origin.host, one.port, one.max_age, one.persist),
                now + one.max_age - age,
            )
            for one in parse_alt_svc(value) or ()
            if one.max_age > age
        ]
        if found:
            self._known[key] = found
            if len(self._known) > self._capacity:
                self._known.popitem(last=False)

    def find(self, origin: Origin) -> list[Alternative]:
        """The valid alternatives of ``origin``, the preferred one first, broken or not."""
        key = (origin.host, origin.port)
        now = self._clock()
        self._keep(key, lambda _, until: until > now)
        if key not in self._known:
            return []
        self._known.move_to_end(key)
        return [alternative for alternative, _ in self._known[key]]

    def forget(self, origin: Origin, alternative: Alternative) -> None:
        """Removes an alternative that has answered 421: it does not serve ``origin`` (RFC 7838 section 6)."""
        self._keep((origin.host, origin.port), lambda one, _: one != alternative)

    def changed_network(self) -> None:
        """Removes alternatives without ``persist``, and the record of broken ones (RFC 7838 section 2.2)."""
        self._broken.clear()
        for key in list(self._known):
            self._keep(key, lambda one, _: one.persist)

    def _keep(self, key: tuple[str, int], good: Callable[[Alternative, float], bool]) -> None:
        left = [known for known in self._known.get(key, ()) if good(*known)]
        if left:
            self._known[key] = left
        else:
            self._known.pop(key, None)

    # Alternatives that did not answer

    def broke(self, origin: Origin, alternative: Alternative) -> None:
        """Records that ``alternative`` did not answer, so that it is not used for a while."""
        key = _broken_key(origin, alternative)
        broken = self._broken.pop(key, None)
        if broken is None:
            broken = _Broken(until=0.0)
        elif broken.until <= self._clock():
            broken.times += 1
        seconds = min(BROKEN_SECONDS * 2.0 ** min(broken.times - 1, 32), BROKEN_SECONDS_MAX)
        broken.until = self._clock() + seconds
        self._broken[key] = broken
        if len(self._broken) > self._capacity:
            self._broken.popitem(last=False)

    def record_success(self, origin: Origin, alternative: Alternative) -> None:
        """Records that ``alternative`` has answered."""
        self._broken.pop(_broken_key(origin, alternative), None)

    def is_broken(self, origin: Origin, alternative: Alternative) -> bool:
        """True if the alternative must not be used at present, because it did not answer."""
        broken = self._broken.get(_broken_key(origin, alternative))
        return broken is not None and broken.until > self._clock()


def _broken_key(origin: Origin, alternative: Alternative) -> tuple[str, int, str, int]:
    return (origin.host, origin.port, alternative.host, alternative.port)
