"""The event loop's tests: each asyncio behaviour is asked of stock asyncio and of both backends."""
