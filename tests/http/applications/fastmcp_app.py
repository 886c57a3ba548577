"""A FastMCP server: its tools over streamable HTTP at /mcp, and over server-sent events at /sse."""

from contextlib import AsyncExitStack, asynccontextmanager

from fastmcp import Context, FastMCP
from starlette.applications import Starlette
from starlette.routing import Mount

server = FastMCP("tested")


@server.tool
async def work(steps: int, context: Context) -> list[int]:
    """Reports each step."""
    for step in range(steps):
        await context.report_progress(step, steps)
        await context.info(f"step {step}")
    return list(range(steps))


@server.tool
def large(size: int) -> str:
    return "é" * size


@server.tool
def fails() -> str:
    raise ValueError("the tool's own fault")


@server.resource("tea://{name}")
def tea(name: str) -> str:
    return f"a cup of {name}"


@server.prompt
def ask(topic: str) -> str:
    return f"What is {topic}?"


streamable = server.http_app(path="/", transport="streamable-http")
events = server.http_app(path="/", transport="sse")


@asynccontextmanager
async def lifespan(app):
    async with AsyncExitStack() as stack:
        for one in (streamable, events):
            await stack.enter_async_context(one.router.lifespan_context(app))
        yield


app = Starlette(routes=[Mount("/mcp", streamable), Mount("/sse", events)], lifespan=lifespan)
