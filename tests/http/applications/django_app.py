"""Django's ASGI handler, with its usual middleware and both kinds of views."""

import asyncio
import json

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpResponse, HttpResponseRedirect, JsonResponse, StreamingHttpResponse
from django.urls import path

from tests.http.applications.observed_application import watched
from tests.http.applications.request_bodies import (
    LARGE,
    described,
    endless_parts,
    failing_parts,
    few_parts,
)

settings.configure(
    ALLOWED_HOSTS=["localhost"],
    DEFAULT_CHARSET="utf-8",
    DATA_UPLOAD_MAX_MEMORY_SIZE=1 << 24,
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.http.ConditionalGetMiddleware",
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY="not a secret",
)
django.setup()


async def plain(request):
    return HttpResponse("hello", content_type="text/plain")


def threaded(request):
    return HttpResponse("hello from a thread", content_type="text/plain")


async def item(request, number):
    tags = request.GET.getlist("tags")
    return JsonResponse({"number": number, "q": request.GET.get("q", ""), "tags": tags})


async def files(request, rest):
    # The port is omitted, because it would change the ETag.
    host, _, _ = request.get_host().partition(":")
    return JsonResponse({"path": rest, "secure": request.is_secure(), "host": host})


async def order(request):
    try:
        return JsonResponse({"got": json.loads(request.body)})
    except ValueError as exc:
        return JsonResponse({"error": str(exc)}, status=400)


async def form(request):
    return JsonResponse(request.POST.dict())


def upload(request):
    file = request.FILES["file"]
    found = {"name": file.name, "title": request.POST["title"], **described(file.read())}
    return JsonResponse(found)


async def digest(request):
    return JsonResponse(described(request.body))


async def stream(request):
    return StreamingHttpResponse(few_parts(), content_type="text/plain")


async def raise_late(request):
    return StreamingHttpResponse(failing_parts(), content_type="text/plain")


async def endless(request):
    return StreamingHttpResponse(endless_parts(), content_type="text/plain")


async def wait(request):
    await asyncio.sleep(1)
    return HttpResponse("waited")


async def until_gone(request):
    # Django cancels a view when its client disconnects.
    await asyncio.sleep(60)
    return HttpResponse("still there")


async def cookies(request):
    response = JsonResponse(request.COOKIES)
    response.set_cookie("first", "1", httponly=True, secure=True)
    response.set_cookie("second", "2", path="/x")
    return response


async def redirect(request):
    return HttpResponseRedirect("/plain")


async def raises(request):
    raise RuntimeError("the application's own fault")


async def large(request):
    return HttpResponse(LARGE, content_type="application/octet-stream")


async def nothing(request):
    return HttpResponse(status=204)


async def teapot(request):
    return JsonResponse({"headers": request.headers.get("x-many")}, status=418)


urlpatterns = [
    path("plain", plain),
    path("threaded", threaded),
    path("items/<int:number>", item),
    path("files/<path:rest>", files),
    path("json", order),
    path("form", form),
    path("upload", upload),
    path("digest", digest),
    path("stream", stream),
    path("raise-late", raise_late),
    path("endless", endless),
    path("wait", wait),
    path("until-gone", until_gone),
    path("cookies", cookies),
    path("redirect", redirect),
    path("raise", raises),
    path("large", large),
    path("nothing", nothing),
    path("teapot", teapot),
]
app = watched(get_asgi_application())
