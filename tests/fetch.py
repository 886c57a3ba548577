"""Fetches and builds the third-party programs of the tests: `python -m tests.fetch`.

It prints each unavailable program and the reason; tests of that program are skipped. `--without-peers` leaves
out the peers of the tests marked `wire`, which `make test` does not run. `make test-interop` itself fetches
the peers that no ordinary test needs.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator

from tests.browser import servers
from tests.http.http2.go_programs import go_client, h2spec
from tests.interop.peers import PEERS, installed
from tests.interop.test_matrix import QUICK
from tests.quic import aioquic_examples
from tests.support import debian_packages, third_party_programs


def main() -> None:
    """Fetches the programs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fetch")
    parser.add_argument("--without-peers", action="store_true", help="none for tests marked `wire`")
    options = parser.parse_args()
    third_party_programs.fetch_from_now_on()
    for reason in dict.fromkeys(_lacking(with_peers=not options.without_peers)):
        print(f"tests.fetch: {reason}", flush=True)


def _lacking(*, with_peers: bool) -> Iterator[str]:
    for case, *pair in QUICK if with_peers else ():
        yield from filter(None, (PEERS[peer].missing(case) for peer in pair))
    finders: list[Callable[[], object]] = [
        installed.curl,
        h2spec,
        go_client,
        aioquic_examples.archive,
    ]
    if with_peers:
        finders.append(lambda: servers.program(servers.GO))
    finders += [
        functools.partial(debian_packages.program, name) for name in debian_packages.PACKAGES
    ]
    for find in finders:
        try:
            find()
        except third_party_programs.Unavailable as reason:
            yield str(reason)


if __name__ == "__main__":
    main()
