from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from prometheus_client import Metric

from testbed.reports.metrics.outline import Outline
from testbed.scenario.settings import Stop
from testbed.telemetry.rows import STREAMED, STREAMS, UPDATE, Rows


@pytest.fixture
def outline() -> Outline:
    """Two fast workers, which have a speed, and a slow one."""
    return Outline(
        labels=("r1", "adacomp"),
        classes=("fast", "fast", "slow"),
        paced=frozenset({"fast"}),
        stop=Stop(updates=8),
        time_scale=2.0,
    )


@pytest.fixture
def rows() -> Callable[..., Rows]:
    """Rows of updates: each maps the columns that are not 0, including those of streams."""

    def make(*updates: dict[str, Any]) -> Rows:
        streamed = any(STREAMS.keys() & update for update in updates)
        made = np.zeros(len(updates), STREAMED if streamed else UPDATE)
        for row, update in zip(made, updates, strict=True):
            for name, value in update.items():
                row[name] = value
        return made

    return make


@pytest.fixture
def values() -> Callable[[Iterable[Metric]], dict[str, dict[tuple[str, ...], float]]]:
    """The samples by name, and by labels with the bucket's bound last."""

    def by_name(families: Iterable[Metric]) -> dict[str, dict[tuple[str, ...], float]]:
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in families:
            for one in family.samples:
                run, algorithm, *labels = one.labels.values()
                assert (run, algorithm) == ("r1", "adacomp")
                found.setdefault(one.name, {})[(*labels,)] = one.value
        return found

    return by_name
