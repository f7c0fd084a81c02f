"""Exports the metrics of a run while it is active, and until its summary is written."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from testbed.reports.metrics.discovery import Targets
from testbed.reports.metrics.exporter import Exporter
from testbed.reports.metrics.outline import Outline
from testbed.reports.metrics.reading import MetricsSink
from testbed.reports.metrics.scraped import ScrapedSink
from testbed.reports.metrics.workload import WorkloadMetrics
from testbed.run.interrupts import Interrupted, Interrupts
from testbed.run.setup import Setup, TrainingSetup
from testbed.telemetry.record import Recorder
from testbed.telemetry.recovery import read_updates


@dataclass
class Metering:
    """The metrics of one run."""

    exporter: Exporter  # already listens
    targets: Targets  # where Prometheus finds it
    per_worker: bool = False  # whether every worker is exported, whatever their number
    _folder: Path = Path()
    _held: ExitStack = field(default_factory=ExitStack)
    _interrupts: Interrupts | None = None

    @classmethod
    def at(cls, host: str, port: int, *, per_worker: bool) -> Metering:
        """Listen at an address; HostError if it cannot be bound."""
        targets = Targets.of_user(os.environ, Path.home())
        return cls(Exporter(host, port), targets, per_worker)

    def attach(self, setup: Setup, recorder: Recorder, interrupts: Interrupts) -> None:
        """Receive all records of a run from now on; ``interrupts`` end the wait at its end."""
        self._interrupts = interrupts
        sink = self._sink(setup)
        recorder.add(sink)
        self.exporter.show(sink)
        self._folder = setup.folder.path
        setup.folder.show_metrics(self.exporter.url)

    def _sink(self, setup: Setup) -> ScrapedSink:
        if not isinstance(setup, TrainingSetup):
            return WorkloadMetrics(setup.plan)
        outline = Outline.of(setup.scenario, setup.plan, per_worker=self.per_worker)
        return MetricsSink(outline, record=lambda: read_updates(setup.folder))

    def begin(self) -> None:
        """Serve scrapes, and register with Prometheus; not earlier, because the bring-up forks."""
        self.exporter.start()
        self._held.callback(self.exporter.close)
        self._held.enter_context(self.targets.registered(self._folder, self.exporter.target))

    def __enter__(self) -> Metering:
        return self

    def __exit__(self, kind: object, failure: object, trace: object) -> None:
        """Stop once Prometheus has seen the end of the run; at once if the user interrupts it."""
        with self.exporter, self._held, suppress(Interrupted):
            if self._interrupts is not None and not isinstance(failure, Interrupted):
                with self._interrupts.allowed():
                    self.exporter.scrapes.await_last()
