"""Measures of streams and rounds in studies, by hand."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

import pytest

from testbed import Run
from testbed.reports.run_measure import Measure

QUEUE = """
name: queue
runtime: simulated
algorithm: {ddl: {learning_rate: 0.01}}
model: {mlp: {hidden: [4]}}
dataset: {digits: {partition: shared}}
streams: {rates: {constant: {per_second: 100}}}
workers: {count: 1, batch_size: 64, classes: {device: {speed: 1200ms}}}
stop: {updates: 10}
evaluate: {every: 5, images: 100}
"""

Simulate = Callable[..., Run]


def measured(run: Run, *names: str) -> list[float]:
    return [Measure.parse(name).of(run) for name in names]


def test_a_queue_after_ten_steps(run_simulation: Simulate) -> None:
    """The first step waits .64 s for its batch. Then 120 samples arrive per step, and 64 are taken.

    When the tenth took its batch, 64 + 9 x 120 had arrived, 9 x 56 were left, and 64 more before.
    """
    run = run_simulation("queue", processes=1, text=QUEUE)
    assert measured(run, "produced", "buffered", "truncated") == [1144, 504, 0]
    assert measured(run, "buffered_most") == [568]
    assert measured(run, "round_seconds", "round_samples") == pytest.approx([1.264, 64], rel=1e-3)
    assert measured(run, "stream_rate", "stream_rate_deviation") == pytest.approx([100, 0])


def test_queue_and_discards_with_truncation(run_simulation: Simulate) -> None:
    """At most 100 samples, of one second, of the 120 that arrive per step. The first step waits
    for its 64; each of the nine others discards the 20 before the last second, and 36 it leaves."""
    run = run_simulation("cut", "streams.policy=truncation", processes=1, text=QUEUE)
    names = ("produced", "buffered", "truncated", "buffered_most")
    assert measured(run, *names) == [1144, 0, 504, 100]


def test_samples_shared_in_a_round(run_simulation: Simulate) -> None:
    """Of three devices with 20, 40 and 60 samples ceil(.6 x 3) = 2 share floor(.5 b) of them.

    So 30, 40 or 50 samples of 64 pixels are shared, each once and with two others.
    """
    algorithm = "algorithm={scadles: {learning_rate: 0.01, alpha: 0.6, beta: 0.5}}"
    rates = "streams.rates={each: {per_second: [20, 40, 60]}}"
    settings = (algorithm, rates, "workers.count=3", "stop.updates=3")
    run = run_simulation("shared", *settings, processes=1, text=QUEUE)
    (shared,) = measured(run, "shared_bytes")
    assert shared in (30 * 64, 40 * 64, 50 * 64)
    assert run.updates["injected"].sum() == 2 * shared / 64
    assert measured(run, "round_samples") == [120 + 2 * shared / 64]


def test_a_shared_sample_counts_once_however_many_push_in_a_round(
    run_simulation: Simulate,
) -> None:
    """Rounds of three, two and one workers: 4, 6 and no samples are shared, of 64 pixels each.

    In the first, w0 and w1 share 2 each: each gets 2, and w2 gets 4. In the second, w1 shares 6.
    """
    run = run_simulation("few", "stop.updates=6", "workers.count=3", processes=1, text=QUEUE)
    times, injected = [1, 1, 1, 2, 2, 3], [2, 2, 4, 6, 0, 0]
    vars(run)["updates"] = run.updates.assign(time_seconds=times, injected=injected)
    assert measured(run, "shared_bytes") == [pytest.approx((4 + 6) / 3 * 64)]


def test_values_of_compressed_rounds(run_simulation: Simulate) -> None:
    """A δ of 1 always compresses. Tensors of 4 x 64, 4, 10 x 4 and 10: 25 + 1 + 4 + 1 values."""
    algorithm = "algorithm={scadles: {learning_rate: 0.01, ratio: 0.1, delta: 1}}"
    run = run_simulation("compressed", algorithm, processes=1, text=QUEUE)
    cnc, floats = measured(run, "cnc", "floats")
    assert cnc == 1
    assert floats == 10 * (25 + 1 + 4 + 1)


def test_top_5_accuracies(run_simulation: Simulate) -> None:
    run = run_simulation("top5", processes=1, text=QUEUE)
    during = run.evaluations[~run.evaluations["final"]]
    best, final, reached = measured(run, "best_top5", "final_top5", "time_to_top5(0.01)")
    assert best == during["top5"].max() > during["top1"].max()
    assert final == run.evaluations["top5"].iloc[-1]
    assert reached == during["time_seconds"].iloc[0]
    assert measured(run, "time_to_top5(1)") == [float("inf")]


def test_a_run_without_streams_has_no_stream_measures(run_simulation: Simulate) -> None:
    run = run_simulation("none", processes=1)
    found = measured(run, "produced", "stream_rate", "buffered_most", "shared_bytes", "cnc")
    assert all(map(isnan, found))
