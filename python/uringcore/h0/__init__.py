"""HTTP/0.9 over QUIC (``hq-interop``), what QUIC's interoperability tests speak."""
