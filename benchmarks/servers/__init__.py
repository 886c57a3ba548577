"""The servers under test, one program a protocol; each prints `READY <port>` and ends on SIGTERM."""
