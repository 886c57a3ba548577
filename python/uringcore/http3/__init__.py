"""An HTTP/3 client.

::

    async with uringcore.http3.connect("https://localhost:8443/", cafile="cert.pem") as client:
        response = await client.request("GET", "/")
        print(response.status, response.content)

        async with client.stream("PUT", "/upload", content=chunks()) as response:
            async for part in response.iter_bytes():
                ...

| file | noun |
| --- | --- |
| ``client`` | a connection to one origin, and what is asked of it |
| ``exchange`` | one request and its response on their stream, with flow control |
| ``url`` | what a URL says about where to connect and what to ask |
| ``errors`` | what can go wrong beyond the connection itself |
| ``command`` | ``uringcore get`` |
"""

from uringcore.http3.client import Client, connect
from uringcore.http3.errors import RequestFailed, RequestNotProcessed, RequestReset, URLError
from uringcore.http3.exchange import Response

__all__ = [
    "Client",
    "RequestFailed",
    "RequestNotProcessed",
    "RequestReset",
    "Response",
    "URLError",
    "connect",
]
