"""The ASGI applications of the measured HTTP servers. All have these paths and send equal bytes.

- `GET /` answers 13 bytes, `GET /100k` 100 KiB of the pattern.
- `POST /upload` answers the number of received bytes (8 bytes, big-endian), `POST /verify` the number and
  the SHA-256.
- `POST /order` reads a JSON object and answers its name and its total, `GET /numbers/1/2/...` answers the sum
  of ten numbers of the path.
- `GET /download/N` answers N bytes of the repeated pattern in pieces of 64 KiB (bare only).

`native/h3_server.rs` has the first of these paths without Python, and `native/h3_load.rs` checks every byte.
"""

ORDER = '{"name":"A desk","price":129,"count":3,"tags":["oak","large","for two people"]}'
"""The content of a POST to `/order`."""
TOTAL = '{"name":"A desk","total":387}'
"""The answer to it."""
