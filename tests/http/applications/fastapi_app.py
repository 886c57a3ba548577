"""FastAPI, in its users' style."""

import asyncio
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import (
    BackgroundTasks,
    Cookie,
    Depends,
    FastAPI,
    File,
    Form,
    HTTPException,
    Query,
    Request,
    Response,
    UploadFile,
)
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from pydantic import BaseModel

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


class Order(BaseModel):
    name: str
    count: int
    tags: list[str] = []


@asynccontextmanager
async def lifespan(app):
    yield {"token": "from lifespan"}


api = FastAPI(lifespan=lifespan)


@api.middleware("http")
async def marked(request: Request, call_next):
    response = await call_next(request)
    response.headers["x-middleware"] = request.method
    return response


@api.exception_handler(LookupError)
async def not_there(request, exc):
    return JSONResponse({"handled": str(exc)}, status_code=409)


async def user(request: Request):
    if "x-user" not in request.headers:
        raise HTTPException(401, headers={"www-authenticate": "Basic"})
    return request.headers["x-user"]


@api.get("/plain", response_class=PlainTextResponse)
async def plain():
    return "hello"


@api.get("/threaded", response_class=PlainTextResponse)
def threaded():
    return "hello from a thread"


@api.get("/items/{number}")
async def item(number: int, q: str = "", tags: Annotated[list[str], Query()] = ()):
    return {"number": number, "q": q, "tags": list(tags)}


@api.get("/files/{path:path}")
async def files(path: str, request: Request):
    return {"path": path, "url": request.url.path}


@api.post("/json")
async def order(order: Order):
    return {"got": order, "total": order.count * 2}


@api.post("/form")
async def form(name: Annotated[str, Form()], count: Annotated[int, Form()] = 1):
    return {"name": name, "count": count}


@api.post("/upload")
async def upload(file: Annotated[UploadFile, File()], title: Annotated[str, Form()] = ""):
    return {"name": file.filename, "title": title, **described(await file.read())}


@api.api_route("/digest", methods=["POST", "PUT", "PATCH", "DELETE"])
async def digest(request: Request):
    data = bytearray()
    async for part in request.stream():
        data += part
    return described(data)


@api.get("/stream")
async def stream():
    return StreamingResponse(few_parts(), media_type="text/plain")


@api.get("/raise-late")
async def raise_late():
    return StreamingResponse(failing_parts(), media_type="text/plain")


@api.get("/endless")
async def endless():
    return StreamingResponse(endless_parts(), media_type="text/plain")


@api.get("/wait", response_class=PlainTextResponse)
async def wait():
    await asyncio.sleep(1)
    return "waited"


@api.get("/cookies")
async def cookies(response: Response, one: Annotated[str, Cookie()] = ""):
    response.set_cookie("first", "1", httponly=True, secure=True)
    response.set_cookie("second", "2", path="/x")
    return {"one": one}


@api.get("/redirect")
async def redirect():
    return RedirectResponse("/plain")


@api.get("/raise")
async def raises():
    raise RuntimeError("the application's own fault")


@api.get("/handled")
async def handled():
    raise LookupError("no such thing")


@api.get("/user")
async def who(user: Annotated[str, Depends(user)]):
    return {"user": user}


@api.post("/background", status_code=202)
async def background(tasks: BackgroundTasks):
    tasks.add_task(note, "done")
    return {"accepted": True}


@api.get("/notes")
async def notes():
    return NOTES


@api.get("/state")
async def state(request: Request):
    return {"token": request.state.token}


@api.get("/large")
async def large():
    return Response(LARGE, media_type="application/octet-stream")


@api.get("/nothing", status_code=204)
async def nothing():
    return None


@api.get("/teapot", status_code=418)
async def teapot(request: Request):
    return {"headers": request.headers.getlist("x-many")}


app = watched(api)
