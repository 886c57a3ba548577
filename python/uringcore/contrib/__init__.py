"""Adapters to third-party packages.

| module | for |
| --- | --- |
| ``httpx`` | HTTP/3 for httpx and httpx2 |
| ``starlette`` | WebTransport routes for Starlette and FastAPI |
| ``gunicorn`` | a worker class for gunicorn |
| ``aiopquic`` | aiopquic's names for WebTransport |
"""
