"""The former name of :mod:`uringcore.contrib.starlette`."""

from uringcore.contrib.starlette import *  # noqa: F403
from uringcore.contrib.starlette import __all__ as __all__
