"""Media types of files by their names, and the types whose files may have compressed siblings.

The types do not depend on the machine: the files of the system that :mod:`mimetypes` reads are left out.
"""

from __future__ import annotations

import mimetypes

__all__ = ["content_type", "is_compressible"]

UNKNOWN = "application/octet-stream"

# Types that older versions of CPython lack, or that browsers expect in another form.
OURS = {
    ".avif": "image/avif",
    ".cjs": "text/javascript",
    ".flac": "audio/flac",
    ".ico": "image/vnd.microsoft.icon",
    ".js": "text/javascript",
    ".jxl": "image/jxl",
    ".m4a": "audio/mp4",
    ".map": "application/json",
    ".md": "text/markdown",
    ".mjs": "text/javascript",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".otf": "font/otf",
    ".ttf": "font/ttf",
    ".wasm": "application/wasm",
    ".webm": "video/webm",
    ".webmanifest": "application/manifest+json",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".xhtml": "application/xhtml+xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}

# Files whose name ends with a compression have that one's type: the content is the compressed file.
COMPRESSED = {
    "br": UNKNOWN,
    "bzip2": "application/x-bzip2",
    "compress": "application/x-compress",
    "gzip": "application/gzip",
    "xz": "application/x-xz",
    "zstd": "application/zstd",
}

COMPRESSIBLE = frozenset(
    {
        "application/javascript",
        "application/json",
        "application/manifest+json",
        "application/wasm",
        "application/x-javascript",
        "application/xml",
        "application/yaml",
        "font/otf",
        "font/ttf",
        "image/bmp",
        "image/vnd.microsoft.icon",
    }
)

known = mimetypes.MimeTypes(filenames=())
for suffix, kind in OURS.items():
    known.add_type(kind, suffix)
known.encodings_map.setdefault(".zst", "zstd")


def content_type(name: str) -> str:
    """Returns the media type of a file, with a charset for text."""
    kind, compression = known.guess_type("/" + name)
    if compression is not None:
        return COMPRESSED.get(compression, UNKNOWN)
    if kind is None:
        return UNKNOWN
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def is_compressible(kind: str) -> bool:
    """True for media types whose content compression makes much smaller."""
    kind = kind.partition(";")[0]
    return kind.startswith("text/") or kind in COMPRESSIBLE or kind.endswith(("+json", "+xml"))
