"""The worker's loop, driven by hand."""

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pytest

from testbed.algorithms.base import Orders, Reply, Update, WorkerHalf
from testbed.compress.payload import Dense, Vector
from testbed.frame.worker import (
    Arrived,
    Computed,
    Loop,
    Passed,
    Pull,
    Push,
    Samples,
    Step,
    Think,
    Worker,
)

GRADIENT = np.ones(2, np.float32)


class EveryNth(WorkerHalf):
    """Pushes the sum of ``local_steps`` gradients, and remembers what it was told when."""

    def __init__(self, local_steps: int = 1) -> None:
        self.parameters = np.zeros(2, np.float32)
        self.local_steps = local_steps
        self.told: list[tuple[str, float]] = []
        self.gradients: list[Vector] = []
        self.samples = 0
        self.version = 0

    def receive(self, reply: Reply, now: float) -> None:
        self.parameters[:] = reply.model.values
        self.version = reply.version
        self.told.append(("receive", now))

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        self.told.append(("step", now))
        self.gradients.append(gradient.copy())
        self.samples += samples
        if len(self.gradients) % self.local_steps:
            return None
        total = sum(self.gradients, np.zeros(2, np.float32))
        self.gradients, samples, self.samples = [], self.samples, 0
        return Update(Dense(total), self.version, samples)


def worker(
    half: WorkerHalf | None = None,
    *,
    shard: int = 6,
    batch_size: int = 2,
    think: Iterator[float] | None = None,
    seed: int = 0,
) -> Worker:
    return Worker(
        half=half or EveryNth(),
        shard=np.arange(100, 100 + shard),
        batch_size=batch_size,
        think=(lambda: next(think)) if think else (lambda: 0.0),
        rng=np.random.default_rng(seed),
    )


def reply(version: int = 0, orders: Orders | None = None) -> Reply:
    return Reply(Dense(np.full(2, version, np.float32)), version, orders or Orders())


def ended(loop: Loop, outcome: Arrived) -> bool:
    try:
        loop.send(outcome)
    except StopIteration:
        return True
    return False


def batches(subject: Worker, count: int) -> list[list[int]]:
    """The samples of the first mini-batches of a worker that pushes after every step."""
    loop = subject.loop()
    next(loop)
    taken = []
    for version in range(count):
        step = loop.send(Arrived(0.0, reply(version)))
        assert isinstance(step, Step)
        taken.append(step.samples.tolist())
        loop.send(Computed(0.0, GRADIENT))
    return taken


def test_pull_step_think_push_and_again_until_there_is_no_reply() -> None:
    half = EveryNth()
    loop = worker(half, think=iter([0.25, 0.0, 0.5])).loop()
    assert next(loop) == Pull()
    assert isinstance(loop.send(Arrived(1.0, reply(7))), Step)
    assert half.parameters.tolist() == [7, 7]
    assert loop.send(Computed(1.5, GRADIENT)) == Think(0.25)
    push = loop.send(Passed(1.75))
    assert isinstance(push, Push)
    assert (push.sequence, push.update.version, push.update.samples) == (1, 7, 2)
    assert isinstance(loop.send(Arrived(2.0, reply(9))), Step)
    push = loop.send(Computed(2.5, GRADIENT))  # a wait of nothing is not asked for
    assert isinstance(push, Push)
    assert (push.sequence, push.update.version) == (2, 9)
    assert half.told == [("receive", 1.0), ("step", 1.5), ("receive", 2.0), ("step", 2.5)]
    assert ended(loop, Arrived(3.0, None))


def test_an_end_before_the_beginning() -> None:
    loop = worker().loop()
    next(loop)
    assert ended(loop, Arrived(0.0, None))


def test_it_trains_locally_until_there_is_an_update_and_thinks_once() -> None:
    thoughts = iter([1.0])
    loop = worker(EveryNth(local_steps=3), think=thoughts).loop()
    next(loop)
    action = loop.send(Arrived(0.0, reply()))
    steps = 0
    while isinstance(action, Step):
        steps += 1
        action = loop.send(Computed(float(steps), GRADIENT))
    assert steps == 3
    assert action == Think(1.0)
    push = loop.send(Passed(4.0))
    assert isinstance(push, Push)
    assert push.update.samples == 6
    assert push.update.payload.values.tolist() == [3, 3]


def test_an_outcome_of_another_kind_is_the_drivers_mistake() -> None:
    loop = worker().loop()
    next(loop)
    with pytest.raises(TypeError, match="Pull was sent Passed, expected Arrived"):
        loop.send(Passed(0.0))


def test_an_epoch_takes_every_sample_once_and_the_next_in_another_order() -> None:
    taken = batches(worker(shard=6, batch_size=2), 9)
    epochs = [list(chain(*taken[start : start + 3])) for start in (0, 3, 6)]
    assert all(sorted(epoch) == [100, 101, 102, 103, 104, 105] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_rest_of_an_epoch_begins_the_next_batch() -> None:
    taken = list(chain(*batches(worker(shard=5, batch_size=2), 5)))
    assert sorted(taken[:5]) == sorted(taken[5:]) == [100, 101, 102, 103, 104]


def test_a_shard_smaller_than_a_batch_is_gone_through_again() -> None:
    (batch,) = batches(worker(shard=3, batch_size=8), 1)
    assert len(batch) == 8
    assert sorted(batch[:3]) == sorted(batch[3:6]) == [100, 101, 102]
    assert len(set(batch[6:])) == 2


def test_an_empty_shard_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        worker(shard=0)


def test_the_order_repeats_from_its_stream_and_leaves_the_shard_alone() -> None:
    subject = worker(shard=20, seed=4)
    assert batches(subject, 12) == batches(worker(shard=20, seed=4), 12)
    assert batches(worker(shard=20, seed=5), 12) != batches(worker(shard=20, seed=4), 12)
    assert subject.shard.tolist() == list(range(100, 120))


def test_orders_change_the_batch_size_with_the_reply_that_brings_them() -> None:
    loop = worker(shard=6, batch_size=2).loop()
    next(loop)

    def sizes(orders: Orders) -> int:
        step = loop.send(Arrived(0.0, reply(orders=orders)))
        assert isinstance(step, Step)
        loop.send(Computed(0.0, GRADIENT))
        return len(step.samples)

    assert sizes(Orders(batch_size=4)) == 4
    assert sizes(Orders(batch_size=1)) == 1
    assert sizes(Orders()) == 2  # the scenario's again


def test_orders_that_come_between_replies_take_effect_at_the_next_step() -> None:
    subject = worker(EveryNth(local_steps=3), shard=12, batch_size=2)
    loop = subject.loop()
    next(loop)
    seen: list[Samples] = []
    action = loop.send(Arrived(0.0, reply()))
    while isinstance(action, Step):
        seen.append(action.samples)
        subject.orders = Orders(batch_size=5)
        action = loop.send(Computed(0.0, GRADIENT))
    assert [len(samples) for samples in seen] == [2, 5, 5]
    assert sorted(np.concatenate(seen).tolist()) == list(range(100, 112))  # still one epoch
