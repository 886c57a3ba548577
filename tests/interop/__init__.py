"""The wire against other implementations: aioquic, qh3, aiopquic, quic-go and quinn, both roles."""
