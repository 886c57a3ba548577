"""Pickling of exceptions with all their fields, whatever arguments their constructors take.

CPython pickles an exception as a call of its class with ``args``. If the constructor takes other arguments,
that call fails when the exception is unpickled, which breaks a pool of processes.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PickledWithFields"]


class PickledWithFields:
    """Base of exceptions that a pickle restores with all their attributes; ``__init__`` is not called."""

    args: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        slots = {name: getattr(self, name, None) for name in _SLOTS if isinstance(self, OSError)}
        return _made_again, (type(self), self.args, self.__dict__, slots)


def _made_again(
    cls: type[Any], args: tuple[Any, ...], state: dict[str, Any], slots: dict[str, Any]
) -> Any:
    made = cls.__new__(cls, *args)
    made.args = args
    for name, value in slots.items():
        if value is not None:
            setattr(made, name, value)
    made.__dict__.update(state)
    return made


# The fields that an OSError keeps outside of its ``__dict__``.
_SLOTS = ("errno", "strerror", "filename")
