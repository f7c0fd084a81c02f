"""The worker's loop, driven by hand."""

from collections.abc import Iterator
from itertools import chain
from typing import ClassVar

import numpy as np
import pytest

from testbed.algorithms import Bsp
from testbed.algorithms.base import Orders, Reply, Samples, Stream, Update, WorkerHalf
from testbed.algorithms.frame.actions import (
    Arrived,
    Computed,
    Loop,
    Passed,
    Pull,
    Push,
    Step,
    Take,
    Taken,
    Think,
)
from testbed.algorithms.frame.effects import StandingOrders
from testbed.algorithms.frame.worker import Shard, Worker
from testbed.errors import AlgorithmError
from testbed.payloads import Dense, Sparse, Vector
from testbed.payloads.layout import Layout

GRADIENT = np.ones(2, np.float32)


class Talkative(Bsp):
    """An algorithm whose workers may send messages."""

    SENDS_MESSAGES: ClassVar[bool] = True


class EveryNth(WorkerHalf[Bsp]):
    """Pushes the sum of ``local_steps`` gradients, and remembers the calls and their times."""

    def __init__(self, local_steps: int = 1) -> None:
        layout, rng = Layout(("weight",), ((2,),)), np.random.default_rng(0)
        super().__init__(Talkative(name="bsp"), layout, 1, rng)
        self.local_steps = local_steps
        self.told: list[tuple[str, float]] = []
        self.gradients: list[Vector] = []
        self.samples = 0

    def receive(self, reply: Reply, now: float) -> Update | None:
        self.told.append(("receive", now))
        return super().receive(reply, now)

    def obey(self, orders: Orders, now: float) -> None:
        super().obey(orders, now)
        self.told.append(("obey", now))

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
        stream=Stream(batch_size),
        source=Shard(np.arange(100, 100 + shard), np.random.default_rng(seed)),
        think=(lambda: next(think)) if think else (lambda: 0.0),
    )


def reply(version: int = 0) -> Reply:
    return Reply(Dense(np.full(2, version, np.float32)), version)


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


def test_pull_step_think_and_push_repeat_until_there_is_no_reply() -> None:
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
    push = loop.send(Computed(2.5, GRADIENT))  # no wait of zero seconds
    assert isinstance(push, Push)
    assert (push.sequence, push.update.version) == (2, 9)
    assert half.told == [("receive", 1.0), ("step", 1.5), ("receive", 2.0), ("step", 2.5)]
    assert ended(loop, Arrived(3.0, None))


def test_an_end_before_the_start() -> None:
    loop = worker().loop()
    next(loop)
    assert ended(loop, Arrived(0.0, None))


def test_a_worker_trains_locally_until_there_is_an_update_and_thinks_once() -> None:
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


def test_an_outcome_of_another_kind_is_an_error_of_the_driver() -> None:
    loop = worker().loop()
    next(loop)
    with pytest.raises(TypeError, match="Pull was sent Passed, expected Arrived"):
        loop.send(Passed(0.0))


def test_an_epoch_takes_every_sample_once_and_epochs_differ_in_order() -> None:
    taken = batches(worker(shard=6, batch_size=2), 9)
    epochs = [list(chain(*taken[start : start + 3])) for start in (0, 3, 6)]
    assert all(sorted(epoch) == [100, 101, 102, 103, 104, 105] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_rest_of_an_epoch_starts_the_next_batch() -> None:
    taken = list(chain(*batches(worker(shard=5, batch_size=2), 5)))
    assert sorted(taken[:5]) == sorted(taken[5:]) == [100, 101, 102, 103, 104]


def test_a_shard_smaller_than_a_batch_is_repeated() -> None:
    (batch,) = batches(worker(shard=3, batch_size=8), 1)
    assert len(batch) == 8
    assert sorted(batch[:3]) == sorted(batch[3:6]) == [100, 101, 102]
    assert len(set(batch[6:])) == 2


def test_a_step_gets_as_many_samples_as_the_model_needs() -> None:
    """It is asked for one of three, and gets two: 1 2, 3 1', 2' 3'."""
    subject = worker(shard=3, batch_size=1)
    subject.stream = Stream(1, least=2)
    taken = batches(subject, 3)
    assert [len(batch) for batch in taken] == [2, 2, 2]
    assert sorted(chain(*taken)) == [100, 100, 101, 101, 102, 102]


def test_an_empty_shard_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        worker(shard=0)


def test_the_order_is_reproducible_and_the_shard_is_unchanged() -> None:
    subject = worker(shard=20, seed=4)
    assert batches(subject, 12) == batches(worker(shard=20, seed=4), 12)
    assert batches(worker(shard=20, seed=5), 12) != batches(worker(shard=20, seed=4), 12)
    assert isinstance(subject.source, Shard)
    assert subject.source.samples.tolist() == list(range(100, 120))


def test_orders_change_the_batch_size_with_their_reply() -> None:
    loop = worker(shard=6, batch_size=2).loop()
    next(loop)

    def size(*standing: StandingOrders) -> int:
        step = loop.send(Arrived(0.0, reply(), *standing))
        assert isinstance(step, Step)
        loop.send(Computed(0.0, GRADIENT))
        return len(step.samples)

    assert size() == 2
    assert size(StandingOrders(1, Orders(batch_size=4))) == 4
    assert size(StandingOrders(1, Orders(batch_size=4))) == 4  # they stay in force
    assert size(StandingOrders(2, Orders(batch_size=1))) == 1
    assert size(StandingOrders(1, Orders(batch_size=4))) == 1  # older than the current orders


def test_orders_between_replies_apply_before_later_actions() -> None:
    """Samples arrive at 1.5, while step two lasts from 1 to 2, and twice; those of 9 come later."""
    half = EveryNth(local_steps=3)
    subject = worker(half, shard=12, batch_size=2)
    loop = subject.loop()
    next(loop)
    sizes = []
    action = loop.send(Arrived(0.0, reply()))
    for end in (1.0, 2.0, 3.0):
        assert isinstance(action, Step)
        sizes.append(len(action.samples))
        if end == 2.0:
            for number, at in ((1, 1.5), (1, 1.5), (2, 9.0)):
                subject.order(StandingOrders(number, Orders(batch_size=5 * number)), at)
        action = loop.send(Computed(end, GRADIENT))
    assert sizes == [2, 2, 5]
    assert half.told == [
        *(("receive", 0.0), ("step", 1.0), ("obey", 1.5), ("step", 2.0), ("step", 3.0))
    ]
    assert isinstance(action, Push)
    action = loop.send(Arrived(9.5, reply(1)))
    assert half.told[5:] == [("obey", 9.0), ("receive", 9.5)]
    assert isinstance(action, Step)
    assert len(action.samples) == 10


class Voter(EveryNth):
    """Sends a vote once it has its samples, and one more message after the first reply to it."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = [True, False]

    def on_samples(self, samples: Samples, now: float) -> Update:
        self.told.append(("taken", now))
        return Update(Sparse.nothing(), self.version, samples=0, steps=0, note={"vote": 1})

    def receive(self, reply: Reply, now: float) -> Update | None:
        super().receive(reply, now)
        if reply.note and self.answers.pop(0):
            return Update(Sparse.nothing(), self.version, samples=0, steps=0, note={"again": 1})
        return None


class Sharing(Bsp):
    """An algorithm whose workers share at most a batch."""

    def most_shared(self, batch_size: int) -> int:
        return batch_size


class Shares(EveryNth):
    """Shares some samples with every update."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.config, self.count = Sharing(name="bsp"), count

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        return Update(Dense(gradient.copy()), self.version, samples, shared=np.arange(self.count))


def test_the_announced_number_of_samples_is_shared() -> None:
    """A batch has two."""
    for count in (2, 3):
        loop = worker(Shares(count)).loop()
        next(loop)
        loop.send(Arrived(0.0, reply()))
        if count == 2:
            assert isinstance(loop.send(Computed(0.0, GRADIENT)), Push)
            continue
        with pytest.raises(
            AlgorithmError, match="shares 3 samples, but its config's most_shared is"
        ):
            loop.send(Computed(0.0, GRADIENT))


def test_a_message_that_was_not_announced_breaks_the_contract() -> None:
    half = Voter()
    half.config = Bsp(name="bsp")
    loop = worker(half).loop()
    next(loop)
    with pytest.raises(AlgorithmError, match=r"the worker side of Bsp .* an update without a step"):
        loop.send(Arrived(1.0, reply()))


def test_three_messages_per_step_with_slow_samples() -> None:
    half = Voter()
    subject = worker(half, batch_size=3, think=iter([0.5]))
    subject.source = None
    loop = subject.loop()
    next(loop)
    assert loop.send(Arrived(1.0, reply())) == Take(3)
    vote = loop.send(Taken(2.0, np.array([7, 8, 9])))
    assert isinstance(vote, Push)
    assert (vote.sequence, vote.update.steps, vote.update.note) == (1, 0, {"vote": 1})
    noted = Reply(Dense(np.zeros(2, np.float32)), 0, note={"votes": 3})
    answer = loop.send(Arrived(2.5, noted))
    assert isinstance(answer, Push)
    assert (answer.sequence, answer.update.note) == (2, {"again": 1})
    step = loop.send(Arrived(3.0, noted))
    assert isinstance(step, Step)
    assert step.samples.tolist() == [7, 8, 9]
    assert loop.send(Computed(4.0, GRADIENT)) == Think(0.5)  # once, before the update itself
    push = loop.send(Passed(4.5))
    assert isinstance(push, Push)
    assert (push.sequence, push.update.steps, push.update.samples) == (3, 1, 3)
    assert [what for what, _ in half.told] == ["receive", "taken", "receive", "receive", "step"]


def test_an_encoding_rounds_before_any_half_sees_the_values() -> None:
    """Float16 stores 0.1 as 1638 / 16384, and has nothing above 65504."""
    subject = worker()
    subject.encoding = "packed16"
    loop = subject.loop()
    next(loop)
    loop.send(Arrived(0.0, reply()))
    push = loop.send(Computed(0.0, np.array([0.1, -1e6], np.float32)))
    assert isinstance(push, Push)
    assert push.update.payload.arrays[0].tolist() == [1638 / 16384, -65504]
    assert push.saturated == 1


def test_a_number_is_drawn_for_every_step() -> None:
    """Batches that are not pushed count too; a restored worker continues with the same batches."""
    draws = np.random.default_rng(7)
    expected = [int(one) for one in np.random.default_rng(7).integers(2**63, size=4)]
    first = worker(EveryNth(2))
    first.draws = draws
    loop, seen = first.loop(), []
    next(loop)
    action = loop.send(Arrived(0.0, Reply(Dense(np.zeros(2, np.float32)), 0)))
    for _ in range(2):
        assert isinstance(action, Step)
        seen.append(action.draw)
        kept = first.state()
        action = loop.send(Computed(0.0, GRADIENT))
    assert isinstance(action, Push)
    second = worker(EveryNth(2))
    second.draws = np.random.default_rng(0)
    second.restore(kept)
    again = next(loop_of_second := second.loop())
    assert isinstance(again, Step)
    assert again.draw == seen[1]
    loop_of_second.send(Computed(0.0, GRADIENT))
    action = loop_of_second.send(Arrived(0.0, Reply(Dense(np.zeros(2, np.float32)), 1)))
    assert isinstance(action, Step)
    assert [*seen, action.draw] == expected[:3]


def test_without_draws_a_step_has_none() -> None:
    loop = worker().loop()
    next(loop)
    action = loop.send(Arrived(0.0, Reply(Dense(np.zeros(2, np.float32)), 0)))
    assert isinstance(action, Step)
    assert action.draw == 0
