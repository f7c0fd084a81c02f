"""A tiny simulated world: real digits, real gradients, modelled seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import Run
from testbed.experiment import Experiment
from testbed.scenario import Override, dump, load_text
from testbed.simulate.agenda import Agenda
from testbed.simulate.run import simulate, virtual_clock
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.record import Recorder
from testbed.telemetry.status import Status

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


class Silent:
    """An observer that remembers what it was told."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def phase(self, text: str) -> None:
        """Nothing to be told."""

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def status(self, status: Status) -> None:
        """Nothing to be told."""


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared digits."""
    dataset = load_text(SCENARIO).dataset
    cache = tmp_path_factory.mktemp("cache")
    return dataset.prepare(cache, environment={}, folder=cache)


@pytest.fixture
def run_simulation(tmp_path: Path, digits: Path) -> Simulate:
    """Simulates the tiny scenario, with some values replaced, and opens the run's folder."""

    def run(name: str, *settings: str, processes: int = 2) -> Run:
        scenario = load_text(SCENARIO, overrides=[Override.parse(text) for text in settings])
        classes = [
            member for member, n in scenario.workers.class_counts().items() for _ in range(n)
        ]
        folder = RunFolder.create(
            tmp_path, name, scenario=scenario.name, text=dump(scenario), classes=classes, now=0.0
        )
        agenda = Agenda()
        clock = virtual_clock(agenda, time_scale=scenario.time_scale)
        with Recorder(folder, time_scale=scenario.time_scale, clock=clock) as recorder:
            simulate(
                Experiment.open(folder.path, data=digits),
                recorder,
                agenda=agenda,
                observer=Silent(),
                processes=processes,
            )
        return Run(folder.path)

    return run
