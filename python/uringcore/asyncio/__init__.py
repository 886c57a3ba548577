"""QUIC clients and servers on asyncio, under aioquic's names."""

from __future__ import annotations

from uringcore.asyncio.client import connect
from uringcore.asyncio.protocol import QuicConnectionProtocol
from uringcore.asyncio.server import serve

__all__ = ["QuicConnectionProtocol", "connect", "serve"]
