"""HTTP/3 for httpx::

    import httpx
    from uringcore.httpx import AsyncHTTP3Transport

    async with httpx.AsyncClient(transport=AsyncHTTP3Transport()) as client:
        response = await client.get("https://example.org/")   # over TCP, and says where HTTP/3 is
        response = await client.get("https://example.org/")   # over HTTP/3
        print(response.http_version)

Needs the extra ``uringcore[httpx]``. ``transport`` has the transport, ``errors`` httpx's exceptions
for ours; HTTP/3 itself is :mod:`uringcore.http3`.
"""

from uringcore.httpx.transport import AsyncHTTP3Transport

__all__ = ["AsyncHTTP3Transport"]
