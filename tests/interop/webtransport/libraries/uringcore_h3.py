"""uringcore through aioquic's API."""

from tests.interop.webtransport.libraries.aioquic_api import LACKING, connect, run, serve

__all__ = ["LACKING", "connect", "run", "serve"]
