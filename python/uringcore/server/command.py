"""The command ``uringcore module:app``: uvicorn's options, and ours beside them.

The options of the installed uvicorn are taken as they are, so a new one of theirs works here at
once. What they mean is config.py's business.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import click
from uvicorn.main import main as uvicorn_command

from uringcore import _uringcore
from uringcore.server.config import LOOP, ServerConfig
from uringcore.server.limits import HEADER_BYTES_MAX
from uringcore.server.server import serve
from uringcore.server.startup import StartupError

__all__ = ["command"]

# uvicorn's own command turns these from what the command line gives into what Config takes.
LISTS = ("reload_dirs", "reload_includes", "reload_excludes")


def our_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--http3/--no-http3"],
            default=True,
            show_default=True,
            help="Serve HTTP/3 on the UDP port of the same number.",
        ),
        click.Option(
            ["--dev-cert"],
            is_flag=True,
            help="Make a certificate for localhost, valid for 14 days, and print its hashes.",
        ),
        click.Option(
            ["--backend"],
            type=click.Choice(["uring", "epoll"]),
            default=None,
            help="Insist on a backend of the event loop.  [default: io_uring where it works]",
        ),
        click.Option(
            ["--http3-idle-timeout"],
            type=click.FloatRange(min=1),
            default=30.0,
            show_default=True,
            help="Drop an HTTP/3 connection without requests after this many silent seconds.",
        ),
        click.Option(
            ["--http3-max-requests"],
            type=click.IntRange(min=1),
            default=128,
            show_default=True,
            help="Requests that one HTTP/3 connection may have open at once.",
        ),
        click.Option(
            ["--http3-max-header-bytes"],
            type=click.IntRange(1024, HEADER_BYTES_MAX),
            default=HEADER_BYTES_MAX,
            show_default=True,
            help="Size of an HTTP/3 request's headers above which 431 is answered.",
        ),
    ]


def uvicorn_options() -> list[click.Parameter]:
    options: list[click.Parameter] = []
    for original in uvicorn_command.params:
        option = copy.copy(original)
        if option.name == "version":
            option = click.Option(
                ["--version"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=print_version,
                help="Display the versions of uringcore, uvicorn and Python and exit.",
            )
        elif option.name == "loop":
            option.default = LOOP
        elif option.name == "timeout_graceful_shutdown":
            option.default = 30
        options.append(option)
    return options


def print_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if not value or context.resilient_parsing:
        return
    import platform

    import uvicorn

    click.echo(
        f"uringcore {_uringcore.__version__} with uvicorn {uvicorn.__version__}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )
    context.exit()


def start(app: str, **options: Any) -> None:
    """Checks the options, then serves."""
    app_dir = options.pop("app_dir", None)
    if app_dir is not None:
        sys.path.insert(0, app_dir)
    for name in LISTS:
        options[name] = list(options.get(name) or ()) or None
    try:
        options["headers"] = [header_pair(text) for text in options.get("headers") or ()]
        serve(ServerConfig(app, **options))
    except StartupError as exc:
        raise click.ClickException(str(exc)) from None


def header_pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator:
        raise StartupError(f"--header: {text!r} is not of the form Name:Value")
    return name.strip(), value.strip()


command = click.Command(
    "uringcore",
    callback=start,
    params=[*uvicorn_options(), *our_options()],
    context_settings=uvicorn_command.context_settings,
    help="Serve the ASGI application APP (module:attribute) over HTTP/1.1 and HTTP/3.\n\n"
    "`uringcore get URL` fetches a URL over HTTP/3; see `uringcore get --help`.",
)
