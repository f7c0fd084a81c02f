"""The training without a network: joins, waits, repeats, the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.frame.record import Timing
from testbed.algorithms.frame.stop import StopRule
from testbed.errors import RejectedError
from testbed.payloads import Dense, Sparse
from testbed.payloads.layout import Layout
from testbed.rpc.service import SupersededError

Bench = Any
Half = Any
LAYOUT = Layout(("weight",), ((2, 2),))
Run = Callable[..., Bench]


def test_replies_wait_until_all_workers_have_joined(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0)
        first = asyncio.create_task(bench.pull(0))
        await bench.settle()
        bench.seconds = 3.0
        assert not first.done()
        bench.join(1)
        delivery = await first
        assert delivery.reply is not None
        assert delivery.reply.model.values.tolist() == [0, 0, 0, 0]
        assert (delivery.time, delivery.blocked) == (0.0, 30.0)  # emulated

    events = run(play).events()
    assert [event["event"] for event in events] == ["joined", "joined", "started"]
    assert [event.get("node") for event in events] == ["w0", "w1", None]
    assert [event["elapsed_seconds"] for event in events] == [None, None, 0.0]


def test_an_update_is_applied_and_recorded(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.pull(1)
        bench.seconds = 0.5
        await bench.push(1, 1, 0)
        bench.seconds = 1.0
        timing = Timing(1.0, 2.0, 3.0, 4.0, 5.0)
        delivery = await bench.push(0, 1, 0, timing=timing)
        assert delivery.reply is not None
        # 0 - 1 / max(1, 0), then - 1 / max(1, 1)
        assert delivery.reply.model.values.tolist() == [-2, -2, -2, -2]
        assert (delivery.reply.version, delivery.time) == (2, 10.0)

    rows = run(play).rows()
    assert rows["worker"].tolist() == [1, 0]
    assert rows["version_pulled"].tolist() == [0, 0]
    assert rows["version_applied"].tolist() == rows["staleness"].tolist() == [0, 1]
    assert rows["time_seconds"].tolist() == [5.0, 10.0]
    assert rows["wall_seconds"].tolist() == [0.5, 1.0]
    assert rows["payload_up_bytes"].tolist() == [16, 16]
    assert rows["payload_down_bytes"].tolist() == [16, 16]
    assert rows["entries"].tolist() == [4, 4]
    names = ("compute", "late", "think", "transfer", "blocked")
    assert [rows[f"{name}_seconds"][1] for name in names] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_repeated_push_is_applied_once_and_answered_again(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.pull(1)
        await bench.push(0, 1, 0)
        await bench.push(1, 1, 0)
        again = await bench.push(0, 1, 0, attempt=1)
        assert again.reply is not None
        assert again.reply.version == 2
        await bench.push(0, 2, 2)  # the next push

    bench = run(play)
    assert bench.rows()["sequence"].tolist() == [1, 1, 2]
    done = bench.record.done(evaluated=True)
    assert (done.applied, done.applied_bytes) == (3, 48)
    assert (done.repeated, done.repeated_bytes) == (1, 16)


def test_a_call_that_arrives_after_its_repeat_changes_nothing(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.push(0, 1, 0, attempt=1)
        for late in ((1, 0, 0), (0, 0, 0)):  # the lost push; an even older one
            with pytest.raises(SupersededError):
                await bench.push(0, late[0], late[1], attempt=late[2])
        with pytest.raises(SupersededError):
            await bench.training.pull(0)
        await bench.push(0, 2, 1)  # the late calls did not change its pulled version

    assert run(play).rows()["sequence"].tolist() == [1, 2]


def test_a_waiting_call_is_replaced_by_its_repeat(run: Run, barrier: Half) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.pull(1)
        lost = asyncio.create_task(bench.push(0, 1, 0))
        await bench.settle()
        again = asyncio.create_task(bench.push(0, 1, 0, attempt=1))
        await bench.settle()
        assert bench.training.waiting == 1
        with pytest.raises(SupersededError, match="worker 0 called again"):
            await lost
        assert not again.done()
        bench.seconds = 2.0
        other = await bench.push(1, 1, 0)
        held = await again
        assert held.reply is not None
        assert other.reply is not None
        assert held.reply.model.values.tolist() == [-1, -1, -1, -1]  # applied once
        assert (held.blocked, other.blocked) == (20.0, 0.0)

    run(play, half=barrier)


def test_a_worker_that_leaves_does_not_block_others(run: Run, barrier: Half) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        waiting = asyncio.create_task(bench.push(0, 1, 0))
        await bench.settle()
        assert not waiting.done()
        bench.training.leave(1)
        bench.training.leave(1)
        assert (await waiting).reply is not None
        with pytest.raises(RejectedError, match="has not joined"):
            await bench.push(1, 1, 0)

    events = run(play, half=barrier).events()
    left = [event for event in events if event["event"] == "left"]
    assert [(event["node"], event["reason"]) for event in left] == [("w1", None)]


def test_a_removed_worker_does_not_block_others(run: Run, barrier: Half) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.pull(1)
        waiting = asyncio.create_task(bench.push(0, 1, 0))
        await bench.settle()
        assert not waiting.done()
        bench.training.remove(1, "w1 was ended by SIGKILL")
        bench.training.remove(1, "once more")
        bench.training.leave(1)
        delivery = await waiting
        assert delivery.reply is not None
        assert delivery.reply.version == 1

    events = run(play, half=barrier).events()
    left = [event for event in events if event["event"] == "left"]
    assert [(event["node"], event["reason"]) for event in left] == [
        ("w1", "w1 was ended by SIGKILL")
    ]


def test_a_worker_that_left_can_be_removed(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        bench.training.leave(1)
        bench.training.remove(1, "w1 exited with status 8")
        with pytest.raises(RejectedError, match="worker 2: expected a number from 0 to 1"):
            bench.training.remove(2, "gone")

    events = run(play).events()
    assert [event["event"] for event in events] == ["joined", "joined", "started", "left"]
    assert events[-1]["reason"] is None


def test_a_late_push_of_a_removed_worker_changes_nothing(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.pull(1)
        bench.training.remove(1, "killed")
        with pytest.raises(SupersededError, match="worker 1 was removed"):
            await bench.push(1, 1, 0)
        with pytest.raises(SupersededError, match="worker 1 was removed"):
            await bench.pull(1)
        await bench.push(0, 1, 0)

    bench = run(play)
    assert bench.rows()["worker"].tolist() == [0]
    assert bench.half.version == 1


def test_a_removed_worker_that_restarts_is_new(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(1)
        await bench.push(1, 1, 0)
        bench.training.remove(1, "killed")
        bench.join(1)
        with pytest.raises(RejectedError, match="push 2 is out of order, expected 1"):
            await bench.push(1, 2, 1)
        assert (await bench.pull(1)).reply is not None
        await bench.push(1, 1, 1)

    bench = run(play)
    assert bench.rows()["sequence"].tolist() == [1, 1]
    names = [event["event"] for event in bench.events()]
    assert names == ["joined", "joined", "started", "left", "joined"]


def test_training_ends_after_exactly_the_configured_updates(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.pull(1)
        for version in range(2):
            await bench.push(0, version + 1, version)
        assert not bench.training.ended.is_set()
        assert (await bench.push(0, 3, 2)).reply is None
        assert bench.training.ended.is_set()
        assert bench.training.unnotified == [1]
        assert not bench.training.drained.is_set()
        assert (await bench.push(1, 1, 0)).reply is None  # was in transit
        assert bench.training.drained.is_set()
        assert (await bench.push(0, 3, 2, attempt=1)).reply is None

    bench = run(play, stop=StopRule(updates=3))
    assert len(bench.rows()) == 3
    assert bench.half.version == 3
    done = bench.record.done(evaluated=True)
    assert (done.dropped, done.dropped_bytes) == (2, 32)
    finished = [event for event in bench.events() if event["event"] == "finished"]
    assert [(event["reason"], event["version"]) for event in finished] == [("3 updates applied", 3)]


def test_training_ends_at_its_time_limit(run: Run, barrier: Half) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        waiting = asyncio.create_task(bench.push(0, 1, 0))
        await bench.pull(0)
        await bench.settle()
        bench.seconds = 0.95
        bench.training.tick()
        assert not waiting.done()
        bench.seconds = 1.0
        bench.training.tick()
        assert (await waiting).reply is None

    bench = run(play, half=barrier, stop=StopRule(time=10.0))
    assert bench.events()[-1]["reason"] == "10 s of emulated time passed"


def test_a_worker_that_left_need_not_be_notified(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.push(0, 1, 0)
        assert not bench.training.drained.is_set()
        bench.training.leave(1)
        assert bench.training.drained.is_set()

    run(play, stop=StopRule(updates=1))


def test_a_worker_with_a_stream_is_waited_for_until_it_leaves(run: Run) -> None:
    """It reports what it has received only after it was notified."""

    async def play(bench: Bench) -> None:
        bench.training.streamed = True
        bench.join(0, 1)
        for worker in (0, 1):
            await bench.pull(worker)
        for worker in (0, 1):
            await bench.push(worker, 1, 0)
        bench.training.leave(0)
        assert (bench.training.unnotified, bench.training.drained.is_set()) == ([], False)
        bench.training.leave(1)
        assert bench.training.drained.is_set()

    run(play, stop=StopRule(updates=1))


def test_a_removed_worker_need_not_be_notified(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.push(0, 1, 0)
        assert (bench.training.unnotified, bench.training.drained.is_set()) == ([1], False)
        bench.training.remove(1, "killed")
        assert (bench.training.unnotified, bench.training.drained.is_set()) == ([], True)

    run(play, stop=StopRule(updates=1))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fingerprint": 1}, "worker 0: its model has fingerprint 0000000000000001, expected"),
        ({"payload": Dense(np.ones(5, np.float32))}, "5 values for a model of 4"),
        ({"payload": Dense(np.array([1, 2, 3, np.nan], np.float32))}, "NaN or infinite"),
        (
            {"payload": Sparse(np.array([4], np.int32), np.ones(1, np.float32))},
            "increase strictly within",
        ),
        (
            {"payload": Sparse(np.array([1], np.int32), np.ones(1, np.float32))},
            "a Sparse payload, expected a Dense one",
        ),
    ],
)
def test_mismatched_pushes_are_refused(run: Run, changes: dict[str, Any], reason: str) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        with pytest.raises(RejectedError, match=reason):
            await bench.push(0, 1, 0, **changes)
        await bench.push(0, 1, 0)  # the worker could still continue

    bench = run(play)
    assert len(bench.rows()) == 1
    assert bench.half.parameters.tolist() == [-1, -1, -1, -1]


def test_joins_are_checked(run: Run) -> None:
    async def play(bench: Bench) -> None:
        with pytest.raises(RejectedError, match="worker 2: expected a number from 0 to 1"):
            bench.join(2)
        with pytest.raises(RejectedError, match="fingerprint"):
            bench.training.join(0, 1)
        with pytest.raises(RejectedError, match="has not joined"):
            await bench.pull(0)
        bench.join(0, 0)

    assert [event["node"] for event in run(play).events()] == ["w0"]


def test_rows_of_a_round_are_written_when_it_is_applied(run: Run, barrier: Half) -> None:
    """w1 pushes at 5 and w0 at 10 emulated seconds, when both are applied."""

    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.pull(1)
        bench.seconds = 0.5
        held = asyncio.create_task(bench.push(1, 1, 0))
        await bench.settle()
        assert len(bench.rows()) == 0
        bench.seconds = 1.0
        await bench.push(0, 1, 0)
        await held

    rows = run(play, half=barrier).rows()
    assert rows["time_seconds"].tolist() == [10.0, 10.0]
    assert rows["worker"].tolist() == rows["version_applied"].tolist() == [0, 1]
    assert rows["staleness"].tolist() == [0, 0]
    assert rows["steps"].tolist() == [1, 1]


def test_updates_of_an_incomplete_round_are_dropped(run: Run, barrier: Half) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.pull(1)
        held = asyncio.create_task(bench.push(0, 1, 0))
        await bench.settle()
        bench.seconds = 1.0
        bench.training.tick()
        assert (await held).reply is None
        bench.training.leave(1)
        bench.training.leave(0)

    bench = run(play, half=barrier, stop=StopRule(time=10.0))
    done = bench.record.done(evaluated=True)
    assert (done.applied, done.dropped, done.dropped_bytes) == (0, 1, 16)
    assert (len(bench.rows()), bench.half.version) == (0, 0)
