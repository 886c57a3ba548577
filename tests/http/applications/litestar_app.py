"""Litestar, with its controllers' decorators and typed parameters."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from litestar import Litestar, MediaType, Request, Response, delete, get, post, put
from litestar.background_tasks import BackgroundTask
from litestar.datastructures import State, UploadFile
from litestar.enums import RequestEncodingType
from litestar.params import Body
from litestar.response import Redirect, Stream

from tests.http.applications.observed_application import watched
from tests.http.applications.request_bodies import (
    LARGE,
    NOTES,
    described,
    endless_parts,
    failing_parts,
    few_parts,
    note,
)


@dataclass
class Order:
    name: str
    count: int
    tags: list[str] = field(default_factory=list)


@dataclass
class Upload:
    file: UploadFile
    title: str = ""


@asynccontextmanager
async def lifespan(app: Litestar):
    app.state.token = "from lifespan"
    yield


async def marked(response: Response) -> Response:
    response.headers["x-middleware"] = "yes"
    return response


@get("/plain", media_type=MediaType.TEXT)
async def plain() -> str:
    return "hello"


@get("/threaded", media_type=MediaType.TEXT, sync_to_thread=True)
def threaded() -> str:
    return "hello from a thread"


@get("/items/{number:int}")
async def item(number: int, q: str = "", tags: list[str] | None = None) -> dict[str, Any]:
    return {"number": number, "q": q, "tags": tags or []}


@get("/files/{rest:path}")
async def files(rest: str) -> dict[str, str]:
    return {"path": str(rest)}


@post("/json")
async def order(data: Order) -> dict[str, Any]:
    return {"name": data.name, "total": data.count * 2, "tags": data.tags}


@post("/form")
async def form(
    data: Annotated[dict[str, str], Body(media_type=RequestEncodingType.URL_ENCODED)],
) -> dict[str, str]:
    return data


@post("/upload")
async def upload(
    data: Annotated[Upload, Body(media_type=RequestEncodingType.MULTI_PART)],
) -> dict[str, Any]:
    found = described(await data.file.read())
    return {"name": data.file.filename, "title": data.title, **found}


async def digested(request: Request) -> dict[str, Any]:
    return described(await request.body())


@post("/digest", request_max_body_size=None)
async def digest(request: Request) -> dict[str, Any]:
    return await digested(request)


@put("/digest")
async def digest_put(request: Request) -> dict[str, Any]:
    return await digested(request)


@delete("/digest", status_code=200)
async def digest_delete(request: Request) -> dict[str, Any]:
    return await digested(request)


@get("/stream")
async def stream() -> Stream:
    return Stream(few_parts(), media_type="text/plain")


@get("/raise-late")
async def raise_late() -> Stream:
    return Stream(failing_parts(), media_type="text/plain")


@get("/endless")
async def endless() -> Stream:
    return Stream(endless_parts(), media_type="text/plain")


@get("/wait", media_type=MediaType.TEXT)
async def wait() -> str:
    await asyncio.sleep(1)
    return "waited"


@get("/cookies")
async def cookies(request: Request) -> Response[dict[str, str]]:
    response = Response(dict(request.cookies))
    response.set_cookie(key="first", value="1", httponly=True, secure=True)
    response.set_cookie(key="second", value="2", path="/x")
    return response


@get("/redirect", status_code=302)
async def redirect() -> Redirect:
    return Redirect("/plain")


@get("/raise")
async def raises() -> None:
    raise RuntimeError("the application's own fault")


@post("/background", status_code=202)
async def background() -> Response[dict[str, bool]]:
    return Response({"accepted": True}, background=BackgroundTask(note, "done"))


@get("/notes")
async def notes() -> list[str]:
    return NOTES


@get("/state")
async def state(state: State) -> dict[str, str]:
    return {"token": state.token}


@get("/large", media_type="application/octet-stream")
async def large() -> bytes:
    return LARGE


@get("/nothing", status_code=204)
async def nothing() -> None:
    return None


@get("/teapot", status_code=418)
async def teapot(request: Request) -> dict[str, Any]:
    return {"headers": request.headers.getall("x-many", [])}


handlers = [plain, threaded, item, files, order, form, upload, digest, digest_put, digest_delete]
handlers += [stream, raise_late, endless, wait, cookies, redirect, raises, background, notes]
handlers += [state, large, nothing, teapot]
app = watched(Litestar(handlers, lifespan=[lifespan], after_request=marked, openapi_config=None))
