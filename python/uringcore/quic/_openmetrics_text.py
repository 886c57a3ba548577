"""Metrics as text, in the format of OpenMetrics 1.0, which Prometheus reads.

The metrics themselves are in :mod:`uringcore.quic.metrics` and in the server's ``_metric_definitions``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["CONTENT_TYPE", "Family", "exposition", "is_name"]

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass
class Family:
    """A metric: its name without unit and suffix, its type and its samples."""

    name: str
    kind: str
    """``"counter"``, ``"gauge"`` or ``"histogram"``."""
    help: str
    unit: str = ""
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)
    """The suffix, the labels and the value of each sample."""

    @property
    def full_name(self) -> str:
        """The metric's name with its unit, as OpenMetrics requires."""
        return f"{self.name}_{self.unit}" if self.unit else self.name

    def add(self, value: float, labels: Mapping[str, str]) -> None:
        """Adds a sample of a counter or a gauge."""
        suffix = "_total" if self.kind == "counter" else ""
        self.samples.append((suffix, dict(labels), value))

    def add_histogram(
        self,
        bounds: Sequence[float],
        counts: Sequence[int],
        total: float,
        labels: Mapping[str, str],
    ) -> None:
        """Adds the samples of a histogram. ``counts`` has the number of values between each bound and the one
        before, and at the end the number above the last; ``total`` is the sum of all values.
        """
        so_far = 0
        for bound, count in zip([*map(repr, map(float, bounds)), "+Inf"], counts, strict=True):
            so_far += count
            self.samples.append(("_bucket", {**labels, "le": bound}, so_far))
        self.samples.append(("_count", dict(labels), so_far))
        self.samples.append(("_sum", dict(labels), total))


def exposition(families: Iterable[Family]) -> str:
    """Returns the text, ``# EOF`` included. A family without samples is left out."""
    lines = [line for family in families if family.samples for line in _lines(family)]
    return "".join(f"{line}\n" for line in (*lines, "# EOF"))


def is_name(text: str) -> bool:
    """True if the text is a valid name of a metric."""
    plain = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:")
    return text[:1] in plain and all(c in plain or c in "0123456789" for c in text[1:])


def _lines(family: Family) -> list[str]:
    name = family.full_name
    head = [f"# TYPE {name} {family.kind}"]
    if family.unit:
        head.append(f"# UNIT {name} {family.unit}")
    samples = [
        f"{name}{suffix}{_labels(labels)} {_number(value)}"
        for suffix, labels, value in family.samples
    ]
    return [*head, f"# HELP {name} {_escaped(family.help)}", *samples]


def _labels(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
