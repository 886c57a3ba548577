"""An ASGI application behind an observer that records the framework's input.

``/-/seen?CASE`` returns the record of the request that had ``x-case: CASE``: its scope, the size of
the received body, the disconnect if it was delivered, and the end of the application.
"""

import asyncio
import json

SEEN = {}
# The client's address and the port, the transport's own keys, and keys that a transport may lack.
LEFT_OUT = {"client", "server", "http_version", "extensions", "state", "app", "router"}


def watched(app):
    async def witness(scope, receive, send):
        if scope["type"] != "http":
            await app(scope, receive, send)
        elif scope["path"] == "/-/seen":
            await tell(SEEN.get(scope["query_string"].decode()), send)
        else:
            await watch(app, scope, receive, send)

    return witness


async def watch(app, scope, receive, send):
    case = dict(scope["headers"]).get(b"x-case", b"").decode()
    seen = SEEN[case] = {
        "scope": shown(scope),
        "state": sorted(scope.get("state", {})),
        "received": 0,
        "told": False,
        "end": None,
    }

    async def noted():
        message = await receive()
        seen["received"] += len(message.get("body", b""))
        seen["told"] = seen["told"] or message["type"] == "http.disconnect"
        return message

    end = "returned"
    try:
        await app(scope, noted, send)
    except asyncio.CancelledError:
        end = "cancelled"
        raise
    except BaseException as exc:
        end = type(exc).__name__
        raise
    finally:
        seen["end"] = end


def shown(scope):
    """Returns the scope in JSON form."""
    found = {}
    for key, value in scope.items():
        if key not in LEFT_OUT:
            found[key] = value.decode("latin-1") if isinstance(value, bytes) else value
    found["headers"] = sorted(
        [name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]
    )
    return found


async def tell(value, send):
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})
