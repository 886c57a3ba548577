"""The log as JSON, one object a line, for log collectors.

Every line has ``time`` (RFC 3339, UTC), ``level``, ``logger`` and ``message``. Lines of the access log also
have ``client``, ``method``, ``path``, ``http_version`` and ``status``, and a line about an exception has
``exception``. Items of a logging call's ``extra`` appear under their own names.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import Any

__all__ = ["JSONFormatter"]

ACCESS_FIELDS = ("client", "method", "path", "http_version", "status")

# Attributes that are not items of `extra`: those of every record, and uvicorn's message for terminals.
USUAL = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"})


class JSONFormatter(logging.Formatter):
    """Formats records as JSON. ``use_colors`` is ignored; uvicorn passes it to every formatter."""

    def __init__(self, *, use_colors: bool | None = None) -> None:
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one line."""
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.name == "uvicorn.access" and isinstance(record.args, tuple):
            line |= zip(ACCESS_FIELDS, record.args, strict=False)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        for name, value in vars(record).items():
            if name not in USUAL and name not in line:
                line[name] = value
        # Values that JSON cannot represent are converted by str().
        return json.dumps(line, default=str, ensure_ascii=False)
