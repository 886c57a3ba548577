"""asyncio on io_uring, with QUIC, HTTP/3 and WebTransport on the same ring.

``uringcore.run(main())`` runs an asyncio program on the loop; ``uringcore.asyncio`` and
``uringcore.quic`` have the names of aioquic; ``uringcore app:app`` serves an ASGI application.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._policy import has_policies as _has_policies
from ._policy import install, new_event_loop, run
from ._uringcore import __version__
from .loop import UringEventLoop

if TYPE_CHECKING:
    from ._policy import EventLoopPolicy

__all__ = [
    "UringEventLoop",
    "__version__",
    "install",
    "new_event_loop",
    "run",
]

# A name without a value would fail ``from uringcore import *``.
if _has_policies():
    __all__ += ["EventLoopPolicy"]


def __getattr__(name: str) -> Any:
    if name == "EventLoopPolicy":
        from . import _policy

        return _policy._policy_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
