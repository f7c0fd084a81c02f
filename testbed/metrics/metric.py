"""What a metric is, and where metrics are read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

RUN_LABELS = ("run", "algorithm")


@dataclass(frozen=True)
class Metric:
    """What is to be known of a metric.

    Attributes:
        labels: beside RUN_LABELS.
        source: what it is read from: an event's name in events.jsonl, or another part of a run.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    source: str
    labels: tuple[str, ...] = ()
