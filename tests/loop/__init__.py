"""The event loop's tests: each asyncio behaviour is tested on stock asyncio and on both backends."""
