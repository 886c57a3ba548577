"""Functions that run before and after a fork, and the open loops that they handle.

CPython keeps these functions, and all objects that this module references, until the interpreter ends. So
this module references nothing of asyncio. A reference would keep all of asyncio alive until then, and the
last garbage collections, which delay the end of the process, would traverse it.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

__all__ = ["open_loops"]

open_loops: weakref.WeakSet[Any] = weakref.WeakSet()


def _rest_before_fork() -> None:
    for loop in list(open_loops):
        # After the fork parent and child share the loop's sockets, so the loop must not accept ahead.
        loop._own_listeners.clear()
        loop._before_fork()


def _inherit_loops() -> None:
    # A ring belongs to the process that has made it, so a forked child must not use its parent's rings.
    loops = list(open_loops)
    for loop in loops:
        loop._after_fork_in_child()
    if loops:
        loops[0]._forget_wakeup_in_child(loops)


os.register_at_fork(before=_rest_before_fork, after_in_child=_inherit_loops)
