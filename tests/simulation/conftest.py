"""A tiny simulated world: real digits, real gradients, modelled time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from testbed import Run
from testbed.algorithms.base import AlgorithmConfig, Samples, Stream
from testbed.algorithms.frame.actions import Step
from testbed.algorithms.frame.compute import Gradient, OwnCompute
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.service_queue import ServiceQueue
from testbed.algorithms.frame.stop import Schedule, StopRule
from testbed.algorithms.frame.worker import Shard, Worker
from testbed.datasets.streams import Arrivals, Policy, Steady, Truncation
from testbed.faults import Fault
from testbed.faults.population import Availability
from testbed.faults.timeline import Timeline, crashes
from testbed.models import Evaluation
from testbed.models.clients import ClientSamples
from testbed.payloads import Vector
from testbed.payloads.layout import Layout
from testbed.scenario import Override, dump, load_text
from testbed.scenario.durations import Codec
from testbed.scenario.experiment import Constant, Durations, Experiment
from testbed.scenario.traces import Following
from testbed.simulation import model
from testbed.simulation.channels import forked
from testbed.simulation.checkpoint import restore, state_of
from testbed.simulation.device import DeviceModel
from testbed.simulation.engine import Engine
from testbed.simulation.event_queue import EventQueue
from testbed.simulation.keys import KeyedLinks
from testbed.simulation.learner import Learner
from testbed.simulation.links import Bucket, FairLink
from testbed.simulation.model import Hop
from testbed.simulation.pool import Pool
from testbed.simulation.run import SLACK, simulate, virtual_clock
from testbed.simulation.streams import SimulatedStream
from testbed.simulation.worker import SimulatedWorker
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import FaultApplied
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.ps_events import ClientsEvaluated, Evaluated, KeysMissed
from testbed.telemetry.record import Recorder
from testbed.telemetry.rows import Rows
from testbed.telemetry.sink import Sink
from testbed.values.laws import Law
from testbed.values.state import PlainState

SCENARIO = """
name: tiny
seed: 3
runtime: simulated
algorithm: {adacomp: {ratio: 0.05}}
model: {mlp: {hidden: [16]}}
dataset: digits
ps: {link: {down: {rate: 10mbit}}}
workers:
  count: 5
  think: {law: "uniform(0.5,1.5)", mean: 100ms}
  classes:
    fast: {share: 0.6, speed: 10ms, link: {up: {rate: 1mbit, delay: 20ms, jitter: 5ms}}}
    slow: {share: 0.4, speed: 50ms, link: {up: {rate: 200kbit, delay: 50ms, loss: 0.02}}}
stop: {updates: 120}
evaluate: {every: 40, images: 100}
"""

Simulate = Callable[..., Run]


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared digits."""
    dataset = load_text(SCENARIO).dataset
    cache = tmp_path_factory.mktemp("cache")
    return dataset.prepare(cache, environment={}, folder=cache)


@pytest.fixture
def run_simulation(tmp_path: Path, digits: Path) -> Simulate:
    """Simulates the tiny scenario, with some values replaced, and opens the run's folder."""

    def run(
        name: str,
        *settings: str,
        processes: int = 1,
        text: str = SCENARIO,
        files: Mapping[str, str] | None = None,
    ) -> Run:
        scenario = load_text(text, overrides=[Override.parse(text) for text in settings])
        classes = [
            member for member, n in scenario.workers.class_counts().items() for _ in range(n)
        ]
        folder = RunFolder.create(
            tmp_path, name, scenario=scenario.name, text=dump(scenario), classes=classes, now=0.0
        )
        for file, content in (files or {}).items():
            folder.custom.mkdir(exist_ok=True)
            (folder.custom / file).write_text(content)
        events = EventQueue()
        clock = virtual_clock(events, time_scale=scenario.time_scale)
        with Recorder.into(
            folder,
            time_scale=scenario.time_scale,
            clock=clock,
        ) as recorder:
            simulate(
                Experiment.open(folder.path, data=digits),
                recorder,
                events=events,
                folder=folder.path,
                processes=processes,
            )
        return Run(folder.path)

    return run


Played = Callable[..., tuple[Engine, "Book"]]

LAYOUT = Layout(("weight", "bias"), ((5, 3), (3,)))
LATENCY = 0.01
TRUNCATION = Truncation(name="truncation")


class MadeUp(Learner):
    """Gradients and losses that depend on the model and on the data, without a network."""

    def __init__(self) -> None:
        """No model to bind, so one gradient at a time."""
        none: Any = None
        self.compute = OwnCompute(none, none, none)

    def gradient(self, step: Step, at: Vector) -> Gradient:
        rng = np.random.default_rng([*step.samples.tolist(), step.draw])
        noise = rng.standard_normal(at.size).astype(np.float32)
        gradient = (at * np.float32(0.2) + noise).astype(np.float32)
        return Gradient(float(np.square(noise).mean()), gradient)

    def accuracy(self, at: Vector, samples: ClientSamples, draw: int) -> float:
        return float(np.random.default_rng([abs(int(1e6 * at[0])), draw]).random())

    def evaluate(self, at: Vector, images: Samples | None) -> Evaluation:
        return Evaluation(float(np.square(at).sum()), {"top1": 0.0}, 1)


class Book(Sink):
    """The records of a simulation."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.evaluations: list[tuple[float, int]] = []
        self.faults: list[FaultApplied] = []
        self.missed: list[KeysMissed] = []
        self.clients: list[ClientsEvaluated] = []

    def event(self, entry: Entry) -> None:
        if isinstance(entry.event, Evaluated):
            self.evaluations.append((entry.event.time_seconds, entry.event.version))
        if isinstance(entry.event, FaultApplied):
            self.faults.append(entry.event)
        if isinstance(entry.event, KeysMissed):
            self.missed.append(entry.event)
        if isinstance(entry.event, ClientsEvaluated):
            self.clients.append(entry.event)

    def updates(self, rows: Rows, *, now: float) -> None:
        self.rows.extend(rows)

    def column(self, name: str) -> list[Any]:
        return [row[name].item() for row in self.rows]


def thinking(worker: int) -> Callable[[], float]:
    return Durations(Law("uniform", 0.5, 1.5), 1.0, np.random.default_rng(100 + worker))


def steps(seconds: float) -> Constant:
    return Constant(seconds)


def links() -> tuple[model.Path, model.Path]:
    """Up and down, unshaped: the worker's own links, and the PS's."""
    own, server = Hop(LATENCY, 0.0, "normal"), Hop(0.0, 0.0, "normal")
    return (
        model.Path(Bucket(inf, 0), (own, server), 0.0, 2 * LATENCY),
        model.Path(Bucket(inf, 0), (server, own), 0.0, 2 * LATENCY),
    )


def play(
    config: AlgorithmConfig,
    stop: StopRule,
    *,
    step_seconds: Sequence[float] = (1.0, 1.0, 1.0),
    think: Callable[[int], Callable[[], float]] = thinking,
    processes: int = 1,
    planned: Callable[[Engine], None] = lambda engine: None,
    faults: Sequence[dict[str, Any]] = (),
    followings: Sequence[Following] = (),
    availabilities: Sequence[Availability] = (),
    save: Callable[[Engine], None] | None = None,
    state: PlainState | None = None,
    rates: Sequence[float] | None = None,
    policy: Policy = TRUNCATION,
    codec: dict[str, Any] | None = None,
    evaluation: float | None = None,
) -> tuple[Engine, Book]:
    """Every message takes LATENCY, an evaluation no time, and the model starts with random values.

    With ``rates`` samples come as streams, which are no longer awaited after 2 s without any.
    With ``evaluation`` workers evaluate each model, which takes this many seconds.
    With ``save`` its state is saved after every update; with ``state`` it resumes from there.
    """
    count, events, book = len(step_seconds), EventQueue(), Book()
    parameters = np.random.default_rng(0).standard_normal(LAYOUT.size).astype(np.float32)

    def build(number: int, _: Vector) -> tuple[Mapping[int, SimulatedWorker], Learner]:
        made = {}
        for index in range(number, count, processes):
            remake = partial(one, index)
            worker, stream = remake(), None
            if rates is not None:
                assert worker.source is not None
                arrivals = Arrivals(rates[index], Steady(name="steady"))
                stream = SimulatedStream(arrivals, policy.buffer(), worker.source, 2, 2.0)
            drawn = steps(step_seconds[index])
            made[index] = SimulatedWorker(index, worker, drawn, remake, stream, client=client)
        return made, MadeUp()

    def one(index: int, *, process: int = 0) -> Worker:
        order, algorithm, draws = (
            np.random.default_rng([use + index, process] if process else use + index)
            for use in (20, 10, 30)
        )
        shard = Shard(np.arange(20 * index, 20 * index + 20), order)
        half = config.worker(LAYOUT, count, rng=algorithm)
        evaluates = client is not None
        return Worker(half, Stream(2), shard, think=lambda: 0.0, draws=draws, evaluates=evaluates)

    nothing = np.zeros(0)
    client = (
        None
        if evaluation is None
        else ClientSamples(nothing, nothing, nothing.astype(int), seconds=evaluation)
    )
    plans = TypeAdapter(tuple[Fault, ...]).validate_python(faults)
    timeline = Timeline.of(plans, ["all"] * count, seed=0, availabilities=availabilities)

    size = 2 * LAYOUT.size + SLACK  # so that keyed payloads fit too
    start = forked(build, workers=count)
    with Pool(start, workers=count, size=size, processes=processes) as pool:
        engine = Engine(
            server=Server(
                config.server(LAYOUT, count, parameters=parameters, rng=np.random.default_rng(1)),
                stop,
                crashes=crashes(timeline, seed=0),
                to_come=timeline.to_come,
                returning=timeline.returning,
            ),
            workers=pool,
            devices=[
                DeviceModel(
                    *(step_seconds[index], *links()),
                    draw_think=think(index),
                    rng=np.random.default_rng(0),
                    keys=KeyedLinks() if config.SENDS_KEYS else None,
                )
                for index in range(count)
            ],
            events=events,
            uplink=FairLink(events, inf),
            downlink=FairLink(events, inf),
            queue=ServiceQueue(0.0),
            schedule=Schedule(updates=None, seconds=10.0),
            images=np.arange(1),
            recorder=Recorder([book], time_scale=1.0, clock=virtual_clock(events)),
            timeline=timeline,
            followings=followings,
            codec=Codec.model_validate(codec or {}),
            checkpoints=Schedule(updates=1, seconds=None) if save else None,
            save=save or (lambda engine: None),
        )
        planned(engine)
        if state is None:
            engine.begin()
        else:
            restore(engine, state)
        engine.continue_run()
    return engine, book


@pytest.fixture
def world() -> Callable[..., tuple[Engine, Book]]:
    """Runs a small made-up world to its end with ``play``."""
    return play


def check_resumed(
    play: Played, states: slice | None = None, *, again: Played | None = None
) -> list[tuple[Engine, Book]]:
    """Play to the end, and again from saved states: model, end and rows are the same.

    Args:
        play: plays; has ``save`` and ``state`` of ``world``.
        states: which of the states after each update; by default three or more, from the first.
        again: plays from a state, if not as ``play``.

    Returns:
        The whole run, and those from a state.
    """
    saved: list[tuple[int, PlainState]] = []

    def save(engine: Engine) -> None:
        state = state_of(engine)
        read = PlainState(json.loads(json.dumps(state.tree)), state.arrays)  # as from a file
        saved.append((engine.server.version, read))

    whole, book = play(save=save)
    chosen = saved[:: max(1, len(saved) // 3)] if states is None else saved[states]
    assert chosen, f"no state was saved of {states}"
    played = [(whole, book)]
    for version, state in chosen:
        engine, rest = (again or play)(state=state)
        assert engine.server.half.parameters.tobytes() == whole.server.half.parameters.tobytes()
        assert engine.events.now == whole.events.now
        there = [row.tobytes() for row in book.rows[version:]]
        assert [row.tobytes() for row in rest.rows] == there
        assert rest.clients == book.clients[len(book.clients) - len(rest.clients) :]
        played.append((engine, rest))
    return played


@pytest.fixture
def resumed() -> Callable[..., list[tuple[Engine, Book]]]:
    """Checks that a run resumed from any state is the same, with ``check_resumed``."""
    return check_resumed
