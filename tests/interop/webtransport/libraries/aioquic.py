"""aioquic: `shape` with its modules in place of uringcore's."""

from tests.interop.peers.python import install

install("aioquic")

from tests.interop.webtransport.libraries import shape  # noqa: E402

LACKING = shape.LACKING
run, connect, serve = shape.run, shape.connect, shape.serve
# A known gap: aioquic does not report data on a bidirectional stream that it has opened as
# WebTransport data.
shape.Connection.tells_replies = False
