"""Methods that read a whole response, on top of ``stream``."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from uringcore.http3._exchange import InterimHandler, Response
from uringcore.http3._limits import Timeouts
from uringcore.http3._request import Content, Headers

__all__ = ["Methods"]


class Methods:
    """Requests by method, each with its whole response in memory."""

    def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        content: Content | None = None,
        on_interim: InterimHandler | None = None,
        timeouts: Timeouts | None = None,
    ) -> AbstractAsyncContextManager[Response]:
        """Sends a request; the block runs when the header section of the response has arrived."""
        raise NotImplementedError

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        content: Content | None = None,
        on_interim: InterimHandler | None = None,
        timeouts: Timeouts | None = None,
    ) -> Response:
        """Sends a request and reads the whole response into memory, however large it is. Arguments and
        exceptions as in :meth:`stream`."""
        async with self.stream(
            method,
            url,
            headers=headers,
            content=content,
            on_interim=on_interim,
            timeouts=timeouts,
        ) as response:
            await response.read()
            return response

    async def get(
        self, url: str, *, headers: Headers = (), timeouts: Timeouts | None = None
    ) -> Response:
        """``request("GET", url)``."""
        return await self.request("GET", url, headers=headers, timeouts=timeouts)

    async def head(
        self, url: str, *, headers: Headers = (), timeouts: Timeouts | None = None
    ) -> Response:
        """``request("HEAD", url)``."""
        return await self.request("HEAD", url, headers=headers, timeouts=timeouts)

    async def options(
        self, url: str, *, headers: Headers = (), timeouts: Timeouts | None = None
    ) -> Response:
        """``request("OPTIONS", url)``."""
        return await self.request("OPTIONS", url, headers=headers, timeouts=timeouts)

    async def post(
        self,
        url: str,
        *,
        content: Content | None = None,
        headers: Headers = (),
        timeouts: Timeouts | None = None,
    ) -> Response:
        """``request("POST", url)``."""
        return await self.request("POST", url, content=content, headers=headers, timeouts=timeouts)

    async def put(
        self,
        url: str,
        *,
        content: Content | None = None,
        headers: Headers = (),
        timeouts: Timeouts | None = None,
    ) -> Response:
        """``request("PUT", url)``."""
        return await self.request("PUT", url, content=content, headers=headers, timeouts=timeouts)

    async def patch(
        self,
        url: str,
        *,
        content: Content | None = None,
        headers: Headers = (),
        timeouts: Timeouts | None = None,
    ) -> Response:
        """``request("PATCH", url)``."""
        return await self.request("PATCH", url, content=content, headers=headers, timeouts=timeouts)

    async def delete(
        self, url: str, *, headers: Headers = (), timeouts: Timeouts | None = None
    ) -> Response:
        """``request("DELETE", url)``."""
        return await self.request("DELETE", url, headers=headers, timeouts=timeouts)
