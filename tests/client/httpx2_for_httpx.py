"""A plugin of pytest: ``import httpx`` means httpx2, whose tests those of httpx's transport are then."""

import httpx2

httpx2.alias_httpx()
