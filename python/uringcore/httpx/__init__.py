"""HTTP/3 for httpx and httpx2::

    import httpx
    from uringcore.httpx import AsyncHTTP3Transport

    async with httpx.AsyncClient(transport=AsyncHTTP3Transport()) as client:
        response = await client.get("https://example.org/")   # over TCP, and says where HTTP/3 is
        response = await client.get("https://example.org/")   # over HTTP/3
        print(response.http_version)

Needs the extra ``uringcore[httpx]`` or ``uringcore[httpx2]``; with httpx2 write that name for httpx.
HTTP/3 itself is :mod:`uringcore.http3`.

| file | noun |
| --- | --- |
| ``transport`` | ``AsyncHTTP3Transport``: which requests go over HTTP/3, and which over TCP |
| ``libraries`` | httpx and httpx2, whichever is installed |
| ``trust`` | the authorities that QUIC trusts |
| ``errors`` | the exceptions of httpx for those of ours |
"""

from uringcore.httpx.transport import AsyncHTTP3Transport

__all__ = ["AsyncHTTP3Transport"]
