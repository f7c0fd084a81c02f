"""The engine on small made-up worlds: times, barriers, stalls, votes and requested losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, ClassVar, Literal

import pytest

from testbed.algorithms import AdaComp, Adsp, Asgd, Bsp, FedBuff, Tap
from testbed.algorithms.base import (
    AlgorithmConfig,
    Applied,
    Halves,
    Measured,
    Reply,
    Samples,
    ServerHalf,
    Update,
    WorkerHalf,
)
from testbed.algorithms.frame.stop import StopRule
from testbed.errors import AlgorithmError, HostError
from testbed.payloads import Dense, Sparse, Vector
from testbed.payloads.layout import Layout
from testbed.simulation.engine import Engine
from testbed.telemetry.entry import Entry
from testbed.telemetry.ps_events import Evaluated
from testbed.telemetry.rows import Rows
from testbed.telemetry.sink import Sink
from testbed.values.units import Duration

LAYOUT = Layout(("weight", "bias"), ((5, 3), (3,)))
LATENCY = 0.01
CONFIGS = (Asgd(name="asgd"), AdaComp(name="adacomp", ratio=0.2))
World = Callable[..., Any]


def test_the_times_of_one_worker_by_hand(world: World) -> None:
    """A reply takes 0.01, a step 1, waits are 0.5 and 0 in turn, a push takes 0.01.

    0.01 reply, 1.01 computed, 1.51 waited, 1.52 pushed, 1.53 reply, 2.53 computed, 2.54 pushed ...
    """
    waits = cycle([0.5, 0.0])
    _, book = world(
        *(Asgd(name="asgd"), StopRule(updates=4)),
        step_seconds=[1.0],
        think=lambda worker: lambda: next(waits),
    )
    assert book.column("time_seconds") == pytest.approx([1.52, 2.54, 4.06, 5.08])
    assert book.evaluations == [(0.0, 0), (pytest.approx(5.08), 4)]


class Record(Sink):
    """The versions of updates and evaluations, in the order of their arrival."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def event(self, entry: Entry) -> None:
        if isinstance(entry.event, Evaluated):
            self.seen.append(("evaluated", entry.event.version))

    def updates(self, rows: Rows, *, now: float) -> None:
        self.seen.extend(("update", int(row["version_applied"])) for row in rows)


def test_updates_are_recorded_when_they_are_applied(world: World) -> None:
    """One worker pushes at 1.02, 2.04, ...: at 3.5, progress shows three updates."""
    record, shown = Record(), list[tuple[str, int]]()

    def planned(engine: Engine) -> None:
        engine.recorder.add(record)
        engine.events.at(3.5, lambda now: shown.extend(record.seen))

    world(
        *(Asgd(name="asgd"), StopRule(updates=7)),
        step_seconds=[1.0],
        think=lambda worker: lambda: 0.0,
        planned=planned,
    )
    assert shown == [("evaluated", 0), ("update", 0), ("update", 1), ("update", 2)]


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, HostError("full")], ids=["interrupt", "failure"]
)
def test_an_interrupted_simulation_records_all_updates(
    world: World, error: type[BaseException] | BaseException
) -> None:
    """One worker pushes at 1.02, 2.04, ... and is interrupted at 3.5, after three updates."""
    record = Record()

    def interrupt(now: float) -> None:
        raise error

    def planned(engine: Engine) -> None:
        engine.recorder.add(record)
        engine.events.at(3.5, interrupt)

    with pytest.raises((KeyboardInterrupt, HostError)):
        world(
            *(Asgd(name="asgd"), StopRule(updates=7)),
            step_seconds=[1.0],
            think=lambda worker: lambda: 0.0,
            planned=planned,
        )
    assert record.seen == [("evaluated", 0), ("update", 0), ("update", 1), ("update", 2)]


def test_updates_are_recorded_before_the_evaluation_of_their_model(world: World) -> None:
    """One worker pushes at 1.02, 2.04, ...; an evaluation is due every 10 s."""
    record = Record()
    world(
        *(Asgd(name="asgd"), StopRule(updates=12)),
        step_seconds=[1.0],
        think=lambda worker: lambda: 0.0,
        planned=lambda engine: engine.recorder.add(record),
    )
    assert record.seen.index(("evaluated", 9)) == 10
    updates = [version for kind, version in record.seen if kind == "update"]
    assert updates == list(range(12))
    assert record.seen[-1] == ("evaluated", 12)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_staleness_is_the_number_of_updates_since_the_pull(
    world: World, config: AlgorithmConfig
) -> None:
    engine, book = world(config, StopRule(updates=60), step_seconds=[0.1, 0.4, 1.0, 4.0])
    assert engine.server.version == 60
    assert book.column("version_applied") == list(range(60))
    pulled = dict.fromkeys(range(4), 0)
    for row in book.rows:
        assert row["staleness"] == row["version_applied"] - pulled[row["worker"]]
        assert row["sigma_max"] <= row["staleness"]
        pulled[row["worker"]] = row["version_applied"] + 1
    for worker in range(4):
        numbers = [row["sequence"] for row in book.rows if row["worker"] == worker]
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("config", [*CONFIGS, Bsp(name="bsp")], ids=lambda config: config.name)
def test_a_run_is_reproducible_bit_by_bit(world: World, config: AlgorithmConfig) -> None:
    (one, first), (other, second) = (
        world(config, StopRule(updates=100), processes=count) for count in (1, 2)
    )
    assert [row.tobytes() for row in first.rows] == [row.tobytes() for row in second.rows]
    assert one.server.half.parameters.tobytes() == other.server.half.parameters.tobytes()


def silencing(worker: int, at: float) -> Callable[[Engine], None]:
    def plan(engine: Engine) -> None:
        engine.events.at(at, lambda now: engine.silence(worker))

    return plan


UNBLOCKED = (
    *CONFIGS,
    Tap(name="tap"),
    Adsp(name="adsp", check_period=Duration(4), epoch=Duration(20)),
    FedBuff(name="fedbuff", local_steps=2, buffer_size=3),
)


@pytest.mark.parametrize("config", UNBLOCKED, ids=lambda config: config.name)
def test_a_silent_worker_does_not_stall_without_a_barrier(
    world: World, config: AlgorithmConfig
) -> None:
    engine, book = world(config, StopRule(updates=30), planned=silencing(1, 3.0))
    assert engine.server.version == 30
    times = [row["time_seconds"] for row in book.rows if row["worker"] == 1]
    assert max(times, default=0.0) <= 3.0 + LATENCY


def test_a_barrier_releases_all_at_once_with_the_same_model(world: World) -> None:
    """A round is as long as its slowest: 0.01 down, 3 seconds, 0.01 up."""
    _, book = world(
        *(Bsp(name="bsp"), StopRule(updates=9)),
        step_seconds=[0.1, 1.0, 3.0],
        think=lambda worker: lambda: 0.0,
    )
    assert book.column("time_seconds") == pytest.approx([3.02] * 3 + [6.04] * 3 + [9.06] * 3)
    assert book.column("worker") == [0, 1, 2] * 3
    assert book.column("version_pulled") == [0] * 3 + [3] * 3 + [6] * 3
    assert book.column("staleness") == [0] * 9
    # In the second round w0's reply was held back from 0.12 to 3.02, w2's not at all.
    assert book.column("blocked_seconds")[3:6] == pytest.approx([2.9, 2.0, 0.0])


def test_a_barrier_stalls_when_a_worker_falls_silent(world: World) -> None:
    """In the second round w1 is in its step; w0 and w2 push at 4.04 and wait forever."""
    engine, book = world(
        *(Bsp(name="bsp"), StopRule(updates=100)),
        step_seconds=[2.0, 2.0, 2.0],
        think=lambda worker: lambda: 0.0,
        planned=silencing(1, 3.0),
    )
    assert engine.server.finished == "stalled: 2 workers wait for w1"
    assert engine.server.stalled
    assert engine.events.now == pytest.approx(4.04)
    assert book.column("sequence") == [1, 1, 1]


class Voting(AlgorithmConfig):
    """A vote before every step, answered once the round has all votes."""

    name: Literal["voting"] = "voting"

    SENDS_MESSAGES: ClassVar[bool] = True

    def halves(self) -> Halves:
        return Voter, Teller


class Voter(WorkerHalf[Voting]):
    def receive(self, reply: Reply, now: float) -> None:
        if isinstance(reply.model, Dense):
            super().receive(reply, now)

    def on_samples(self, samples: Samples, now: float) -> Update:
        return Update(Sparse.nothing(), self.version, samples=0, steps=0, note={"size": 2.0})

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        return Update(Dense(gradient.copy()), self.version, samples=samples)


class Teller(ServerHalf[Voting]):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.votes: set[int] = set()

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        if not update.steps:
            assert update.note == {"size": 2.0}
            self.votes.add(worker)
            return ()
        self.votes.discard(worker)
        self.version += 1
        return [Applied(worker, self.version - 1)]

    def ready(self, worker: int) -> bool:
        return worker not in self.votes or len(self.votes) == self.workers

    def pull(self, worker: int, now: float) -> Reply:
        if worker in self.votes:
            return Reply(Sparse.nothing(), self.version, note={"votes": len(self.votes)})
        return super().pull(worker, now)


def test_a_vote_before_a_step_belongs_to_its_update(world: World) -> None:
    """0.01 model, 0.02 both votes at the PS, 0.03 answers, 1.03 and 2.03 computed, 0.01 up."""
    waits = {0: 0.0, 1: 0.0}
    _, book = world(
        *(Voting(), StopRule(updates=2)),
        step_seconds=[1.0, 2.0],
        think=lambda worker: lambda: waits[worker],
    )
    assert book.column("time_seconds") == pytest.approx([1.04, 2.04])
    assert book.column("messages") == [1, 1]
    assert book.column("sequence") == [2, 2]  # the vote was the first
    size = 4 * LAYOUT.size
    assert book.column("payload_up_bytes") == [size, size]
    assert book.column("payload_down_bytes") == [size, size]
    assert book.column("compute_seconds") == [1.0, 2.0]


class Careful(AlgorithmConfig):
    """Holds the replies of every third push until the loss at that time is known."""

    name: Literal["careful"] = "careful"

    def halves(self) -> Halves:
        return Plain, Auditor


class Plain(WorkerHalf[Careful]):
    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        return Update(Dense(gradient.copy()), self.version, samples=samples)


class Auditor(ServerHalf[Careful]):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.wanted: int | None = None
        self.losses: list[tuple[float, int]] = []

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        self.version += 1
        if self.version % 3 == 0:
            self.wanted = self.version
        return [Applied(worker, self.version - 1)]

    def ready(self, worker: int) -> bool:
        return self.wanted is None

    def wants_loss(self) -> bool:
        return self.wanted is not None

    def measured(self, measured: Measured) -> None:
        if measured.version == self.wanted:
            self.losses.append((measured.time, measured.version))
            self.wanted = None


def test_a_requested_loss_is_current_and_costs_no_time(world: World) -> None:
    """One worker pushes at 1.02, 2.04, ...; the third and the sixth push ask for a loss."""
    engine, book = world(
        *(Careful(), StopRule(updates=7)),
        step_seconds=[1.0],
        think=lambda worker: lambda: 0.0,
    )
    assert isinstance(engine.server.half, Auditor)
    expected = [(pytest.approx(3.06), 3), (pytest.approx(6.12), 6)]
    assert engine.server.half.losses == expected
    assert book.column("blocked_seconds") == [0.0] * 7
    assert book.evaluations == [(0.0, 0), *expected, (pytest.approx(7.14), 7)]


class Unannounced(Voting):
    """Votes without saying so in its config."""

    SENDS_MESSAGES: ClassVar[bool] = False


@pytest.mark.parametrize("processes", [1, 2])
def test_errors_of_a_worker_half_are_reported_unchanged(world: World, processes: int) -> None:
    with pytest.raises(AlgorithmError, match="the worker side of Unannounced") as caught:
        world(Unannounced(), StopRule(updates=2), processes=processes)
    assert caught.value.hint
