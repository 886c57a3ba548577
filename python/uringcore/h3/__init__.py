"""HTTP/3 (RFC 9114) over any QUIC connection object, with aioquic's API.

| file | noun |
| --- | --- |
| ``connection`` | :class:`~uringcore.h3.connection.H3Connection`, codes, frame and setting numbers |
| ``events`` | the events of a connection |
| ``exceptions`` | misuse by the caller |
| ``_qpack`` | QPACK (RFC 9204) as a separate codec |
| ``_aioquic_frames_and_headers`` | frames, SETTINGS and field sections, for programs that build them |
| ``_codes_and_errors`` | numbers of HTTP/3, and exceptions with its error codes |
| ``_aioquic_stream_views`` | aioquic's private table of a connection's streams |
"""
