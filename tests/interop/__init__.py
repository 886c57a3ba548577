"""The wire against other implementations: aioquic and quic-go, both roles, on both backends."""
