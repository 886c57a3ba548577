"""What a user does who comes from aioquic, without touching a file: its imports become uringcore's.

environments.py puts this into an environment whose project is written for aioquic, with a line that has
every interpreter of it import it, servers that a suite starts included. Does nothing on stock asyncio,
where aioquic itself is the measure.

For aioquic's own suite (`ECOSYSTEM_PLACEHOLDERS`) what is left out here gets a placeholder that can be
imported and fails when used: one name at the top of a file must not hide the other tests in it.
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
    """Finds our module of the same path for every module of aioquic's."""

    def __init__(self, placeholders: bool) -> None:
        self._placeholders = placeholders

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of a module of aioquic's; those of others are not looked for here."""
        return spec_from_loader(name, self) if name.partition(".")[0] == THEIRS else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Our module; under a name that we do not have, an empty one if placeholders are wanted."""
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
        """Nothing: it has been executed under its own name, and keeps it."""
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
