"""httpx and httpx2, if installed: their classes have equal names and are different.

If both are installed, a transport belongs to both, and returns each request's response as an object of its
library.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["LIBRARIES", "AsyncBaseTransport", "AsyncByteStream", "is_httpx2", "library_of"]


def installed() -> tuple[ModuleType, ...]:
    """Returns those of the two libraries that are installed. Raises ``ImportError`` if neither is."""
    found: list[ModuleType] = []
    for name in ("httpx", "httpx2"):
        try:
            library = importlib.import_module(name)
        except ModuleNotFoundError as exc:
            if exc.name != name:
                raise
            continue
        # After `httpx2.alias_httpx()` both names are one module, which must be listed only once.
        if library not in found:
            found.append(library)
    if not found:
        raise ImportError(
            "uringcore.contrib.httpx needs httpx or httpx2: "
            "pip install 'httpx>=0.27' or pip install 'httpx2>=2'",
            name="httpx",
        )
    return tuple(found)


LIBRARIES = installed()


def library_of(request: object) -> Any:
    """Returns the library that has made a request."""
    for library in LIBRARIES:
        if isinstance(request, library.Request):
            return library
    raise TypeError(f"request: must be a Request of httpx or httpx2, not {type(request).__name__}")


def is_httpx2(library: ModuleType) -> bool:
    """True for httpx2, which trusts the system's authorities by default; httpx trusts certifi's."""
    return library.__name__ == "httpx2"


def common(name: str) -> Any:
    """Returns a class that derives from the class with the name ``name`` in each library."""
    bases = tuple(getattr(library, name) for library in LIBRARIES)
    return bases[0] if len(bases) == 1 else type(name, bases, {})


if TYPE_CHECKING:
    from httpx import AsyncBaseTransport, AsyncByteStream
else:
    AsyncBaseTransport = common("AsyncBaseTransport")
    AsyncByteStream = common("AsyncByteStream")
