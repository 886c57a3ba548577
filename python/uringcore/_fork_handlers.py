"""The loops that are open when the process forks, and their handling of a fork.

CPython keeps the functions here until the end of the interpreter, and with them all objects that their module
references. So it references nothing of asyncio, which the last collections would traverse once more.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

__all__ = ["open_loops"]

open_loops: weakref.WeakSet[Any] = weakref.WeakSet()


def _rest_before_fork() -> None:
    for loop in list(open_loops):
        # Parent and child share the loop's sockets from now on.
        loop._own_listeners.clear()
        loop._before_fork()


def _inherit_loops() -> None:
    # A ring belongs to the process that made it; the child must neither submit to it nor reap from it.
    loops = list(open_loops)
    for loop in loops:
        loop._after_fork_in_child()
    if loops:
        loops[0]._forget_wakeup_in_child(loops)


os.register_at_fork(before=_rest_before_fork, after_in_child=_inherit_loops)
