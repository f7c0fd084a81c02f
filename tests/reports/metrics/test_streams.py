"""Samples of data streams by outcome: numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from testbed.reports.metrics.outline import Outline
from testbed.reports.metrics.reading import MetricsSink
from testbed.telemetry.rows import Rows

Values = Callable[[Any], dict[str, dict[tuple[str, ...], float]]]
Make = Callable[..., Rows]

STREAM = "testbed_stream_"
FIRST = {"stream_produced": 10, "stream_used": 8, "stream_buffered": 2, "samples": 8, "sequence": 1}
SECOND = {
    **{"stream_produced": 25, "stream_used": 14, "stream_buffered": 5, "stream_truncated": 4},
    **{"stream_duplicates": 2, "samples": 8, "injected": 2, "stream_rate": 12.0, "sequence": 1},
    **{"stream_lag_seconds": 1.5, "stream_wait_seconds": 0.25},
}
OTHER = {
    **{"stream_produced": 40, "stream_used": 40, "samples": 40, "stream_rate": 40.0, "sequence": 1},
    **{"stream_lag_seconds": 0.5, "stream_wait_seconds": 1.0},
}


def test_counts_are_from_the_last_updates(outline: Outline, rows: Make, values: Values) -> None:
    """w0 has two updates, w1 one, both fast; the slow w2 has none yet."""
    sink = MetricsSink(replace(outline, streams=True))
    waited = {**FIRST, "worker": 0, "stream_wait_seconds": 0.5}
    second = {**SECOND, "worker": 0, "sequence": 2}
    sink.updates(rows(waited, second, {**OTHER, "worker": 1}), now=0.0)
    found = values(sink.collect())
    # 25 + 40, not the earlier 10; 14 + 40; 5 + 0; and 65 = 54 + 5 + 4 + 2.
    assert found[f"{STREAM}produced_samples_total"] == {("fast",): 65, ("slow",): 0}
    assert found[f"{STREAM}used_samples_total"] == {("fast",): 54, ("slow",): 0}
    assert found[f"{STREAM}buffered_samples"] == {("fast",): 5, ("slow",): 0}
    assert found[f"{STREAM}truncated_samples_total"] == {("fast",): 4, ("slow",): 0}
    assert found[f"{STREAM}duplicate_samples_total"] == {("fast",): 2, ("slow",): 0}
    # Means of w0 and w1: (12 + 40) / 2, (8 - 2 + 40) / 2, (1.5 + 0.5) / 2; none of w2.
    assert found[f"{STREAM}samples_per_second"] == {("fast",): 26}
    assert found[f"{STREAM}batch_samples"] == {("fast",): 23}
    assert found[f"{STREAM}lag_seconds"] == {("fast",): 1}
    # 0.5 + 0.25 of w0 and 1 of w1.
    assert found[f"{STREAM}wait_seconds_total"] == {("fast",): 1.75, ("slow",): 0}
    cycle = found["testbed_worker_cycle_seconds_total"]
    assert cycle["w0", "fast", "stream_wait"] == pytest.approx(0.75)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_device_that_restarts_counts_on(
    outline: Outline, rows: Make, values: Values, at_once: bool
) -> None:
    """w0 starts again twice, w1 not. The second process of w0 had more samples at its first update
    than the first at its last, and dropped 4: 10 + 25 + 10; 8 + 14 + 8; and 2 wait in the third."""
    sink = MetricsSink(replace(outline, streams=True))
    second = {**SECOND, "worker": 0, "samples": 16}
    each = [{**FIRST, "worker": 0}, {**OTHER, "worker": 1}, second, {**FIRST, "worker": 0}]
    for some in [each] if at_once else [[one] for one in each]:
        sink.updates(rows(*some), now=0.0)
    found = values(sink.collect())
    assert found[f"{STREAM}produced_samples_total"]["fast",] == 45 + 40
    assert found[f"{STREAM}used_samples_total"]["fast",] == 30 + 40
    assert found[f"{STREAM}truncated_samples_total"]["fast",] == 4
    assert found[f"{STREAM}buffered_samples"]["fast",] == 2


def test_without_streams_there_are_none(outline: Outline, rows: Make, values: Values) -> None:
    sink = MetricsSink(outline)
    sink.updates(rows({"worker": 0}), now=0.0)
    found = values(sink.collect())
    assert not any(name.startswith(STREAM) for name in found)
    assert ("w0", "fast", "stream_wait") not in found["testbed_worker_cycle_seconds_total"]
