"""A QUIC library with aioquic's API as an endpoint: `python -m tests.interop.peers.python LIBRARY
ROLE`.

It runs uringcore's own endpoint (`examples.interop`), with the library in place of uringcore's
QUIC: only the imports differ, as uringcore promises to programs written for aioquic. So the two
ends of a case share the program that moves files and no QUIC code.

The interpreter need not have uringcore.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import signal
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
HTTP09 = ROOT / "python" / "uringcore" / "h0" / "connection.py"
LIBRARIES = ("aioquic", "qh3", "aiopquic", "uringcore")
# These libraries use uringcore's HTTP/0.9, which is a page of string handling.
NO_HTTP09 = ("qh3", "aiopquic")


class Aliases(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Resolves `uringcore.quic` and its neighbours to another library's modules."""

    def __init__(self, library: str) -> None:
        self.library = library
        self.shim = importlib.import_module("tests.interop.peers.shim")

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Claims every module below `uringcore`."""
        if not name.startswith("uringcore."):
            return None
        if name == "uringcore.h0.connection" and self.library in NO_HTTP09:
            return importlib.util.spec_from_file_location(name, HTTP09)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        """Returns a module with the library's names and replacements for the missing ones."""
        found = types.ModuleType(spec.name)
        found.__dict__.update(self.shim.names(self.library, spec.name.partition(".")[2]))
        return found

    def exec_module(self, module: types.ModuleType) -> None:
        """Does nothing: the module is complete."""


def install(library: str) -> None:
    """Installs `library` under the name uringcore in this process."""
    if library == "uringcore":
        return
    package = types.ModuleType("uringcore")
    package.__path__ = []
    # The attributes that `examples.interop.command` needs of the package itself.
    package.run = lambda main, backend=None: asyncio.run(main)  # type: ignore[attr-defined]
    sys.modules["uringcore"] = package
    sys.meta_path.insert(0, Aliases(library))


def main(arguments: Sequence[str]) -> int:
    """Runs one endpoint; returns its exit status."""
    library, *rest = arguments
    if library not in LIBRARIES:
        raise SystemExit(f"LIBRARY must be one of {', '.join(LIBRARIES)}, not {library!r}")
    install(library)
    try:
        from examples.interop import command
        from tests.interop.peers import probe
    except NotImplementedError as exc:
        print(f"{library}: {exc}", file=sys.stderr)
        return 127

    options = command.parser().parse_args(rest)
    if options.testcase not in probe.CASES:
        return command.main(rest)
    import uringcore

    try:
        uringcore.run(_probe(probe, options), backend=options.backend)
    except NotImplementedError as exc:
        print(f"{library}: {exc}", file=sys.stderr)
        return command.UNSUPPORTED
    except (ConnectionError, ValueError) as exc:
        print(f"{library}: {exc}", file=sys.stderr)
        return 1
    return 0


async def _probe(probe: types.ModuleType, options: Any) -> None:
    certificates = Path(options.certs)
    if options.role == "client":
        await probe.run_probe(options.testcase, certificates, options.requests.split()[0])
        return
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await probe.serve_probe(certificates, options.host, options.port, stopped)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
