"""QUIC (RFC 9000) under aioquic's names: configuration, connection, events, errors, logger."""
