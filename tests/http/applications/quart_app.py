"""Quart, which cancels a request when its client disconnects."""

import asyncio

from quart import Quart, jsonify, redirect, request

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

quart = Quart(__name__)
TEXT = {"content-type": "text/plain"}


@quart.before_serving
async def begin():
    quart.config["TOKEN"] = "from lifespan"


@quart.after_request
async def marked(response):
    response.headers["x-middleware"] = request.method
    return response


@quart.get("/plain")
async def plain():
    return "hello", TEXT


@quart.get("/threaded")
def threaded():
    return "hello from a thread", TEXT


@quart.get("/items/<int:number>")
async def item(number):
    tags = request.args.getlist("tags")
    return jsonify(number=number, q=request.args.get("q", ""), tags=tags)


@quart.get("/files/<path:rest>")
async def files(rest):
    return jsonify(path=rest, url=request.url, secure=request.is_secure)


@quart.post("/json")
async def order():
    return jsonify(got=await request.get_json())


@quart.post("/form")
async def form():
    return jsonify((await request.form).to_dict())


@quart.post("/upload")
async def upload():
    file = (await request.files)["file"]
    title = (await request.form)["title"]
    return jsonify(name=file.filename, title=title, **described(file.read()))


@quart.route("/digest", methods=["POST", "PUT", "PATCH", "DELETE"])
async def digest():
    data = bytearray()
    async for part in request.body:
        data += part
    return jsonify(described(data))


@quart.get("/stream")
async def stream():
    return few_parts(), TEXT


@quart.get("/raise-late")
async def raise_late():
    return failing_parts(), TEXT


@quart.get("/endless")
async def endless():
    return endless_parts(), TEXT


@quart.get("/wait")
async def wait():
    await asyncio.sleep(1)
    return "waited", TEXT


@quart.get("/until-gone")
async def until_gone():
    await asyncio.sleep(60)
    return "still there", TEXT


@quart.get("/cookies")
async def cookies():
    response = jsonify(dict(request.cookies))
    response.set_cookie("first", "1", httponly=True, secure=True)
    response.set_cookie("second", "2", path="/x")
    return response


@quart.get("/redirect")
async def elsewhere():
    return redirect("/plain")


@quart.get("/raise")
async def raises():
    raise RuntimeError("the application's own fault")


@quart.post("/background")
async def background():
    quart.add_background_task(note, "done")
    return jsonify(accepted=True), 202


@quart.get("/notes")
async def notes():
    return jsonify(NOTES)


@quart.get("/state")
async def state():
    return jsonify(token=quart.config["TOKEN"])


@quart.get("/large")
async def large():
    return LARGE, {"content-type": "application/octet-stream"}


@quart.get("/nothing")
async def nothing():
    return "", 204


@quart.get("/teapot")
async def teapot():
    return jsonify(headers=request.headers.getlist("x-many")), 418


app = watched(quart)
