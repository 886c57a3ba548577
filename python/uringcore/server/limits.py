"""What one client may ask of a server over HTTP/3, and how long it may take."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from uringcore._uringcore import Http3Limits

__all__ = ["HTTP3Limits"]

HEADER_BYTES_MAX = 64 * 1024


@dataclass(frozen=True)
class HTTP3Limits:
    """The bounds of one connection; times are in seconds.

    - ``open_requests``: requests that may be open at once; more are refused unprocessed
      (H3_REQUEST_REJECTED).
    - ``requests``: requests in all, after which the client is told to go away (GOAWAY). ``None``: no
      bound.
    - ``header_bytes``: size of a request's header section; above it 431 is answered. The client is
      told in SETTINGS_MAX_FIELD_SECTION_SIZE.
    - ``header_fields``: fields of a request's header section.
    - ``early_resets``, ``early_resets_per_second``: requests that the client may give up before they
      are answered, at once and in the long run; more close the connection (H3_EXCESSIVE_LOAD).
    - ``header_timeout``: within which a request's header section has to be complete.
    - ``body_timeout``: within which the next of a request's content has to come while the application
      waits for it; then 408 is answered. ``body_rate`` bytes earn a second more.
    - ``send_timeout``: within which the client has to take something of a response that waits for it.
    - ``keep_alive``: after which a connection without requests is closed, however often its client pings.
    """

    open_requests: int = 128
    requests: int | None = None
    header_bytes: int = HEADER_BYTES_MAX
    header_fields: int = 256
    early_resets: int = 200
    early_resets_per_second: float = 20.0
    header_timeout: float = 10.0
    body_timeout: float = 60.0
    body_rate: int = 240
    send_timeout: float = 60.0
    keep_alive: float = 120.0

    def __post_init__(self) -> None:
        for name in ("open_requests", "header_fields", "early_resets", "body_rate"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.requests is not None and self.requests < 1:
            raise ValueError(f"requests must be at least 1, not {self.requests}")
        if not 1024 <= self.header_bytes <= HEADER_BYTES_MAX:
            raise ValueError(
                f"header_bytes must be 1024 to {HEADER_BYTES_MAX}, not {self.header_bytes}"
            )
        self.checked()

    def checked(self) -> Http3Limits:
        """For the extension. Raises ``ValueError`` for a time that is none."""
        return Http3Limits(**asdict(self))
