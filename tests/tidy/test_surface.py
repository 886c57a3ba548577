"""The public modules of the package: what this table names, and nothing else without an underscore."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "python" / "uringcore"

PUBLIC = {
    "": "aio asyncio buffer contrib devcert h0 h3 http3 httpx quic server tls webtransport",
    "aio": "os ospath tempfile threadpool",
    "aio.threadpool": "binary text",
    "asyncio": "client protocol server",
    "contrib": "aiopquic gunicorn httpx starlette",
    "h0": "connection",
    "h3": "connection events exceptions",
    "quic": "configuration connection events limits logger metrics packet sessions stats workers",
    # Former names of the adapters in `contrib`.
    "server": "gunicorn",
    "webtransport": "events starlette",
}


def public_modules() -> dict[str, str]:
    """The names without an underscore in each package that can be reached by such names."""
    found: dict[str, str] = {}
    folders = [PACKAGE]
    for folder in folders:
        names = []
        for path in sorted(folder.iterdir()):
            is_package = (path / "__init__.py").exists()
            if path.name.startswith("_") or not (is_package or path.suffix == ".py"):
                continue
            names.append(path.stem)
            if is_package:
                folders.append(path)
        if names:
            found[".".join(folder.relative_to(PACKAGE).parts)] = " ".join(names)
    return found


def test_nothing_else_is_public() -> None:
    assert public_modules() == PUBLIC
