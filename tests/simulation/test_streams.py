"""Simulated runs whose samples arrive during the training: waits, batches, and queues."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed import Run
from testbed.algorithms.frame.worker import Shard
from testbed.datasets.streams import Arrivals, OnOff, Persistence, Policy, Steady, Truncation
from testbed.reports.run_measure import Measure
from testbed.simulation.streams import SimulatedStream
from testbed.values.units import Duration

Simulate = Callable[..., Run]

SCENARIO = """
name: streams
seed: 3
runtime: simulated
algorithm: {ddl: {learning_rate: 0.05}}
model: {mlp: {hidden: [16]}}
dataset: digits
streams: {rates: {each: {per_second: [22, 64, 40]}}}
workers: {count: 3, batch_size: 64, classes: {all: {speed: 100ms}}}
stop: {updates: 30}
evaluate: {every: 15, images: 100}
"""

STEADY = Steady(name="steady")


def streamed(rate: float, policy: Policy, *, patience: float = 10.0) -> SimulatedStream:
    source = Shard(np.arange(500), np.random.default_rng(1))
    return SimulatedStream(Arrivals(rate, STEADY), policy.buffer(), source, 64, patience)


def step(stream: SimulatedStream, count: int, now: float) -> tuple[float, int]:
    """A step that wants ``count`` samples now: when it gets them, and how many."""
    ends = stream.ready(count, now)
    return ends, len(stream.take(count, ends, since=now))


def test_samples_that_arrive_during_a_wait_are_used_once() -> None:
    """22 a second, 64 a step, and 1.2 s between the end of a step's wait and the next step.

    The first waits for sample 64, until 64/22 s. By 1.2 s later 90.4 have come, so 26 wait; the
    second waits for sample 128, until 128/22 s, and so on: after 1,000 steps 64,000 have come, and
    all of them were used. If what comes in a wait counted twice, later steps would begin sooner.
    """
    stream, now = streamed(22, Persistence(name="persistence")), 0.0
    for number in range(1, 1001):
        ends, count = step(stream, 64, now)
        assert count == 64
        assert ends == pytest.approx(64 * number / 22)
        now = ends + 1.2
    buffer = stream.buffer
    assert (buffer.produced, buffer.used, buffer.waiting) == (64_000, 64_000, 0)


def test_persistence_lets_the_queue_of_a_fast_stream_grow() -> None:
    """300 per second, 64 per step of 1 s: after T steps about 300 T - 64 T + 236, as follows.

    The first waits 64/300 s, with nothing left. From then on each second brings 300: before the
    second step 300 wait, after it 236, after the T-th 236 (T - 1).
    """
    stream, now = streamed(300, Persistence(name="persistence")), 0.0
    for number in range(1, 101):
        ends, _ = step(stream, 64, now)
        assert stream.buffer.waiting == 236 * (number - 1)
        now = ends + 1.0


def test_truncation_keeps_no_old_samples() -> None:
    """Of the 300 of each second but the first wait, 64 are used and 236 discarded."""
    stream, now = streamed(300, Truncation(name="truncation")), 0.0
    for number in range(1, 101):
        ends, _ = step(stream, 64, now)
        assert (stream.buffer.waiting, stream.buffer.truncated) == (0, 236 * (number - 1))
        now = ends + 1.0
    assert stream.buffer.produced == stream.buffer.used + stream.buffer.truncated


def test_samples_arrive_in_the_order_of_the_shard() -> None:
    """Even if earlier samples were discarded."""
    kept = streamed(300, Persistence(name="persistence"))
    cut = streamed(300, Truncation(name="truncation"))
    order = Shard(np.arange(500), np.random.default_rng(1)).take(1000)
    assert (kept.take(64, 1.0, since=1.0) == order[:64]).all()
    assert (cut.take(64, 1.0, since=1.0) == order[:64]).all()
    assert (kept.take(64, 2.0, since=2.0) == order[64:128]).all()
    assert (cut.take(64, 2.0, since=2.0) == order[300:364]).all()


def test_a_restarted_device_gets_the_samples_after_the_end_of_its_process() -> None:
    """100 a second. Killed at 1.5 s, though it has been computed to 2 s, and taken sample 128."""
    stream = streamed(100, Persistence(name="persistence"))
    order = Shard(np.arange(500), np.random.default_rng(1)).take(1000)
    assert (stream.take(64, 1.0, since=0.0) == order[:64]).all()
    assert (stream.take(64, 2.0, since=1.0) == order[64:128]).all()
    stream.restart(1.5, Shard(np.arange(500), np.random.default_rng(1)))
    assert (stream.take(64, 3.0, since=3.0) == order[150:214]).all()
    told = stream.take_intake()
    assert (told.stream_produced, told.stream_used, told.stream_buffered) == (150, 64, 86)
    assert told.stream_wait_seconds == 0


def test_a_step_waits_for_the_lot_with_its_last_sample() -> None:
    """10 per second in lots of 8: the 20th arrives with the 24th, at 2.4 s; then 4 wait.

    The oldest was made at 0.1 s.
    """
    source = Shard(np.arange(50), np.random.default_rng(1))
    buffer = Persistence(name="persistence").buffer()
    stream = SimulatedStream(Arrivals(10, STEADY, lot=8), buffer, source, 20)
    assert step(stream, 20, 0.0) == (pytest.approx(2.4), 20)
    assert (buffer.produced, buffer.used, buffer.waiting) == (24, 20, 4)
    assert stream.take_intake().stream_lag_seconds == pytest.approx(2.3)


def test_a_silent_stream_delivers_nothing_and_keeps_its_samples() -> None:
    """On for 1 s, off for 60: 8 have arrived by 1 s, and of 64 no more arrive until 61 s."""
    change = OnOff(name="on-off", on=Duration(1), off=Duration(60))
    source = Shard(np.arange(50), np.random.default_rng(1))
    stream = SimulatedStream(
        Arrivals(8, change), Persistence(name="persistence").buffer(), source, 64, 10.0
    )
    assert step(stream, 64, 0.0) == (11.0, 0)
    assert (stream.buffer.produced, stream.buffer.used, stream.buffer.waiting) == (8, 0, 8)
    assert step(stream, 8, 11.0) == (11.0, 8)


def conserved(run: Run) -> None:
    """At every update, for its worker."""
    u = run.updates
    kept = u["stream_used"] + u["stream_buffered"] + u["stream_truncated"] + u["stream_duplicates"]
    assert (u["stream_produced"] == kept).all()
    used = (u["samples"] - u["injected"]).groupby(u["worker"]).cumsum()
    assert (u["stream_used"] == used).all()


def test_ddl_waits_for_the_slowest_stream(run_simulation: Simulate) -> None:
    """w0 gets 22 a second and wants 64: it waits 64/22 = 2.909 s for the first, as its row says."""
    run = run_simulation("ddl", text=SCENARIO)
    updates = run.updates
    assert (updates["samples"] == 64).all()
    conserved(run)
    first = updates.groupby("worker").first()["stream_wait_seconds"].tolist()
    assert first == pytest.approx([64 / 22, 1.0, 1.6], abs=1e-6)
    assert updates["stream_rate"].groupby(updates["worker"]).max().tolist() == [22, 64, 40]
    slow = updates[updates["worker"] == 0]
    assert len(slow) == 10
    assert slow["stream_produced"].tolist() == [64 * number for number in range(1, 11)]
    assert (updates[updates["worker"] == 1]["stream_buffered"].diff().dropna() > 0).all()


def test_scadles_uses_the_samples_of_a_second_without_waiting(run_simulation: Simulate) -> None:
    run = run_simulation("scadles", "algorithm.name=scadles", text=SCENARIO)
    batches = run.updates.groupby("worker")["samples"].unique().tolist()
    assert [batch.tolist() for batch in batches] == [[22], [64], [40]]
    conserved(run)
    first = run.updates.groupby("worker").first()["stream_wait_seconds"].tolist()
    assert first == pytest.approx([1.0, 1.0, 1.0], abs=1e-6)


THREE_MESSAGES = (
    "algorithm={scadles: {alpha: 0.4, beta: 0.5, ratio: 0.1, delta: 0.5, decide: majority}}",
    "streams.policy=truncation",
)


def test_three_messages_per_step_are_bit_identical_for_any_number_of_processes(
    run_simulation: Simulate,
) -> None:
    """2 of 3 devices share half of their batch, then all vote: messages 2, bytes of the samples.

    A sample of the digits has 64 pixels of 4 bytes. Shared samples go up once, and down to each
    of the two others.
    """
    runs = [
        run_simulation(f"p{count}", *THREE_MESSAGES, text=SCENARIO, processes=count)
        for count in (1, 2)
    ]
    one, other = (run.updates for run in runs)
    assert one.equals(other)
    assert (one["messages"] == 2).all()
    conserved(runs[0])
    assert (one["compressed"].isin([0, 1])).all()
    per_round = one.groupby(np.arange(len(one)) // 3)
    shared_up = (one["payload_up_bytes"] - 8 * one["entries"] * (one["compressed"] == 1)) - (
        4 * one["entries"] * (one["compressed"] == 0)
    )
    received = one["injected"] * 256
    assert shared_up.groupby(np.arange(len(one)) // 3).sum().gt(0).all()
    assert (2 * shared_up.groupby(np.arange(len(one)) // 3).sum()).tolist() == (
        received.groupby(np.arange(len(one)) // 3).sum().tolist()
    )
    assert len(per_round) == 10


def test_records_of_several_samples_arrive_in_lots(run_simulation: Simulate) -> None:
    run = run_simulation("lots", "streams.samples_per_record=5", text=SCENARIO)
    conserved(run)
    assert not (run.updates["stream_produced"] % 5).any()
    found: Any = run.summarise()["streams"]
    assert found["produced_records"] * 5 == found["produced_samples"]


def test_rates_follow_a_trace(run_simulation: Simulate) -> None:
    """22 a second for 2 s, none for 3 s, and so on, at the same time everywhere.

    w0's first 44 samples arrive by 2 s; the last of the 64 in its batch 20/22 s after 5 s.
    """
    change = "streams.over_time={trace: {file: rates.csv, offset: none}}"
    files = {"rates.csv": "time_seconds,factor\n0,1\n2,0\n5,0\n"}
    run = run_simulation("traced", change, "stop.updates=3", text=SCENARIO, files=files)
    conserved(run)
    first = run.updates.groupby("worker").first()["stream_wait_seconds"].tolist()
    assert first == pytest.approx([5 + 20 / 22, 1.0, 1.6], abs=1e-6)


def test_two_runs_are_compared_round_by_round(run_simulation: Simulate) -> None:
    """Ten rounds of three; with batches of 32 all differ, and w0 waits 32/22 s, not 64/22."""
    one = run_simulation("one", text=SCENARIO)
    other = run_simulation("other", "workers.batch_size=32", text=SCENARIO)
    script = Path(__file__).parents[2] / "scenarios" / "scadles" / "beside_simulation.py"
    rows = runpy.run_path(str(script))["rows"]
    alike = {what: found for what, *found in rows(one, one)}
    assert alike["batches that differ"][0] == "0 of 30"
    assert alike["queues after a round, largest difference, s of arrivals"][0] == "0.00"
    other_run = {what: found for what, *found in rows(one, other)}
    assert other_run["batches that differ"][0] == "30 of 30"
    assert other_run["median of a round, s"] == ["2.909", "1.455  (+100.0%)"]


def test_a_silent_device_is_skipped_until_its_stream_resumes(run_simulation: Simulate) -> None:
    """w0 gets no samples: rounds are made without it, ten seconds late each."""
    run = run_simulation(
        "silent",
        "streams={rates: {each: {per_second: [0, 64, 40]}}, clip: off, stream_timeout: 5s}",
        "stop={updates: 8}",
        text=SCENARIO,
    )
    assert set(run.updates["worker"]) == {1, 2}
    assert len(run.updates) == 8
    rounds = run.updates["time_seconds"].unique()
    assert (np.diff(rounds) >= 5).all()


def test_a_round_of_silent_devices_is_a_stall(run_simulation: Simulate) -> None:
    run = run_simulation(
        "stall", "streams={rates: {constant: {per_second: 0}}, clip: off}", text=SCENARIO
    )
    assert len(run.updates) == 0
    assert run.events["event"].tolist()[-1] == "finished"
    summary: dict[str, Any] = run.summarise()
    assert "stalled: 3 workers wait" in str(summary["verdict"]["reasons"])


def test_the_times_of_a_worker_add_up(run_simulation: Simulate) -> None:
    """Step, sample wait, transfers and blocked time add up to the time between updates."""
    run = run_simulation("times", *THREE_MESSAGES, text=SCENARIO)
    u = run.updates
    parts = u[
        ["compute_seconds", "stream_wait_seconds", "transfer_seconds", "blocked_seconds"]
    ].sum(axis=1)
    until = parts.groupby(u["worker"]).cumsum()
    # The last push is still in transit, and its transfer is not counted yet.
    assert (until <= u["time_seconds"] + 1e-3).all()
    assert until.iloc[-1] == pytest.approx(u["time_seconds"].iloc[-1], abs=0.2)


RESTARTS = (
    "workers.count=1",
    "streams.rates={constant: {per_second: 100}}",
    "stop={updates: 8}",
)


@pytest.mark.parametrize("killed", ["1000ms", "1500ms", "2100ms"])
def test_a_restarted_device_has_lost_its_buffer_and_counts_from_zero(
    run_simulation: Simulate, killed: str
) -> None:
    """100 a second, 64 a step of 0.1 s: pushes at .74, 1.38 and 2.02, then each 0.64 s later.

    Killed in the wait for the second, third or fourth batch, and back at 3 s, when the samples
    since then wait for it: 200 to 90, of which it takes 64. All that it has before a step is less.
    """
    at = float(killed[:-2]) / 1000
    faults = f"faults=[{{kill: {{at: {{time: {killed}}}}}}}, {{join: {{at: {{time: 3s}}}}}}]"
    run = run_simulation("again", *RESTARTS, faults, text=SCENARIO)
    updates = run.updates
    before = updates[updates["time_seconds"] < 3]
    after = updates[updates["time_seconds"] > 3]
    assert len(before) == {1.0: 1, 1.5: 2, 2.1: 3}[at]
    assert before["stream_used"].tolist() == [64 * n for n in range(1, len(before) + 1)]
    assert after["stream_used"].tolist() == [64 * n for n in range(1, len(after) + 1)]
    first = after.iloc[0]
    assert first["stream_wait_seconds"] == 0
    assert first["stream_produced"] == pytest.approx(100 * (3 - at), abs=1)
    assert first["stream_lag_seconds"] == pytest.approx(3 - at, abs=0.02)
    assert Measure.parse("buffered_most").of(run) == first["stream_produced"]
    found: Any = run.summarise()["streams"]
    assert found["used_samples"] == 64 * 8
    assert Measure.parse("produced").of(run) == found["produced_samples"]
    last_of_each = before["stream_produced"].iloc[-1] + after["stream_produced"].iloc[-1]
    assert found["produced_samples"] == last_of_each
    assert found["buffered_samples"] == after["stream_buffered"].iloc[-1]
