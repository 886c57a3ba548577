"""The former name of :mod:`uringcore.contrib.aiopquic`."""

from uringcore.contrib.aiopquic import *  # noqa: F403
from uringcore.contrib.aiopquic import __all__ as __all__
