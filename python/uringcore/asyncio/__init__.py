"""QUIC clients and servers on asyncio, under aioquic's names.

| file | noun |
| --- | --- |
| ``client`` | ``connect`` |
| ``server`` | ``serve`` |
| ``protocol`` | ``QuicConnectionProtocol`` |
| ``_stream_transport`` | the transport behind a stream's reader and writer |
| ``_held_first_flight`` | ``connect(..., transmit=False)`` |
"""

from __future__ import annotations

from uringcore.asyncio.client import connect
from uringcore.asyncio.protocol import QuicConnectionProtocol
from uringcore.asyncio.server import serve

__all__ = ["QuicConnectionProtocol", "connect", "serve"]
