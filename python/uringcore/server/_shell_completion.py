"""Shell completion of the options of the server and of ``get``.

click implements the exchange with the shell: ``_URINGCORE_COMPLETE=bash_source uringcore`` prints the
completion script for bash, ``zsh_source`` and ``fish_source`` likewise. Nothing is run here.
"""

from __future__ import annotations

import argparse
from typing import Any

import click
from click.shell_completion import CompletionItem

from uringcore.http3._get_command import parser
from uringcore.server._command import command as server_command

__all__ = ["command"]


class Line(click.Command):
    """A click command for a whole command line, whose first word selects ``get`` or the server."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> click.Context:
        """Returns click's context for the words that were typed so far."""
        if args[:1] == ["get"]:
            return get_command().make_context("get", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def command() -> click.Command:
    """Returns the command that completion uses."""
    first, *others = server_command.params
    assert isinstance(first, click.Argument)
    return Line("uringcore", params=[click.Argument(["app"], shell_complete=first_word), *others])


def first_word(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes the first word if it is the beginning of ``get``. Names of applications cannot be
    completed."""
    offered = CompletionItem("get", help="fetch a URL over HTTP/3")
    return [offered] if "get".startswith(incomplete) else []


def get_command() -> click.Command:
    """Returns the options of ``uringcore get`` as click options."""
    options: list[click.Parameter] = [click.Argument(["url"])]
    for action in parser()._actions:
        if action.option_strings and not isinstance(action, argparse._HelpAction):
            options.append(option_of(action))
    return click.Command("get", params=options)


def option_of(action: argparse.Action) -> click.Option:
    kind: Any = None
    if action.choices is not None:
        kind = click.Choice(list(action.choices))
    elif action.metavar == "FILE":
        kind = click.Path()
    return click.Option(
        [*action.option_strings, action.dest.replace(".", "_")],
        is_flag=action.nargs == 0,
        type=kind,
        help=action.help,
    )
