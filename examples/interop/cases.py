"""The requirements of each case of the interoperability runner. This module only holds the table."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CASES", "UNSUPPORTED", "Case"]

UNSUPPORTED = 127
"The exit status that tells the runner that a case is not supported."


@dataclass(frozen=True)
class Case:
    """The orders of one ``TESTCASE``. The runner controls the network."""

    http3: bool = False
    """HTTP/3 instead of HTTP/0.9 (``hq-interop``)."""

    chacha20: bool = False
    """Offer and accept TLS_CHACHA20_POLY1305_SHA256 only."""

    retry: bool = False
    """The server answers a first Initial without a token with a Retry."""

    resume: bool = False
    """The first file on one connection, the others on a second one, which is resumed."""

    early: bool = False
    """As ``resume``, with the second connection's requests in 0-RTT."""

    each: bool = False
    """A connection for each file."""

    key_update: bool = False
    """The client changes keys within the first megabyte."""

    version_2: bool = False
    """The client begins with QUIC version 1 and the server switches to 2 (RFC 9368)."""

    version_2_first: bool = False
    """The client begins with QUIC version 2. Not a case of the public runner."""

    migrate: bool = False
    """The client goes over to another socket of its own. Not a case of the public runner."""

    preferred_address: bool = False
    """The server offers another address and the client moves to it (RFC 9000 section 9.6)."""


# The runner passes fewer names than it lists (it runs blackhole as "transfer", say); here all of
# its names are known, so that a case can be requested under the name in the runner's report.
CASES: dict[str, Case] = {
    "amplificationlimit": Case(),
    "blackhole": Case(),
    "chacha20": Case(chacha20=True),
    "connectionmigration": Case(preferred_address=True),
    "crosstraffic": Case(),
    "ecn": Case(),
    "goodput": Case(),
    "handshake": Case(),
    "handshakecorruption": Case(each=True),
    "handshakeloss": Case(each=True),
    "http3": Case(http3=True),
    "ipv6": Case(),
    "keyupdate": Case(key_update=True),
    "longrtt": Case(),
    "migrate": Case(migrate=True),
    "multiconnect": Case(each=True),
    "multiplexing": Case(),
    "rebind-addr": Case(),
    "rebind-port": Case(),
    "resumption": Case(resume=True),
    "retry": Case(retry=True),
    "transfer": Case(),
    "transfercorruption": Case(),
    "transferloss": Case(),
    "v2": Case(version_2=True),
    "v2first": Case(version_2=True, version_2_first=True),
    "zerortt": Case(resume=True, early=True),
}
