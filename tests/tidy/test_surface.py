"""The public surface: the modules of a table, exceptions that end in ``Error``, few symbols, all typed."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

from tests.support.type_checkers import completeness

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
    """Returns the names without an underscore in each package that such names reach."""
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


SYMBOLS_MAX = 750
# aioquic's names for them.
FOREIGN_NAMES = {"ClosedCriticalStream", "FrameUnexpected", "QpackDecompressionFailed"}


def public_objects() -> Iterator[tuple[str, object]]:
    names = [f"{package}.{name}" for package, found in PUBLIC.items() for name in found.split()]
    for name in ["", *names]:
        module = importlib.import_module(f"uringcore.{name.removeprefix('.')}".rstrip("."))
        for symbol in getattr(module, "__all__", ()):
            yield symbol, getattr(module, symbol)


def test_exceptions_end_in_error() -> None:
    exceptions = {
        name
        for name, found in public_objects()
        if isinstance(found, type) and issubclass(found, BaseException)
    }
    assert "StreamResetError" in exceptions and "WebSocketClosedError" in exceptions
    assert {name for name in exceptions if not name.endswith("Error")} <= FOREIGN_NAMES


def test_names_of_exceptions_have_one_meaning() -> None:
    """Two classes of one name would be caught for each other."""
    found: dict[str, set[object]] = {}
    for name, value in public_objects():
        if name.endswith("Error"):
            found.setdefault(name, set()).add(value)
    twice = {name for name, values in found.items() if len(values) > 1}
    # aiopquic's own, in its adapter.
    assert twice <= {"WebTransportError"}


def members(found: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties that the package itself defines."""
    for name in dir(found):
        owner = next((base for base in found.__mro__ if name in vars(base)), found)
        value = vars(owner).get(name)
        is_attribute = isinstance(value, property) or inspect.isgetsetdescriptor(value)
        is_ours = not name.startswith("_") and owner.__module__.startswith("uringcore")
        if is_ours and (is_attribute or callable(getattr(found, name))):
            yield name, value


def test_public_objects_are_documented() -> None:
    bare: set[str] = set()
    for name, found in public_objects():
        if not getattr(found, "__module__", "").startswith("uringcore") or not callable(found):
            continue
        if not inspect.getdoc(found):
            bare.add(name)
        if isinstance(found, type):
            bare |= {f"{name}.{one}" for one, value in members(found) if not inspect.getdoc(value)}
    # asyncio has no docstring for it.
    assert bare <= {"UringEventLoop.create_unix_server"}


def test_public_symbols_are_typed_and_few() -> None:
    report = completeness()
    unclear = [
        symbol["name"]
        for symbol in report["symbols"]
        if symbol["isExported"] and (not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"])
    ]
    assert not unclear
    assert report["completenessScore"] == 1
    count = sum(report["exportedSymbolCounts"].values())
    assert 500 < count <= SYMBOLS_MAX
