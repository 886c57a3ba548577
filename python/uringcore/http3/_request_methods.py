"""The methods of requests: :class:`Methods`, on top of two that a client defines."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import AsyncIterator

from uringcore.http3._exchange import InterimHandler, Response
from uringcore.http3._request import Content, Headers, Request
from uringcore.http3._timeouts_and_limits import Timeouts

__all__ = ["Methods"]


class Methods(abc.ABC):
    """Requests by method. All but :meth:`stream` read the whole response into memory."""

    @contextlib.asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        content: Content | None = None,
        on_interim: InterimHandler | None = None,
        timeouts: Timeouts | None = None,
    ) -> AsyncIterator[Response]:
        """Sends a request; the block runs when the header section of the response has arrived.

        ``content`` is sent while the response is being read; the part that the server stops (STOP_SENDING) is
        dropped without an error. Leaving the block early cancels the rest of the exchange.
        ``on_interim(status, fields)`` is called for each interim response (RFC 9110 section 15.2).

        Raises an :class:`HTTP3Error`, or an exception that ``content`` raises.
        """
        request = self._request(method, url, headers, content)
        response = await self._send(request, on_interim=on_interim, timeouts=timeouts)
        try:
            yield response
        finally:
            await response.aclose()

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

    @abc.abstractmethod
    def _request(self, method: str, url: str, headers: Headers, content: Content | None) -> Request:
        """The request for a URL of the program."""

    @abc.abstractmethod
    async def _send(
        self,
        request: Request,
        *,
        on_interim: InterimHandler | None = None,
        timeouts: Timeouts | None = None,
    ) -> Response:
        """Sends a request and waits for the header section of its response, which the caller closes."""
