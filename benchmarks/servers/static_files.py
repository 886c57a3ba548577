"""The files of the file tables, and the application that serves them under uvicorn."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.servers.bulk import pattern

URL_PATH = "/assets"
FOLDER = Path(tempfile.gettempdir()) / "uringcore-benchmark-files"
SIZES = {"1k": 1 << 10, "100k": 100 << 10, "100m": 100 << 20}
"""The sizes in bytes of the files `<name>.bin`."""


def make_files() -> None:
    """Write the files, unless they exist."""
    FOLDER.mkdir(exist_ok=True)
    block = pattern()
    for name, size in SIZES.items():
        path = FOLDER / f"{name}.bin"
        if not path.exists() or path.stat().st_size != size:
            path.write_bytes((block * (size // len(block) + 1))[:size])


def __getattr__(name: str) -> Any:
    """Make the application when a server asks for it: other programs of the benchmarks lack Starlette."""
    if name != "application":
        raise AttributeError(name)
    from starlette.applications import Starlette
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    return Starlette(routes=[Mount(URL_PATH, StaticFiles(directory=FOLDER))])
