"""``dataclasses`` support for event classes of the extension: ``fields``, ``replace``, ``asdict`` and others.

The descriptions are made at first use, because making a dataclass takes longer than importing most modules.
Copying and pickling need none of them.
"""

from __future__ import annotations

import copyreg
import dataclasses
from typing import Any

__all__ = ["describe"]


class _Description:
    """A dataclass attribute, such as ``__dataclass_fields__``, made from the names of the fields."""

    def __init__(self, attribute: str, make: _Maker) -> None:
        self._attribute = attribute
        self._make = make

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        return getattr(self._make(), self._attribute)


class _Maker:
    """Makes the dataclass that corresponds to an event class, when it is first used."""

    def __init__(self, name: str, fields: dict[str, Any], keywords: dict[str, Any]) -> None:
        self._name = name
        self._fields = fields
        self._keywords = keywords
        self._made: type[Any] | None = None

    def __call__(self) -> type[Any]:
        if self._made is None:
            fields: list[Any] = [
                (name, kind[0], dataclasses.field(default=kind[1]))
                if isinstance(kind, tuple)
                else (name, kind)
                for name, kind in self._fields.items()
            ]
            fields += [
                (name, type(default), dataclasses.field(default=default, kw_only=True))
                for name, default in self._keywords.items()
            ]
            self._made = dataclasses.make_dataclass(self._name, fields)
        return self._made


def describe(cls: type[Any], keywords: dict[str, Any] | None = None, **fields: Any) -> None:
    """Makes ``cls`` pass for a dataclass, and pickle with each protocol as dataclasses do.

    A subclass may define attributes, but must not be made by ``@dataclasses.dataclass``: the generated
    ``__init__`` would set fields, and those of an event are read-only.

    ``fields`` are its fields with their types, or types and defaults; ``keywords`` are the keyword-only
    fields with their defaults.
    """
    maker = _Maker(cls.__name__, fields, keywords or {})
    for attribute in ("__dataclass_fields__", "__dataclass_params__"):
        setattr(cls, attribute, _Description(attribute, maker))
    cls.__replace__ = _replace
    cls.__reduce_ex__ = _reduce_ex  # type: ignore[assignment] # mypy takes it for a method of one protocol


def _replace(self: Any, /, **changes: Any) -> Any:
    return dataclasses.replace(self, **changes)


def _reduce_ex(self: Any, protocol: int, /) -> Any:
    """Pickles with protocol 4 or later, because earlier ones cannot pass keywords to ``__new__``."""
    reduced = object.__reduce_ex__(self, max(protocol, 4))
    if protocol < 4 and reduced[0] is getattr(copyreg, "__newobj_ex__"):  # noqa: B009 - not in the stubs
        return (_made, *reduced[1:])
    return reduced


def _made(cls: type[Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return cls.__new__(cls, *args, **keywords)
