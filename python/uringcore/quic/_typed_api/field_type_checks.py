"""``check_types``: checks that the values of a configuration's fields have their annotated types.

Not here: checks of values.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from uringcore.quic._errors import QuicConfigurationError

__all__ = ["check_types"]

# For each annotation, the types that it allows, and their names for messages.
_TYPES: dict[object, tuple[tuple[type, ...], str]] = {
    "PemSource": ((str, bytes, os.PathLike), "a path or PEM bytes"),
    "bool": ((bool,), "True or False"),
    "float": ((Real,), "a number"),
    "int": ((Integral,), "an integer"),
    "str": ((str,), "a string"),
}


def check_types(config: Any) -> None:
    """Raises :class:`QuicConfigurationError`, which names the first field of a dataclass whose value does not
    have its annotation's type. Annotations of other kinds are not checked.
    """
    for field in dataclasses.fields(config):
        value, annotation = getattr(config, field.name), str(field.type)
        if annotation.endswith(" | None"):
            if value is None:
                continue
            annotation = annotation.removesuffix(" | None")
        if annotation.startswith("Sequence["):
            # The message omits the value, which may be a key.
            if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
                raise QuicConfigurationError(field.name, "must be a list")
            if annotation == "Sequence[str]" and not all(isinstance(each, str) for each in value):
                raise QuicConfigurationError(field.name, "must be a list of strings")
        elif annotation in _TYPES:
            types, name = _TYPES[annotation]
            if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
                raise QuicConfigurationError(field.name, f"must be {name}, not {value!r}")
