"""The former name of :mod:`uringcore.contrib.httpx`."""

from uringcore.contrib.httpx import *  # noqa: F403
from uringcore.contrib.httpx import __all__ as __all__
