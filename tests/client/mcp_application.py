"""A server of the Model Context Protocol whose tool continues when another one is called."""

import asyncio

from fastmcp import Context, FastMCP
from fastmcp.server.dependencies import get_http_request

server = FastMCP("tested")
gate = asyncio.Event()


@server.tool
async def steps(context: Context) -> str:
    """Reports one step, and the next after the client has confirmed it."""
    await context.report_progress(1, 2)
    await gate.wait()
    await context.report_progress(2, 2)
    return "HTTP/" + get_http_request().scope["http_version"]


@server.tool
async def go_on() -> str:
    gate.set()
    return "gone on"


app = server.http_app()
