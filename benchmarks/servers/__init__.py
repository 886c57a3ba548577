"""The measured servers, one program a protocol; each prints `READY <port>` and ends on SIGTERM."""
