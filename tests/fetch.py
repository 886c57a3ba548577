"""Fetches and builds the third-party programs of the tests: `python -m tests.fetch`.

It prints each unavailable program and the reason; tests of that program are skipped. `make
test-interop` itself fetches the peers that no ordinary test needs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from tests.browser import servers
from tests.interop.peers import PEERS
from tests.interop.test_matrix import QUICK
from tests.quic import aioquic_examples
from tests.support import debian_packages, third_party_programs


def main() -> None:
    """Fetches all programs."""
    third_party_programs.fetch_from_now_on()
    for reason in dict.fromkeys(_lacking()):
        print(f"tests.fetch: {reason}", flush=True)


def _lacking() -> Iterator[str]:
    for case, *pair in QUICK:
        yield from filter(None, (PEERS[peer].missing(case) for peer in pair))
    finders: list[Callable[[], object]] = [
        lambda: servers.program(servers.GO),
        aioquic_examples.archive,
    ]
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
