"""Comparison of runs, such as a live and a simulated one: what differs, and by how much.

The comparison depends on the measure: amounts and means by their relative difference,
accuracies by their absolute difference, shares and distributions by the share of updates that
would have to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from math import inf, isfinite, isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.errors import NodeError
from testbed.models.metrics import besides_defaults
from testbed.reports.measures import damping
from testbed.reports.record import metric_columns
from testbed.reports.run_measure import (
    SIDE_BY_SIDE_OF_WORKLOADS,
    Measure,
    compared_title,
    metric_measures,
)
from testbed.reports.workload import WorkloadRun

if TYPE_CHECKING:
    import pandas as pd

    from testbed.reports.any_run import AnyRun
    from testbed.reports.frames import Run


@dataclass(frozen=True)
class Difference:
    """One measure in two runs."""

    measure: str  # name of the measure, with its unit
    # value in the first run. None if a distribution is compared; infinity if the run never
    # reached the accuracy
    first: float | None
    second: float | None  # value in the second run, with the same special cases
    ratio: float  # the difference, as a fraction; 0 if equal


@dataclass(frozen=True)
class Comparison:
    """Two runs compared.

    Attributes:
        scenario: differences between their scenarios: by dotted path, each run's value or None.
        measures: a row per measure: ``first``, ``second`` and ``difference``, a share: 0 if equal.
    """

    scenario: Mapping[str, tuple[Any, ...]]
    measures: pd.DataFrame


def compared(first: AnyRun, second: AnyRun, *, accuracy: float | None = None) -> Comparison:
    """Return the differences between two runs as a table; see ``compare``."""
    import pandas as pd

    rows = [astuple(one) for one in compare(first, second, accuracy=accuracy)]
    table = pd.DataFrame(rows, columns=["measure", "first", "second", "difference"])
    return Comparison(
        scenario_differences([first, second]), table.set_index("measure").astype(float)
    )


LEARNT = ("final_accuracy", "best_accuracy", "final_loss", "ingress", "egress")


def compare(first: AnyRun, second: AnyRun, *, accuracy: float | None = None) -> list[Difference]:
    """Return the measures that both runs have.

    With ``accuracy``, also compare what it took to reach this accuracy first.

    Raises:
        NodeError: one of them has no applied updates, or only one is of a workload.
    """
    if isinstance(first, WorkloadRun) and isinstance(second, WorkloadRun):
        return list(_differences(first, second, _of_workloads(first, second, accuracy)))
    if isinstance(first, WorkloadRun) or isinstance(second, WorkloadRun):
        raise NodeError("nothing to compare: one of the runs is a training, the other a workload.")
    one, other = first.updates, second.updates
    if not len(one) or not len(other):
        raise NodeError("nothing to compare: one of the runs has not applied any update.")
    return [
        *_learnt(first, second, accuracy),
        *_means(one, other),
        *_classes(one, other),
        *_staleness(one, other),
        *_pace(one, other),
    ]


def settings(run: AnyRun) -> dict[str, Any]:
    """Return the values of a run's scenario by dotted path."""
    scenario = run.scenario.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dict(_flattened(scenario))


def scenario_differences(runs: Sequence[AnyRun]) -> dict[str, tuple[Any, ...]]:
    """Return what differs between the scenarios: by dotted path, each run's value or None."""
    flat = [settings(run) for run in runs]
    paths = list(dict.fromkeys(path for one in flat for path in one))
    found = {path: tuple(one.get(path) for one in flat) for path in paths if path != "name"}
    return {path: values for path, values in found.items() if len(set(map(repr, values))) > 1}


def _flattened(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, inner in value.items():
        yield from _flattened(inner, f"{path}.{key}" if path else key)


def _learnt(first: Run, second: Run, accuracy: float | None) -> Iterator[Difference]:
    """Yield how well the runs have learned, and at what cost; skip what neither measured."""
    measures = [Measure(name) for name in LEARNT]
    named = dict.fromkeys((*metric_columns(first.evaluations), *metric_columns(second.evaluations)))
    measures += [Measure(f"final_{name}") for name in besides_defaults(named)]
    if accuracy is not None:
        measures += [Measure(name, accuracy) for name in ("updates_to", "ingress_to", "time_to")]
    yield from _differences(first, second, measures)


def _of_workloads(first: WorkloadRun, second: WorkloadRun, accuracy: float | None) -> list[Measure]:
    measures = [*SIDE_BY_SIDE_OF_WORKLOADS, *metric_measures([first.scenario, second.scenario])]
    if accuracy is not None:
        measures += [Measure(name, accuracy) for name in ("time_to", "sent_to")]
    return measures


def _differences(
    first: AnyRun, second: AnyRun, measures: Iterable[Measure]
) -> Iterator[Difference]:
    scenarios = first.scenario, second.scenario
    for measure in measures:
        title = compared_title(measure, scenarios) + (
            _encodings(first, second) if measure.is_encoded else ""
        )
        one, other = measure.of(first), measure.of(second)
        if isnan(one) and isnan(other):
            continue
        if measure.definition.unit in ("images", "share") and isfinite(one) and isfinite(other):
            yield Difference(title, one, other, abs(one - other))
        elif isfinite(one) and isfinite(other):
            yield _relative(title, one, other)
        else:
            first_shown, second_shown = (
                None if isnan(one) else one,
                None if isnan(other) else other,
            )
            apart = 0.0 if one == other == inf else 1.0
            yield Difference(title, first_shown, second_shown, apart)


def _encodings(first: AnyRun, second: AnyRun) -> str:
    """Return the encodings that a traffic ratio compares; empty if both are raw."""
    if isinstance(first, WorkloadRun) or isinstance(second, WorkloadRun):
        return ""
    one, other = first.scenario.encoding, second.scenario.encoding
    return "" if one == other == "raw" else f" ({one} / {other})"


def _means(one: pd.DataFrame, other: pd.DataFrame) -> Iterator[Difference]:
    columns: Mapping[str, str] = {
        "payload_up_bytes": "payload of a push (bytes, mean)",
        "payload_down_bytes": "payload of a pull (bytes, mean)",
        "staleness": "staleness (updates, mean)",
        "step_scale": "step scale (mean)",
    }
    for column, name in columns.items():
        yield _relative(name, one[column].mean(), other[column].mean())
    yield _relative("1/max(1, staleness) (mean)", damping(one), damping(other))


def _classes(one: pd.DataFrame, other: pd.DataFrame) -> Iterator[Difference]:
    """Yield the difference in each class's share of the updates."""
    shares = [frame["device_class"].value_counts(normalize=True) for frame in (one, other)]
    for name in sorted({str(name) for share in shares for name in share.index}):
        first, second = (float(share.get(name, 0.0)) for share in shares)
        yield Difference(f"share of class {name}", first, second, abs(first - second))


def _staleness(one: pd.DataFrame, other: pd.DataFrame) -> Iterator[Difference]:
    """Yield the maximum distance between the cumulative distributions (Kolmogorov-Smirnov)."""
    samples = [np.sort(frame["staleness"].to_numpy()) for frame in (one, other)]
    values = np.unique(np.concatenate(samples))
    first, second = (np.searchsorted(s, values, side="right") / len(s) for s in samples)
    yield Difference("distribution of staleness", None, None, float(np.abs(first - second).max()))


def _pace(one: pd.DataFrame, other: pd.DataFrame) -> Iterator[Difference]:
    """Yield the difference in emulated seconds between updates, over the whole run."""
    spans = [frame["time_seconds"].max() / len(frame) for frame in (one, other)]
    yield _relative("time between updates (s, mean)", *spans)


def _relative(measure: str, first: float, second: float) -> Difference:
    larger = max(abs(first), abs(second))
    ratio = abs(first - second) / larger if larger else 0.0
    return Difference(measure, float(first), float(second), float(ratio))
