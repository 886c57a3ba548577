"""HTTP/0.9 over QUIC (``hq-interop``), the protocol of QUIC's interoperability tests.

| file | noun |
| --- | --- |
| ``connection`` | ``H0Connection`` |
"""
