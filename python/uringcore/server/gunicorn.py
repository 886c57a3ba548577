"""The former name of :mod:`uringcore.contrib.gunicorn`."""

from uringcore.contrib.gunicorn import *  # noqa: F403
from uringcore.contrib.gunicorn import __all__ as __all__
