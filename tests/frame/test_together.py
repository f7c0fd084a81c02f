"""Server and workers together, on a virtual clock, with and without a barrier."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, cycle

import numpy as np
import pytest

from testbed.algorithms import AdaComp, Asgd
from testbed.algorithms.base import (
    AlgorithmConfig,
    Applied,
    Orders,
    Reply,
    ServerHalf,
    Update,
)
from testbed.compress.layout import Layout
from testbed.compress.payload import Dense, Vector
from testbed.errors import RejectedError
from testbed.frame.server import Release, Server, StopRule
from testbed.frame.worker import (
    Action,
    Arrived,
    Computed,
    Loop,
    Outcome,
    Passed,
    Pull,
    Push,
    Samples,
    Step,
    Think,
    Worker,
)

LAYOUT = Layout(("weight", "bias"), ((5, 3), (3,)))
LATENCY = 0.01
CONFIGS = (Asgd(name="asgd"), AdaComp(name="adacomp", ratio=0.2))


class Barrier(ServerHalf):
    """Bulk-synchronous SGD: the mean of a round's gradients is applied once all members pushed."""

    def __init__(self) -> None:
        self.parameters = np.zeros(LAYOUT.size, np.float32)
        self.version = 0
        self.members: set[int] = set()
        self.pushed: dict[int, Vector] = {}

    def push(self, worker: int, update: Update, now: float) -> Applied:
        self.pushed[worker] = update.payload.values.copy()
        self.version += 1
        self._complete()
        return Applied(self.version - 1, self.version - 1 - update.version, 0.0, 0, 1.0)

    def ready(self, worker: int) -> bool:
        return worker not in self.pushed

    def pull(self, worker: int, now: float) -> Reply:
        return Reply(Dense(self.parameters), self.version)

    def join(self, worker: int) -> None:
        self.members.add(worker)

    def leave(self, worker: int) -> None:
        self.members.discard(worker)
        self.pushed.pop(worker, None)
        self._complete()

    def tick(self, now: float, loss: float | None) -> Mapping[int, Orders]:
        return dict.fromkeys(self.members, Orders(batch_size=3)) if loss is not None else {}

    def _complete(self) -> None:
        if self.pushed and self.pushed.keys() >= self.members:
            mean = np.mean(list(self.pushed.values()), axis=0, dtype=np.float32)
            self.parameters -= np.float32(0.1) * mean
            self.pushed.clear()


@dataclass
class Emulation:
    """Drives a server and its workers; events of one moment happen in the order they were made.

    Attributes:
        server: the server.
        workers: the workers, by index.
        step_seconds: how long a step of each takes.
        silent: workers that fall silent instead of making the push of this number.
        pushes: (moment, worker, sequence, what applying it did) of every push that arrived.
        released: (worker, version) of the replies that went out together; version None at the end.
        ended: workers whose loop has ended.
    """

    server: Server
    workers: Sequence[Worker]
    step_seconds: Sequence[float]
    silent: Mapping[int, int] = field(default_factory=dict)
    pushes: list[tuple[float, int, int, Applied | None]] = field(default_factory=list)
    released: list[list[tuple[int, int | None]]] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.loops: list[Loop] = [worker.loop() for worker in self.workers]
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.tickets: Iterator[int] = count()
        for worker, loop in enumerate(self.loops):
            self.server.join(worker)
            self.do(worker, next(loop))

    def run(self) -> None:
        """Go on until nothing is under way any more."""
        while self.events:
            self.now, _, event = heapq.heappop(self.events)
            event()

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.tickets), event))

    def do(self, worker: int, action: Action) -> None:
        match action:
            case Pull():
                self.after(LATENCY, lambda: self.answer(self.server.pull(worker, self.now)))
            case Step(samples):
                gradient = made_up_gradient(self.workers[worker].half.parameters, samples)
                seconds = self.step_seconds[worker]
                self.after(seconds, lambda: self.resume(worker, Computed(self.now, gradient)))
            case Think(seconds):
                self.after(seconds, lambda: self.resume(worker, Passed(self.now)))
            case Push() if self.silent.get(worker) != action.sequence:
                self.after(LATENCY, lambda: self.push(worker, action))

    def push(self, worker: int, action: Push) -> None:
        applied, releases = self.server.push(
            worker, action.sequence, update=action.update, now=self.now
        )
        self.pushes.append((self.now, worker, action.sequence, applied))
        self.answer(releases)

    def answer(self, releases: Sequence[Release]) -> None:
        for release in releases:
            self.send(release.worker, copied(release.reply))
        if releases:
            self.released.append(
                [(r.worker, None if r.reply is None else r.reply.version) for r in releases]
            )

    def send(self, worker: int, reply: Reply | None) -> None:
        self.after(LATENCY, lambda: self.resume(worker, Arrived(self.now, reply)))

    def resume(self, worker: int, outcome: Outcome) -> None:
        try:
            action = self.loops[worker].send(outcome)
        except StopIteration:
            self.ended.add(worker)
        else:
            self.do(worker, action)


def copied(reply: Reply | None) -> Reply | None:
    """A reply as it is on its way: the server's model goes on changing."""
    return reply and Reply(Dense(reply.model.values.copy()), reply.version, reply.orders)


def made_up_gradient(at: Vector, samples: Samples) -> Vector:
    """A gradient that depends on the model and on the data."""
    noise = np.random.default_rng(samples).standard_normal(at.size).astype(np.float32)
    return (at * np.float32(0.2) + noise).astype(np.float32)


def thinking(worker: int) -> Callable[[], float]:
    rng = np.random.default_rng(100 + worker)
    return lambda: float(rng.uniform(0.5, 1.5))


def emulation(
    half: ServerHalf | AlgorithmConfig,
    stop: StopRule,
    *,
    step_seconds: Sequence[float] = (1.0, 1.0, 1.0),
    think: Callable[[int], Callable[[], float]] = thinking,
    silent: Mapping[int, int] | None = None,
) -> Emulation:
    """Workers of a barrier push whole gradients, as ASGD's do."""
    size = len(step_seconds)
    config = half if isinstance(half, AlgorithmConfig) else Asgd(name="asgd")
    if isinstance(half, AlgorithmConfig):
        parameters = np.random.default_rng(0).standard_normal(LAYOUT.size).astype(np.float32)
        half = half.server(LAYOUT, size, parameters=parameters, rng=np.random.default_rng(1))
    workers = [
        Worker(
            half=config.worker(LAYOUT, size, rng=np.random.default_rng(10 + index)),
            shard=np.arange(20 * index, 20 * index + 20),
            batch_size=2,
            think=think(index),
            rng=np.random.default_rng(20 + index),
        )
        for index in range(size)
    ]
    return Emulation(Server(half, stop), workers, step_seconds, silent or {})


def test_the_moments_of_one_worker_by_hand() -> None:
    """Pull and reply 0.01 each, a step of 1, waits of 0.5 and 0 in turn, a push 0.01.

    0.02 reply, 1.02 computed, 1.52 waited, 1.53 pushed, 1.54 reply, 2.54 computed, 2.55 pushed ...
    """
    waits = cycle([0.5, 0.0])
    alone = emulation(
        Asgd(name="asgd"),
        StopRule(updates=4),
        step_seconds=[1.0],
        think=lambda worker: lambda: next(waits),
    )
    alone.run()
    assert [moment for moment, *_ in alone.pushes] == pytest.approx([1.53, 2.55, 4.07, 5.09])


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_exactly_so_many_updates_and_what_is_in_flight_is_dropped(config: AlgorithmConfig) -> None:
    together = emulation(config, StopRule(updates=20), step_seconds=[0.1, 0.1, 1.0, 2.0])
    together.run()
    outcomes = [applied for *_, applied in together.pushes]
    versions = [applied.version for applied in outcomes if applied is not None]
    assert versions == list(range(20))
    assert outcomes[20:] == [None, None, None]  # the others' pushes were under way
    assert together.server.version == 20
    assert together.ended == {0, 1, 2, 3}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_staleness_is_the_number_of_updates_since_the_pull(config: AlgorithmConfig) -> None:
    together = emulation(config, StopRule(updates=60), step_seconds=[0.1, 0.4, 1.0, 4.0])
    together.run()
    pulled = dict.fromkeys(range(4), 0)
    for _, worker, _, applied in together.pushes[:60]:
        assert applied is not None
        assert applied.staleness == applied.version - pulled[worker]
        assert applied.sigma_max <= applied.staleness
        pulled[worker] = applied.version + 1
    for worker in range(4):
        numbers = [sequence for _, who, sequence, _ in together.pushes if who == worker]
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_a_run_repeats_bit_by_bit(config: AlgorithmConfig) -> None:
    one, other = (emulation(config, StopRule(updates=100)) for _ in range(2))
    one.run()
    other.run()
    assert one.pushes == other.pushes
    assert one.server.half.parameters.tobytes() == other.server.half.parameters.tobytes()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_a_silent_worker_stops_nobody_without_a_barrier(config: AlgorithmConfig) -> None:
    together = emulation(config, StopRule(updates=30), silent={1: 3})
    together.run()
    assert together.server.version == 30
    assert together.ended == {0, 2}


def test_a_barrier_releases_all_at_once_and_with_the_same_model() -> None:
    together = emulation(Barrier(), StopRule(updates=12), step_seconds=[0.1, 1.0, 3.0])
    together.run()
    assert together.released[:3] == [[(0, 0)], [(1, 0)], [(2, 0)]]  # the first pulls
    rounds = [sorted(group) for group in together.released[3:]]
    assert rounds == [[(w, version) for w in range(3)] for version in (3, 6, 9, None)]
    # Replies leave before any further push is applied, so all hold the model of their version.
    finals = {worker.half.parameters.tobytes() for worker in together.workers}
    assert len(finals) == 1


def test_a_barrier_is_released_by_leaving() -> None:
    together = emulation(Barrier(), StopRule(updates=10), silent={1: 2})
    together.run()
    assert together.server.version == 5  # a whole round, and the two that wait for worker 1
    assert together.ended == set()
    together.answer(together.server.leave(1, together.now))
    assert sorted(together.released[-1]) == [(0, 5), (2, 5)]
    together.run()
    assert together.server.finished == "10 updates applied"
    assert together.ended == {0, 2}


def test_who_leaves_while_it_waits_is_not_answered() -> None:
    together = emulation(Barrier(), StopRule(), silent={1: 1})
    together.run()
    assert together.server.leave(0, together.now) == []  # 2 still waits for 1
    _, releases = together.server.push(
        1, 1, update=Update(Dense(np.ones(LAYOUT.size, np.float32)), 0, samples=2), now=9.0
    )
    assert sorted(release.worker for release in releases) == [1, 2]


def test_the_end_comes_to_those_who_wait_at_a_barrier() -> None:
    together = emulation(Barrier(), StopRule(updates=7), step_seconds=[0.1, 1.0, 3.0])
    together.run()
    assert together.server.version == 7  # the first push of the third round
    assert together.ended == {0, 1, 2}
    in_time = emulation(Barrier(), StopRule(time=2.5), step_seconds=[0.1, 0.1, 9.0])
    in_time.run()
    assert in_time.server.version == 2
    assert in_time.ended == {0, 1, 2}


def test_a_tick_ends_the_waiting_at_a_barrier() -> None:
    hung = emulation(Barrier(), StopRule(time=60.0), silent={1: 1})
    hung.run()
    assert hung.ended == set()
    _, releases = hung.server.tick(60.0)
    assert sorted((release.worker, release.reply) for release in releases) == [(0, None), (2, None)]


def test_orders_of_a_tick_go_out_until_the_end() -> None:
    together = emulation(Barrier(), StopRule(accuracy=0.9))
    assert together.server.tick(1.0) == ({}, [])
    orders, _ = together.server.tick(2.0, loss=1.0, accuracy=0.5)
    assert orders == dict.fromkeys(range(3), Orders(batch_size=3))
    for worker, order in orders.items():
        together.workers[worker].orders = order
    orders, _ = together.server.tick(3.0, loss=0.1, accuracy=0.95)
    assert orders == {}


def test_a_worker_that_waits_at_a_barrier_cannot_push_again() -> None:
    """Its repeat goes on waiting; the next number is refused, for it has pulled nothing since."""
    server = Server(Barrier(), StopRule())
    update = Update(Dense(np.ones(LAYOUT.size, np.float32)), 0, samples=2)
    for worker in (0, 1):
        server.join(worker)
        server.pull(worker, 0.0)
    assert server.push(0, 1, update=update, now=0.0)[1] == []
    assert server.push(0, 1, update=update, now=0.0) == (None, [])
    with pytest.raises(RejectedError, match="the worker's last pull brought none"):
        server.push(0, 2, update=update, now=0.0)
    _, releases = server.push(1, 1, update=update, now=0.0)
    assert sorted(release.worker for release in releases) == [0, 1]
    assert server.version == 2
