"""The ASGI applications that the HTTP servers under test run: paths and bytes are the same in all.

- `GET /` answers 13 bytes, `GET /100k` 100 KiB of the pattern.
- `POST /upload` answers the count of the bytes that came (8 bytes, big-endian), `POST /verify` the count
  and the SHA-256.
- `GET /download/N` answers N bytes of the repeated pattern in pieces of 64 KiB (bare only).

`native/h3_server.rs` does the same without Python, and `native/h3_load.rs` checks every byte.
"""
