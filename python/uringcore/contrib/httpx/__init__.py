"""HTTP/3 for httpx and httpx2::

    import httpx
    from uringcore.contrib.httpx import AsyncHTTP3Transport

    async with httpx.AsyncClient(transport=AsyncHTTP3Transport()) as client:
        response = await client.get("https://example.org/")   # over TCP; its Alt-Svc field offers HTTP/3
        response = await client.get("https://example.org/")   # over HTTP/3
        print(response.http_version)

Needs the extra ``uringcore[httpx]`` or ``uringcore[httpx2]``; with httpx2 replace httpx by that name. HTTP/3
itself is :mod:`uringcore.http3`.

| file | noun |
| --- | --- |
| ``_transport`` | ``AsyncHTTP3Transport``: the choice between HTTP/3 and TCP for each request |
| ``_httpx_modules`` | httpx and httpx2, if installed |
| ``_trusted_authorities`` | the authorities that QUIC trusts |
| ``_errors`` | httpx's exceptions for uringcore's |
"""

from uringcore.contrib.httpx._transport import AsyncHTTP3Transport

__all__ = ["AsyncHTTP3Transport"]
