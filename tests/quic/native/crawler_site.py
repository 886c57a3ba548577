"""A site for the crawler example: a hundred pages that link to one another, a moved page, a picture, and two
broken links.
"""

from __future__ import annotations

PAGES = 100
HTML = "text/html; charset=utf-8"


def page(number):
    """A page that links to the next pages, to itself, and out of the site."""
    after = (f"page{(number * 2 + step) % PAGES}" for step in (1, 2))
    links = "".join(f"<a href='{target}'>on</a>" for target in after)
    return f"{links}<a href='#here'>here</a><a href='mailto:nobody'>write</a>"


START = """<link href='picture.png'><a href='https://example.org/'>elsewhere</a><a href='page0'>on</a>
<a href='/moved'>moved</a><a href='gone'>gone</a><a href='/cut'>cut</a>"""


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    path = scope["path"]
    if path == "/":
        await answer(send, 200, HTML, START)
    elif path.startswith("/page"):
        await answer(send, 200, HTML, page(int(path[5:])))
    elif path == "/moved":
        await answer(send, 308, HTML, "", (b"location", b"/new"))
    elif path == "/new":
        await answer(send, 200, HTML, "<a href='/'>back</a>")
    elif path == "/picture.png":
        await answer(send, 200, "image/png", "<a href='no page'>" * 100)
    elif path == "/cut":
        fields = [(b"content-type", HTML.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": b"<p>", "more_body": True})
        raise RuntimeError("this page ends in the middle")
    else:
        await answer(send, 404, HTML, "nothing here")


async def odd(scope, receive, send):
    """Serves two pages that are not HTML; ``app`` serves the rest."""
    if scope["type"] == "http":
        links = "<a href='odd'>one</a><a href='odder'>two</a><a href='page'>three</a>"
        odd = scope["path"] in ("/odd", "/odder")
        await answer(send, 200, HTML, "<![foo[" if odd else links)


async def answer(send, status, kind, text, *fields):
    """Sends a whole response."""
    fields = [(b"content-type", kind.encode()), *fields]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": text.encode()})
