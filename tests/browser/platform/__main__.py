"""Runs the cases in every browser, and compares the passing ones with the table.

    python -m tests.browser.platform [--server NAME] [--browser NAME] [--write] [WORD ...]

Words choose the cases that contain one of them. The status is 1 where something differs from the
table.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from tests.browser import browsers
from tests.browser.certificates import certificate_hash
from tests.browser.platform import table
from tests.browser.servers import LISTED, Server
from tests.browser.site import Site, Told
from tests.support.certificates import make
from tests.support.third_party_programs import Unavailable

CASE_SECONDS = 60


def main():
    options = arguments()
    names = [name for name in options.browser if not say_lacking(name)]
    if not names:
        sys.exit("no browser is there")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pki = make(folder)
        site = Site(Told())
        stack.callback(site.close)
        servers = [start(name, pki, site.told, stack) for name in options.server]
        results, versions = {}, {}
        for name in names:
            browser = browsers.launch(name, folder / name, pki)
            stack.callback(browser.close)
            for server in servers:
                with browser.new_page() as page:
                    versions[name] = page.version()
                    page.open(f"{site.origin}/platform/index.html")
                    page.call("trust", certificate_hash(pki.server), server.url(""))
                    results[name, server.name] = play(page, name, server.name, options.words)
    if options.write:
        table.write(results, versions)
    elif differs(results):
        sys.exit(1)


def start(name, pki, told, stack):
    try:
        server = Server(name, pki.server, told)
    except Unavailable as reason:
        sys.exit(str(reason))
    stack.callback(server.kill)
    return server


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--server", choices=LISTED, action="append")
    parser.add_argument("--browser", choices=browsers.NAMES, action="append")
    parser.add_argument("--write", action="store_true", help="write the table")
    parser.add_argument("words", nargs="*", help="parts of names of cases")
    options = parser.parse_args()
    options.server = options.server or LISTED
    options.browser = options.browser or browsers.NAMES
    return options


def say_lacking(name):
    reason = browsers.lacking(name)
    if reason:
        print(reason, file=sys.stderr)
    return reason


def play(page, browser, server, words):
    """Returns the reason why each case fails, or nothing; in the order of the files."""
    found = {}
    for case in page.call("names"):
        if not words or any(word in case for word in words):
            found[case] = page.evaluate("(name) => run(name)", case, CASE_SECONDS)
            print(f"{browser}, {server}: {case}: {found[case] or 'passes'}", flush=True)
    return found


def differs(results):
    """Prints the differences to the table."""
    told = table.read()
    wrong = [
        f"{browser}, {server}: {case}: {found or 'passes'}, unlike in the table"
        for (browser, server), cases in results.items()
        for case, found in cases.items()
        if bool(found) != bool(told[browser, server].get(case, "missing"))
    ]
    passed = sum(not found for cases in results.values() for found in cases.values())
    print(*wrong, f"{passed} passed, {len(wrong)} differ from the table", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    main()
