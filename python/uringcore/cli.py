"""The command ``uringcore``: which of its parts is meant.

``uringcore get URL`` is the HTTP/3 client, which needs nothing else. Every other first word is the
server's, which needs the extra ``uringcore[server]``. Options are read in http3/command.py and
server/command.py; none is imported before it is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]

USAGE = """\
usage: uringcore MODULE:APP [options]   serve an ASGI application over HTTP/1.1 and HTTP/3
       uringcore get URL [options]      fetch a URL over HTTP/3

uringcore --help and uringcore get --help show the options."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command with ``arguments`` (``sys.argv`` by default); returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        print(USAGE, file=sys.stderr)
        return 2
    if given[0] == "get":
        from uringcore.http3.command import main as get

        return get(given[1:])
    return serve(given)


def serve(arguments: list[str]) -> NoReturn:
    from uringcore.server.startup import StartupError, require_uvicorn

    try:
        require_uvicorn()
    except StartupError as exc:
        print(f"uringcore: {exc}", file=sys.stderr)
        sys.exit(1)
    from uringcore.server.command import command

    # Never returns: click ends the process with the status.
    command.main(arguments, prog_name="uringcore")


if __name__ == "__main__":
    sys.exit(main())
