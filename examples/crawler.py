"""A crawler over HTTP/3: reads all pages of a site and reports broken links.

python examples/crawler.py https://example.org/ [authorities.pem]
"""

import asyncio
import sys
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin

import uringcore
from uringcore import http3

WORKERS = 32
PAGES_MAX, PAGE_BYTES_MAX = 10_000, 1 << 20


def origin(url: str) -> str:
    """Returns the site of a page."""
    return urljoin(url, "/")


class Links(HTMLParser):
    """Collects the targets of a page's links."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.base = url
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called for each tag of the page."""
        target = dict(attrs).get("href")
        if target is None:
            return
        if tag == "base":
            self.base = urljoin(self.base, target)
        elif tag in ("a", "area", "link"):
            self.found.add(urldefrag(urljoin(self.base, target)).url)


class Crawl:
    """The pages found on one site, and the pages still to be read."""

    def __init__(self, client: http3.Client, start: str) -> None:
        self.client = client
        self.site = origin(start)
        self.found = {start}
        self.waiting: asyncio.Queue[str] = asyncio.Queue()
        self.waiting.put_nowait(start)
        self.bytes = 0
        self.broken: list[str] = []

    async def run(self) -> None:
        """Reads all pages, many at a time. If a worker fails, the crawl ends."""
        workers = [asyncio.create_task(self.work()) for _ in range(WORKERS)]
        reading = asyncio.create_task(self.waiting.join())
        await asyncio.wait([reading, *workers], return_when=asyncio.FIRST_COMPLETED)
        for task in (reading, *workers):
            task.cancel()
        for result in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def work(self) -> None:
        """Reads pages one after the other."""
        while True:
            url = await self.waiting.get()
            try:
                await self.read(url)
            except (http3.HTTP3Error, ValueError, AssertionError) as error:
                # The last is the parser's error for some pages that are no HTML.
                self.broken.append(f"{url}: {error}")
            finally:
                self.waiting.task_done()

    async def read(self, url: str) -> None:
        """Reads a page and follows its links, on this site alone."""
        async with self.client.stream("GET", url, headers=[("user-agent", "crawler")]) as response:
            if response.status in (301, 302, 303, 307, 308):
                self.follow({urljoin(url, response.header("location", "") or "")})
                return
            if response.status >= 400:
                raise ValueError(response.status)
            page = bytearray()
            is_page = (response.header("content-type") or "").startswith("text/html")
            async for part in response.iter_bytes():
                self.bytes += len(part)
                page += part
                if not is_page or len(page) > PAGE_BYTES_MAX:
                    break
        if is_page:
            links = Links(url)
            links.feed(page.decode(errors="replace"))
            self.follow(links.found)

    def follow(self, targets: set[str]) -> None:
        """Queues the targets that are new and on this site."""
        here = {target for target in targets if origin(target) == self.site}
        for target in sorted(here - self.found)[: PAGES_MAX - len(self.found)]:
            self.found.add(target)
            self.waiting.put_nowait(target)


async def crawl(start: str, authorities: str | None) -> int:
    """Reads a site; returns the exit status."""
    limits = http3.Limits(connections_per_origin=1)
    async with http3.Client(cafile=authorities, limits=limits) as client:
        crawl = Crawl(client, start)
        await crawl.run()
    said = f"{len(crawl.found)} pages, {crawl.bytes} bytes, {len(crawl.broken)} broken links"
    print("\n".join([said, *sorted(crawl.broken)]))
    return 1 if crawl.broken else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(uringcore.run(crawl(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else None)))
