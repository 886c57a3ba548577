"""The command ``uringcore``: selects the part that handles a command line.

``uringcore get URL`` is the HTTP/3 client, which has no dependencies. Any other first word belongs to the
server, which needs the extra ``uringcore[server]``. http3/_get_command.py and server/_command.py parse the
options; each is imported only when it is needed.
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

# A shell that completes a command line sets this variable, and passes no arguments (click's protocol).
COMPLETION = "_URINGCORE_COMPLETE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command with ``arguments`` (by default those in ``sys.argv``). Returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if COMPLETION in os.environ:
        return complete()
    if not given:
        print(USAGE, file=sys.stderr)
        return 2
    if given[0] == "get":
        from uringcore.http3._get_command import main as get

        return get(given[1:])
    return serve(given)


def serve(arguments: list[str]) -> int:
    from uringcore.server._fd_limit_and_stdio import open_standard_streams
    from uringcore.server._startup_errors import StartupError, require_uvicorn

    open_standard_streams()
    try:
        require_uvicorn()
    except StartupError as exc:
        return serve_nothing(arguments, str(exc))
    from uringcore.server._command import command

    return run(command, arguments)


def run(command: Command, arguments: list[str]) -> NoReturn:
    """Runs a click command, which exits the process with its status."""
    command.main(arguments, prog_name="uringcore")


def serve_nothing(arguments: list[str], why: str) -> int:
    """Handles a command line of the server if uvicorn, which defines its options, is not installed."""
    if "--version" in arguments:
        from uringcore import __version__

        python = f"{platform.python_implementation()} {platform.python_version()}"
        print(f"uringcore {__version__}, {python} ({why})")
    elif "--help" in arguments:
        print(f"{USAGE}\n\nThe options are not available: {why}")
    else:
        print(f"uringcore: {why}", file=sys.stderr)
        return 1
    return 0


def complete() -> int:
    """Completes a command line, or prints the completion script for a shell."""
    from uringcore.server._startup_errors import StartupError, require_uvicorn

    try:
        require_uvicorn()
    except StartupError:
        return 1  # completion runs inside a shell, which cannot show a message
    from uringcore.server._shell_completion import command

    return run(command(), [])


if __name__ == "__main__":
    sys.exit(main())
