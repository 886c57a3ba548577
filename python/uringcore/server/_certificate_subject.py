"""The subject of a certificate as text (RFC 4514), for ASGI's ``tls`` extension.

Parses only the parts of DER (ITU-T X.690) that a subject needs. The handshake has verified the certificate
before.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["subject"]

# The names of attributes (RFC 4514 section 3), by encoded object identifier.
NAMES = {
    b"\x55\x04\x03": "CN",
    b"\x55\x04\x07": "L",
    b"\x55\x04\x08": "ST",
    b"\x55\x04\x0a": "O",
    b"\x55\x04\x0b": "OU",
    b"\x55\x04\x06": "C",
    b"\x55\x04\x09": "STREET",
    bytes.fromhex("0992268993f22c640119"): "DC",
    bytes.fromhex("0992268993f22c640101"): "UID",
}

# The encodings of string types, by universal tag: UTF8String, PrintableString, TeletexString, IA5String,
# UniversalString, BMPString.
ENCODINGS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 28: "utf-32-be", 30: "utf-16-be"}

EXPLICIT_VERSION = 0xA0


def subject(certificate: bytes) -> str | None:
    """Returns the distinguished name as text, with its most specific part first. ``None`` if it cannot be
    parsed."""
    try:
        ((_, body),) = elements(certificate)
        (_, to_be_signed), *_ = elements(body)
        fields = [content for tag, content in elements(to_be_signed) if tag != EXPLICIT_VERSION]
        # The parts before the subject are serialNumber, signature, issuer and validity (RFC 5280 section
        # 4.1).
        parts = [relative_name(content) for _, content in elements(fields[4])]
    except (IndexError, UnicodeError, ValueError):
        return None
    return ",".join(reversed(parts))


def relative_name(content: bytes) -> str:
    """Returns one relative distinguished name, which has one attribute or several."""
    attributes = []
    for _, attribute in elements(content):
        (_, kind), (tag, value) = elements(attribute)
        attributes.append(attribute_text(kind, tag, value))
    return "+".join(attributes)


def attribute_text(kind: bytes, tag: int, value: bytes) -> str:
    """Returns an attribute as text (RFC 4514 sections 2.3 and 2.4)."""
    name = NAMES.get(kind)
    if name is None or tag not in ENCODINGS:
        return f"{name or dotted(kind)}=#{encoded(tag, value).hex()}"
    return f"{name}={escaped(value.decode(ENCODINGS[tag]))}"


def escaped(text: str) -> str:
    """Escapes a value (RFC 4514 section 2.4)."""
    out = "".join(f"\\{char}" if char in '"+,;<>\\' else char for char in text)
    out = out.replace("\0", "\\00")
    if text[:1] in (" ", "#"):
        out = "\\" + out
    if len(text) > 1 and text.endswith(" "):
        out = out[:-1] + "\\ "
    return out


def dotted(identifier: bytes) -> str:
    """Returns an object identifier as dotted numbers (X.690 section 8.19)."""
    numbers, number = [], 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the tag and content of each element (X.690 section 8.1).

    Raises ``ValueError`` and ``IndexError`` for malformed input.
    """
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > len(data):
            raise ValueError("an element that ends after its container")
        yield tag, data[at : at + length]
        at += length


def encoded(tag: int, content: bytes) -> bytes:
    """Encodes an element, with its length in the shortest form, as DER requires."""
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + length.to_bytes(size, "big") + content
