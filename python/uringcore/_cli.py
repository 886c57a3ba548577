"""The command ``uringcore``: which of its parts is meant.

``uringcore get URL`` is the HTTP/3 client, which needs nothing else. Every other first word is the
server's, which needs the extra ``uringcore[server]``. Options are read in http3/command.py and
server/command.py; none is imported before it is needed.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from click import Command

__all__ = ["main"]

USAGE = """\
usage: uringcore MODULE:APP [options]   serve an ASGI application over HTTP/1.1 and HTTP/3
       uringcore get URL [options]      fetch a URL over HTTP/3

uringcore --help and uringcore get --help show the options."""

# Set by the completion of a shell, which has no arguments for us (click's way to ask).
COMPLETION = "_URINGCORE_COMPLETE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command with ``arguments`` (``sys.argv`` by default); returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if COMPLETION in os.environ:
        return complete()
    if not given:
        print(USAGE, file=sys.stderr)
        return 2
    if given[0] == "get":
        from uringcore.http3._command import main as get

        return get(given[1:])
    return serve(given)


def serve(arguments: list[str]) -> int:
    from uringcore.server._descriptors import open_standard_streams
    from uringcore.server._startup import StartupError, require_uvicorn

    open_standard_streams()
    try:
        require_uvicorn()
    except StartupError as exc:
        return serve_nothing(arguments, str(exc))
    from uringcore.server._command import command

    return run(command, arguments)


def run(command: Command, arguments: list[str]) -> NoReturn:
    """click ends the process with the status."""
    command.main(arguments, prog_name="uringcore")


def serve_nothing(arguments: list[str], why: str) -> int:
    """What can be said without uvicorn, whose options the server has."""
    if "--version" in arguments:
        from uringcore import __version__

        python = f"{platform.python_implementation()} {platform.python_version()}"
        print(f"uringcore {__version__}, {python} ({why})")
    elif "--help" in arguments:
        print(f"{USAGE}\n\nuringcore --help has little to show as yet: {why}")
    else:
        print(f"uringcore: {why}", file=sys.stderr)
        return 1
    return 0


def complete() -> int:
    """Tells a shell how a command line may go on, or how it is to ask."""
    from uringcore.server._startup import StartupError, require_uvicorn

    try:
        require_uvicorn()
    except StartupError:
        return 1  # A shell has no place for words.
    from uringcore.server._completion import command

    return run(command(), [])


if __name__ == "__main__":
    sys.exit(main())
