"""QPACK, field compression for HTTP/3 (RFC 9204), on its own.

:class:`~uringcore.h3.connection.H3Connection` has its own pair; these are for programs that frame
HTTP/3 themselves. Each half belongs to one connection and one direction.

``QpackEncoder(max_table_capacity=4096, *, may_block=False)`` spends at most ``max_table_capacity``
bytes on its dynamic table, and refers to entries that the peer may not have received only with
``may_block``. Its bytes for the encoder stream have to be sent before the section.

``QpackDecoder(max_table_capacity=4096, blocked_streams=16, max_field_section_size=65536)`` holds
the limits that were promised in SETTINGS. After each call its ``take_instructions()`` gives the
bytes for the decoder stream.
"""

from __future__ import annotations

from uringcore._uringcore import QpackDecoder, QpackEncoder

__all__ = ["QpackDecoder", "QpackEncoder"]
