"""HTTP/3 for httpx and httpx2::

    import httpx
    from uringcore.contrib.httpx import AsyncHTTP3Transport

    async with httpx.AsyncClient(transport=AsyncHTTP3Transport()) as client:
        response = await client.get("https://example.org/")   # over TCP, and says where HTTP/3 is
        response = await client.get("https://example.org/")   # over HTTP/3
        print(response.http_version)

Needs the extra ``uringcore[httpx]`` or ``uringcore[httpx2]``; with httpx2 write that name for httpx.
HTTP/3 itself is :mod:`uringcore.http3`.

| file | noun |
| --- | --- |
| ``_transport`` | ``AsyncHTTP3Transport``: which requests go over HTTP/3, and which over TCP |
| ``_libraries`` | httpx and httpx2, whichever is installed |
| ``_trust`` | the authorities that QUIC trusts |
| ``_errors`` | the exceptions of httpx for those of ours |
"""

from uringcore.contrib.httpx._transport import AsyncHTTP3Transport

__all__ = ["AsyncHTTP3Transport"]
