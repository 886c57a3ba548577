"""A GraphQL API of strawberry's: queries and mutations over POST, subscriptions over WebSocket."""

import asyncio
from collections.abc import AsyncGenerator

import strawberry
from strawberry.asgi import GraphQL

NAMES = ["oolong", "pu-erh"]


@strawberry.type
class Query:
    @strawberry.field
    def names(self) -> list[str]:
        return NAMES


@strawberry.type
class Mutation:
    @strawberry.mutation
    def shout(self, name: str) -> str:
        return name.upper()


@strawberry.type
class Subscription:
    @strawberry.subscription
    async def count(self, to: int) -> AsyncGenerator[int, None]:
        for number in range(to):
            yield number

    @strawberry.subscription
    async def forever(self) -> AsyncGenerator[str, None]:
        while True:
            yield "again"
            await asyncio.sleep(0.01)


app = GraphQL(strawberry.Schema(Query, Mutation, Subscription))
