"""The metrics of one scenario in an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from testbed.models.metrics import DEFAULTS
from testbed.models.metrics.base import Metric, MetricConfig, Outputs, Targets


@dataclass(frozen=True)
class MetricSuite:
    """The metrics to evaluate.

    Attributes:
        configs: their options.
        folder: the run's folder, whose ``custom`` has the user's files; None if there are none.
    """

    configs: Sequence[MetricConfig] = DEFAULTS
    folder: Path | None = None

    def start(self, classes: int) -> RunningMetrics:
        """Start an evaluation; ``classes`` is 0 for numbers as targets.

        A metric of the other targets has no values.
        """
        other = "labels" if classes == 0 else "numbers"
        return RunningMetrics(
            [
                (
                    one.names(classes),
                    None if other == one.TARGETS else one.start(classes, folder=self.folder),
                )
                for one in self.configs
            ]
        )


@dataclass(frozen=True)
class RunningMetrics:
    """The metrics in one evaluation, with the names of their values."""

    parts: Sequence[tuple[Sequence[str], Metric | None]]

    def update(self, outputs: Outputs, targets: Targets) -> None:
        """Add a batch."""
        for _, metric in self.parts:
            if metric is not None:
                metric.update(outputs, targets)

    def values(self) -> dict[str, float | None]:
        """Return all values by name; None for those that these images do not define."""
        found: dict[str, float | None] = {}
        for names, metric in self.parts:
            values = [None] * len(names) if metric is None else metric.values()
            for name, value in zip(names, values, strict=True):
                found[name] = None if value is None or not isfinite(value) else float(value)
        return found
