"""The request that ``uringcore get -L`` sends after a redirect (RFC 9110 section 15.4)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import urljoin

from uringcore.http3._url import parse_url

__all__ = ["RequestTarget", "redirected"]

REDIRECTS = frozenset({301, 302, 303, 307, 308})

# Header fields with secrets or the name of an origin. They are not sent to another origin.
CREDENTIALS = frozenset({"authorization", "cookie", "host", "proxy-authorization"})


@dataclass(frozen=True)
class RequestTarget:
    """A request of the command line."""

    method: str
    url: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    has_body: bool = False


def redirected(asked: RequestTarget, status: int, location: str | None) -> RequestTarget | None:
    """The request that follows a response, or ``None`` if it is no redirect.

    Raises :class:`~uringcore.http3.URLError` for a URL that cannot be fetched, such as one of ``http``.
    """
    if status not in REDIRECTS or location is None:
        return None
    url = urljoin(asked.url, location)
    here, there = parse_url(asked.url)[0], parse_url(url)[0]
    following = replace(asked, url=url)
    becomes_get = status in (301, 302) and asked.method == "POST"
    if becomes_get or (status == 303 and asked.method != "HEAD"):
        following = replace(
            following,
            method="GET",
            has_body=False,
            headers=[one for one in asked.headers if not one[0].lower().startswith("content-")],
        )
    if (here.host, here.port) != (there.host, there.port):
        headers = [one for one in following.headers if one[0].lower() not in CREDENTIALS]
        following = replace(following, headers=headers)
    return following
