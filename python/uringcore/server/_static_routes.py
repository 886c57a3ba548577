"""The option ``--static``: folders that the server publishes before the application is called."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from uringcore.server._startup_errors import StartupError
from uringcore.server._static_files_application import StaticFiles, route_path

__all__ = ["StaticRoutes", "parse_static", "static_routes"]


class StaticRoutes:
    """Wraps an application: requests below a prefix are answered with files.

    The longest prefix that fits is used. Below the prefix ``/``, a request without a file goes to the
    application; below any other prefix it gets 404.
    """

    def __init__(self, application: Any, folders: dict[str, StaticFiles]) -> None:
        self._application = application
        self._root = folders.get("")
        longest_first = sorted(folders, key=len, reverse=True)
        self._folders = [(prefix, folders[prefix]) for prefix in longest_first if prefix]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            path = route_path(scope)
            for prefix, files in self._folders:
                if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/"):
                    below = {**scope, "root_path": scope.get("root_path", "") + prefix}
                    await files(below, receive, send)
                    return
            if self._root is not None and await self._root.serve(scope, send, path):
                return
        await self._application(scope, receive, send)


def parse_static(given: Iterable[str]) -> dict[str, str]:
    """Returns the folders by prefix, without a slash at its end, for values ``/prefix=folder``.

    Raises :class:`StartupError`.
    """
    folders: dict[str, str] = {}
    for text in given:
        prefix, separator, folder = text.partition("=")
        if not separator or not folder:
            raise refusal(f"{text!r} is not of the form /PREFIX=FOLDER")
        if not prefix.startswith("/") or "//" in prefix or set("?#%").intersection(prefix):
            raise refusal(f"{prefix!r} is not a path that begins with /")
        prefix = prefix.rstrip("/")
        if prefix in folders:
            raise refusal(f"{prefix or '/'} is given twice")
        if not os.path.isdir(folder):
            raise refusal(f"there is no folder {folder}")
        folders[prefix] = folder
    return folders


def refusal(why: str) -> StartupError:
    return StartupError(f"static: {why}", option="static")


def static_routes(application: Any, given: Iterable[str], cache_control: str | None) -> Any:
    """Returns the application with folders in front of it. Raises :class:`StartupError`."""
    folders: dict[str, StaticFiles] = {}
    for prefix, folder in parse_static(given).items():
        try:
            folders[prefix] = StaticFiles(folder, cache_control=cache_control)
            folders[prefix].is_outermost = True
        except OSError as exc:
            raise refusal(f"{folder}: {exc.strerror}") from None
    return StaticRoutes(application, folders)
