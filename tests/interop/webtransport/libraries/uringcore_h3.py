"""uringcore in aioquic's shape."""

from tests.interop.webtransport.libraries.shape import LACKING, connect, run, serve

__all__ = ["LACKING", "connect", "run", "serve"]
