"""Flask behind a2wsgi: WSGI in threads."""

import time

from a2wsgi import WSGIMiddleware
from flask import Flask, jsonify, redirect, request

from tests.http.applications.observed_application import watched
from tests.http.applications.request_bodies import (
    LARGE,
    described,
    endless_parts_in_thread,
    few_parts_in_thread,
)

flask = Flask(__name__)
TEXT = {"content-type": "text/plain"}


@flask.after_request
def marked(response):
    response.headers["x-middleware"] = request.method
    return response


@flask.get("/plain")
def plain():
    return "hello", TEXT


@flask.get("/items/<int:number>")
def item(number):
    tags = request.args.getlist("tags")
    return jsonify(number=number, q=request.args.get("q", ""), tags=tags)


@flask.get("/files/<path:rest>")
def files(rest):
    return jsonify(path=rest, url=request.url, secure=request.is_secure)


@flask.post("/json")
def order():
    return jsonify(got=request.get_json())


@flask.post("/form")
def form():
    return jsonify(request.form.to_dict())


@flask.post("/upload")
def upload():
    file = request.files["file"]
    return jsonify(name=file.filename, title=request.form["title"], **described(file.read()))


@flask.route("/digest", methods=["POST", "PUT", "PATCH", "DELETE"])
def digest():
    return jsonify(described(request.get_data()))


@flask.get("/stream")
def stream():
    return few_parts_in_thread(), TEXT


@flask.get("/endless")
def endless():
    return endless_parts_in_thread(), TEXT


@flask.get("/wait")
def wait():
    time.sleep(1)
    return "waited", TEXT


@flask.get("/cookies")
def cookies():
    response = jsonify(dict(request.cookies))
    response.set_cookie("first", "1", httponly=True, secure=True)
    response.set_cookie("second", "2", path="/x")
    return response


@flask.get("/redirect")
def elsewhere():
    return redirect("/plain")


@flask.get("/raise")
def raises():
    raise RuntimeError("the application's own fault")


@flask.get("/large")
def large():
    return LARGE, {"content-type": "application/octet-stream"}


@flask.get("/nothing")
def nothing():
    return "", 204


@flask.get("/teapot")
def teapot():
    return jsonify(headers=request.headers.getlist("x-many")), 418


app = watched(WSGIMiddleware(flask))
