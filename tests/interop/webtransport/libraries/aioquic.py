"""aioquic: `aioquic_api` with its modules in place of uringcore's."""

from tests.interop.peers.python import install

install("aioquic")

from tests.interop.webtransport.libraries import aioquic_api  # noqa: E402

LACKING = aioquic_api.LACKING
run, connect, serve = aioquic_api.run, aioquic_api.connect, aioquic_api.serve
# A known gap: aioquic does not report data on a bidirectional stream that it has opened as
# WebTransport data.
aioquic_api.Connection.tells_replies = False
