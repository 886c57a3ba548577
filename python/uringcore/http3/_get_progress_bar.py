"""A progress bar on a terminal, for bodies that take a while."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

__all__ = ["Progress", "bytes_text"]

QUIET_SECONDS = 0.5
REDRAW_SECONDS = 0.1


class Progress:
    """Redraws one line; draws nothing for transfers that end within a moment."""

    def __init__(self, stream: TextIO, what: str, total: int | None) -> None:
        self._stream = stream
        self._what = what
        self._total = total
        self._started = time.monotonic()
        self._next_draw = self._started + QUIET_SECONDS
        self._drawn = False
        self._amount = 0

    def update(self, amount: int) -> None:
        """Shows that ``amount`` bytes have been transferred so far."""
        self._amount = amount
        now = time.monotonic()
        if now >= self._next_draw:
            self._next_draw = now + REDRAW_SECONDS
            self._draw(now)

    def finish(self) -> None:
        """Leaves the last state of the bar on the terminal, if a bar was drawn."""
        if self._drawn:
            self._draw(time.monotonic())
            self._stream.write("\n")
            self._stream.flush()
            self._drawn = False

    def _draw(self, now: float) -> None:
        rate = self._amount / max(now - self._started, 1e-9)
        columns = shutil.get_terminal_size().columns
        line = progress_line(self._what, self._amount, self._total, rate, columns)
        self._stream.write(f"\r{line}\x1b[K")
        self._stream.flush()
        self._drawn = True


def progress_line(what: str, amount: int, total: int | None, rate: float, columns: int) -> str:
    """The line's text: a bar when the total is known and there is room for one."""
    counted = bytes_text(amount)
    if not total:
        return f"{counted} {what}, {bytes_text(rate)}/s"[: columns - 1]
    share = min(1.0, amount / total)
    left = (total - amount) / rate if rate > 0 else 0.0
    text = (
        f" {share:4.0%}  {counted} of {bytes_text(total)}  {bytes_text(rate)}/s  {left:.0f} s left"
    )
    width = columns - len(text) - 3
    if width < 10:
        return text.strip()[: columns - 1]
    return f"[{'#' * int(width * share):<{width}}]{text}"


def bytes_text(amount: float) -> str:
    """A number of bytes for people, in powers of 1024."""
    if amount < 1024:
        return f"{amount:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024 or unit == "GiB":
            break
    return f"{amount:.1f} {unit}"
