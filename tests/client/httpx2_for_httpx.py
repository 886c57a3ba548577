"""A plugin of pytest: ``import httpx`` imports httpx2, so that the tests of httpx's transport test
that of httpx2.
"""

import httpx2

httpx2.alias_httpx()
