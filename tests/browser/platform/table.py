"""The table of the cases, in Markdown: the passing cases of each browser with each server, and the
reasons of the others.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["PATH", "read", "write"]

PATH = Path(__file__).with_name("README.md")
HEAD = """# WebTransport's cases of the web platform

What the web-platform-tests ask of WebTransport (constructor, connect, streams, datagrams, close), written
anew for our servers: each case is a `test(...)` in one of the files here. `python -m tests.browser.platform`
plays them, `--write` writes this table. What fails with every server is what the browser does not do.

Not here: status 204, with which no server here accepts a session; `allowPooling`, which does not go with
certificates known by their hash; statistics and `sendOrder`; the same cases in a worker.
"""
PASSES = "✓"


def read():
    """Reads the table: for each browser with each server, the cases and the reason why each fails,
    if it does.
    """
    lines = [line for line in PATH.read_text().splitlines() if line.startswith("|")]
    heads, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    found = {}
    for index, head in enumerate(heads[1:], 1):
        browser, server = head.split(", ")
        cells = {row[0]: row[index] for row in rows}
        found[browser.split()[0].lower(), server] = {
            case: "" if cell == PASSES else cell for case, cell in cells.items()
        }
    return found


def write(results, versions):
    """Writes the results: for each browser with each server, the cases and the reason why each
    fails.
    """
    heads = [f"{browser.title()} {versions[browser]}, {server}" for browser, server in results]
    lines = ["| case | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(heads)]
    for case in next(iter(results.values())):
        cells = [cases[case].replace("|", "/") or PASSES for cases in results.values()]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    PATH.write_text(HEAD + "\n" + "\n".join(lines) + "\n")
