"""Django with channels: a view, and a chat room whose members get each message through a channel layer."""

import json

import django
from channels.generic.websocket import AsyncWebsocketConsumer, JsonWebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import JsonResponse
from django.urls import path

settings.configure(
    SECRET_KEY="not a secret",
    ALLOWED_HOSTS=["localhost"],
    ROOT_URLCONF=__name__,
    CHANNEL_LAYERS={"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}},
)
django.setup()


def view(request, name):
    return JsonResponse({"name": name, "query": request.GET.dict()})


urlpatterns = [path("view/<name>", view)]


class Room(AsyncWebsocketConsumer):
    async def connect(self):
        self.name = self.scope["url_route"]["kwargs"]["name"]
        await self.channel_layer.group_add(self.name, self.channel_name)
        offered = self.scope["subprotocols"]
        await self.accept(subprotocol=offered[0] if offered else None)
        await self.channel_layer.group_send(self.name, {"type": "said", "text": "joined"})

    async def disconnect(self, code):
        await self.channel_layer.group_discard(self.name, self.channel_name)
        await self.channel_layer.group_send(self.name, {"type": "said", "text": f"left {code}"})

    async def receive(self, text_data=None, bytes_data=None):
        await self.channel_layer.group_send(self.name, {"type": "said", "text": text_data})

    async def said(self, event):
        await self.send(text_data=event["text"])


class Counter(JsonWebsocketConsumer):
    """A consumer that runs in threads."""

    def receive_json(self, content):
        self.send_json({"sum": sum(content["numbers"])})
        if content.get("ends"):
            self.close(code=4001)

    @classmethod
    def decode_json(cls, text):
        return json.loads(text)


app = ProtocolTypeRouter(
    {
        "http": get_asgi_application(),
        "websocket": URLRouter(
            [path("room/<name>", Room.as_asgi()), path("counter", Counter.as_asgi())]
        ),
    }
)
