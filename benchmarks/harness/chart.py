"""A horizontal bar chart as SVG: the median as a bar, the spread as a whisker.

Plain text without scripts or fonts; its colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from benchmarks.harness.results import Spread

WIDTH = 760
LABEL = 150
"""The minimum width of the labels, in pixels; a chart with longer labels uses more."""
CHARACTER = 7.2
"""The width of a character of a label, in pixels, at most."""
VALUE = 110
ROW = 30
BAR = 18
TOP = 46
FOOT = 16

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 15px; }
.note { fill: #6e7781; }
.ours { fill: #0a7d6c; } .peer { fill: #8c959f; } .limit { fill: #c9a227; }
.whisker { stroke: #24292f; stroke-width: 1.4; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .note { fill: #8b949e; } .whisker { stroke: #e6edf3; }
  .ours { fill: #2bb39d; } .peer { fill: #6e7681; } .limit { fill: #d4a72c; }
}
"""


@dataclass(frozen=True)
class Bar:
    """One row: a peer with its figures, or with a note instead."""

    label: str
    kind: str
    """`ours`, `peer` or `limit`."""
    spread: Spread | None
    note: str = ""


def render(title: str, unit: str, bars: list[Bar]) -> str:
    """The chart as an SVG document; bars start at zero, so that lengths compare."""
    highest = max((bar.spread.high for bar in bars if bar.spread), default=1.0) or 1.0
    label = round(max(LABEL, 14 + CHARACTER * max((len(bar.label) for bar in bars), default=0)))
    scale = (WIDTH - label - VALUE) / highest
    height = TOP + ROW * len(bars) + FOOT
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="0" y="18">{escape(title)}</text>',
        f'<text class="note" x="0" y="36">{escape(unit)}, median; the whisker spans all rounds</text>',
    ]
    for index, bar in enumerate(bars):
        out.extend(_row(bar, TOP + ROW * index, label, scale))
    out.append("</svg>\n")
    return "\n".join(out)


def _row(bar: Bar, top: int, left: int, scale: float) -> list[str]:
    baseline = top + BAR / 2 + 4.5
    label = f'<text x="{left - 10}" y="{baseline}" text-anchor="end">{escape(bar.label)}</text>'
    if bar.spread is None:
        note = escape(bar.note[:80])
        return [label, f'<text class="note" x="{left}" y="{baseline}">{note}</text>']
    middle = top + BAR / 2
    low, high = left + bar.spread.low * scale, left + bar.spread.high * scale
    length = max(bar.spread.median * scale, 1.0)
    return [
        label,
        f'<rect class="{bar.kind}" x="{left}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2"/>',
        f'<path class="whisker" fill="none" d="M{low:.1f} {middle}H{high:.1f}'
        f'M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8"/>',
        f'<text x="{max(high, left + length) + 8:.1f}" y="{baseline}">'
        f"{figure(bar.spread.median)}</text>",
    ]


def figure(value: float) -> str:
    """A number with about three significant digits, as tables and charts show it."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    if value >= 0.1:
        return f"{value:.2f}"
    return f"{value:.3f}"
