"""uringcore through aioquic's API."""

from tests.interop.webtransport.libraries.shape import LACKING, connect, run, serve

__all__ = ["LACKING", "connect", "run", "serve"]
