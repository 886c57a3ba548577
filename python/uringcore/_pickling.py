"""Exceptions whose constructors take more than their text, pickled with all that they say.

CPython pickles an exception as its class, called with ``args``: a constructor with arguments of its own
fails then, at the reader, which takes a pool of processes down.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PickledWhole"]


class PickledWhole:
    """A base of exceptions that come out of a pickle as they went in: ``__init__`` is not called."""

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


# Of OSError, which keeps them beside the dictionary.
_SLOTS = ("errno", "strerror", "filename")
