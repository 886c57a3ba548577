"""QPACK, field compression for HTTP/3 (RFC 9204), as a separate codec.

:class:`~uringcore.h3.connection.H3Connection` contains its own pair; these are for programs that frame
HTTP/3 themselves. Each half belongs to one connection and one direction.

``QpackEncoder(max_table_capacity=4096, *, may_block=False)`` uses at most ``max_table_capacity``
bytes for its dynamic table, and refers to entries that the peer may not have received only with
``may_block``. Send its bytes for the encoder stream before the field section.

``QpackDecoder(max_table_capacity=4096, blocked_streams=16, max_field_section_size=65536)`` enforces
the limits that were announced in SETTINGS. After each call ``take_instructions()`` returns the
bytes for the decoder stream.
"""

from __future__ import annotations

from uringcore._uringcore import QpackDecoder, QpackEncoder

__all__ = ["QpackDecoder", "QpackEncoder"]
