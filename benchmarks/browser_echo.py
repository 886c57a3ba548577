"""Round trips of 100 bytes from a page in Chromium over WebTransport: one stream, and datagrams.

    python -m benchmarks.browser_echo [--servers uringcore webtransport-go] [--rounds 10] [--count 2000]

Prints p50 and p99 of each server and the ratio of the first server's to the last one's. The servers and the
browser's driver are those of tests/browser. Server and browser have a core each. The servers take turns, so
that the machine's state is equal for all.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.harness.process import CLIENT_CORE, SERVER_CORE, pin
from tests.browser import browsers
from tests.browser.certificates import certificate_hash
from tests.browser.page import Page
from tests.browser.servers import LISTED, Server
from tests.browser.site import Site, Told
from tests.support.certificates import make

WAYS = {"stream": "streamEchoes", "datagrams": "datagramEchoes"}
"""The page's function for each row."""
BYTES = 100
WARM_UP = 200
SECONDS = 300

Samples = dict[tuple[str, str], list[list[float]]]
"""The microseconds of each round's round trips, by way and server."""


def main() -> None:
    options = arguments()
    reason = browsers.lacking("chromium")
    if reason:
        sys.exit(reason)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pki = make(folder)
        site = Site(Told())
        stack.callback(site.close)
        pin(SERVER_CORE)
        servers = [Server(name, pki.server, site.told) for name in options.servers]
        for server in servers:
            stack.callback(server.kill)
        pin(CLIENT_CORE)
        browser = browsers.launch("chromium", folder / "profile", pki)
        stack.callback(browser.close)
        page = stack.enter_context(browser.new_page())
        page.open(f"{site.origin}/pages/latency.html")
        page.call("trust", certificate_hash(pki.server))
        samples = measure(page, servers, options.rounds, options.count)
    print(render(samples, options.servers))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--servers", choices=LISTED, nargs="+", default=LISTED)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--count", type=int, default=2000, help="round trips of a round")
    return parser.parse_args()


def measure(page: Page, servers: list[Server], rounds: int, count: int) -> Samples:
    """Measure every server's rounds, in turns."""
    samples: Samples = {}
    for _ in range(rounds):
        for way, function in WAYS.items():
            for server in servers:
                call = f"(url) => {function}(url, {WARM_UP + count}, {BYTES})"
                taken = page.evaluate(call, server.url("/echo"), SECONDS)
                microseconds = [1000 * one for one in taken[WARM_UP:]]
                samples.setdefault((way, server.name), []).append(microseconds)
    return samples


def render(samples: Samples, servers: list[str]) -> str:
    """The table: the median of the rounds and their spread, for each percentile."""
    lines = [
        "| echo of 100 bytes | " + " | ".join(servers) + f" | {servers[0]} / {servers[-1]} |",
        "| --- |" + " ---: |" * (len(servers) + 1),
    ]
    for way in WAYS:
        for percent in (50, 99):
            found = {name: rounds_of(samples[way, name], percent) for name in servers}
            middle = {name: statistics.median(values) for name, values in found.items()}
            cells = [
                f"{middle[name]:.0f} µs ({min(values):.0f} to {max(values):.0f})"
                for name, values in found.items()
            ]
            ratio = middle[servers[0]] / middle[servers[-1]]
            lines.append(f"| {way}, p{percent} | " + " | ".join(cells) + f" | {ratio:.2f} |")
    return "\n".join(lines)


def rounds_of(rounds: list[list[float]], percent: int) -> list[float]:
    """The percentile of each round."""
    return [sorted(one)[min(len(one) - 1, len(one) * percent // 100)] for one in rounds]


if __name__ == "__main__":
    main()
