"""Interoperability with aioquic, qh3, aiopquic, quic-go and quinn, in both roles."""
