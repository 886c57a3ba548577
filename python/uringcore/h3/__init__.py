"""HTTP/3 (RFC 9114) over any QUIC connection object, in aioquic's shape.

| module | what |
| --- | --- |
| ``connection`` | :class:`~uringcore.h3.connection.H3Connection`, codes, frame and setting numbers |
| ``events`` | what a connection tells its user |
| ``exceptions`` | misuse by the caller |
| ``qpack`` | QPACK (RFC 9204) on its own |
"""
