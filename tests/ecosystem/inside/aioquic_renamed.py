"""Redirects imports of aioquic to uringcore, without a change to any file of the project.

environments.py installs this in the environment of a project that is written for aioquic, with a
line that makes every interpreter import it, including servers that a suite starts. On stock asyncio
it does nothing, because aioquic itself is the reference there.

For aioquic's own suite (`ECOSYSTEM_PLACEHOLDERS`) names that uringcore lacks become placeholders
that can be imported and fail when used: one name at the top of a file must not hide the other tests
in it.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

THEIRS, OURS = "aioquic", "uringcore"


class Renamed(MetaPathFinder, Loader):
    """Finds our module with the path of an aioquic module."""

    def __init__(self, placeholders: bool) -> None:
        self._placeholders = placeholders

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of an aioquic module, and None for any other."""
        return spec_from_loader(name, self) if name.partition(".")[0] == THEIRS else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return our module; for a name that we lack, an empty one if placeholders are wanted."""
        name = OURS + spec.name.removeprefix(THEIRS)
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name != name or not self._placeholders:
                raise
            module = ModuleType(spec.name)
        if self._placeholders and "__getattr__" not in vars(module):
            vars(module)["__getattr__"] = lambda one: _placeholder(spec.name, one)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: the module has been executed under its own name, and keeps it."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def _placeholder(module: str, name: str) -> type[Any]:
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def fail(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{module}.{name} is aioquic's inside")

    return type(name, (), {"__init__": fail})


if os.environ.get("ECOSYSTEM_LOOP", "asyncio") != "asyncio":
    sys.meta_path.insert(0, Renamed("ECOSYSTEM_PLACEHOLDERS" in os.environ))
