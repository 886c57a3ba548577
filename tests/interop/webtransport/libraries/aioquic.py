"""aioquic: `shape` with its modules in the place of uringcore's, which shows them."""

from tests.interop.peers.python import install

install("aioquic")

from tests.interop.webtransport.libraries import shape  # noqa: E402

LACKING = shape.LACKING
run, connect, serve = shape.run, shape.connect, shape.serve
# A known hole: what comes on a bidirectional stream that aioquic has opened is not told as WebTransport's.
shape.Connection.tells_replies = False
